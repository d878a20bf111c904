"""Schedules: when a rule fires, and which missed ticks are made up for.

A tick is an instant that a rule names. Every worker computes the same ticks from the same rule, and the
store moves `next_at` from one to the next by compare-and-set, so that a tick fires once however many workers
look (fault 26).

Ticks missed while nobody looked (fault 27), by `catch_up`:

    skip   the latest fires if it is at most `grace` late; the others are dropped
    one    the latest fires, however late; the others are dropped
    all    every tick fires, oldest first; beyond `cap` the oldest are dropped

With `skip` and `one` a tick is also missed while an earlier job of the schedule has never started
(`Fire.unless_waiting`), so at most one job of the schedule waits for its start. That is why `skip` fires one
tick and not all that are within `grace`. When ticks must go, the oldest go: the one that is due now is the
last to be given up.
"""

from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from windlass.core.cron import Cron
from windlass.core.duration import LONGEST, Duration, instant, micros
from windlass.core.option import choice, whole
from windlass.core.units import MAX_INTEGER, SECOND, Micros

CatchUp: TypeAlias = Literal["skip", "one", "all"]

GRACE: Micros = 60 * SECOND
CAP = 100
MOST_TICKS = 1_000
MOST_COUNTED = 100
SHORTEST_INTERVAL: Micros = SECOND


class Every(msgspec.Struct, frozen=True, tag_field="rule", tag="every"):
    """Fires each `interval` of elapsed time, both ways from `anchor`; in microseconds. See `Every.of("5m")`.

    The anchor is the epoch unless given: a deployment does not move the ticks, and "1h" means on the hour.
    """

    interval: Micros
    anchor: Micros = 0

    def __post_init__(self) -> None:
        whole(
            self.interval,
            name='interval, in microseconds (Every.of takes seconds or text such as "5m"),',
            least=SHORTEST_INTERVAL,
            most=LONGEST,
        )
        whole(self.anchor, name="anchor", least=0, most=MAX_INTEGER)

    @classmethod
    def of(cls, interval: Duration, *, anchor: datetime | None = None) -> "Every":
        """Make the rule from seconds, text or a timedelta, and a datetime that says its zone."""
        start = 0 if anchor is None else instant(anchor, name="anchor")
        return cls(micros(interval, name="interval"), start)

    def next_tick(self, after: Micros) -> Micros | None:
        """The first tick strictly after a time."""
        return after + self.interval - (after - self.anchor) % self.interval

    def latest_tick(self, at: Micros) -> Micros | None:
        """The last tick at or before a time."""
        return at - (at - self.anchor) % self.interval


class Once(msgspec.Struct, frozen=True, tag_field="rule", tag="once"):
    """Fires at one instant, in microseconds since the epoch. See `Once.of(datetime(…, tzinfo=UTC))`."""

    at: Micros

    def __post_init__(self) -> None:
        whole(self.at, name="at", least=0, most=MAX_INTEGER)

    @classmethod
    def of(cls, at: datetime) -> "Once":
        """Make the rule from a datetime that says its zone."""
        return cls(instant(at, name="at"))

    def next_tick(self, after: Micros) -> Micros | None:
        """The tick, while it lies ahead."""
        return self.at if self.at > after else None

    def latest_tick(self, at: Micros) -> Micros | None:
        """The tick, once it is reached."""
        return self.at if self.at <= at else None


Rule: TypeAlias = Cron | Every | Once


class Due(msgspec.Struct, frozen=True):
    """Which ticks fire now (oldest first), and when the rule is next due; None: never again."""

    ticks: tuple[Micros, ...]
    next_at: Micros | None
    dropped: int = 0
    """Ticks that do not fire, by policy. Counted up to 100, which stands for "100 or more"."""


def next_tick(
    rule: Rule, after: Micros, *, start: Micros | None = None, end: Micros | None = None
) -> Micros | None:
    """Return the first tick after `after`, not before `start` and before `end`; None: there is none.

    No tick lies before the epoch or at 2^53 µs (the year 2255) and later: a store could not hold it.
    """
    if (earliest := max(after, -1, -1 if start is None else start - 1)) >= MAX_INTEGER:
        return None
    tick = rule.next_tick(earliest)
    return tick if tick is not None and tick < _limit(end) else None


def latest_tick(rule: Rule, at: Micros) -> Micros | None:
    """Return the last tick at or before `at`, found from there backwards; None: there is none."""
    tick = rule.latest_tick(min(at, MAX_INTEGER)) if at >= 0 else None
    return tick if tick is not None and tick >= 0 else None


def upcoming(
    rule: Rule, after: Micros, count: int, *, start: Micros | None = None, end: Micros | None = None
) -> list[Micros]:
    """Return the next `count` ticks, or as many as there are."""
    whole(count, name="count", least=0, most=MOST_TICKS)
    ticks: list[Micros] = []
    while len(ticks) < count and (tick := next_tick(rule, after, start=start, end=end)) is not None:
        ticks.append(tick)
        after = tick
    return ticks


def due_ticks(
    rule: Rule,
    next_at: Micros | None,
    now: Micros,
    *,
    catch_up: CatchUp = "skip",
    grace: Micros = GRACE,
    cap: int = CAP,
    end: Micros | None = None,
) -> Due:
    """Return what fires now, when `next_at` is what the store holds: the first tick that has not fired.

    `next_at` counts as a tick even if the rule does not name it any more (zones are changed by law, and their
    data by updates): a preview has promised it. The work is bounded by `cap` and by what is counted as
    dropped, however long nobody looked.
    """
    choice(catch_up, name="catch_up", among=("skip", "one", "all"))
    whole(cap, name="cap", least=1, most=MOST_TICKS)
    whole(grace, name="grace", least=0, most=LONGEST)
    if next_at is None or next_at >= _limit(end):
        return Due((), None)
    if next_at > now:
        return Due((), next_at)
    most = cap if catch_up == "all" else 1
    oldest = now - grace if catch_up == "skip" else next_at
    fired: list[Micros] = []
    dropped = 0
    for tick in _back(rule, next_at, min(now, _limit(end) - 1)):
        if len(fired) < most and tick >= oldest:
            fired.append(tick)
        elif (dropped := dropped + 1) >= MOST_COUNTED:
            break
    return Due(tuple(reversed(fired)), next_tick(rule, now, end=end), dropped)


def jitter_of(name: str, tick: Micros, jitter: Micros) -> Micros:
    """Return how much later than its tick a job of schedule `name` runs: from 0 to less than `jitter`.

    Drawn from a hash of both, so that every worker draws the same and no state is kept. It delays the job and
    leaves the tick alone: ticks stay unique and in order, whatever the jitter.
    """
    drawn = int.from_bytes(blake2b(f"{tick} {name}".encode(), digest_size=8).digest())
    return drawn * jitter >> 64


def _back(rule: Rule, oldest: Micros, newest: Micros) -> Iterator[Micros]:
    """Ticks from `newest` back to `oldest`, which is a tick whether or not the rule names it."""
    tick = latest_tick(rule, newest)
    while tick is not None and tick > oldest:
        yield tick
        tick = latest_tick(rule, tick - 1)
    yield oldest


def _limit(end: Micros | None) -> Micros:
    return MAX_INTEGER + 1 if end is None else min(end, MAX_INTEGER + 1)
