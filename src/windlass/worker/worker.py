"""One worker: the slots of a process, the loop and threads that run jobs, the thread that asks the store."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from windlass.broker.contract import Broker
from windlass.core.units import Fence, JobId, SessionId
from windlass.errors import DescriptorClosed, StoreError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.conclude import Concluder
from windlass.worker.dispatcher import Dispatcher
from windlass.worker.executor import Carries, Executor
from windlass.worker.fetcher import Fetcher, Parts
from windlass.worker.holds import free_waiting_for_process, own_tasks
from windlass.worker.local_leases import LocalLeases
from windlass.worker.notes import Notes
from windlass.worker.options import Group
from windlass.worker.program import Program
from windlass.worker.settler import Settler
from windlass.worker.strikes import Strikes
from windlass.worker.table import Table

_log = logging.getLogger("windlass.worker")

CHECK_EVERY = 1.0
"""Seconds between two looks at what the process lives by, while nothing else happens."""


ROWS_AHEAD = 2_000
"""Jobs beyond its slots that a worker has room for: the most that any store lets it prefetch (`Pacing`)."""


def rows_for(groups: Sequence[Group]) -> int:
    """How many leases a worker may hold: those that run or wait, and as many outcomes on their way."""
    return 2 * (sum(group.slots for group in groups) + ROWS_AHEAD)


class Worker:
    """Runs jobs of a program under one session, until it is drained.

    Tasks run on the loop that `run` is awaited on and on threads. Claiming and settling have a thread and a
    loop of their own, so that a task which blocks its loop stops neither.
    """

    def __init__(
        self,
        program: Program,
        session: SessionId,
        groups: Sequence[Group],
        table: Table,
        pace: Pace,
        *,
        open_broker: Callable[[], Awaitable[Broker]],
        beside: Callable[["Worker", Broker], Coroutine[Any, Any, None]],
        at_end: Callable[[Broker], Awaitable[None]],
        app_name: str = "",
        alone: bool = False,
        apart: bool = True,
        on_cancel: Callable[[], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        check: Callable[[], None] | None = None,
        new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        """`on_failure` is told, on the thread where it happened, what no part of this has expected. `check`
        is called before each exchange and once a second, and does not return if the process must not go on.
        """
        self.session = session
        self.table = table
        self.groups = groups
        self._program = program
        self._pace = pace
        self._open_broker = open_broker
        self._beside = beside
        self._at_end = at_end
        self._alone = alone
        self._apart = apart
        """False: everything on one loop, for a simulator."""
        self._on_cancel = on_cancel
        self._on_failure = on_failure or _leave_it
        self._check = check
        self._new_loop = new_loop
        self._app_name = app_name
        self._told_lost = False
        self._strikes = Strikes()
        self._changed = asyncio.Event()
        self._may_begin = asyncio.Event()
        self._alive_until = 0.0
        self._fetcher: Fetcher | None = None
        self._drain_grace: float | None = None
        self._lock = threading.RLock()  # a signal may come while the one before is being handled
        self.go = asyncio.Event()
        """Set on the fetcher's loop, by `beside`: claim."""
        self.on_lost: Callable[[], None] = _nothing
        self.on_suspects: Callable[[int], None] = _ignore
        self.on_jobs: Callable[[int], None] = _ignore
        """Told after each exchange how many jobs it has run so far."""

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have its leases by now: then it starts nothing."""
        return self._is_lost()

    def _is_lost(self) -> bool:
        if self._told_lost:
            return True
        now = self._pace.now()
        if now > self._alive_until:  # a beat only ever adds to it, so the table is asked when it is needed
            self._alive_until = self.table.alive_until()
        return now > self._alive_until

    @property
    def draining(self) -> bool:
        """Whether it was told to end."""
        return self._drain_grace is not None

    # --- from any thread ------------------------------------------------------------------------------------

    def drain(self, grace: float) -> None:
        """Claim no more, and end when what runs has ended, or the grace."""
        with self._lock:
            self._drain_grace = grace
            if self._fetcher is not None:
                self._fetcher.drain(grace)
                self._fetcher.soon(self.go.set)  # one that never began ends as well

    def cancel(self, job: JobId, fence: Fence) -> None:
        """Stop a job, where it can be stopped."""
        self._executor.cancel(job, fence)

    def lost(self) -> None:
        """Note that the session is over."""
        self._told_lost = True

    def reread(self) -> None:
        """The settings of the namespace have changed; said on the fetcher's loop."""
        self._changed.set()

    async def settled(self, most: float) -> None:
        """Wait until the store has answered all outcomes, for so many seconds at the most."""
        end = self._pace.now() + most
        while len(self._settler) and self._pace.now() < end:
            await self._pace.sleep(0.01)

    # --- running --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run jobs until drained."""
        pace, conclude = self._pace, Concluder(self._pace)
        local_leases = LocalLeases(self.table, [group.slots for group in self.groups])
        self._notes = Notes(nudge=self._nudge)
        self._settler = Settler(local_leases, conclude, nudge=self._nudge)
        self._executor = Executor(
            local_leases,
            self._notes,
            pace,
            ended=self._settler.put,
            is_lost=self._is_lost,
            program=self._program,
            carrier=self._carrier(conclude),
        )
        dispatcher = Dispatcher(
            local_leases,
            self._executor,
            conclude,
            pace,
            app_name=self._app_name,
            with_values=self._program.values is not None,
            on_failure=self._on_failure,
            on_process=self._process_has_begun,
        )
        self._parts = Parts(
            local_leases, dispatcher, self._executor, self._settler, self._notes, self._strikes
        )
        try:
            await (self._run_apart() if self._apart else self._exchange())
        finally:
            self._told_lost = True  # for threads that go on: the table is closed when this is over
            self._notes.close()
            await dispatcher.close()

    def _carrier(self, conclude: Concluder) -> Carries | None:
        values = self._program.values
        if values is None:
            return None
        from windlass.worker.carrying import Carrier  # noqa: PLC0415 - it needs a package that others lack

        return Carrier(values, self.table, conclude, self._pace, struck=self._strikes.hold)

    async def _run_apart(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        failure: list[BaseException] = []

        def serve() -> None:
            try:
                with asyncio.Runner(loop_factory=self._new_loop) as runner:
                    runner.run(self._exchange())
            except BaseException as error:  # noqa: BLE001 - raised again where `run` is awaited
                failure.append(error)
                if _is_unexpected(error):
                    self._on_failure(error)  # the loop that waits for this may not hear of it
            finally:
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=serve, name="windlass-fetcher", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if self._on_cancel is not None and not self.draining:
                self._on_cancel()
            self.drain(0)
            await ended.wait()
            raise
        if failure:
            raise failure[0]

    async def _exchange(self) -> None:
        """On the fetcher's thread."""
        broker = await self._open_broker()
        fetcher = Fetcher(
            broker,
            self.session,
            self.groups,
            self._program.runnable,
            self._pace,
            self._parts,
            poll_floor=self._program.config.poll_floor,
            alone=self._alone,
            is_lost=self._is_lost,
            told_lost=self._lost_by_store,
            told_suspects=self._suspects_wait,
            told_jobs=self.on_jobs,
            check=self._check,
        )
        with self._lock:
            self._fetcher = fetcher
            if self._drain_grace is not None:
                fetcher.drain(self._drain_grace)
                self.go.set()
        beside = asyncio.create_task(self._beside(self, broker))
        checking = asyncio.create_task(self._check_again())
        freeing = asyncio.create_task(self._free_waiting(broker))
        try:
            await _first(self.go.wait(), beside)
            await _first(self._read_strikes(broker), beside)
            obeying = asyncio.create_task(self._obey_strikes(broker, fetcher))
            try:
                await _first(fetcher.run(), beside)
            finally:
                obeying.cancel()
        except Exception as error:
            if _is_unexpected(error):
                self._on_failure(error)  # before anything is closed that may be broken
            raise
        finally:
            checking.cancel()
            freeing.cancel()
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            await self._at_end(broker)

    async def _check_again(self) -> None:
        """Once a second. A loop with a timer also finds out by itself that its selector is gone."""
        while self._check is not None:
            self._check()
            await self._pace.sleep(CHECK_EVERY)

    def _process_has_begun(self) -> None:
        if self._fetcher is not None:
            self._fetcher.soon(self._may_begin.set)

    async def _free_waiting(self, broker: Broker) -> None:
        """Free what waits for a process of its own, whenever one has begun after others could not."""
        while True:
            await self._may_begin.wait()
            self._may_begin.clear()
            try:
                await free_waiting_for_process(broker, own_tasks(self._program))
            except StoreError as error:  # they come back by themselves, within five minutes
                _log.debug("jobs that wait for a process were not freed: %s", error)

    # --- strikes --------------------------------------------------------------------------------------------

    async def _read_strikes(self, broker: Broker) -> list[str]:
        """Before the first claim, and again; one that drains claims nothing, and does not wait for it."""
        backoff = Backoff(self._pace)
        while not self.draining:
            try:
                return await self._strikes.read(broker)
            except StoreError as error:
                backoff.tell("strikes cannot be read (%s); trying until it works", error)
                await self._pace.sleep(backoff.failed())
        return []

    async def _obey_strikes(self, broker: Broker, fetcher: Fetcher) -> None:
        """Beside the fetcher: whenever the settings have changed."""
        lifting: set[asyncio.Task[None]] = set()
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                lifted = await self._read_strikes(broker)
                if self._strikes.by_task:
                    fetcher.hold_struck()
                if lifted:
                    free = asyncio.create_task(self._strikes.free(broker, self._pace, lifted))
                    lifting.add(free)
                    free.add_done_callback(lifting.discard)
        finally:
            for free in lifting:
                free.cancel()

    def _lost_by_store(self) -> None:
        self._told_lost = True
        self.on_lost()

    def _suspects_wait(self, waiting: int) -> None:
        self.on_suspects(waiting)

    def _nudge(self) -> None:
        if self._fetcher is not None:
            self._fetcher.nudge()


async def _first(work: Coroutine[Any, Any, Any], beside: "asyncio.Task[None]") -> None:
    """Wait for the work; what goes wrong beside it ends it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task, beside}, return_when=asyncio.FIRST_COMPLETED)
        if beside.done() and not task.done() and beside.exception() is not None:
            beside.result()
        await task
    finally:
        task.cancel()


def _is_unexpected(error: BaseException) -> bool:
    """Whether it is something else than a store that cannot be asked."""
    return not isinstance(error, StoreError) or isinstance(error, DescriptorClosed)


def _nothing() -> None: ...


def _leave_it(_error: BaseException) -> None:
    """It is raised as well."""


def _ignore(_number: int) -> None: ...
