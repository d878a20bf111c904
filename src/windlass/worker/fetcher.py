"""The fetcher: a thread of its own that exchanges jobs with the store, one call after the other.

Each turn gives back what waits too long, sends outcomes if that is worth a call (`sending.py`), asks for as
much as there is room for (`asking.py`) in the same call (`exchange.py`), and takes in what came. If there
is nothing to do it rests until the store wakes it, an outcome comes, or a time is reached. Outcomes gather
while a call is under way: the busier the worker, the larger the batches.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from windlass.broker.contract import Broker
from windlass.core.lease import Ask, Asker, Claimed, Lease
from windlass.core.strike import is_strike_key
from windlass.core.units import SECOND, Micros, SessionId
from windlass.errors import DescriptorClosed, StoreError
from windlass.pace import Pace
from windlass.patience import LONGEST_PAUSE, never_answers
from windlass.worker.asking import SOONEST, Asking, AskingGroup
from windlass.worker.conclude import given_back, unknown
from windlass.worker.dispatcher import Dispatcher
from windlass.worker.exchange import Exchange
from windlass.worker.executor import Executor
from windlass.worker.local_leases import Ended, LocalLeases
from windlass.worker.notes import EVERY, Notes
from windlass.worker.options import Group
from windlass.worker.program import Registered
from windlass.worker.sending import Sending
from windlass.worker.settler import Settler
from windlass.worker.strikes import Strikes

STUCK = 0.25
"""Seconds. A job that has not started after this is given back, and a loop that has shown no sign of life is
taken for blocked. Five times `asking.PREFETCH`: too low, and jobs travel to and fro; too high, and they wait
behind a job that blocks while other workers are idle.
"""
DEFERRED = 64
"""Leases. A store that serves one worker after the other is sent the next call before so many are taken in,
since that takes longer than to send a call. Too low: single jobs start later. Too high: the store rests.
"""
YIELD = 0.000_1
"""Seconds for which this thread lets go of the interpreter when it gave jobs to threads that were idle. They
would otherwise wait until this thread has asked the store for its next wake, which takes longer than to start
a job. Too low: a job starts later on an idle worker. Too high: the next exchange is late.
"""
STOPPING = 2.0
"""Seconds that runs are given to end after the grace, when they were stopped. Too low: code that cleans up is
killed with its process. Too high: a stop takes longer than the service manager waits.
"""


class Parts(msgspec.Struct, frozen=True):
    """The parts of a worker that the fetcher works with."""

    local_leases: LocalLeases
    dispatcher: Dispatcher
    executor: Executor
    settler: Settler
    notes: Notes
    strikes: Strikes


class Arrived(msgspec.Struct, frozen=True):
    """Leases that have come and are not taken in yet."""

    group: AskingGroup
    leases: Sequence[Lease]
    at: float


class Fetcher:
    """Exchanges jobs with the store until it is told to drain, and all is settled."""

    def __init__(
        self,
        broker: Broker,
        session: SessionId,
        groups: Sequence[Group],
        tasks: Mapping[str, Registered],
        pace: Pace,
        parts: Parts,
        *,
        poll_floor: Micros,
        alone: bool,
        is_lost: Callable[[], bool],
        told_lost: Callable[[], None],
        told_suspects: Callable[[int], None],
        told_jobs: Callable[[int], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """Made on the loop that it runs on. It calls `told_lost` when the store says that the session is
        over, `told_suspects` with how many suspects wait, `told_jobs` after each exchange with how many jobs
        were run, and `check` before each exchange.
        """
        self._broker = broker
        self._tasks = tasks
        self._pace = pace
        self._local_leases, self._dispatcher, self._executor = (
            parts.local_leases,
            parts.dispatcher,
            parts.executor,
        )
        self._settler, self._notes, self._strikes = parts.settler, parts.notes, parts.strikes
        self._floor = poll_floor / SECOND
        self._alone = alone
        self._is_lost = is_lost
        self._told_lost = told_lost
        self._told_suspects = told_suspects
        self._told_jobs = told_jobs
        self._check = check
        pacing = broker.capabilities.pacing
        self._serial = pacing.serial
        self._asking = Asking(
            session, groups, self._local_leases, pace, pacing, poll_floor=poll_floor, alone=alone
        )
        self._sending = Sending(self._asking.groups, self._local_leases, self._settler, serial=self._serial)
        self._exchange = Exchange(
            broker,
            pace,
            self._settler,
            gives_up=self._gives_up,
            meanwhile=lambda: None if self._arrived is None else self._take_in,
        )
        self._arrived: Arrived | None = None
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Task[None] | None = None
        self._waits_for: tuple[str, ...] = ()
        self._session_lost = False
        self._drain_until: float | None = None
        """Until when runs may go on; None: the worker does not stop."""
        self._released_at: float | None = None
        self._pinged = False

    # --- from any thread ------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Wake the fetcher: there is something to do."""
        self.soon(self._woken.set)

    def soon(self, call: Callable[[], None]) -> None:
        """Call something on the fetcher's loop."""
        with contextlib.suppress(RuntimeError):  # its loop has ended, and so has the worker
            self._loop.call_soon_threadsafe(call)

    def drain(self, grace: float) -> None:
        """Claim no more, give back what has not started, and end when the rest has ended, or the grace."""

        def begin() -> None:
            self._drain_until = self._pace.now() + grace
            self._executor.draining = True
            self._woken.set()

        self.soon(begin)

    # --- the loop -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Exchange jobs until drained."""
        try:
            while not self._is_drained():
                await self._turn()
        finally:
            self._forget_waiter()

    async def _turn(self) -> None:
        now = self._pace.now()
        self._give_back(now)
        send = self._sending.is_worth_it(now, draining=self._drain_until is not None)
        batch = self._settler.batch() if send else ()
        group = self._asking.next_group(now, with_outcomes=bool(batch)) if self._may_ask(now) else None
        if self._notes and (batch or self._notes.urgent or now >= self._notes.sent_at + EVERY):
            await self._exchange.until_answered(lambda: self._notes.send(self._broker, now))
        if batch or group is not None:
            await self._settle_and_ask(batch, group)
        elif self._arrived is not None:
            self._take_in()
        else:
            await self._rest(now)

    async def _settle_and_ask(self, batch: Sequence[Ended], group: AskingGroup | None) -> None:
        if self._check is not None:
            self._check()
        began = self._pace.now()
        if batch:
            self._asking.measure(batch)
            if _holds_for_others(batch):
                self._asking.hold_off(began)
        ask = self._ask(group)
        claimed = await self._exchange.settle_and_ask(batch, ask)
        self._sending.took(self._pace.now() - began)
        if ask is not None and claimed is not None:
            self._received(group, ask, claimed)
        self._told_jobs(self._settler.settled)
        await asyncio.sleep(0)  # some stores answer without a pause: others on this loop get their turn

    def _ask(self, group: AskingGroup | None) -> Ask | None:
        if group is not None:
            return self._asking.ask(group)
        return None if self._stops_asking else self._asking.ask_for_nothing()

    # --- may it ask? ----------------------------------------------------------------------------------------

    @property
    def _stops_asking(self) -> bool:
        """Whether it will never ask again."""
        return self._drain_until is not None or self._session_lost

    def _may_ask(self, now: float) -> bool:
        return not (self._stops_asking or self._is_lost() or self._is_blocked(now))

    def _is_blocked(self, now: float) -> bool:
        """Whether a task keeps the loop to itself: then nothing is claimed that might have to wait for it."""
        loop = self._dispatcher.loop
        if not (self._executor.runs or loop.has_waiting) or now - loop.active_at < STUCK:
            return False
        if not self._pinged:
            self._pinged = True
            loop.ping(self._ponged)
        return True

    def _ponged(self) -> None:
        self._pinged = False
        self.nudge()

    # --- taking in ------------------------------------------------------------------------------------------

    def _received(self, group: AskingGroup | None, ask: Ask, claimed: Claimed) -> None:
        if claimed.session is Asker.LOST:
            self._session_lost = True
            self._told_lost()
            return
        now = self._pace.now()
        self._asking.answered(group, ask, claimed, now)
        if group is None:
            return
        if claimed.suspects and not self._alone:
            self._told_suspects(claimed.suspects)
        if (
            self._alone
            and not claimed.leases
            and not claimed.suspects
            and not any(self._local_leases.unfinished)
        ):
            self._drain_until = now
        self._arrived = Arrived(group, claimed.leases, now)
        self._local_leases.announce(group.number, len(claimed.leases))
        if not self._serial or len(claimed.leases) < DEFERRED:
            # Last: it wakes the loop that runs them, which waits until this thread rests.
            self._take_in()

    def _take_in(self) -> None:
        """File what has come, if anything has, and start what there are slots for."""
        if self._arrived is None:
            return
        arrived, self._arrived = self._arrived, None
        group, leases = arrived.group.number, arrived.leases
        self._local_leases.arrived(group)
        if self._drain_until is not None:
            for lease in leases:
                self._settler.put(Ended(None, given_back(lease), None))
            return
        if self._strikes.by_task:
            leases = self._not_struck(leases)
        if not {lease.task for lease in leases} <= self._tasks.keys():
            leases = self._known(leases)
        if leases:
            self._sending.taken_in(arrived.at)
            idle = not any(self._local_leases.unfinished)
            self._local_leases.take_in(leases, self._tasks, group, arrived.at)
            self._dispatcher.arrived(group)
            if idle and self._dispatcher.loop.loop is not self._loop:
                time.sleep(YIELD)

    def _known(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        left: list[Lease] = []
        for lease in leases:
            if lease.task in self._tasks:
                left.append(lease)
            else:
                self._settler.put(Ended(None, unknown(lease), None))
        return left

    def _not_struck(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        left: list[Lease] = []
        for lease in leases:
            held = self._strikes.hold(lease)
            if held is None:
                left.append(lease)
            else:
                self._settler.put(Ended(None, held, None))
        return left

    # --- giving back ----------------------------------------------------------------------------------------

    def _give_back(self, now: float) -> None:
        """Give back leases that wait too long: other workers may run them."""
        everything = self._stops_asking
        while (ticket := self._local_leases.oldest()) is not None:
            if not everything and now - ticket.received <= STUCK:
                return  # those after it came later
            if self._local_leases.claim_start(ticket):
                self._asking.groups[ticket.group].gave_back()
                self._settler.put(Ended(ticket, given_back(ticket.lease), None))

    def hold_struck(self) -> None:
        """Hold the jobs that new strikes concern and that have not started."""
        for ticket in list(self._local_leases.unstarted):
            held = self._strikes.hold(ticket.lease)
            if held is not None and self._local_leases.claim_start(ticket):
                self._settler.put(Ended(ticket, held, None))
        self._woken.set()

    # --- the end --------------------------------------------------------------------------------------------

    def _is_drained(self) -> bool:
        if self._drain_until is None:
            return False
        self._take_in()
        self._give_back(self._pace.now())
        if not any(self._local_leases.unfinished) and not len(self._settler):
            return True
        now = self._pace.now()
        if now < self._drain_until:
            return False
        if self._released_at is None:
            self._released_at = now
            self._executor.release_all()
        stopping = self._executor.stoppable and now < self._released_at + STOPPING
        return not stopping and not len(self._settler)

    def _gives_up(self, error: StoreError) -> bool:
        """Whether an error of the store ends this worker: at once if a task has closed a descriptor that the
        process needs, and after the grace if the worker drains. If the store will never answer again, only
        runs are waited for, since no outcome can be told.
        """
        if isinstance(error, DescriptorClosed) or self._drain_until is None:
            return isinstance(error, DescriptorClosed)
        now = self._pace.now()
        if not never_answers(error):
            return now > self._drain_until + STOPPING
        self._give_back(now)
        self._settler.batch()  # counts what has ended, though the store cannot be told
        return now > self._drain_until or not any(self._local_leases.unfinished)

    # --- resting --------------------------------------------------------------------------------------------

    async def _rest(self, now: float) -> None:
        """Wait for a wake of the store, an outcome, or the time of the next thing to do."""
        until = self._next_time(now)
        self._listen(until - now)
        self._settler.nudge_at = self._sending.enough(now)
        if len(self._settler) >= self._settler.nudge_at:
            self._woken.set()  # they came just before
        timer = self._loop.call_later(max(0.0, until - now), self._woken.set)
        await self._woken.wait()
        timer.cancel()
        self._woken.clear()
        if self._waiter is not None and self._waiter.done():
            self._waiter.result()
        self._settler.nudge_at = None

    def _next_time(self, now: float) -> float:
        """When there is something to do at the latest. The milliseconds keep a time that is reached already
        from becoming a loop that never rests.
        """
        times = [now + LONGEST_PAUSE]
        if (ends := self._sending.ends(now)) is not None:
            times.append(ends)
        if self._notes:
            times.append(self._notes.sent_at + EVERY)
        oldest = self._local_leases.oldest()
        if oldest is not None:
            times.append(max(now, oldest.received + STUCK) + 0.001)
        if self._drain_until is not None:
            end = self._drain_until if self._released_at is None else self._released_at + STOPPING
            times.append(max(now + 0.01, min(end, now + 0.05)))
        elif not (self._session_lost or self._is_lost() or self._pinged):
            times += [max(now + 0.001, ask_at) for ask_at in self._asking.times()]
        return min(times)

    def _listen(self, timeout: float) -> None:
        """Have the store wake this worker, as long as there is room for more jobs."""
        queues = self._listened()
        if queues != self._waits_for:
            self._forget_waiter()  # a wake that this worker cannot follow belongs to another
            self._waits_for = queues
        if queues and self._waiter is None and timeout > SOONEST:
            self._waiter = self._loop.create_task(self._await_wake(queues, max(timeout, self._floor)))

    def _listened(self) -> tuple[str, ...]:
        if self._stops_asking or self._is_lost() or self._pinged:
            return ()
        return () if self._asking.is_holding_off(self._pace.now()) else self._asking.queues_with_room()

    async def _await_wake(self, queues: Sequence[str], timeout: float) -> None:
        try:
            started = self._pace.now()
            await self._broker.wait(queues, timeout)
            if self._pace.now() - started < timeout:
                self._asking.woken()
        except StoreError:
            await self._pace.sleep(LONGEST_PAUSE * self._pace.jitter())
        except Exception:
            self._woken.set()
            raise
        self._waiter = None
        self._woken.set()

    def _forget_waiter(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None


def _holds_for_others(batch: Sequence[Ended]) -> bool:
    """Whether a job is held that another worker may be able to run. A job that was struck, none may run."""
    holds = [ended.settlement.hold for ended in batch if ended.settlement.hold is not None]
    return any(not is_strike_key(hold.key) for hold in holds)
