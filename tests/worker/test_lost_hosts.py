"""Any share of a fleet that is lost at once is noticed within the TTL and three seconds, on virtual time."""

# ruff: noqa: ASYNC110 - time is virtual, and a look costs nothing

import asyncio
import random
from collections.abc import Iterator

import pytest
from tests.worker.virtual import LoopClock, run

from windlass import Windlass
from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.config import Config
from windlass.core.session import Beat, SessionInfo, SessionState, Swept
from windlass.core.units import SECOND, Micros
from windlass.worker import janitor
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning

TTL = Options().session_ttl / SECOND
BEAT = Config().beat / SECOND
WITHIN = 3.0
GIVE_UP = 120.0


class Chance:
    """The loop's time, and jitter of a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def jitter(self) -> float:
        return self._draw.random()


class Counting(MemoryBroker):
    """Counts passes that were made, and those that came early."""

    made = early = 0

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        swept = await super().sweep(limit=limit, every=every, keep_dead=keep_dead)
        self.early += swept.early
        self.made += not swept.early
        return swept


class Fleet:
    """Supervisors with a session each: a heart and a janitor."""

    def __init__(self, size: int, seed: int) -> None:
        self.pace = Chance(seed)
        self.broker = Counting(clock=LoopClock())
        self.hosts = [
            [asyncio.create_task(self._heart(f"s{number}")), asyncio.create_task(self._sweeps())]
            for number in range(size)
        ]

    async def _heart(self, session: str) -> None:
        await asyncio.sleep(self.pace.jitter() * BEAT)
        info = SessionInfo(host="h", pid=1, ttl=Options().session_ttl)
        await self.broker.beat([Beat(session=session, open=info)])
        while True:
            await asyncio.sleep(BEAT)
            await self.broker.beat([Beat(session=session)])

    async def _sweeps(self) -> None:
        await asyncio.sleep(self.pace.jitter())
        pruning = Pruning(self.broker, Windlass("memory://"), self.pace)
        await Janitor(self.broker, self.pace, Config(), pruning=pruning).run()

    def lose(self, count: int) -> set[str]:
        for tasks in self.hosts[:count]:
            for task in tasks:
                task.cancel()
        return {f"s{number}" for number in range(count)}

    async def ended(self) -> set[str]:
        return {view.id async for view in self._views() if view.state is SessionState.ENDED}

    async def _views(self):  # type: ignore[no-untyped-def]
        after = ""
        while views := await self.broker.sessions(after):
            for view in views:
                yield view
            after = views[-1].id

    def close(self) -> None:
        self.lose(len(self.hosts))


async def lost(size: int, share: int, seed: int) -> float:
    """Seconds until all of the lost are noticed; nobody else may be."""
    fleet = Fleet(size, seed)
    await asyncio.sleep(40 + fleet.pace.jitter() * 10)
    assert await fleet.ended() == set()
    gone, began = fleet.lose(share), fleet.pace.now()
    while await fleet.ended() < gone and fleet.pace.now() - began < GIVE_UP:
        await asyncio.sleep(0.1)
    length = fleet.pace.now() - began
    if length < GIVE_UP:
        await asyncio.sleep(2 * TTL)
    assert await fleet.ended() <= gone
    fleet.close()
    return length


def shares() -> Iterator[tuple[int, int]]:
    for size in (2, 3, 5, 10, 40):
        yield from ((size, lost) for lost in sorted({1, size // 2, size - 1}))


@pytest.mark.parametrize(("size", "share"), list(shares()))
def test_any_share_of_a_fleet_is_noticed_in_time(size: int, share: int) -> None:
    for seed in range(3):
        assert run(lost(size, share, seed)) <= TTL + WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 300, 1_000])
def test_any_share_of_a_large_fleet_is_noticed_in_time(size: int) -> None:
    for share in (1, size // 2, size - 2, size - 1):
        assert run(lost(size, share, share)) <= TTL + WITHIN


@pytest.mark.parametrize("size", [1, 2, 5, 40, 100])
def test_a_fleet_of_any_size_makes_about_a_pass_a_second_while_there_is_nothing_to_do(size: int) -> None:
    async def passes() -> tuple[int, int]:
        fleet = Fleet(size, 1)
        await asyncio.sleep(60)
        fleet.broker.made = fleet.broker.early = 0
        await asyncio.sleep(60)
        fleet.close()
        return fleet.broker.made, fleet.broker.early

    made, early = run(passes())
    assert 45 <= made <= 130
    assert early <= 60 * max(1.0, size / 2)


def test_an_outage_of_the_store_reaps_nobody() -> None:
    class Away(Counting):
        away = False

        async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
            while self.away:
                await asyncio.sleep(0.1)
            return await super().sweep(limit=limit, every=every, keep_dead=keep_dead)

        async def beat(self, beats):  # type: ignore[no-untyped-def]
            while self.away:
                await asyncio.sleep(0.1)
            return await super().beat(beats)

    async def main() -> None:
        fleet = Fleet(5, 1)
        fleet.broker.__class__ = Away
        for outage in (2.0, 5.9, 6.1, 20.0, 31.0, 600.0, 5.0, 5.0, 5.0, 5.0, 5.0):
            await asyncio.sleep(7)
            fleet.broker.away = True
            await asyncio.sleep(outage)
            fleet.broker.away = False
            await asyncio.sleep(6)
        assert await fleet.ended() == set()
        fleet.close()

    run(main())


@pytest.mark.parametrize("bug", ["waits grow without end", "a pass moves the clock by a second at most"])
def test_planted_bugs_are_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "waits grow without end":
        monkeypatch.setattr(janitor, "SHARES_OF_TTL", 1)
        monkeypatch.setattr(janitor, "FASTER", 1.0)
    else:
        monkeypatch.setattr(
            "windlass.broker.memory.namespace.liveness_move", lambda gap, _ttl: min(gap, SECOND)
        )
        monkeypatch.setattr(janitor, "FASTER", 1.0)
    assert max(run(lost(10, 9, seed)) for seed in range(3)) > TTL + WITHIN
