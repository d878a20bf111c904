"""Candidates: the ready jobs of a queue, in the order in which one claim hands them out.

Band, then lane, then first in first out, by the rules of `windlass.core.order`. Jobs and lanes are read a
page at a time, and what the claim changes is written at the end, so that a claim of 500 jobs takes a few
statements and not a few for each job. A queue that never had a lane has no rings: its jobs are one line per
band.
"""

from heapq import heapify, heappop, heappush

from windlass.broker.sqlite import filing, lifecycle
from windlass.broker.sqlite.records import Job, Queue
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.lease import Ask
from windlass.core.order import REBASE_AT, LaneClock, Turns, choose_band, next_draw, turn_of

SQL = statements("claim")
LANES_READ = 256
"""Lanes of a ring that are read at once, at the most."""
JOBS_READ = 256
"""The same for jobs of a lane."""
_FIRST = -(2**63)


class Line:
    """The ready jobs of a lane in order: those of one band, or of all bands."""

    def __init__(self, tx: Transaction, queue: Queue, lane: str, band: int | None, page: int) -> None:
        self._tx, self._queue, self._lane, self._band, self._page = tx, queue, lane, band, page
        self._jobs: list[Job] = []
        self._next = 0
        self._whole = False

    def head(self) -> Job | None:
        """The first of those that were not taken."""
        if self._next == len(self._jobs) and not self._whole:
            self._read()
        return self._jobs[self._next] if self._next < len(self._jobs) else None

    def take(self) -> None:
        """The head was claimed."""
        self._next += 1

    def _read(self) -> None:
        """Read the next page. What this claim has taken stands before it, so nothing has to be written."""
        last = (self._jobs[-1].band, self._jobs[-1].sequence) if self._jobs else (_FIRST, _FIRST)
        where = (self._queue.q, self._lane, *last, self._page)
        if self._band is None:
            rows = self._tx.all_settled(SQL["ready_in_lane"], where)
        else:
            rows = self._tx.all_settled(SQL["ready_in_band"], (*where, self._band))
        self._jobs, self._next = [self._tx.keep(row) for row in rows], 0
        self._whole = len(rows) < self._page


class SequenceLine(Line):
    """The line of a lane in sequence: only its first unfinished job can be handed out."""

    def _read(self) -> None:
        job = filing.head_of_line(self._tx, self._queue, self._lane)
        self._jobs, self._whole = [] if job is None else [job], True


class StoredRing:
    """The lanes of a ring in order of virtual time, as far as they have been read."""

    def __init__(self, tx: Transaction, queue: Queue, band: int, page: int) -> None:
        self._tx, self._queue, self.band, self._page = tx, queue, band, page
        self.time: int = tx.value(filing.SQL["ring_time"], (queue.q, band)) or 0
        self._places: dict[str, LaneClock] = {}
        self._order: list[tuple[int | None, str]] = []
        """A heap of due times and lanes. An entry counts if it is the due time of the lane's place."""
        self._last: tuple[int, str] = (_FIRST, "")
        """The last lane that was read, with its due time; those behind it are unread, unless `_whole`."""
        self._whole = False
        self.taken: set[str] = set()
        """Lanes that a job was claimed from."""
        self.gone: set[str] = set()
        """Lanes that have left: parked, or nothing more to hand out."""

    def __contains__(self, lane: str) -> bool:
        return lane in self._places and lane not in self.gone

    def first(self) -> str | None:
        """The lane to take from."""
        while True:
            while self._order and not self._counts(*self._order[0]):
                heappop(self._order)
            if self._whole or (self._order and self._order[0] <= self._last):
                return self._order[0][1] if self._order else None
            self._read()

    def _counts(self, due: int | None, lane: str) -> bool:
        return lane not in self.gone and self._places[lane].due == due

    def take(self, lane: str, weight: int) -> None:
        """A job was claimed from a lane."""
        place = self._places[lane]
        self.time = max(self.time, place.clock)
        place.advance(weight)
        heappush(self._order, (place.due, lane))
        self.taken.add(lane)

    def write(self) -> None:
        """Write how far the lanes have come that were taken from."""
        q, band, places = self._queue.q, self.band, self._places
        rows = [(q, lane, band, places[lane].clock, places[lane].due) for lane in self.taken]
        self._tx.many(SQL["save_clock"], rows)
        self._tx.run(SQL["set_time"], (q, band, self.time))

    def _read(self) -> None:
        """Read the next lanes. One that is parked all the same leaves: the clock was set back behind its
        last token.
        """
        rows = self._tx.all_settled(SQL["ring_lanes"], (self._queue.q, self.band, *self._last, self._page))
        for name, clock, due, *row in rows:
            lane = self._tx.lane_of_row(self._queue, name, row)
            self._places[name] = LaneClock(clock, due)
            self._order.append((due, name))
            if filing.parked(self._tx, self._queue, lane) is not None:
                self.gone.add(name)
        heapify(self._order)
        self._whole = len(rows) < self._page
        if rows:
            self._last = (rows[-1][2], rows[-1][0])


class Candidates:
    """What a queue hands out next, during one claim."""

    def __init__(self, tx: Transaction, queue: Queue, ask: Ask) -> None:
        self._tx, self._queue, self._ask = tx, queue, ask
        self._turn = turn_of(ask.slots, ask.soon)
        self._turns = Turns(self._turn)
        self._rings: dict[int, StoredRing] = {}
        self._ring: StoredRing | None = None
        """With strict bands: the one that lanes are taken from."""
        self._lines: dict[tuple[str, int | None], Line] = {}
        self._bands: dict[str, list[int]] = {}
        self._source: tuple[StoredRing | None, Line] = (None, Line(tx, queue, "", None, 0))
        """Where the job came from that was returned last."""
        self._taken: list[Job] = []
        tx.flush()  # what is read from here on sees all that happened before

    def next(self, handed_out: int) -> Job | None:
        """The job that the queue hands out next, if so many were handed out before it."""
        if not filing.queue_open(self._queue, self._tx.now):
            return None
        draw = next_draw(self._ask.draw, handed_out)
        if not self._queue.laned:
            if filing.parked(self._tx, self._queue, self._tx.lane(self._queue, "")) is not None:
                return None
            return self._head("", None, draw)
        while (ring := self._next_ring(draw)) is not None:
            lane = self._turns.lane(ring.band, ring)
            if (job := self._head(lane, ring, draw)) is not None:
                return job
            ring.gone.add(lane)
        return None

    def take(self, job: Job) -> None:
        """The job that was returned last is claimed: its lane moves on, and leaves if it was the last."""
        ring, line = self._source
        lane = self._tx.lane(self._queue, job.lane)
        self._taken.append(job)
        line.take()
        filing.occupy(self._tx, self._queue, lane)
        if ring is None:
            return
        self._turns.take(ring.band, ring, lane.name, lane.policy.weight)
        if filing.parked(self._tx, self._queue, lane) is not None:
            for each in self._rings.values():
                each.gone.add(lane.name)
        elif not lane.ready or self._head(lane.name, ring, 0) is None:
            ring.gone.add(lane.name)
        if ring.time >= REBASE_AT:
            self.write()
            filing.rebase(self._tx, self._queue, ring.band, ring.time)

    def write(self) -> None:
        """Write what was taken and what rings have come to; whatever is asked for next is read anew."""
        lifecycle.start(self._tx, self._queue, self._taken)
        self._taken = []
        gone: set[str] = set()
        for ring in self._rings.values():
            gone |= ring.gone
            if ring.taken:
                ring.write()
        for name in sorted(gone):
            filing.refresh(self._tx, self._queue, self._tx.lane(self._queue, name))
        self._rings, self._ring, self._lines, self._bands = {}, None, {}, {}

    # bands and rings

    def _next_ring(self, draw: int) -> StoredRing | None:
        """The ring to take from: that of the first band, or with weights of the one that the draw chooses."""
        policy = self._queue.policy
        if policy.one_ring:
            ring = self._ring_of(filing.ONE_RING)
            return None if ring.first() is None else ring
        if policy.bands:
            bands = filing.rings_of(self._tx, self._queue) if not self._rings else self._rings
            present = [band for band in list(bands) if self._ring_of(band).first() is not None]
            return self._ring_of(choose_band(present, policy.bands, draw)) if present else None
        while self._ring is None or self._ring.first() is None:
            before = None if self._ring is None else self._ring.band
            rows = self._tx.all_settled(filing.SQL["next_ring"], (self._queue.q, before))
            if not rows:
                return None
            self._ring = self._ring_of(rows[0][0])
        return self._ring

    def _ring_of(self, band: int) -> StoredRing:
        ring = self._rings.get(band)
        if ring is None:
            page = min(LANES_READ, self._ask.limit // self._turn + 1)
            ring = self._rings[band] = StoredRing(self._tx, self._queue, band, page)
        return ring

    # lines

    def _head(self, lane: str, ring: StoredRing | None, draw: int) -> Job | None:
        """The first job of a lane: in the band of its ring, or in the one that the draw chooses."""
        policy, band = self._queue.policy, None
        if ring is not None and not policy.one_ring:
            band = ring.band
        elif policy.bands and not policy.sequence:
            present = [band for band in self._bands_of(lane) if self._line(lane, band).head() is not None]
            if not present:
                return None
            band = choose_band(present, policy.bands, draw)
        line = self._line(lane, band)
        self._source = (ring, line)
        return line.head()

    def _bands_of(self, lane: str) -> list[int]:
        if lane not in self._bands:
            self._bands[lane] = list(filing.bands_of(self._tx, self._queue, lane))
        return self._bands[lane]

    def _line(self, lane: str, band: int | None) -> Line:
        line = self._lines.get((lane, band))
        if line is None:
            kind = SequenceLine if self._queue.policy.sequence else Line
            # One more than fits, to know whether there is another.
            page = min(JOBS_READ, self._turn if self._queue.laned else self._ask.limit) + 1
            line = self._lines[lane, band] = kind(self._tx, self._queue, lane, band, page)
        return line


class Suspects:
    """What a queue hands out to an asker that runs one job alone."""

    def __init__(self, tx: Transaction, queue: Queue) -> None:
        self._tx, self._queue = tx, queue

    def next(self, _handed_out: int) -> Job | None:
        """The first suspect that may be handed out."""
        return filing.next_suspect(self._tx, self._queue)

    def take(self, job: Job) -> None:
        """It is claimed, and its lane may have to leave a ring."""
        lane = self._tx.lane(self._queue, job.lane)
        filing.occupy(self._tx, self._queue, lane)
        lifecycle.start(self._tx, self._queue, [job])
        filing.refresh(self._tx, self._queue, lane)

    def write(self) -> None:
        """Everything is written."""
