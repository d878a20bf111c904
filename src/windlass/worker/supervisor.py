"""The supervisor: keeps worker processes running, sends their heartbeats, and sees them die.

It runs no task, so no task can stop its heartbeat. Each child has a session of its own; when a
child dies, its session is ended at once with what had started, and another child takes its place. Everything
it stands on is handed in, so that a simulator can drive it without processes or sleeps.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.outcome import CauseKind
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND, SessionId
from windlass.errors import StoreReplaced
from windlass.observe.measures import CRASHES
from windlass.observe.watch import Watch
from windlass.pace import Pace
from windlass.patience import cancelled, either, finished, insist, until
from windlass.worker.children import Spawner
from windlass.worker.endings import MemoryKills, Orphans, Verdict, end, judge
from windlass.worker.guarding import guarded
from windlass.worker.heart import Heart
from windlass.worker.host import Host
from windlass.worker.janitor import Janitor
from windlass.worker.lookout import Lookout
from windlass.worker.messages import Begin, Failed, Lost, Measured, Ready, Suspects, Tally, ToSupervisor
from windlass.worker.options import Group
from windlass.worker.plan import Plan
from windlass.worker.process_place import ProcessPlace
from windlass.worker.pruning import Pruning
from windlass.worker.supervised_child import KILL_AFTER, SupervisedChild
from windlass.worker.table import Table, table_path
from windlass.worker.worker import rows_for

_log = logging.getLogger("windlass.worker")

LAST_WORDS = 0.1
"""Seconds to read what a dead child has said; longer only if a process of its own holds its socket."""
STORE_PATIENCE = 10.0
"""Seconds that a stopping supervisor gives the store to hear of its sessions' ends."""
SILENCE = 5.0
"""Seconds that a child is given to end when its socket is closed: it cannot be told anything any more."""
NOW = 1.0
"""Seconds that children are given after a second signal."""


class Supervisor:
    """Keeps the children of a plan running until it is told to stop."""

    def __init__(
        self,
        plan: Plan,
        *,
        broker: Broker,
        spawner: Spawner,
        pace: Pace,
        host: Host,
        config: Config,
        pruning: Pruning,
        place: Callable[[SessionId], Path] = table_path,
        once_started: Callable[[], Awaitable[None]] | None = None,
        fire: Callable[[], Awaitable[None]] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
        declare: Callable[[], Awaitable[None]] | None = None,
        watch: Watch | None = None,
        beside: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    ) -> None:
        """Nothing starts before `run`. `once_started` begins when the first child does, and ends with all;
        `fire` is called when a schedule is due, `look` now and then, for alerts, and `declare` when the store
        knows a session no longer. `pruning` takes dead letters whose time is over. `watch` keeps what is
        counted, and what is `beside` runs as long as this.
        """
        self.all_supervised: list[SupervisedChild] = []
        """All children whose processes have not ended."""
        self._plan = plan
        self._broker = broker
        self._spawner = spawner
        self._pace = pace
        self._host = host
        self._config = config
        self._ttl = config.session_ttl / SECOND
        self._place = place
        self._once_started = once_started
        self._declare = declare
        self._watch = watch
        self._beside = beside or {}
        self._started = False
        self._hopeless: str | None = None
        self._replaced: str | None = None
        """How the store was taken away from under this worker, if it was."""
        self._places = [ProcessPlace() for _ in range(plan.processes)]
        self._alone = ProcessPlace()
        self._alone_begun = False
        self._over = asyncio.Event()
        """Asked to stop, or hopeless."""
        self._hurry = asyncio.Event()
        self._enough = asyncio.Event()
        """Nothing more is waited for."""
        self._keepers: set[asyncio.Task[None]] = set()
        self._lives: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._heart = Heart(broker, pace, config, self._beating)
        self._janitor = Janitor(broker, pace, config, pruning=pruning, fire=fire, look=look)
        self._lookout = Lookout(
            pace,
            lambda: self.all_supervised,
            retire=self._retire,
            release=self._release,
            ttl=self._ttl,
            max_memory=plan.max_memory,
        )
        self._memory_kills = MemoryKills(host)

    # --- from the outside -----------------------------------------------------------------------------------

    async def run(self) -> int:
        """Work until told to stop; the exit code."""
        for name, service in (
            ("heart", self._heart.run),
            ("janitor", self._janitor.run),
            ("lookout", self._lookout.run),
            ("memory_kills", self._sample),
            ("search for orphans", self._end_orphans),
            *self._beside.items(),
        ):
            self._begin(self._others, self._guarded(name, service))
        for place in self._places:
            self._begin(self._keepers, self._guarded("place", lambda place=place: self._keep(place)))
        try:
            await self._over.wait()
            await self._wind_up()
        finally:
            await cancelled({*self._keepers, *self._lives, *self._others})
        if self._hopeless is not None:
            _log.error("the worker cannot start: %s", self._hopeless)
            return 1
        if self._replaced is not None:
            return 1
        if self.all_supervised:
            _log.error(
                "stopped, but %d children were killed and have not ended yet", len(self.all_supervised)
            )
        else:
            _log.info("stopped")
        return 0

    def stop(self, grace: float | None = None) -> None:
        """Let all children end within the grace (by default the plan's); called again: now."""
        if self._over.is_set():
            self._hurry.set()
            return
        if grace is not None:
            self._plan = msgspec.structs.replace(self._plan, grace=grace)
        self._over.set()

    def restart(self) -> None:
        """Replace the children one by one."""
        self._begin(self._others, self._restart())

    # --- what probes ask ------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._over.is_set()

    @property
    def hopeless(self) -> str | None:
        """Why no child can work, if none can."""
        reasons = [None if place.at_work else place.hopeless for place in self._places]
        return reasons[0] if all(reasons) else None

    def may_start_jobs(self) -> bool:
        """Whether a child may start jobs now: it claims, and the store has answered a heartbeat lately."""
        now = self._pace.now()
        return any(supervised.may_start_jobs(now) for supervised in self.all_supervised)

    # --- a child's life -------------------------------------------------------------------------------------

    async def _keep(self, place: ProcessPlace) -> None:
        """Keep a child in one of the places."""
        while not self._over.is_set():
            supervised = await self._placed(place, self._plan.groups)
            if supervised is not None:
                await either(supervised.left, self._over)
            self._give_up_if_hopeless()
            pause = place.pause()
            if pause and not self._over.is_set():
                if self._started or place.fails_for_now:
                    _log.warning("a child has failed; the next starts in %.1f s", pause)
                await until(self._pace, self._over, pause)

    async def _placed(
        self, place: ProcessPlace, groups: tuple[Group, ...], *, alone: bool = False
    ) -> SupervisedChild | None:
        """Start a child. None: the machine has no room for it."""
        try:
            supervised = await self._spawn(groups, alone=alone)
        except OSError as error:
            _log.error("a child cannot be started: %s", error)
            place.missed(str(error))
            return None
        place.take(supervised)
        self.all_supervised.append(supervised)
        self._begin(self._lives, self._live(supervised, place))
        self._heart.wake()
        if self._over.is_set():
            supervised.drain(0.0, "the worker stops", self._pace.now())
        return supervised

    async def _spawn(self, groups: tuple[Group, ...], *, alone: bool) -> SupervisedChild:
        session = uuid4().hex
        table = Table.create(self._place(session), rows_for(groups))
        try:
            child = await self._spawner.spawn()
        except BaseException:
            table.remove()
            raise
        return SupervisedChild(
            child,
            table,
            Begin(
                app=self._plan.app,
                session=session,
                groups=groups,
                table=str(table.path),
                alone=alone,
                max_jobs=self._plan.max_jobs,
                measures=self._plan.measures,
            ),
            self._plan.session(groups, self._host, child.pid, ttl=self._config.session_ttl),
            host=self._host,
            born=self._pace.now(),
            counts_for=self._ttl - self._config.beat / SECOND,
            on_lost=self._lost,
            on_going=self._going,
        )

    async def _live(self, supervised: SupervisedChild, place: ProcessPlace) -> None:
        """From its start to its end."""
        silent = asyncio.Event()
        listening = asyncio.ensure_future(self._listen(supervised, silent))
        try:
            code = await supervised.child.ended()
            await until(self._pace, silent, LAST_WORDS)
        finally:
            listening.cancel()
        await self._bury(supervised, place, code)

    async def _bury(self, supervised: SupervisedChild, place: ProcessPlace, code: int) -> None:
        """A child is dead: tell the store, until it answers."""
        verdict = judge(supervised, code, out_of_memory=self._memory_kills.out_of_memory(code))
        supervised.has_died(self._pace.now(), len(verdict.started))
        self.all_supervised.remove(supervised)
        place.leave(supervised, verdict.cause.detail)
        supervised.left.set()
        self._report(supervised, verdict)
        if self._watch is not None and verdict.cause.kind is CauseKind.CRASH:
            self._watch.registry.count(CRASHES)
        try:
            if not supervised.opened:
                await self._heart.settled()  # an opening under way must not reach the store after the end
            await end(self._broker, self._pace, supervised.session, verdict.cause, verdict.started)
        except StoreReplaced as error:
            supervised.table.end_cleanly()  # the next supervisor that reads it charges no job
            supervised.table.close()
            self._give_up(error)
            return
        except BaseException:
            if verdict.cause.kind is CauseKind.STOP:
                supervised.table.end_cleanly()
            supervised.table.close()  # the file stays: the next supervisor of this machine reads it
            raise
        supervised.table.remove()

    async def _listen(self, supervised: SupervisedChild, silent: asyncio.Event) -> None:
        """Hear what a child says."""
        try:
            while (message := await supervised.child.receive()) is not None:
                self._heard(supervised, message)
            silent.set()
            await self._pace.sleep(SILENCE)  # cancelled when it has ended
            if not (supervised.draining or supervised.table.clean):
                supervised.fault = "it closed its socket to its supervisor"
                _log.error("child %d ends: %s", supervised.pid, supervised.fault)
                supervised.kill(supervised.fault)
        except msgspec.DecodeError as error:  # code that was replaced under a running supervisor
            _log.error("child %d says what its supervisor does not understand: %s", supervised.pid, error)
            supervised.kill("its supervisor does not understand it; restart the worker")
        finally:
            silent.set()

    def _heard(self, supervised: SupervisedChild, message: ToSupervisor) -> None:
        match message:
            case Ready():
                supervised.ready = True
                supervised.may_go()
            case Failed(why, passes):
                supervised.cannot_work(why, passes=passes)
            case Suspects():
                self._suspected()
            case Lost():
                supervised.lost()
            case Tally(jobs=jobs):
                if self._plan.max_jobs is not None and jobs >= self._plan.max_jobs:
                    self._retire(supervised, f"replaced after {jobs} jobs")
            case Measured(taken=taken):
                if self._watch is not None:
                    self._watch.registry.add(taken)

    def _going(self) -> None:
        if not self._started:
            self._started = True
            if self._once_started is not None:
                self._begin(self._others, self._guarded("search for held jobs", self._once_started))

    def _lost(self, supervised: SupervisedChild) -> None:
        _log.warning("the store has given up session %s (pid %d)", supervised.session, supervised.pid)
        self._retire(supervised, "its session is lost")
        if self._declare is not None:
            self._begin(self._others, self._guarded("declaring anew", self._declare))

    def _retire(self, supervised: SupervisedChild, why: str, *, margin: float = KILL_AFTER) -> None:
        """Let a child end, and another take its place at once."""
        if not (supervised.draining or supervised.dead):
            _log.info("child %d ends: %s", supervised.pid, why)
            supervised.drain(self._plan.grace, why, self._pace.now(), margin=margin)

    def _beating(self) -> Sequence[SupervisedChild]:
        return [supervised for supervised in self.all_supervised if not supervised.is_lost]

    def _give_up_if_hopeless(self) -> None:
        """At the start only: if no child can work, end and say why."""
        if not self._started and not self._over.is_set() and self.hopeless is not None:
            self._hopeless = self.hopeless
            self._over.set()

    def _report(self, supervised: SupervisedChild, verdict: Verdict) -> None:
        detail = supervised.failed or verdict.cause.detail
        if verdict.cause.kind is not CauseKind.CRASH:
            _log.debug("child %d ended: %s", supervised.pid, detail)
        elif supervised.fails_for_now:
            _log.error("child %d ended: %s", supervised.pid, detail)
        elif supervised.going or self._started or supervised.failed is None:  # else it is said at the end
            charged = (
                f"is charged to {counted(started)}" if (started := len(verdict.started)) else "had no job"
            )
            _log.error("child %d ended: %s; it %s that had started", supervised.pid, detail, charged)

    # --- suspects -------------------------------------------------------------------------------------------

    def _suspected(self) -> None:
        """Suspects wait: one child at a time runs them, each alone."""
        if self._alone.supervised is None and not self._alone_begun and not self._over.is_set():
            self._alone_begun = True
            self._begin(self._keepers, self._run_alone())

    async def _run_alone(self) -> None:
        try:
            if not await until(self._pace, self._over, self._alone.pause()):
                await self._placed(self._alone, self._plan.alone(), alone=True)
        finally:
            self._alone_begun = False

    # --- services -------------------------------------------------------------------------------------------

    def _release(self, items: Sequence[Settlement]) -> None:
        """Give jobs back that were taken from a child."""

        async def settle() -> None:
            with contextlib.suppress(StoreReplaced):  # the heart meets it as well, and ends the worker
                await insist(self._pace, "giving jobs back", lambda: self._broker.settle(items))

        self._begin(self._others, settle())

    async def _end_orphans(self) -> None:
        """At once, and again: a process may be on its way out at the first look."""
        orphans = Orphans(self._broker, self._pace, self._host, place=self._place)
        while True:
            await orphans.end()
            await self._pace.sleep(self._ttl)

    async def _sample(self) -> None:
        while True:
            self._memory_kills.sample()
            await self._pace.sleep(self._config.beat / SECOND)

    async def _guarded(self, name: str, service: Callable[[], Awaitable[None]]) -> None:
        """Keep a service going, whatever happens to it."""
        try:
            await guarded(name, service, self._pace)
        except StoreReplaced as error:
            self._give_up(error)

    def _give_up(self, error: StoreReplaced) -> None:
        """No process of this worker can use the store any more: let all end, charged to no job."""
        if self._replaced is None:
            self._replaced = str(error)
            _log.error("the worker ends: %s", error)
            self._over.set()

    def _begin(self, among: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_complain)

    # --- restart and stop -----------------------------------------------------------------------------------

    async def _restart(self) -> None:
        _log.info("restarting the children one by one")
        for place in self._places:
            before = place.supervised
            if before is not None:
                self._retire(before, "restart")
            while not self._over.is_set() and (place.supervised in (None, before) or not place.at_work):
                await self._pace.sleep(0.1)

    async def _wind_up(self) -> None:
        """Let all children end: within the grace, or when hurried now."""
        if self._hopeless is None:
            running = sum(len(supervised.table.started()) for supervised in self.all_supervised)
            _log.info("stopping: %s running, up to %g s", counted(running), self._plan.grace)
        self._drain_all(self._plan.grace)
        self._begin(self._others, self._hurry_up())
        await finished(self._keepers)  # no more children are started
        ended = asyncio.Event()
        self._begin(self._others, self._wait_for_ends(ended))
        await either(ended, self._enough)
        if not ended.is_set():
            _log.error("the store could not be told of the end of %d sessions", len(self._lives))

    def _drain_all(self, grace: float, *, margin: float = KILL_AFTER) -> None:
        for supervised in list(self.all_supervised):
            supervised.drain(grace, "the worker stops", self._pace.now(), margin=margin)

    async def _hurry_up(self) -> None:
        await self._hurry.wait()
        _log.info("stopping now")
        self._drain_all(0.0, margin=NOW)
        await self._pace.sleep(NOW)
        for supervised in list(self.all_supervised):
            supervised.kill("the worker stops now")
        await self._pace.sleep(NOW)
        self._enough.set()

    async def _wait_for_ends(self, ended: asyncio.Event) -> None:
        """Until every child is dead and its session ended; the store is not waited for without end."""
        lives = set(self._lives)
        while self.all_supervised:
            await self.all_supervised[0].ended.wait()
        self._begin(self._others, self._lose_patience())
        await finished(lives)
        ended.set()

    async def _lose_patience(self) -> None:
        await self._pace.sleep(STORE_PATIENCE)
        self._enough.set()


def _complain(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a part of the supervisor failed", exc_info=error)


def counted(jobs: int) -> str:
    """So many jobs, in words."""
    return "1 job" if jobs == 1 else f"{jobs} jobs"
