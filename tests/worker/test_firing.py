"""Schedules in workers: what is due is fired, once, and what cannot fire stops nobody."""

import asyncio
import itertools
from collections.abc import Callable

import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass
from windlass.worker.firing import Firing
from windlass.worker.janitor import Janitor


async def swept_for(bench: Bench, seconds: float, *, janitors: int = 1) -> None:
    """Let janitors sweep and fire."""
    tasks = [
        asyncio.create_task(
            Janitor(
                bench.broker,
                bench.pace,
                bench.app.config,
                fire=Firing(bench.broker, bench.app.new_id).due,
            ).run()
        )
        for _ in range(janitors)
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("janitors", [1, 3])
def test_a_schedule_fires_once_a_tick(
    app: Windlass, bench: Callable[[Windlass], Bench], janitors: int
) -> None:
    ran: list[float] = []

    @app.task
    async def report() -> None:
        ran.append(asyncio.get_running_loop().time())

    app.schedule("often", report.call(), every=60)

    async def scenario(bench: Bench) -> None:
        async with bench.worker():
            await swept_for(bench, 601, janitors=janitors)

    run(scenario(bench(app)))
    assert len(ran) == 10
    gaps = [after - before for before, after in itertools.pairwise(ran)]
    assert all(58 < gap < 62 for gap in gaps), gaps


def test_a_schedule_that_cannot_fire_stops_nobody_and_says_so_once(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    elsewhere = app.external("elsewhere", queue="nobody-declared-it")

    @app.task
    async def report() -> None:
        ran.append("report")

    app.schedule("a-broken-one", elsewhere.call(), every=60)
    app.schedule("good", report.call(), every=60)

    async def scenario(bench: Bench) -> None:
        async with bench.worker():
            await swept_for(bench, 305)

    run(scenario(bench(app)))
    assert len(ran) == 5
    assert caplog.text.count('schedule "a-broken-one": its job was refused') == 1
