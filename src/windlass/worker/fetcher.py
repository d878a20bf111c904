"""Claiming and settling, on a thread of their own: one exchange with the store after the other.

Each exchange settles what has ended and asks for as much as there is room for. It is repeated, word for word,
until it is answered, so that a lost reply costs a round trip and nothing else. Outcomes gather while an
exchange is under way: the busier the worker, the larger the batches.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from windlass.broker.contract import Broker
from windlass.core.lease import Ask, Asker, Claimed, Lease
from windlass.core.order import next_draw
from windlass.core.strike import is_strike_key
from windlass.core.units import SECOND, Micros, SessionId
from windlass.errors import ContractError, DescriptorClosed, StoreError
from windlass.worker.conclude import given_back, unknown
from windlass.worker.desk import Bound, Desk
from windlass.worker.dispatcher import Dispatcher
from windlass.worker.executor import Executor
from windlass.worker.hand import Ended, Hand
from windlass.worker.notes import EVERY, Notes
from windlass.worker.options import Group
from windlass.worker.pace import Pace
from windlass.worker.patience import insist, never_answers
from windlass.worker.program import Registered
from windlass.worker.sending import Sending
from windlass.worker.settler import Settler
from windlass.worker.strikes import Strikes

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")

STUCK = 0.25
"""Seconds after which a job that has not started is given back, and a loop that has done nothing is asked."""
MANY = 64
"""Jobs that take longer to take in than an exchange takes to send."""
EXCHANGE = 500
"""Jobs that one exchange asks for at the most: a job of high priority waits for those that are under way."""
WAY = 0.0001
"""Seconds for which this thread lets go of the interpreter when it has woken others from idleness. They would
have to wait until it rests, and to ask for the next wake takes longer than to start a job.
"""
STOPPING = 2.0
"""Seconds that runs are given to end when they were stopped."""
SHORT = 0.002
"""Seconds for which it is not worth asking the store for a wake."""
SHY = 3.0
"""Seconds for which a worker that was handed a job it cannot run lets others go first."""
LONGEST_PAUSE = 1.0
"""Seconds between two tries while the store is away."""


class Fetcher:
    """Exchanges jobs with the store until it is told to drain, and all is settled."""

    def __init__(
        self,
        broker: Broker,
        session: SessionId,
        groups: Sequence[Group],
        tasks: Mapping[str, Registered],
        pace: Pace,
        *,
        poll_floor: Micros,
        alone: bool,
        strikes: Strikes,
        is_lost: Callable[[], bool],
        told_lost: Callable[[], None],
        told_suspects: Callable[[int], None],
        told_jobs: Callable[[int], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        self._broker = broker
        self._session = session
        self._tasks = tasks
        self._pace = pace
        self._floor = poll_floor / SECOND
        self._alone = alone
        self._strikes = strikes
        self._is_lost = is_lost
        self._told_lost = told_lost
        self._told_suspects = told_suspects
        self._told_jobs = told_jobs
        self._check = check
        pacing = broker.capabilities.pacing
        self._serial = pacing.serial
        self._desks = [Desk(number, group, pacing) for number, group in enumerate(groups)]
        self._turn = 0
        self._seq = 1
        self._draw = int(pace.jitter() * 2**32)
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Task[None] | None = None
        self._waits_for: tuple[str, ...] = ()
        self._lost = False
        self._drained_by: float | None = None
        self._released_at: float | None = None
        self._pinged = False
        self._shy_until = 0.0
        self._come: tuple[Desk, Sequence[Lease], float] | None = None
        """What has come and is not taken in yet: whose it is, and since when."""

    def attach(
        self, hand: Hand, dispatcher: Dispatcher, settler: Settler, notes: Notes, executor: Executor
    ) -> None:
        """The other parts of the worker."""
        self._hand, self._dispatcher, self._settler = hand, dispatcher, settler
        self._notes, self._executor = notes, executor
        self._sending = Sending(self._desks, hand, settler, serial=self._serial)

    # --- from any thread ------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """There is something to do."""
        self.soon(self._woken.set)

    def soon(self, call: Callable[[], None]) -> None:
        """Call something on the fetcher's loop."""
        with contextlib.suppress(RuntimeError):  # its loop has ended, and so has the worker
            self._loop.call_soon_threadsafe(call)

    def drain(self, grace: float) -> None:
        """Claim no more, give back what has not started, and end when the rest has ended, or the grace."""

        def begin() -> None:
            self._drained_by = self._pace.now() + grace
            self._executor.draining = True
            self._woken.set()

        self.soon(begin)

    # --- the loop -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until drained."""
        try:
            while not self._is_drained():
                await self._step()
        finally:
            self._forget_waiter()

    async def _step(self) -> None:
        now = self._pace.now()
        self._give_back(now)
        goes = self._sending.is_worth_it(now, draining=self._drained_by is not None)
        batch = self._settler.batch() if goes else ()
        desk = self._desk_to_ask(now, riding=bool(batch))
        if self._notes and (batch or self._notes.urgent or now >= self._notes.sent_at + EVERY):
            await self._patiently(lambda: self._notes.send(self._broker, now))
        if batch or desk is not None:
            await self._exchange(batch, desk)
        elif self._come is not None:
            self._take_in()
        else:
            await self._rest(now)

    def _is_drained(self) -> bool:
        if self._drained_by is None:
            return False
        self._take_in()
        self._give_back(self._pace.now())
        if not any(self._hand.unfinished) and not len(self._settler):
            return True
        now = self._pace.now()
        if now < self._drained_by:
            return False
        if self._released_at is None:
            self._released_at = now
            self._executor.release_all()
        stopping = self._executor.stoppable and now < self._released_at + STOPPING
        return not stopping and not len(self._settler)

    # --- giving back ----------------------------------------------------------------------------------------

    def _give_back(self, now: float) -> None:
        """Let others run what this worker has not come to."""
        everything = self._drained_by is not None or self._lost
        while (ticket := self._hand.oldest()) is not None:
            if not everything and now - ticket.received <= STUCK:
                return  # nor are those that came after it
            if self._hand.claim_start(ticket):
                self._desks[ticket.group].gave_back()
                self._settler.put(Ended(ticket, given_back(ticket.lease), None))

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

    # --- asking ---------------------------------------------------------------------------------------------

    def _desk_to_ask(self, now: float, *, riding: bool) -> Desk | None:
        """The next group, in turns, that has room, and a reason to think that there is work. With outcomes
        going out anyway, an ask costs little.
        """
        if self._drained_by is not None or self._lost or self._is_lost() or self._is_blocked(now):
            return None
        count = len(self._desks)
        for offset in range(count):
            desk = self._desks[(self._turn + offset) % count]
            if self._room(desk) and (riding or now >= desk.ask_at):
                self._turn = (desk.number + 1) % count
                return desk
        return None

    def _room(self, desk: Desk) -> int:
        """How many jobs a group could take. Not one by one: it waits until half of the hand is used up."""
        unfinished = self._hand.unfinished[desk.number]
        slots = desk.slots - unfinished
        if slots <= 0:
            extra = 0 if self._alone else desk.extra
            # What has ended and is not settled has its place under a limit yet.
            held = unfinished if desk.bound is Bound.SOON else self._hand.waiting_in(desk.number)
            if not extra or held > (extra + desk.slots) // 2:
                return 0
        prefetch = 0 if self._alone else desk.prefetch.size
        return max(0, min(slots + prefetch, self._hand.room))

    def _ask(self, desk: Desk) -> Ask:
        queues = desk.shares.order()
        limit = min(EXCHANGE, desk.shares.bound(queues, self._room(desk)))
        free = desk.slots - self._hand.unfinished[desk.number]
        slots = max(0, min(free, limit))
        return Ask(
            queues=queues,
            slots=slots,
            limit=limit,
            # Below the limit, so that the reply tells which of the two has stopped it.
            soon=max(slots, min(free + desk.soon.size, limit - 1)),
            session=self._session,
            seq=self._seq,
            alone=self._alone,
            draw=self._draw,
        )

    def _sign(self) -> Ask | None:
        """An ask for nothing, which goes with outcomes that no ask goes with. It counts: a store that forgets
        them in a failover is found out by the next ask, and would otherwise hold their jobs for us for ever.
        """
        if self._drained_by is not None or self._lost:
            return None
        return Ask(queues=(), slots=0, limit=0, session=self._session, seq=self._seq, draw=self._draw)

    # --- exchanging -----------------------------------------------------------------------------------------

    async def _exchange(self, batch: Sequence[Ended], desk: Desk | None) -> None:
        if self._check is not None:
            self._check()
        began = self._pace.now()
        if batch:
            self._measure(batch)
        ask = self._ask(desk) if desk is not None else self._sign() if batch else None
        claimed = None
        if batch:
            claimed = await self._settle(batch, ask)
        elif ask is not None:
            claimed = await self._patiently(lambda: self._broker.claim(ask))
        self._sending.took(self._pace.now() - began)
        if ask is not None and claimed is not None:
            self._received(desk, ask, claimed)
        self._told_jobs(self._settler.settled)
        await asyncio.sleep(0)  # some stores answer without a pause: whoever shares this loop has a turn

    async def _settle(self, batch: Sequence[Ended], ask: Ask | None) -> Claimed | None:
        items = [ended.settlement for ended in batch]
        if any(item.hold is not None and not is_strike_key(item.hold.key) for item in items):
            # Whoever can run them is to have them when they come back. We are told when that is, to the
            # moment, and would be there first each time. Nobody can run what was struck.
            self._shy_until = self._pace.now() + SHY
        try:
            settled = await self._patiently(lambda: self._broker.settle(items, ask))
        except ContractError as error:
            _log.error("the store refuses a batch of outcomes (%s); they are sent one by one", error)
            await self._one_by_one(batch)
            return None
        self._settler.answered(settled.answers)
        return settled.claimed

    async def _one_by_one(self, batch: Sequence[Ended]) -> None:
        for ended in list(batch):
            settlement = ended.settlement
            try:
                settled = await self._patiently(partial(self._broker.settle, [settlement]))
            except ContractError as error:
                self._settler.dropped(ended, str(error))
            else:
                self._settler.answered_one(ended, settled.answers[0])

    def _received(self, desk: Desk | None, ask: Ask, claimed: Claimed) -> None:
        if claimed.session is Asker.LOST:
            self._lost = True
            self._told_lost()
            return
        self._seq += 1
        if desk is None:
            return
        self._draw = next_draw(self._draw, len(claimed.leases))
        desk.shares.received(ask.queues, (lease.queue for lease in claimed.leases))
        now = self._pace.now()
        pause = self._floor if claimed.next_in is None else min(self._floor, claimed.next_in / SECOND)
        if now < self._shy_until:
            pause = self._floor * (0.5 + self._pace.jitter())
        desk.told(ask, claimed)
        # Unless it was its limit, asking again at once would change nothing.
        again = claimed.more and desk.bound is Bound.LIMIT
        desk.ask_at = now if again else now + max(SHORT, pause)
        if claimed.suspects and not self._alone:
            self._told_suspects(claimed.suspects)
        if self._alone and not claimed.leases and not claimed.suspects and not any(self._hand.unfinished):
            self._drained_by = now
        self._come = desk, claimed.leases, now
        self._hand.announce(desk.number, len(claimed.leases))
        if not self._serial or len(claimed.leases) < MANY:
            # Last: the loop that runs them is woken by it, and waits for this thread to rest.
            self._take_in()

    def _take_in(self) -> None:
        """What has come, if anything has. Many leases of a store that others wait for, too, are taken in when
        the next exchange is on its way.
        """
        if self._come is None:
            return
        (desk, leases, now), self._come = self._come, None
        self._hand.arrived(desk.number)
        if self._drained_by is not None:
            for lease in leases:
                self._settler.put(Ended(None, given_back(lease), None))
            return
        if self._strikes.by_task:
            leases = self._not_struck(leases)
        if not {lease.task for lease in leases} <= self._tasks.keys():
            leases = self._known(leases)
        if leases:
            self._sending.taken_in(now)
            idle = not any(self._hand.unfinished)
            self._hand.take_in(leases, self._tasks, desk.number, now)
            self._dispatcher.arrived(desk.number)
            if idle and self._dispatcher.loop.loop is not self._loop:
                time.sleep(WAY)

    def _known(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        left: list[Lease] = []
        for lease in leases:
            if lease.task in self._tasks:
                left.append(lease)
            else:
                _log.warning('job %s: no task "%s" here; it is held', lease.job, lease.task)
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

    def hold_struck(self) -> None:
        """There are new strikes: hold what has not started of the jobs that they mean."""
        for ticket in list(self._hand.unstarted):
            held = self._strikes.hold(ticket.lease)
            if held is not None and self._hand.claim_start(ticket):
                self._settler.put(Ended(ticket, held, None))
        self._woken.set()

    def _measure(self, batch: Sequence[Ended]) -> None:
        for desk in self._desks:
            count = total = 0
            waited = 0.0
            for ended in batch:
                ticket, run, runtime = ended.ticket, ended.run, ended.settlement.runtime
                if ticket is None or run is None or runtime is None or ticket.group != desk.number:
                    continue
                count += 1
                total += runtime
                if (wait := run.started - ticket.received) > waited:
                    waited = wait
            if count:
                desk.measured(total / count / SECOND, waited)

    async def _patiently(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call until the store answers."""
        return await insist(
            self._pace,
            "asking the store for jobs",
            lambda: call() if self._come is None else self._meanwhile(call),
            gives_up=self._gives_up,
        )

    def _gives_up(self, error: StoreError) -> bool:
        """Whether an error ends this worker: at once if a task has closed what it lives by; when it drains,
        after the grace. With a store that never answers again, the grace is for jobs that run.
        """
        if isinstance(error, DescriptorClosed) or self._drained_by is None:
            return isinstance(error, DescriptorClosed)
        now = self._pace.now()
        if not never_answers(error):
            return now > self._drained_by + STOPPING
        self._give_back(now)
        self._settler.batch()  # counts what has ended, though nobody can be told of it
        return now > self._drained_by or not any(self._hand.unfinished)

    async def _meanwhile(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call, and take in what has come as soon as the question is on its way."""
        asked = asyncio.ensure_future(call())
        try:
            await asyncio.sleep(0)
            self._take_in()
        except BaseException:
            asked.cancel()
            raise
        return await asked

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
        times = [now + LONGEST_PAUSE]
        if (ends := self._sending.ends(now)) is not None:
            times.append(ends)
        if self._notes:
            times.append(self._notes.sent_at + EVERY)
        oldest = self._hand.oldest()
        if oldest is not None:
            times.append(max(now, oldest.received + STUCK) + 0.001)
        if self._drained_by is not None:
            end = self._drained_by if self._released_at is None else self._released_at + STOPPING
            times.append(max(now + 0.01, min(end, now + 0.05)))
        elif not (self._lost or self._is_lost() or self._pinged):
            times += [max(now + 0.001, desk.ask_at) for desk in self._desks if self._room(desk)]
        return min(times)

    def _listen(self, timeout: float) -> None:
        """Have the store wake us, as long as there is room for what it would wake us for."""
        queues = self._listened()
        if queues != self._waits_for:
            self._forget_waiter()  # a wake that we cannot follow belongs to another worker
            self._waits_for = queues
        if queues and self._waiter is None and timeout > SHORT:
            self._waiter = self._loop.create_task(self._await_wake(queues, max(timeout, self._floor)))

    def _listened(self) -> tuple[str, ...]:
        if self._drained_by is not None or self._lost or self._is_lost() or self._pinged:
            return ()
        if self._pace.now() < self._shy_until:
            return ()
        return tuple(dict.fromkeys(q for desk in self._desks if self._room(desk) for q in desk.queues))

    async def _await_wake(self, queues: Sequence[str], timeout: float) -> None:
        try:
            started = self._pace.now()
            await self._broker.wait(queues, timeout)
            if self._pace.now() - started < timeout:
                for desk in self._desks:
                    desk.ask_at = 0.0
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
