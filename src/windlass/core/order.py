"""Order: bands by priority, weight or age, and lanes by stride.

Claim order in a queue is band, then lane, then first in first out. A *ring* holds the lanes of one band (or,
with `order="lane"`, of the whole queue) that have something to hand out. It is ordered by virtual time: each
lane has a clock, a claim advances it by `2^20 * cost // weight`, and the lane whose clock would be lowest
*after* the claim goes first, ties by name. Ordering by the clock before the claim would give A B A A B A for
weights 2 and 1; ordering by the clock after it gives A A B A A B.

A lane's *turn* is one job. An asker that is about to start many short jobs gets up to four in a row of each
(`turn_of`): within a moment nobody sees who of them was first, and what a lane costs a store is shared by
them. Each of them advances the clock, so that shares stay what they are.

The ring's time is the highest clock at which a lane was ever claimed from. A lane that comes back, from being
idle or parked, enters at the later of its own clock and the ring's time: it neither saves credit nor sheds
debt.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from windlass.core.units import Micros

STRIDE = 2**20
REBASE_AT = 2**52
MAX_WEIGHT = 1_000
MAX_TURN = 4
TURN_STEP = 32
WEYL = 2_654_435_769
"""2^32 divided by the golden ratio: steps of this size around a circle of 2^32 never leave a large gap."""


def stride(weight: int, cost: int = 1) -> int:
    """What a claim adds to a lane's clock."""
    return STRIDE * cost // weight


def turn_of(slots: int, soon: int) -> int:
    """How many jobs a lane hands out in a row to an ask: one more for every 32 that start in a moment."""
    return min(MAX_TURN, 1 + max(0, soon - slots) // TURN_STEP)


def band_of(priority: int, due_at: Micros, bands: Mapping[int, int] | None, age_step: Micros | None) -> int:
    """The band a job is filed in: fixed when it is filed, never moved. Smaller numbers go first.

    strict: the priority. weighted: the nearest listed priority that is not higher (else the lowest listed).
    aging: `due // age_step - priority`, so that a job gains one priority on newer ones per step it waits.
    """
    if age_step is not None:
        return due_at // age_step - priority
    if bands:
        listed = [band for band in bands if band <= priority]
        return -max(listed) if listed else -min(bands)
    return -priority


def draws(draw: int) -> Iterable[int]:
    """The numbers below 2^32 that decide between weighted bands, one per job of a claim.

    A Weyl sequence: an asker that goes on where it stopped reaches a band of weight share p at least once in
    about 2.6 / p jobs, for certain. Random numbers would promise the same only on average.
    """
    while True:
        yield draw
        draw = (draw + WEYL) % 2**32


def next_draw(draw: int, claimed: int) -> int:
    """Where an asker goes on after a claim of so many jobs."""
    return (draw + claimed * WEYL) % 2**32


def choose_band(present: Iterable[int], bands: Mapping[int, int] | None, draw: int) -> int:
    """The band to take the next job from, among those that have one to hand out.

    Bands that were filed under another set of weights count with the listed band they would fall in now, and
    go in order within it.
    """
    order = sorted(present)
    if not bands:
        return order[0]
    shares: dict[int, int] = {}
    first: dict[int, int] = {}
    for band in order:
        listed = band_of(-band, 0, bands, None)
        shares[listed] = bands[-listed]
        first.setdefault(listed, band)
    point = draw * sum(shares.values()) // 2**32
    for listed, share in shares.items():
        if point < share:
            return first[listed]
        point -= share
    raise AssertionError("draw is below 2^32, so the point is below the sum")  # pragma: no cover


class LaneClock(msgspec.Struct):
    """A lane's clock, and while it is in the ring the clock it will have after its next claim."""

    clock: int = 0
    due: int | None = None

    def enter(self, time: int, weight: int) -> None:
        """The lane comes back into a ring: with its debt, without credit."""
        self.clock = max(self.clock, time)
        self.due = self.clock + stride(weight)

    def advance(self, weight: int) -> None:
        """A job was claimed from the lane. A changed weight counts from the next claim on."""
        assert self.due is not None
        self.clock = self.due
        self.due += stride(weight)


class Ring:
    """The lanes of one band, or of a queue, in order of virtual time."""

    def __init__(self) -> None:
        self.time = 0
        self.empty_since: Micros | None = None
        self._places: dict[str, LaneClock] = {}

    def __contains__(self, lane: str) -> bool:
        place = self._places.get(lane)
        return place is not None and place.due is not None

    def __len__(self) -> int:
        return sum(place.due is not None for place in self._places.values())

    def first(self) -> str | None:
        """The lane to take from."""
        due = [(place.due, lane) for lane, place in self._places.items() if place.due is not None]
        return min(due)[1] if due else None

    def enter(self, lane: str, weight: int) -> None:
        """A lane that was idle or parked comes back."""
        self._places.setdefault(lane, LaneClock(self.time)).enter(self.time, weight)

    def leave(self, lane: str) -> None:
        """A lane has nothing to hand out any more; it keeps its clock."""
        self._places[lane].due = None

    def take(self, lane: str, weight: int) -> None:
        """A job was claimed from a lane of the ring."""
        place = self._places[lane]
        self.time = max(self.time, place.clock)
        place.advance(weight)
        self._rebase()

    def lag(self, lane: str) -> int:
        """How far a lane's clock is ahead of the ring's time: what it has had in advance."""
        place = self._places.get(lane)
        return 0 if place is None else max(0, place.clock - self.time)

    def forget_idle(self) -> None:
        """Drop the records of idle lanes that the ring has passed: they would re-enter at its time anyway."""
        passed = [lane for lane, p in self._places.items() if p.due is None and p.clock <= self.time]
        for lane in passed:
            del self._places[lane]

    def _rebase(self) -> None:
        if self.time < REBASE_AT:
            return
        base, self.time = self.time, 0
        for place in self._places.values():
            # An idle lane far behind would go below zero; it re-enters at the ring's time in any case.
            place.clock = max(0, place.clock - base)
            place.due = None if place.due is None else place.due - base


class LaneOrder(Protocol):
    """What turns need of a ring."""

    def __contains__(self, lane: str, /) -> bool:
        """Whether a lane is in it."""
        ...

    def first(self) -> str | None:
        """The lane to take from."""
        ...

    def take(self, lane: str, weight: int) -> None:
        """A job was claimed from a lane."""
        ...


class Turns:
    """Whose turn it is in the rings of a queue, during one claim."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._last: dict[int | None, tuple[str, int]] = {}

    def lane(self, band: int | None, ring: LaneOrder) -> str:
        """The lane to take from: the one that has begun its turn, or the first."""
        lane, count = self._last.get(band, ("", 0))
        if 0 < count < self._most and lane in ring:
            return lane
        first = ring.first()
        assert first is not None
        return first

    def take(self, band: int | None, ring: LaneOrder, lane: str, weight: int) -> None:
        """A job was claimed from that lane."""
        last, count = self._last.get(band, ("", 0))
        ring.take(lane, weight)
        self._last[band] = (lane, count + 1 if last == lane and count < self._most else 1)

    def end(self) -> None:
        """Something else came in between."""
        self._last.clear()
