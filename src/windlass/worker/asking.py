"""Asking: for how many jobs a worker asks, of which queues, how far ahead, and when.

A worker asks for what it could start now (its free slots), and for some jobs more, so that a slot that
becomes free has its next job at once. The further ahead it asks, the less an exchange costs per job; but a
job that waits here cannot start elsewhere. Each group of slots asks for itself, in turns.

The numbers, why they have these values, and what happens if they are wrong:

`PREFETCH` (50 ms): how long a job may wait here for a slot. An exchange takes 1 to 5 ms, so slots do not
    run empty, and a person does not notice 50 ms. Too high: jobs wait here while other workers are idle.
    Too low: short jobs run out between two exchanges.
`PREFETCH_LIMITED` (10 ms): the same for jobs under a limit. While one of them waits here it uses up the
    limit, and others may not start. Too high: a limit of 8 lets fewer than 8 run. Too low: as above.
`SMOOTHING` (0.2): the weight of the newest batch in the mean run time. Too high: one long job ends
    prefetching. Too low: it takes many batches to notice that jobs have become slower.
`ASK_LIMIT` (500): jobs in one ask at the most. A job of high priority waits behind those that are on their
    way. Too high: it waits longer. Too low: more exchanges per job.
`SOONEST` (2 ms): the earliest repetition of an ask that got nothing, and the shortest rest for which the
    store is asked for a wake. Too low: an idle worker asks all the time, in vain. Too high: a job that
    becomes due starts that much later.
`HOLD_OFF` (3 s): for so long others ask first after this worker held a job that it cannot run. The store
    tells only this worker the moment when the job comes back. Too low: in a deploy an old worker takes the
    job again and again. Too high: old workers stand idle.
`RECENT` (8 asks, in `shares.py`): a queue that gave a job within so many asks has a share of the room. Too
    low: a queue with little work loses its share to a busy one. Too high: the shares of queues that have
    become empty stay unused.

The store has bounds of its own (`Pacing`): `ahead` and `soon` are the most jobs to prefetch without and under
a limit. They depend on what an exchange costs there, so each store gives its own.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from windlass.broker.contract import Pacing
from windlass.core.lease import Ask, Claimed
from windlass.core.order import next_draw
from windlass.core.units import SECOND, Micros, SessionId
from windlass.pace import Pace
from windlass.worker.local_leases import Ended, LocalLeases
from windlass.worker.options import Group
from windlass.worker.shares import Shares

PREFETCH = 0.05
PREFETCH_LIMITED = 0.01
SMOOTHING = 0.2
ASK_LIMIT = 500
SOONEST = 0.002
HOLD_OFF = 3.0


class Prefetch:
    """How many jobs a group may hold beyond its slots.

    Two bounds, the lower counts: the measured run time of the jobs, and how long they really waited. Run time
    alone is wrong where jobs keep the loop to themselves: sixteen slots are then one. Waiting alone would
    give each of sixteen slow jobs a successor to try with.
    """

    def __init__(self, slots: int, *, wait: float, most: int) -> None:
        self._slots = slots
        self._wait = wait
        self._most = most
        self._runtime: float | None = None
        self._allowed = float(slots)

    def measured(self, runtime: float, waited: float) -> None:
        """Learn from jobs that ended: their mean run time, and the longest time that one had waited here."""
        mean = self._runtime
        self._runtime = runtime if mean is None else mean + (runtime - mean) * SMOOTHING
        if waited > self._wait:
            self._allowed = self.size * self._wait / waited
        elif waited < self._wait / 2:
            self._allowed = min(float(self._most), self._allowed * 2 + 1)

    def stop(self) -> None:
        """Hold none beyond the slots until measured anew: jobs waited here that others could have started."""
        self._allowed = 0.0

    def shorter_than(self, seconds: float) -> bool:
        """Whether jobs take less time than that, by what was measured."""
        return self._runtime is not None and self._runtime < seconds

    @property
    def size(self) -> int:
        """How many jobs to hold beyond the slots."""
        if self._runtime is None:
            return 0
        worth = self._most if self._runtime <= 0 else self._wait * self._slots / self._runtime
        return int(min(self._allowed, worth, self._most))


class Bound(Enum):
    """Of the three numbers of an ask, the one that stopped the last claim."""

    LIMIT = "limit"
    SOON = "soon"
    """The next job is under a limit."""
    SLOTS = "slots"
    """The next job is on its last attempt, or of a task that was never timed."""


class AskingGroup:
    """One group of slots: its queues, and what is known of their jobs."""

    def __init__(self, number: int, group: Group, pacing: Pacing) -> None:
        self.number = number
        self.slots = group.slots
        self.queues = group.queues
        self.shares = Shares(group)
        self.prefetch = Prefetch(group.slots, wait=PREFETCH, most=pacing.ahead)
        self.limited = Prefetch(group.slots, wait=PREFETCH_LIMITED, most=pacing.soon)
        """The same for jobs under a limit, while there are more of them than are handed out."""
        self.ask_at = 0.0
        """When it is worth asking although the store has not woken us."""
        self.bound = Bound.LIMIT
        """What the next job in its queues may be handed out against."""

    def answered(self, ask: Ask, claimed: Claimed) -> None:
        """Find out what kept the next job back. If nothing did, the rest is at its limit: then a job under a
        limit that waits here is kept from a worker that could start it.
        """
        count = len(claimed.leases)
        if not claimed.more and ask.soon > ask.slots:
            self.limited.stop()
        if not claimed.more or count < ask.slots or count >= ask.limit:
            self.bound = Bound.LIMIT
        else:
            self.bound = Bound.SLOTS if count < ask.soon else Bound.SOON

    @property
    def extra(self) -> int:
        """How many jobs like the next one to hold beyond the slots."""
        if self.bound is Bound.SLOTS:
            return 0
        return (self.prefetch if self.bound is Bound.LIMIT else self.limited).size

    def measured(self, runtime: float, waited: float) -> None:
        """Learn from jobs that ended: see `Prefetch.measured`."""
        self.prefetch.measured(runtime, waited)
        self.limited.measured(runtime, waited)

    def gave_back(self) -> None:
        """Note that a job waited so long that it was given back."""
        self.prefetch.stop()
        self.limited.stop()


class Asking:
    """All groups of a worker, and the asks of its session."""

    def __init__(
        self,
        session: SessionId,
        groups: Sequence[Group],
        local_leases: LocalLeases,
        pace: Pace,
        pacing: Pacing,
        *,
        poll_floor: Micros,
        alone: bool,
    ) -> None:
        """`alone`: the worker asks for suspects, one at a time, and holds nothing beyond its slot."""
        self._session = session
        self._local_leases = local_leases
        self._pace = pace
        self._floor = poll_floor / SECOND
        self._alone = alone
        self._next = 0
        self._seq = 1
        self._draw = int(pace.jitter() * 2**32)
        self._hold_off_until = 0.0
        self.groups = [AskingGroup(number, group, pacing) for number, group in enumerate(groups)]

    # --- what to ask ----------------------------------------------------------------------------------------

    def next_group(self, now: float, *, with_outcomes: bool) -> AskingGroup | None:
        """The next group, in turns, that has room and a reason to think that there is work. When outcomes are
        sent anyway, an ask costs little and needs no reason.
        """
        count = len(self.groups)
        for offset in range(count):
            group = self.groups[(self._next + offset) % count]
            if self.room(group) and (with_outcomes or now >= group.ask_at):
                self._next = (group.number + 1) % count
                return group
        return None

    def room(self, group: AskingGroup) -> int:
        """How many jobs a group could take. Not one by one: only when half of what it held is used up."""
        unfinished = self._local_leases.unfinished[group.number]
        free = group.slots - unfinished
        if free <= 0:
            extra = 0 if self._alone else group.extra
            # A job under a limit uses it up until it is settled, also when it has ended.
            held = unfinished if group.bound is Bound.SOON else self._local_leases.waiting_in(group.number)
            if not extra or held > (extra + group.slots) // 2:
                return 0
        prefetch = 0 if self._alone else group.prefetch.size
        return max(0, min(free + prefetch, self._local_leases.room))

    def ask(self, group: AskingGroup) -> Ask:
        """The ask of a group."""
        queues = group.shares.order()
        limit = min(ASK_LIMIT, group.shares.bound(queues, self.room(group)))
        free = group.slots - self._local_leases.unfinished[group.number]
        slots = max(0, min(free, limit))
        return Ask(
            queues=queues,
            slots=slots,
            limit=limit,
            # Below the limit, so that the reply tells which of the two has stopped it.
            soon=max(slots, min(free + group.limited.size, limit - 1)),
            session=self._session,
            seq=self._seq,
            alone=self._alone,
            draw=self._draw,
        )

    def ask_for_nothing(self) -> Ask:
        """An ask that goes with outcomes when there is no room. It counts: if the store forgets the outcomes
        in a failover, the number of the next ask shows it. Otherwise the store would hold their jobs for this
        worker for ever.
        """
        return Ask(queues=(), slots=0, limit=0, session=self._session, seq=self._seq, draw=self._draw)

    # --- when to ask again ----------------------------------------------------------------------------------

    def answered(self, group: AskingGroup | None, ask: Ask, claimed: Claimed, now: float) -> None:
        """The store has answered an ask; `group` is None if it was for nothing."""
        self._seq += 1
        if group is None:
            return
        self._draw = next_draw(self._draw, len(claimed.leases))
        group.shares.received(ask.queues, [lease.queue for lease in claimed.leases])
        group.answered(ask, claimed)
        # To ask again at once changes nothing, unless the limit of this ask has stopped it.
        again = claimed.more and group.bound is Bound.LIMIT
        group.ask_at = now if again else now + max(SOONEST, self._pause(claimed, now))

    def _pause(self, claimed: Claimed, now: float) -> float:
        if self.is_holding_off(now):
            return self._floor * (0.5 + self._pace.jitter())
        return self._floor if claimed.next_in is None else min(self._floor, claimed.next_in / SECOND)

    def hold_off(self, now: float) -> None:
        """Let others ask first: this worker has held a job that it cannot run."""
        self._hold_off_until = now + HOLD_OFF

    def is_holding_off(self, now: float) -> bool:
        """Whether this worker lets others ask first."""
        return now < self._hold_off_until

    def woken(self) -> None:
        """The store has something new: ask at once."""
        for group in self.groups:
            group.ask_at = 0.0

    def queues_with_room(self) -> tuple[str, ...]:
        """The queues for which a wake of the store would be of use."""
        return tuple(dict.fromkeys(q for group in self.groups if self.room(group) for q in group.queues))

    def times(self) -> Iterable[float]:
        """When each group that has room asks next."""
        return [group.ask_at for group in self.groups if self.room(group)]

    # --- what is known of the jobs --------------------------------------------------------------------------

    def measure(self, batch: Sequence[Ended]) -> None:
        """Learn run times and waits from runs that ended."""
        for group in self.groups:
            count = total = 0
            waited = 0.0
            for ended in batch:
                ticket, run, runtime = ended.ticket, ended.run, ended.settlement.runtime
                if ticket is None or run is None or runtime is None or ticket.group != group.number:
                    continue
                count += 1
                total += runtime
                if (wait := run.started - ticket.received) > waited:
                    waited = wait
            if count:
                group.measured(total / count / SECOND, waited)
