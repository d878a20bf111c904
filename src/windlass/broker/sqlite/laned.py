"""The short way of a claim from lanes: a ring's first lanes are read at once, the turns are worked out in
memory by the rules of `windlass.core.order`, and what lanes and places have come to is written by a statement
for all that changed alike.

What costs per lane is done once a turn, what costs per job once a claim.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from windlass.broker.sqlite import filing, lifecycle
from windlass.broker.sqlite.handle import Row
from windlass.broker.sqlite.handout import SQL, Bound, choose, write_leases
from windlass.broker.sqlite.records import Lane, Queue, as_json
from windlass.broker.sqlite.writing import Writing
from windlass.core.limits import full, taken
from windlass.core.order import REBASE_AT, stride, turn_of

MOST_LANES = 512
"""Lanes that are read at once."""
MOST_AHEAD = 16
"""Jobs of a lane that are read at once, if it will have more than one turn."""
LARGE = 4_096
"""Bytes of a payload that is not read before it is the job's turn."""
_BEFORE_ALL = (-(2**63), "")


def is_laned(queue: Queue) -> bool:
    """Whether a queue has rings whose turns can be worked out ahead: by strict order within them."""
    return queue.laned and not queue.policy.bands and not queue.policy.sequence


def hand_out_laned(tx: Writing, queue: Queue, bound: Bound, s: int | None) -> bool:
    """Hand out what the lanes of a queue have; whether a bound stopped it."""
    while filing.queue_open(queue, tx.now):
        band = tx.value(filing.SQL["next_ring"], (queue.q, None))
        if band is None:
            return False
        ring = _Ring(tx, queue, bound, band, s)
        stopped, expired = ring.go()
        ring.write()
        if expired is not None:
            lifecycle.expire(tx, tx.numbered(expired))
            bound.left -= 1
            stopped = bound.left < 0
        if stopped:
            return True
    return False


class _Stand:
    """A lane in a ring, and those of its jobs that have been read."""

    __slots__ = ("clock", "due", "heads", "lane", "left", "limited", "next", "step", "taken", "whole")

    def __init__(self, lane: Lane, clock: int, due: int, *, limited: bool) -> None:
        policy = lane.policy
        self.lane = lane
        self.clock = clock
        self.due = due
        self.step = stride(policy.weight)
        self.limited = limited or policy.concurrency is not None or policy.rate is not None
        self.taken = 0
        """How many of its jobs have been taken."""
        self.heads: Sequence[Row] = ()
        """The jobs of it that were read last; the first `next` of them have been taken."""
        self.next = 0
        self.whole = False
        """Whether there are no jobs of it but those that have been read."""
        self.left = False
        """Whether it has left this ring: parked, or nothing more to hand out."""


class _Ring:
    """Turns of the lanes of one ring."""

    def __init__(self, tx: Writing, queue: Queue, bound: Bound, band: int, s: int | None) -> None:
        policy, ask = queue.policy, bound.ask
        self._tx, self._queue, self._bound, self._band, self._s = tx, queue, bound, band, s
        self._turn = turn_of(ask.slots, ask.soon)
        self._of_queue = policy.one_ring
        self._limited = policy.concurrency is not None or policy.rate is not None
        self._limited_room = max(ask.slots, ask.soon)
        # Of lanes under a limit little is handed out ahead; what is read beyond it is read in vain.
        narrow = self._limited or policy.lane_concurrency is not None or policy.lane_rate is not None
        self._room = self._limited_room if narrow else ask.limit
        another = None if self._of_queue else tx.value(filing.SQL["next_ring"], (queue.q, band))
        suspect = tx.one(filing.SQL["any_suspect"], (queue.q,))
        self._alone = another is None and suspect is None
        """Whether all that its lanes have ready is in this ring."""
        self._time = 0
        self._ring: list[tuple[int, str, _Stand]] = []
        self._last = _BEFORE_ALL
        """The last lane that was read, as it stood; all behind it are unread, unless the ring is `_whole`."""
        self._whole = False
        self._touched: dict[str, _Stand] = {}
        self._taken: list[Row] = []
        self._lanes: list[str] = []
        """Of each job that was taken."""

    def go(self) -> tuple[bool, int | None]:
        """Let lanes take turns until there is nothing to take. Returns whether a bound ended it, and the job
        that did by having expired.
        """
        tx, queue, ring = self._tx, self._queue, self._ring
        while self._time < REBASE_AT:
            if self._limited and not filing.queue_open(queue, tx.now):
                break
            while not self._whole and (not ring or ring[0][:2] > self._last):
                self._read()
            if not ring:
                break
            stand = ring[0][2]
            stopped, expired = self._take_turn(stand)
            if stopped or expired is not None:
                return stopped, expired
            if stand.left:
                heappop(ring)
            else:
                heapreplace(ring, (stand.due, stand.lane.name, stand))
        return False, None

    def _read(self) -> None:
        """Read the next lanes: as many as are needed if each has a whole turn."""
        tx, queue, limited, ring = self._tx, self._queue, self._limited, self._ring
        wanted = max(1, self._room + 1 - len(self._bound.leases))
        most = min(MOST_LANES, -(-wanted // self._turn))
        rows = tx.all(SQL["ring_lanes"], (queue.q, self._band, most, *self._last))
        for name, clock, due, *row in rows:
            ring.append((due, name, _Stand(tx.lane_of_row(queue, name, row), clock, due, limited=limited)))
        heapify(ring)
        self._whole = len(rows) < most
        if rows:
            self._last = (rows[-1][2], rows[-1][0])

    def _take_turn(self, stand: _Stand) -> tuple[bool, int | None]:
        """Take jobs of a lane in a row. Returns as `go`."""
        tx, queue, bound, name = self._tx, self._queue, self._bound, stand.lane.name
        room = self._limited_room if stand.limited else bound.ask.limit
        left = self._turn
        while left and (may := self._may(stand, left)) > 0:
            heads = self._heads(stand, may)
            assert heads or left < self._turn, f"lane {name!r} is in a ring and has nothing to hand out"
            if not heads:
                break
            chosen, stopped, expired = choose(tx, queue, name, heads, bound, room, self._s)
            if chosen:
                self._take(stand, chosen)
                left -= len(chosen)
            if stopped or expired is not None:
                return stopped, expired
        stand.left = self._may(stand, 1, of_queue=False) <= 0 or not self._has_more(stand)
        if stand.left and not stand.taken:
            filing.refresh(tx, queue, stand.lane)  # else it would be met again for ever
        return False, None

    def _may(self, stand: _Stand, most: int, *, of_queue: bool = True) -> int:
        """How many jobs of a lane may be handed out now; one at a time, if each takes a token."""
        if not stand.limited:
            return most
        lane, queue, now = stand.lane, self._queue, self._tx.now
        for place in (lane, queue) if of_queue else (lane,):
            policy = place.policy
            if policy.concurrency is not None:
                most = min(most, policy.concurrency - place.running)
            if policy.rate is not None:
                most = 0 if filing.wait_for_token(place, policy.rate, now) else min(most, 1)
        return most

    def _heads(self, stand: _Stand, most: int) -> Sequence[Row]:
        """The next jobs of a lane in this ring, not more than so many; there may be more behind them."""
        begin = stand.next
        if begin == len(stand.heads) and not stand.whole:
            self._read_heads(stand, most)
            begin = 0
        return stand.heads[begin : begin + most]

    def _read_heads(self, stand: _Stand, most: int) -> None:
        bound = self._bound
        if self._whole and bound.bytes <= LARGE * len(bound.leases):
            # Few lanes: this one will have more turns.
            ahead = (self._room - len(bound.leases)) // len(self._ring) + 1
            most = max(most, min(ahead, MOST_AHEAD))
        last = stand.heads[-1][0] if stand.heads else None
        asked = (self._queue.q, stand.lane.name, most, last)
        if self._of_queue:
            stand.heads = self._tx.all(SQL["heads_of_lane"], asked)
        else:
            stand.heads = self._tx.all(SQL["heads_of_band"], (*asked, self._band))
        stand.next = 0
        stand.whole = len(stand.heads) < most

    def _has_more(self, stand: _Stand) -> bool:
        if self._alone or not stand.lane.ready:
            return stand.lane.ready > 0
        return bool(self._heads(stand, 1))

    def _take(self, stand: _Stand, chosen: list[Row]) -> None:
        """Jobs are claimed from a lane. A changed weight counts from the claim after this one."""
        lane, queue, now, count = stand.lane, self._queue, self._tx.now, len(chosen)
        if count > 1:
            stand.due += (count - 1) * stand.step
            stand.clock = stand.due - stand.step
        self._time = max(self._time, stand.clock)  # before the last of them
        stand.clock, stand.due = stand.due, stand.due + stand.step
        stand.next += count
        stand.taken += count
        lane.ready -= count
        lane.running += count
        queue.running += count
        self._touched[lane.name] = stand
        self._taken += chosen
        self._lanes += [lane.name] * count
        if queue.policy.rate is not None:
            queue.bucket = taken(queue.bucket or full(queue.policy.rate, now), queue.policy.rate, now)
        rate = lane.policy.rate
        if rate is not None:
            lane.bucket = taken(lane.bucket or full(rate, now), rate, now)
            wait = filing.wait_for_token(lane, rate, now)
            lane.wake_at = now + wait if wait and lane.ready else None

    def write(self) -> None:
        """Write what was taken: jobs, lanes, places and the ring."""
        if not self._taken:
            return
        tx, q, band, touched = self._tx, self._queue.q, self._band, self._touched.values()
        write_leases(tx, self._queue, self._taken, self._lanes, self._bound.ask, self._s)
        self._write_lanes(touched)
        self._write_places(touched)
        tx.run(SQL["set_time"], (q, band, self._time))
        if any(stand.left for stand in touched):
            tx.run(filing.SQL["empty_ring"], (q, band, tx.now))
        if not self._alone and not self._of_queue:
            parked = [stand.lane.name for stand in touched if self._may(stand, 1, of_queue=False) <= 0]
            filing.park(tx, self._queue, parked)
        if self._time >= REBASE_AT:
            tx.run(filing.SQL["rebase_places"], (q, band, self._time))
            tx.run(filing.SQL["rebase_ring"], (q, band))

    def _write_lanes(self, touched: Iterable[_Stand]) -> None:
        """Write what lanes count: those without tokens in a statement for each number of jobs, mostly one."""
        tx, q = self._tx, self._queue.q
        alike: dict[int, list[str]] = {}
        for stand in touched:
            lane = stand.lane
            if lane.bucket is None:
                alike.setdefault(stand.taken, []).append(lane.name)
            else:
                tx.touch_lane(lane)
        for count, names in alike.items():
            tx.run(SQL["take_from_lanes"], (q, as_json(names), count))

    def _write_places(self, touched: Iterable[_Stand]) -> None:
        """Write where lanes stand: in a statement for all that went equally far and stay, or leave."""
        tx, q, band = self._tx, self._queue.q, self._band
        alike: dict[tuple[int, int | None], list[str]] = {}
        for stand in touched:
            by = stand.taken * stand.step
            alike.setdefault((by - stand.step, None if stand.left else by), []).append(stand.lane.name)
        for ahead, names in alike.items():
            tx.run(SQL["advance_places"], (q, as_json(names), band, *ahead))
