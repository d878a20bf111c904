"""Who is charged when things come together: overruns and drains, stops and outages."""

import asyncio
from typing import Any

from tests.worker.simulated import World, add, capture, job, scenario

from windlass.core.operate import Target
from windlass.core.outcome import CauseKind
from windlass.core.session import SessionState
from windlass.errors import StoreUnavailable
from windlass.worker.endings import Orphans
from windlass.worker.messages import Cancel, Drain, Go


@scenario(processes=1)
async def test_an_overrun_is_charged_also_when_its_child_ends_by_itself(world: World) -> None:
    """Neighbours that last for the whole grace: the child drains, and is gone before the next look."""
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    late, neighbour = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0, deadline=world.pace.now() + 10)
    child.table.start(1)
    await world.pace.advance(12)
    assert child.heard_of(Drain)
    child.end_cleanly()
    await world.pace.advance(0.5)
    cause = (await world.session(child.session)).cause
    assert (cause.kind, cause.detail) == (CauseKind.CRASH, "hard timeout")
    assert [(await job(world, each)).attempt for each in (late, neighbour)] == [1, 0]


@scenario(processes=1)
async def test_a_neighbour_that_outlasts_the_grace_beside_an_overrun_is_not_charged(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    late, neighbour = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0, deadline=world.pace.now() + 10)
    child.table.start(1)
    await world.pace.advance(12)
    child.table.clear(0)  # it has ended after all
    child.end_cleanly()
    await world.pace.advance(0.5)
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert [(await job(world, each)).attempt for each in (late, neighbour)] == [0, 0]


@scenario(processes=1)
async def test_the_line_of_a_dead_child_says_what_it_is_charged_to(world: World) -> None:
    await world.begin()
    for started, words in (
        (0, "it had no job that had started"),
        (1, "it is charged to 1 job that had started"),
    ):
        child = world.spawner.children[-1]
        await add(world, 1)
        await world.claim(child, 1)
        if started:
            child.table.start(0)
        with capture() as lines:
            child.kill()
            await world.pace.advance(3)
        assert lines == [f"ERROR child {child.pid} ended: signal 9 (SIGKILL); {words}"]


async def _stopped_without_a_store(world: World, *, cleanly: bool) -> tuple[str, list[str]]:
    """A worker stops, and the store does not hear of it. Its jobs had started."""
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    jobs = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0)
    child.table.start(1)
    session, real = child.session, world.broker.end_session

    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("nobody there")

    world.broker.end_session = away
    world.supervisor.stop()
    await world.pace.advance(1)
    if cleanly:
        child.end_cleanly()
    await world.pace.advance(60)
    assert await world.code() == 0
    world.broker.end_session = real
    return session, jobs


async def _charged_by_the_next(world: World, session: str, jobs: list[str]) -> tuple[CauseKind, list[int]]:
    world.host.processes.pop(1, None)  # the supervisor is gone, too
    await Orphans(world.broker, world.pace, world.host, place=world.place).end()
    view = await world.session(session)
    assert view.state is SessionState.ENDED
    assert view.cause is not None
    return view.cause.kind, [(await job(world, each)).attempt for each in jobs]


@scenario(processes=1)
async def test_a_stop_that_the_store_did_not_hear_of_charges_nobody(world: World) -> None:
    session, jobs = await _stopped_without_a_store(world, cleanly=True)
    assert await _charged_by_the_next(world, session, jobs) == (CauseKind.STOP, [0, 0])


@scenario(processes=1)
async def test_a_kill_after_the_grace_that_the_store_did_not_hear_of_charges_nobody(world: World) -> None:
    session, jobs = await _stopped_without_a_store(world, cleanly=False)
    assert await _charged_by_the_next(world, session, jobs) == (CauseKind.STOP, [0, 0])


@scenario(processes=1)
async def test_a_child_hears_of_a_cancel_with_every_beat(world: World) -> None:
    """At the first it may not have come to the job yet."""
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    (identity,) = await add(world, 1)
    (lease,) = await world.claim(child, 1)
    child.table.start(0)
    await world.broker.cancel([Target(identity)])
    await world.pace.advance(11)
    words = child.heard_of(Cancel)
    assert len(words) >= 2
    assert {word.leases for word in words} == {((lease.job, lease.fence),)}


@scenario(processes=1)
async def test_a_child_that_dies_while_a_beat_is_under_way_does_not_stop_the_heart(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    real, answer, asked = world.broker.beat, asyncio.Event(), asyncio.Event()

    async def slow(beats: Any) -> Any:
        pulses = await real(beats)
        asked.set()
        await answer.wait()
        return pulses

    world.broker.beat = slow
    await world.pace.advance(5.5)
    assert asked.is_set()
    world.broker.beat = real
    with capture() as lines:
        child.die(-9)
        await world.pace.advance(0.3)
        answer.set()
        await world.pace.advance(0.3)
        (other,) = world.spawner.alive
        assert other.heard_of(Go), "its successor's session is open"
    assert not [line for line in lines if "failed" in line]


@scenario(processes=1)
async def test_each_stop_of_a_child_counts_by_itself(world: World) -> None:
    """Twice for twenty seconds is not once for forty: it lived on in between."""
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    for _ in range(3):
        world.host.stopped.add(child.pid)
        await world.pace.advance(20)
        world.host.stopped.discard(child.pid)
        await world.pace.advance(7)
    assert not child.heard_of(Drain)
    assert len(world.spawner.children) == 1


@scenario(processes=1)
async def test_nothing_is_remembered_of_children_that_are_gone(world: World) -> None:
    await world.begin()
    for _ in range(5):
        child = world.spawner.alive[-1]
        child.obedient = False
        child.table.file(0, f"{1:036d}", 1)
        child.table.start(0)
        child.table.file(1, f"{2:036d}", 2)
        world.host.stopped.add(child.pid)
        await world.pace.advance(1.5)
        child.die(-9)
        await world.pace.advance(2)
    lookout = world.supervisor._lookout
    assert len(lookout._waiting) <= 1
    assert len(lookout._stopped_since) <= 1
