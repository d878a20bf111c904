"""Schedules around the changes of a zone's clocks, fired by workers that are paused and killed, and what an
independent calculation says of them: a scan of every minute that only asks what a clock shows.
"""

import asyncio
import contextlib
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast
from zoneinfo import ZoneInfo, available_timezones

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired
from windlass.errors import StoreUnavailable
from windlass.pace import MachinePace
from windlass.worker.firing import Firing
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
AROUND = 2 * DAY
GRACE = 600 * SECOND
LONG_PAUSE = 0.03
"""Of the looks: those that come thirty hours after the one before."""


@dataclass(frozen=True)
class Told:
    """A schedule: the text that is declared, and what that text means, written down by hand."""

    name: str
    cron: str
    minutes: frozenset[int]
    hours: frozenset[int]
    fixed: bool
    """It names hours and minutes of a day, and does not go by elapsed time."""
    catch_up: str = "all"

    def shown(self, wall: int) -> bool:
        """Whether a clock that shows this, as if it were UTC, shows one of its times."""
        return wall // MINUTE % 60 in self.minutes and wall // HOUR % 24 in self.hours


def _set(*values: int) -> frozenset[int]:
    return frozenset(values)


EVERY_HOUR = frozenset(range(24))
SCHEDULES = (
    Told("a", "30 2 * * *", _set(30), _set(2), fixed=True),
    Told("b", "0 0 * * *", _set(0), _set(0), fixed=True),
    Told("c", "15,45 1,3 * * *", _set(15, 45), _set(1, 3), fixed=True),
    Told("d", "0 * * * *", _set(0), EVERY_HOUR, fixed=False),
    Told("e", "*/20 0-4 * * *", _set(0, 20, 40), frozenset(range(5)), fixed=False),
    Told("f", "30 2 * * *", _set(30), _set(2), fixed=True, catch_up="one"),
    Told("g", "0 * * * *", _set(0), EVERY_HOUR, fixed=False, catch_up="one"),
    Told("h", "30 2 * * *", _set(30), _set(2), fixed=True, catch_up="skip"),
    Told("i", "*/20 0-4 * * *", _set(0, 20, 40), frozenset(range(5)), fixed=False, catch_up="skip"),
)


# --- the independent calculation ----------------------------------------------------------------------------


def clock(zone: ZoneInfo, at: int) -> int:
    """What a clock shows, as if it were UTC."""
    offset = datetime.fromtimestamp(at // SECOND, zone).utcoffset()
    assert offset is not None
    return at + round(offset.total_seconds()) * SECOND


def scanned(zone: ZoneInfo, begin: int, end: int) -> list[tuple[int, int]]:
    """Every minute, and what the clock shows at it."""
    return [(minute, clock(zone, minute)) for minute in range(begin, end, MINUTE)]


def expected(told: Told, scan: Sequence[tuple[int, int]], begin: int) -> list[int]:
    """The ticks after a time: a fixed time when the clock shows it, or more, for the first time; any other
    whenever the clock shows it.
    """
    if not told.fixed:
        return [minute for minute, wall in scan if minute > begin and told.shown(wall)]
    ticks: list[int] = []
    latest = scan[0][1]
    for minute, wall in scan[1:]:
        if any(told.shown(each) for each in range(latest + MINUTE, wall + MINUTE, MINUTE)):
            ticks.append(minute)
        latest = max(latest, wall)
    return [tick for tick in ticks if tick > begin]


def owed(told: Told, ticks: Iterable[int], at: int) -> int:
    """How many jobs a look at this time makes, of the ticks since the look before."""
    since = [tick for tick in ticks if tick <= at]
    match told.catch_up:
        case "all":
            return len(since)
        case "one":
            return min(1, len(since))
        case _:
            return min(1, sum(tick >= at - GRACE for tick in since))


# --- zones --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def all_zones() -> list[str]:
    """Every zone that a schedule can name."""
    not_zones = ("localtime", "posixrules", "Factory", "posix/", "right/", "SystemV/")
    return sorted(name for name in available_timezones() if not name.startswith(not_zones))


def changes(name: str, years: Sequence[int]) -> list[tuple[int, int, int]]:
    """When the clocks of a zone are changed: the minute, what they were ahead of UTC before, and after."""
    zone, found = ZoneInfo(name), list[tuple[int, int, int]]()
    first = int(datetime(years[0], 1, 1, tzinfo=UTC).timestamp()) * SECOND
    last = int(datetime(years[-1] + 1, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    for day, following in pairwise(range(first, last, DAY)):
        before, after = clock(zone, day) - day, clock(zone, following) - following
        if before != after:
            low, high = day // MINUTE, following // MINUTE
            while high - low > 1:
                middle = (low + high) // 2
                same = clock(zone, middle * MINUTE) - middle * MINUTE == before
                low, high = (middle, high) if same else (low, middle)
            found.append((high * MINUTE, before, after))
    return found


def differing(years: Sequence[int]) -> dict[str, list[int]]:
    """One name for each way in which clocks are changed in these years, with the minutes of the changes:
    zones that do as another does are not looked at again.
    """
    seen: dict[tuple[tuple[int, int, int], ...], str] = {}
    for name in all_zones():
        seen.setdefault(tuple(changes(name, years)), name)
    return {name: [each[0] for each in found] for found, name in seen.items() if found}


def windows(around: Sequence[int]) -> list[tuple[int, int]]:
    """The times around some changes, those that touch as one."""
    spans: list[tuple[int, int]] = []
    for at in around:
        if spans and at - AROUND <= spans[-1][1]:
            spans[-1] = (spans[-1][0], at + AROUND)
        else:
            spans.append((at - AROUND, at + AROUND))
    return spans


# --- workers ------------------------------------------------------------------------------------------------


class Killed(Exception):
    """The worker's process is gone."""


@dataclass
class Mortal:
    """A store as a worker sees it that may be killed at one of its fires, before or after the store hears of
    it; and that lets others go on between any two of its calls.
    """

    broker: Broker
    victim: str | None = None
    heard: bool = False
    cut: bool = False
    """The connection is lost, instead of the worker: it goes on, and has no answer."""

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.broker, name)

        async def call(*given: Any, **more: Any) -> Any:
            await asyncio.sleep(0)
            return await verb(*given, **more)

        return call

    async def fire(self, fire: Fire) -> Fired:
        await asyncio.sleep(0)
        if fire.name != self.victim:
            return await self.broker.fire(fire)
        if self.heard:
            await self.broker.fire(fire)
        raise (StoreUnavailable("no answer") if self.cut else Killed)


@dataclass
class Simulation:
    """The schedules of a zone, from one time to another."""

    zone: str
    begin: int
    end: int
    seed: int
    made: int = 0
    """Jobs."""
    passes: int = 0
    deaths: int = 0
    app: Windlass = field(default_factory=lambda: Windlass("memory://"))

    async def run(self, broker: Broker, store_clock: ManualClock) -> None:
        """Let workers fire, and compare after each of them."""
        chance = random.Random(f"{self.zone} {self.begin} {self.seed}")
        self._declare()
        await self.app.declare(broker)
        zone = ZoneInfo(self.zone)
        scan = scanned(zone, self.begin - DAY, self.end + 2 * DAY)
        due = {told.name: expected(told, scan, self.begin) for told in SCHEDULES}
        await self._compare(broker, due, {}, self.begin)
        at = self.begin
        while at < self.end:
            pause = 1_800 if chance.random() < LONG_PAUSE else chance.choice((1, 7, 20, 59, 60, 61, 240))
            at += pause * MINUTE + chance.randrange(60) * SECOND
            store_clock.advance(at - store_clock.now())
            lived = await self._work(broker, chance)
            looked = {told.name for told in SCHEDULES} if lived is None else lived
            jobs = {told.name: owed(told, due[told.name], at) for told in SCHEDULES if told.name in looked}
            for name in looked:
                due[name] = due[name][bisect_right(due[name], at) :]
            await self._compare(broker, due, jobs, at)
            # Between two looks every job starts: one that waited would keep its schedule from firing.
            while (await broker.purge("default", State.READY, 1_000)).more:
                pass

    def _declare(self) -> None:
        @self.app.task
        def nothing() -> None: ...

        for told in SCHEDULES:
            self.app.schedule(
                told.name,
                nothing.call(),
                cron=told.cron,
                tz=self.zone,
                catch_up=cast("Any", told.catch_up),
                grace=GRACE // SECOND,
                cap=1_000,
            )

    async def _work(self, broker: Broker, chance: random.Random) -> set[str] | None:
        """Let workers look: alone, together, or one that dies of it. The schedules that were looked at for
        certain; None: all of them.
        """
        fate = chance.choice(("alone", "alone", "together", "killed", "cut off"))
        self.passes += 1
        if fate == "alone":
            await self._janitor(Mortal(broker)).sweep()
            return None
        if fate == "together":
            racers = [cast("Broker", Mortal(broker)) for _ in range(3)]
            await asyncio.gather(*(Firing(each, self.app.new_id).due() for each in racers))
            return None
        before = {each.name: each for each in (await broker.schedules()).schedules}
        now = (await broker.schedules()).now
        names = [name for name, each in before.items() if each.next_at is not None and each.next_at <= now]
        if not names:
            await self._janitor(Mortal(broker)).sweep()
            return None
        # They are fired in the order of their names: who comes behind the victim is not looked at.
        mortal = Mortal(broker, chance.choice(names), heard=chance.random() < 0.5, cut=fate == "cut off")
        self.deaths += 1
        with contextlib.suppress(Killed):
            await self._janitor(mortal).sweep()
        assert mortal.victim is not None
        return {
            told.name
            for told in SCHEDULES
            if told.name < mortal.victim
            or (told.name == mortal.victim and mortal.heard)
            or told.name not in names
        }

    def _janitor(self, mortal: Mortal) -> Janitor:
        broker = cast("Broker", mortal)
        pace = MachinePace()
        return Janitor(
            broker,
            pace,
            self.app.config,
            pruning=Pruning(broker, self.app, pace),
            fire=Firing(broker, self.app.new_id).due,
        )

    async def _compare(
        self, broker: Broker, due: dict[str, list[int]], jobs: dict[str, int], at: int
    ) -> None:
        """What the store holds against what is owed."""
        for view in (await broker.schedules()).schedules:
            where = f"{self.zone}, schedule {view.name} at {moment(at)}"
            wanted = next(iter(due[view.name]), None)
            if wanted is not None:  # else it lies beyond what was scanned
                assert view.next_at == wanted, f"{where}: next at {view.next_at}, not {moment(wanted)}"
            made = [len(fire.jobs) for fire in view.fires if fire.at == at]
            assert sum(made) == jobs.get(view.name, 0), f"{where}: {made} jobs, owed {jobs.get(view.name, 0)}"
            self.made += sum(made)


def moment(at: int) -> str:
    """A time, for people."""
    return f"{datetime.fromtimestamp(at / SECOND, UTC):%Y-%m-%d %H:%M:%S}Z"
