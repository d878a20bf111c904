"""Stopping: what runs has the grace to end, the second signal means now, and nobody is charged."""

import asyncio
from typing import Any

from tests.worker.simulated import FakeChild, World, add, capture, job, scenario

from windlass.conformance.harness import new_id
from windlass.core.outcome import CauseKind
from windlass.core.session import SessionState
from windlass.core.units import SECOND
from windlass.errors import StoreUnavailable
from windlass.worker.messages import Drain, Suspects


@scenario()
async def test_a_worker_stops_when_its_children_have_drained(world: World) -> None:
    await world.begin()
    first, second = world.spawner.children
    first.obedient = False
    await add(world, 1)
    await world.claim(first, 1)
    first.table.start(0)
    with capture() as lines:
        world.supervisor.stop()
        await world.pace.advance(29)
        assert (first.alive, second.alive) == (True, False)
        assert [drain.grace for drain in first.heard_of(Drain)] == [30.0]
        assert (await world.session(first.session)).silent_for < 6 * SECOND, "the heart goes on"
        first.table.clear(0)
        first.end_cleanly()
        assert await world.code() == 0
    assert lines == ["INFO stopping: 1 job running, up to 30 s", "INFO stopped"]
    for child in (first, second):
        assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert world.tables == set()
    assert len(world.spawner.children) == 2


@scenario(processes=1)
async def test_what_outlasts_the_grace_is_killed_and_not_charged(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    world.supervisor.stop()
    await world.pace.advance(34)
    assert child.alive
    await world.pace.advance(2)
    assert await world.code() == 0
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert (await job(world, identity)).attempt == 0


@scenario(processes=1)
async def test_the_second_signal_means_now(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    world.supervisor.stop()
    await world.pace.advance(3)
    world.supervisor.stop()
    world.supervisor.stop()
    await world.pace.rest()
    assert [drain.grace for drain in child.heard_of(Drain)] == [30.0, 0.0]
    assert child.alive
    await world.pace.advance(1)
    assert await world.code() == 0
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP


@scenario()
async def test_children_that_were_never_told_to_claim_are_not_waited_for(world: World) -> None:
    world.spawner.obedient = False
    await world.begin()
    world.supervisor.stop()
    assert await world.code() == 0
    assert world.spawner.alive == []
    assert world.tables == set()


@scenario()
async def test_nobody_is_started_while_stopping(world: World) -> None:
    await world.begin()
    first, second = world.spawner.children
    first.obedient = second.obedient = False
    world.supervisor.stop()
    await world.pace.rest()
    first.say(Suspects(1))
    second.die(1)
    await world.pace.advance(2)
    assert len(world.spawner.children) == 2
    assert (await world.session(second.session)).cause.kind is CauseKind.CRASH
    first.end_cleanly()
    assert await world.code() == 0


@scenario(processes=1)
async def test_a_child_whose_replacement_backs_off_does_not_keep_a_stop_waiting(world: World) -> None:
    await world.begin()
    for _ in range(2):
        world.spawner.alive[0].die(1)
        await world.pace.rest()
    world.supervisor.stop()
    assert await world.code() == 0


@scenario(processes=1)
async def test_a_child_that_is_started_in_the_moment_of_a_stop_ends_with_it(world: World) -> None:
    spawn, gate = world.spawner.spawn, asyncio.Event()

    async def slow() -> FakeChild:
        await gate.wait()
        return await spawn()

    world.spawner.spawn = slow
    await world.begin()
    world.supervisor.stop()
    await world.pace.rest()
    assert not world.ended
    gate.set()
    assert await world.code() == 0
    assert [child.alive for child in world.spawner.children] == [False]
    assert world.tables == set()


@scenario(processes=1)
async def test_the_second_signal_ends_the_wait_for_a_store(world: World) -> None:
    await world.begin()

    async def unavailable(*_: Any) -> Any:
        raise StoreUnavailable("away")

    world.broker.end_session = unavailable
    world.supervisor.stop()
    await world.pace.advance(1)
    assert world.spawner.alive == []
    assert not world.ended
    world.supervisor.stop()
    await world.pace.advance(2)
    assert await world.code() == 0


@scenario(processes=1)
async def test_a_store_that_is_away_is_not_waited_for_without_end(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    child.table.file(0, new_id(), 1)
    child.table.start(0)

    async def unavailable(*_: Any) -> Any:
        raise StoreUnavailable("away")

    end, world.broker.end_session = world.broker.end_session, unavailable
    world.supervisor.stop()
    await world.pace.rest()
    child.die(1)
    await world.pace.advance(9)
    assert not world.ended
    await world.pace.advance(2)
    assert await world.code() == 0
    assert world.tables == {child.session}, "the next one reads what had started"

    world.broker.end_session = end
    del world.host.processes[1]
    later = World(world.folder, processes=1)
    later.broker, later.host = world.broker, world.host
    later.spawner.host = world.host
    later.supervisor = later.another()
    await later.begin()
    cause = (await later.session(child.session)).cause
    assert (cause.kind, cause.detail) == (CauseKind.CRASH, "its process is gone")
    assert child.session not in world.tables
    await later.end()


@scenario(processes=1)
async def test_a_stop_while_a_child_drains_gives_it_the_grace_of_the_stop(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    world.supervisor.restart()
    await world.pace.advance(20)
    world.supervisor.stop(grace=3.0)
    await world.pace.advance(9)
    assert await world.code() == 0
    assert [drain.grace for drain in child.heard_of(Drain)] == [30.0, 3.0]
    assert (await world.session(child.session)).state is SessionState.ENDED
