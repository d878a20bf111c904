"""Ten simulated years of schedules around every change of every zone's clocks, with workers that are paused,
race, lose their connection and are killed: no tick is missed or doubled beyond the policy.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.worker.simulated_years import Simulation, all_zones, changes, differing, windows

from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.sqlite import SqliteBroker
from windlass.clock import ManualClock
from windlass.core.schedule import Due, due_ticks
from windlass.worker import firing

YEARS = range(2020, 2030)
PARTS = 8
"""Of all zones, run beside each other."""
SAMPLE = {
    "America/Havana": (2024,),  # forward at midnight
    "Australia/Lord_Howe": (2024,),  # half an hour
    "Europe/Paris": (2024,),
    "Africa/Casablanca": (2024,),  # an hour back for Ramadan
    "Antarctica/Troll": (2024,),  # two hours
    "America/Scoresbysund": (2024,),  # changed its mind
}


def in_memory(zone: str, around: Sequence[int]) -> Simulation:
    """Run the windows of a zone; the last, with the sums of all."""
    made = passes = deaths = 0
    for begin, end in windows(around):
        simulation = Simulation(zone, begin, end, seed=1)
        clock = ManualClock(begin)
        asyncio.run(simulation.run(MemoryBroker(clock=clock), clock))
        made, passes = made + simulation.made, passes + simulation.passes
        deaths += simulation.deaths
    simulation.made, simulation.passes, simulation.deaths = made, passes, deaths
    return simulation


@pytest.mark.parametrize("zone", SAMPLE)
def test_a_year_of_a_zone(zone: str) -> None:
    around = [at for at, _, _ in changes(zone, SAMPLE[zone])]
    assert around
    done = in_memory(zone, around)
    assert done.made > 100
    assert done.deaths > 5


def test_a_change_of_clocks_on_a_file(tmp_path: Path) -> None:
    zone = "America/New_York"
    begin, end = windows([at for at, _, _ in changes(zone, (2024,))])[1]  # clocks go back
    simulation = Simulation(zone, begin, end, seed=2)

    async def run() -> None:
        clock = ManualClock(begin)
        broker = await SqliteBroker.open(tmp_path / "store.db", clock=clock, options=Options())
        try:
            await simulation.run(broker, clock)
        finally:
            await broker.close()

    asyncio.run(run())
    assert simulation.made > 100
    assert simulation.deaths > 2


def dropped(due: Due) -> Due:
    return msgspec.structs.replace(due, ticks=due.ticks[:-1])


def doubled(due: Due) -> Due:
    return msgspec.structs.replace(due, ticks=due.ticks + due.ticks[-1:])


def hurried(due: Due) -> Due:
    return msgspec.structs.replace(due, next_at=due.next_at and due.next_at + 60_000_000)


@pytest.mark.parametrize("wrong", [dropped, doubled, hurried])
def test_what_is_wrong_is_noticed(wrong: Callable[[Due], Due], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "due_ticks", lambda *given, **more: wrong(due_ticks(*given, **more)))
    with pytest.raises(AssertionError, match="Europe/Paris, schedule"):
        in_memory("Europe/Paris", [at for at, _, _ in changes("Europe/Paris", (2024,))])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_years_of_every_zone(part: int) -> None:
    zones = differing(YEARS)
    assert len(all_zones()) > 400
    assert len(zones) > 40, "tzdata is missing"
    for zone in sorted(zones)[part::PARTS]:
        assert in_memory(zone, zones[zone]).made
