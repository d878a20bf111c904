"""Schedules in workers: what is due is fired, once, and what cannot fire stops nobody."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Literal

import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass
from windlass.core.state import State
from windlass.core.timetable import FireRecord
from windlass.worker.firing import Firing
from windlass.worker.janitor import Janitor
from windlass.worker.pruning import Pruning


async def swept_for(bench: Bench, seconds: float, *, janitors: int = 1) -> None:
    """Let janitors sweep and fire."""
    tasks = [
        asyncio.create_task(
            Janitor(
                bench.broker,
                bench.pace,
                bench.app.config,
                pruning=Pruning(bench.broker, bench.app, bench.pace),
                fire=Firing(bench.broker, bench.app.new_id).due,
            ).run()
        )
        for _ in range(janitors)
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def waiting(bench: Bench) -> int:
    """How many jobs are ready."""
    return sum(row.count for row in (await bench.broker.counts()).rows if row.state is State.READY)


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


@pytest.mark.parametrize("catch_up", ["skip", "one"])
def test_without_workers_one_job_waits_and_the_other_ticks_are_missed(
    app: Windlass, bench: Callable[[Windlass], Bench], catch_up: Literal["skip", "one"]
) -> None:
    """A fleet that is scaled to zero wakes to one job of a schedule, not to all its ticks."""
    ran: list[float] = []

    @app.task
    async def report() -> None:
        ran.append(asyncio.get_running_loop().time())

    app.schedule("often", report.call(), every=2, catch_up=catch_up)

    async def scenario(bench: Bench) -> tuple[FireRecord, ...]:
        await app.declare(bench.broker)
        await swept_for(bench, 24 * 60 + 1)
        assert await waiting(bench) == 1
        fires = (await bench.broker.schedules()).schedules[0].fires
        async with bench.worker():
            await swept_for(bench, 20)
        return fires

    fired, missed = run(scenario(bench(app)))
    assert len(fired.jobs) == 1
    assert missed.jobs == ()
    assert missed.missed == 719
    assert 9 <= len(ran) <= 11


def test_with_all_every_tick_waits_for_a_worker(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task
    async def report() -> None: ...

    app.schedule("often", report.call(), every=2, catch_up="all")

    async def scenario(bench: Bench) -> int:
        await app.declare(bench.broker)
        await swept_for(bench, 61)
        return await waiting(bench)

    assert run(scenario(bench(app))) == 30


def test_a_long_run_keeps_every_tick_out(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """However many ticks it lasts for: what tells of it is not pushed out by them."""
    ran: list[float] = []

    @app.task
    async def slow() -> None:
        ran.append(asyncio.get_running_loop().time())
        await asyncio.sleep(300)

    app.schedule("often", slow.call(), every=2, overlap="skip")

    async def scenario(bench: Bench) -> None:
        async with bench.worker():
            await swept_for(bench, 200)

    run(scenario(bench(app)))
    assert len(ran) == 1
