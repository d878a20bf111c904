"""Janitors sweep in step with each other, at once while work is left, and say what operators must know."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from tests.worker.simulated import ManualPace, capture

from windlass import Windlass
from windlass.config import Config
from windlass.core.session import Swept
from windlass.core.units import MILLISECOND, SECOND
from windlass.errors import StoreUnavailable
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning

BUSY = Swept(promoted=1, since=250 * MILLISECOND)
QUIET = Swept(since=250 * MILLISECOND)
EARLY = Swept(early=True, since=10 * MILLISECOND)


class Broom:
    """Answers sweeps as a test says, and notes when they came."""

    def __init__(self, pace: ManualPace, answer: Swept | Exception) -> None:
        self.answer = answer
        self.answers: list[Swept | Exception] = []
        self.times: list[float] = []
        self.asked: list[tuple[int, int]] = []
        self.looks: list[float] = []
        self.takes = 0.0
        self._pace = pace

    async def sweep(self, *, limit: int, every: int, keep_dead: bool) -> Swept:
        assert keep_dead
        self.times.append(self._pace.now())
        self.asked.append((limit, every))
        if self.takes:
            await self._pace.sleep(self.takes)
        answer = self.answers.pop(0) if self.answers else self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def gaps(self) -> list[float]:
        return [round(b - a, 6) for a, b in zip(self.times, self.times[1:], strict=False)]


def swept(answer: Swept | Exception, *first: Swept | Exception, seconds: float, **more: Any) -> Broom:
    """Let a janitor sweep for some time."""

    async def main() -> Broom:
        pace = ManualPace()
        pace.draw = more.get("draw", 0.0)
        broom: Any = Broom(pace, answer)
        broom.answers, broom.takes = list(first), more.get("takes", 0.0)
        pruning = Pruning(broom, Windlass("memory://"), pace)

        async def look() -> None:
            broom.looks.append(pace.now())
            await pace.sleep(more.get("look_takes", 0.0))

        janitor = Janitor(broom, pace, more.get("config", Config()), look=look, pruning=pruning)
        running = asyncio.create_task(janitor.run())
        await pace.advance(seconds)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return broom

    return asyncio.run(main())


def test_a_busy_store_is_swept_four_times_a_second() -> None:
    broom = swept(BUSY, seconds=10)
    assert set(broom.gaps) == {0.25}
    assert set(broom.asked) == {(1_000, 250 * MILLISECOND)}


def test_a_janitor_whose_passes_come_early_waits_longer() -> None:
    gaps = swept(EARLY, seconds=20).gaps
    assert gaps[:3] == [0.375, 0.5625, 0.84375]
    assert gaps[-1] == 3.0


def test_one_that_finds_the_last_pass_long_ago_takes_over() -> None:
    late = msgspec.structs.replace(BUSY, since=2 * SECOND)
    gaps = swept(late, *[EARLY] * 10, seconds=30).gaps
    assert gaps[9:14] == [3.0, 1.5, 0.75, 0.375, 0.25]


def test_no_wait_is_longer_than_a_tenth_of_the_ttl() -> None:
    assert max(swept(EARLY, seconds=50, draw=0.999).gaps) == 3.0
    assert max(swept(EARLY, seconds=50, config=Config(session_ttl=12 * SECOND)).gaps) == 1.2


def test_waits_are_spread() -> None:
    assert set(swept(BUSY, seconds=10, draw=0.999).gaps) < {round(0.25 * (1 + 0.25 * 0.999), 6)} | {0.312438}
    assert min(swept(BUSY, seconds=10, draw=0.999).gaps) > 0.3


def test_a_store_with_nothing_to_do_is_swept_ever_more_seldom_but_at_least_every_second() -> None:
    gaps = swept(QUIET, seconds=60).gaps
    assert gaps[0] < gaps[1] < gaps[2]
    assert max(gaps) == 0.8
    assert max(swept(QUIET, seconds=60, draw=0.999).gaps) <= 1.0


def test_work_brings_it_back_at_once() -> None:
    gaps = swept(QUIET, *[QUIET] * 8, BUSY, seconds=20).gaps
    assert gaps[7] == 0.8
    assert gaps[8] == 0.25


def test_what_is_left_is_swept_without_waiting() -> None:
    more = msgspec.structs.replace(BUSY, more=True)
    assert swept(BUSY, more, more, more, seconds=1).gaps[:4] == [0, 0, 0, 0.25]


def test_what_is_left_to_prune_leaves_as_much_time_to_others() -> None:
    pruned = Swept(pruned=1_000, more=True)
    moved = msgspec.structs.replace(pruned, promoted=1)
    gaps = swept(BUSY, pruned, moved, pruned, BUSY, seconds=1, takes=0.0625).gaps
    assert gaps[:4] == [0.125, 0.0625, 0.125, 0.3125]


def test_a_store_that_is_away_is_asked_within_a_second_and_said_once() -> None:
    away = StoreUnavailable("away")
    with capture() as lines:
        broom = swept(BUSY, *[away] * 10, seconds=20)
    assert max(broom.gaps) <= 1.0
    assert lines == [
        "WARNING the store cannot be swept: away; trying until it can",
        "INFO the store can be swept again",
    ]


def test_operators_hear_of_silent_sessions_and_of_a_clock_that_went_back() -> None:
    told = Swept(reaped=("ghost",), stepped_back=90 * SECOND)
    with capture() as lines:
        swept(QUIET, told, seconds=1)
    assert lines == [
        "WARNING session ghost fell silent for longer than its TTL: its jobs are given to others",
        "WARNING the store's clock has gone back by 90.0 s; it is followed: check the clock of its machine",
    ]


@pytest.mark.parametrize(("takes", "least", "most"), [(0.0, 3, 4.5), (0.3, 6, 7.5), (5.0, 10, 11.5)])
def test_alerts_are_looked_at_the_less_often_the_longer_it_takes(
    takes: float, least: float, most: float
) -> None:
    looks = swept(QUIET, seconds=100, look_takes=takes).looks
    gaps = [later - earlier for earlier, later in itertools.pairwise(looks[1:])]
    assert len(gaps) > 5
    assert all(least <= gap <= most for gap in gaps), gaps
