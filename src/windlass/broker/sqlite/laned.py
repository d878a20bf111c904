"""The short way of a claim from lanes: a ring's first lanes and their first jobs are read at once, the turns
are worked out in memory by the rules of `windlass.core.order`, and each lane is written once.

As many lanes are read as jobs are wanted. Each turn uses up one of them at the most, so the first of those
that are left is before all that were not read.
"""

from collections.abc import Iterator
from heapq import heappop, heapreplace

from windlass.broker.sqlite import filing, lifecycle
from windlass.broker.sqlite.handle import MOST_LEASES, Row
from windlass.broker.sqlite.handout import SQL, Bound, Tasks, lease_of_row, write_leases
from windlass.broker.sqlite.records import Lane, Queue, as_json
from windlass.broker.sqlite.writing import Writing
from windlass.core.limits import full, has_slot, taken
from windlass.core.order import REBASE_AT, stride

MOST_LANES = 512
"""Lanes that are read at once."""


def is_laned(queue: Queue) -> bool:
    """Whether a queue has rings whose turns can be worked out ahead: by strict order within them."""
    return queue.laned and not queue.policy.bands and not queue.policy.sequence


def hand_out_laned(tx: Writing, queue: Queue, bound: Bound, s: int | None) -> bool:
    """Hand out what the lanes of a queue have; whether a bound stopped it."""
    while filing.queue_open(queue, tx.now):
        band = tx.value(filing.SQL["next_ring"], (queue.q, None))
        if band is None:
            return False
        turns = _Turns(tx, queue, bound, band)
        expired, stopped = turns.go()
        turns.write(s)
        if expired is not None:
            lifecycle.expire(tx, tx.numbered(expired))
            bound.left -= 1
            stopped = bound.left < 0
        if stopped:
            return True
    return False


class _Stand:
    """A lane in a ring, and those of its jobs that have been read."""

    __slots__ = (
        "clock",
        "due",
        "heads",
        "lane",
        "left",
        "limited",
        "next",
        "parked",
        "seen",
        "step",
        "whole",
    )

    def __init__(self, lane: Lane, clock: int, due: int, *, limited: bool) -> None:
        self.lane = lane
        self.clock = clock
        self.due = due
        self.step = stride(lane.policy.weight)
        self.limited = limited or lane.policy.concurrency is not None or lane.policy.rate is not None
        self.heads: list[Row] = []
        self.next = 0
        """How many of its jobs have been taken."""
        self.whole = False
        """Whether there are no jobs of it but those that have been read."""
        self.seen = 0
        """How many jobs it has for certain, read or not."""
        self.parked = False
        self.left = False
        """Whether it has left this ring: parked, or nothing more to hand out."""


class _Turns:
    """Turns of the lanes of one ring."""

    def __init__(self, tx: Writing, queue: Queue, bound: Bound, band: int) -> None:
        policy = queue.policy
        self._tx, self._queue, self._bound, self._band = tx, queue, bound, band
        self._ring_of_queue = policy.one_ring
        self._limited = policy.concurrency is not None or policy.rate is not None
        # Of lanes under a limit little is handed out ahead; what is read beyond it is read in vain.
        narrow = self._limited or policy.lane_concurrency is not None or policy.lane_rate is not None
        ask = bound.ask
        self._limited_room = max(ask.slots, ask.soon)
        room = (self._limited_room if narrow else ask.limit) - len(bound.leases) + 1
        self._most = max(1, min(room, MOST_LANES))
        self._time = 0
        self._stands = list(self._read())
        self._whole = len(self._stands) < self._most
        self._each = (self._most - 1) // len(self._stands) + 2
        self._taken: list[tuple[_Stand, Row]] = []

    def _read(self) -> Iterator[_Stand]:
        tx, queue, limited = self._tx, self._queue, self._limited
        asked = (queue.q, self._band, self._most)
        if self._ring_of_queue:
            for name, clock, due, *row in tx.all(SQL["ring_lanes"], asked):
                yield _Stand(tx.lane_of_row(queue, name, row), clock, due, limited=limited)
            return
        for row in tx.all(SQL["ring_heads"], asked):
            stand = _Stand(tx.lane_of_row(queue, row[0], row[3:10]), row[1], row[2], limited=limited)
            stand.heads.append(row[10:25])
            stand.seen = 2 if row[25] else 1
            stand.whole = not row[25]
            yield stand

    def go(self) -> tuple[int | None, bool]:
        """Take turns until there is nothing to take, or nothing more is known of the ring.

        Returns the job that ended it by having expired, and whether a bound did.
        """
        tx, queue, bound, now = self._tx, self._queue, self._bound, self._tx.now
        slots, soon, limit, most_bytes = (
            bound.ask.slots,
            self._limited_room,
            bound.ask.limit,
            bound.ask.max_bytes,
        )
        tasks = Tasks(tx)
        ring = [(stand.due, stand.lane.name, stand) for stand in self._stands]
        count = len(bound.leases)
        most_turns = count + self._most
        while ring and (self._whole or count < most_turns) and self._time < REBASE_AT:
            if self._limited and not filing.queue_open(queue, now):
                break
            stand = ring[0][2]
            heads, place = stand.heads, stand.next
            head = heads[place] if place < len(heads) else self._head(stand)
            assert head is not None, f"lane {stand.lane.name!r} is in a ring and has nothing to hand out"
            n, _, t, attempt, max_attempts = head[:5]
            expires_at, started, size = head[10], head[11], head[14]
            if expires_at is not None and expires_at <= now and not started:
                return n, False
            timely = tasks[t][1] and attempt + 1 < max_attempts
            if count >= ((soon if stand.limited else limit) if timely else slots):
                return None, True
            bound.bytes += size
            if count and bound.bytes > most_bytes:
                return None, True
            self._taken.append((stand, head))
            count += 1
            self._take(stand)
            stand.left = stand.parked or (stand.next >= stand.seen and self._head(stand) is None)
            if stand.left:
                heappop(ring)
            else:
                heapreplace(ring, (stand.due, stand.lane.name, stand))
        return None, False

    def _head(self, stand: _Stand) -> Row | None:
        """The next job of a lane in this ring."""
        if stand.next < len(stand.heads):
            return stand.heads[stand.next]
        if stand.whole or not stand.lane.ready:
            return None
        q, name, most = self._queue.q, stand.lane.name, self._each if not stand.next else self._most
        if self._ring_of_queue:
            more = self._tx.all(SQL["heads_of_lane"], (q, name, most, stand.next))
        else:
            more = self._tx.all(SQL["heads_of_band"], (q, name, most, stand.next, self._band))
        stand.heads += more
        stand.whole = len(more) < most
        return more[0] if more else None

    def _take(self, stand: _Stand) -> None:
        """One job is claimed from a lane. A changed weight counts from the claim after this one."""
        lane, queue, now = stand.lane, self._queue, self._tx.now
        if stand.clock > self._time:
            self._time = stand.clock
        stand.clock, stand.due = stand.due, stand.due + stand.step
        stand.next += 1
        lane.ready -= 1
        lane.running += 1
        queue.running += 1
        if not stand.limited:
            return
        if queue.policy.rate is not None:
            queue.bucket = taken(queue.bucket or full(queue.policy.rate, now), queue.policy.rate, now)
        rate = lane.policy.rate
        wait = 0
        if rate is not None:
            lane.bucket = taken(lane.bucket or full(rate, now), rate, now)
            wait = filing.wait_for_token(lane, rate, now)
            lane.wake_at = now + wait if wait and lane.ready else None
        stand.parked = bool(wait) or not has_slot(lane.running, lane.policy.concurrency)

    def write(self, s: int | None) -> None:
        """Write what was taken: jobs, lanes, places and the ring."""
        if not self._taken:
            return
        self._hand_over(s)
        tx, q, band = self._tx, self._queue.q, self._band
        touched = [stand for stand in self._stands if stand.next]
        self._write_lanes(touched)
        self._write_places(touched)
        tx.run(SQL["set_time"], (q, band, self._time))
        if any(stand.left for stand in touched):
            tx.run(filing.SQL["empty_ring"], (q, band, tx.now))
        if not self._ring_of_queue:
            filing.park(tx, self._queue, [stand.lane.name for stand in touched if stand.parked])
        if self._time >= REBASE_AT:
            tx.run(filing.SQL["rebase_places"], (q, band, self._time))
            tx.run(filing.SQL["rebase_ring"], (q, band))

    def _write_lanes(self, touched: list[_Stand]) -> None:
        """Write what lanes count: those without tokens in a statement for each number of jobs, mostly one."""
        tx, q = self._tx, self._queue.q
        alike: dict[int, list[str]] = {}
        for stand in touched:
            lane = stand.lane
            if lane.bucket is None:
                alike.setdefault(stand.next, []).append(lane.name)
            else:
                tx.touch_lane(lane)
        for count, names in alike.items():
            tx.run(SQL["take_from_lanes"], (q, as_json(names), count))

    def _write_places(self, touched: list[_Stand]) -> None:
        """Write where lanes stand: those that took one turn and stay, in a statement for each stride."""
        tx, q, band = self._tx, self._queue.q, self._band
        alike: dict[int, list[str]] = {}
        places: list[tuple[int, str, int, int, int | None]] = []
        for stand in touched:
            if stand.next == 1 and not stand.left:
                alike.setdefault(stand.step, []).append(stand.lane.name)
            else:
                due = None if stand.left else stand.due
                places.append((q, stand.lane.name, band, stand.clock, due))
        for step, names in alike.items():
            tx.run(SQL["advance_places"], (q, as_json(names), band, step))
        if places:
            tx.many(SQL["move_places"], places)

    def _hand_over(self, s: int | None) -> None:
        tx, queue, bound = self._tx, self._queue, self._bound
        numbers = as_json([head[0] for _, head in self._taken])
        bodies = {row[0]: row[1:] for row in tx.all(SQL["bodies"], (numbers,))}
        tasks, remembered = Tasks(tx), tx.handle.leases
        if len(remembered) > MOST_LEASES:
            remembered.clear()
        for stand, head in self._taken:
            n, job, t, attempt = head[:4]
            lease = lease_of_row(tx, queue, stand.lane.name, tasks[t][0], head[:14] + bodies[n], bound.ask)
            bound.add(n, lease)
            if not head[13]:
                lane, waited = stand.lane.name, lease.waited
                remembered[job] = (lease.fence, n, queue.q, t, attempt + 1, tx.now, s, lane, waited, 0)
        rows = [head for _, head in self._taken]
        write_leases(tx, queue, rows, [stand.lane.name for stand, _ in self._taken], bound.ask, s)
