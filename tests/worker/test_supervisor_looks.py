"""What a supervisor sees in its children's tables: overruns, jobs that are not started, stopped children."""

import signal
from typing import Any

from tests.worker.simulated import World, add, capture, job, scenario

from windlass.conformance.harness import new_id
from windlass.core.outcome import CauseKind
from windlass.core.session import SessionState
from windlass.core.state import State
from windlass.errors import StoreUnavailable
from windlass.worker.messages import Drain, Go


@scenario(processes=1)
async def test_a_run_past_its_hard_timeout_costs_its_process_and_charges_it_alone(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    late, neighbour, waiting = await add(world, 3)
    await world.claim(child, 3)
    child.table.start(0, deadline=world.pace.now() + 10)
    child.table.start(1)
    await world.pace.advance(10.4)
    assert not child.heard_of(Drain)
    await world.pace.advance(1)
    assert [drain.grace for drain in child.heard_of(Drain)] == [30.0]
    assert child.alive
    assert [other.heard_of(Go) for other in world.spawner.alive[1:]] == [[Go()]], "replaced at once"
    await world.pace.advance(30.5)
    assert not child.alive
    cause = (await world.session(child.session)).cause
    assert (cause.kind, cause.detail) == (CauseKind.CRASH, "hard timeout")
    assert [(await job(world, each)).attempt for each in (late, neighbour, waiting)] == [1, 0, 0]


@scenario(processes=1)
async def test_a_process_is_killed_as_soon_as_only_what_overruns_is_left(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    child.table.file(0, new_id(), 1)
    child.table.file(1, new_id(), 2)
    child.table.start(0, deadline=world.pace.now() + 1)
    child.table.start(1)
    await world.pace.advance(5)
    assert child.alive
    child.table.clear(1)
    await world.pace.advance(1)
    assert not child.alive


@scenario(processes=1)
async def test_an_overrun_that_ends_after_all_is_no_crash(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    child.table.file(0, new_id(), 1)
    child.table.file(1, new_id(), 2)
    child.table.start(0, deadline=world.pace.now() + 1)
    child.table.start(1)
    await world.pace.advance(3)
    child.table.clear(0)
    child.table.clear(1)
    child.end_cleanly()
    await world.pace.rest()
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP


@scenario(processes=1)
async def test_a_crash_while_draining_for_an_overrun_is_charged_to_all_that_had_started(
    world: World,
) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    jobs = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0, deadline=world.pace.now() + 1)
    child.table.start(1)
    await world.pace.advance(3)
    child.die(-signal.SIGSEGV)
    await world.pace.rest()
    assert (await world.session(child.session)).cause.detail == "signal 11 (SIGSEGV)"
    assert [(await job(world, each)).attempt for each in jobs] == [1, 1]


@scenario(processes=1)
async def test_what_a_busy_child_has_not_started_is_given_to_others(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    runs, waits = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0)
    await world.pace.advance(1)
    assert (await job(world, waits)).state is State.RUNNING
    await world.pace.advance(1)
    detail = await job(world, waits)
    assert (detail.state, detail.attempt) == (State.READY, 0)
    assert (await job(world, runs)).state is State.RUNNING
    assert not child.table.start(1), "it must not run here as well"
    assert child.alive


@scenario(processes=1)
async def test_a_job_whose_process_is_starting_stays_and_is_not_charged(world: World) -> None:
    """Interpreters may take longer to start than a stuck job is left; another child's would, too."""
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    assert child.table.prepare(0)
    await world.pace.advance(20)
    assert (await job(world, identity)).state is State.RUNNING
    child.die(-11)
    await world.pace.advance(0.1)
    detail = await job(world, identity)
    assert (detail.attempt, detail.crashes) == (0, 0)


@scenario(processes=1)
async def test_jobs_that_come_and_go_are_not_taken(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    for fence in range(1, 8):
        child.table.file(0, new_id(), fence)
        await world.pace.advance(0.9)
        assert len(child.table.waiting()) == 1


@scenario(processes=1)
async def test_what_was_taken_is_released_when_the_store_is_back(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    settle, tries = world.broker.settle, []

    async def unavailable(items: Any) -> Any:
        tries.append(items)
        if len(tries) < 4:
            raise StoreUnavailable("away")
        return await settle(items)

    world.broker.settle = unavailable
    await world.pace.advance(10)
    assert len(tries) == 4
    assert (await job(world, identity)).state is State.READY


@scenario(processes=1)
async def test_a_stopped_child_is_not_beaten_and_its_jobs_go_to_another(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    world.host.stopped.add(child.pid)
    await world.pace.advance(34.5)
    view = await world.session(child.session)
    assert (view.state, view.cause.kind) == (SessionState.ENDED, CauseKind.LOST)
    assert (await job(world, identity)).state is State.READY
    assert child.alive, "whoever stopped it may be looking at it"
    assert len(world.spawner.alive) == 2
    await world.pace.advance(100)
    assert child.alive
    world.host.stopped.discard(child.pid)
    assert child.heard_of(Drain)
    await world.pace.advance(4)
    assert child.alive
    await world.pace.advance(3)
    assert not child.alive, "it had its time"
    assert len(world.spawner.alive) == 1


@scenario(processes=1)
async def test_a_stop_does_not_wait_for_whoever_has_stopped_a_child(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    world.host.stopped.add(child.pid)
    await world.pace.advance(60)
    world.supervisor.stop(grace=2.0)
    await world.pace.advance(8)
    assert await world.code() == 0


@scenario(processes=1)
async def test_a_slow_import_is_said_once(world: World) -> None:
    world.spawner.obedient = False
    with capture() as lines:
        await world.begin()
        await world.pace.advance(120)
    said = "WARNING child 100 is not ready after 30 s: it imports tasks:app, or waits for its store"
    assert lines == [said]


@scenario(processes=1)
async def test_a_part_that_fails_in_a_way_nobody_thought_of_goes_on(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    beat = world.broker.beat

    async def broken(_: Any) -> Any:
        world.broker.beat = beat
        raise RuntimeError("nobody thought of this")

    world.broker.beat = broken
    with capture() as lines:
        await world.pace.advance(7)
    assert lines == ["ERROR the heart failed; it goes on in a second"]
    await world.pace.advance(60)
    assert (await world.session(child.session)).state is SessionState.ALIVE
    assert world.spawner.children == [child]


@scenario(processes=1)
async def test_a_child_that_was_stopped_for_a_while_only_goes_on(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    world.host.stopped.add(child.pid)
    await world.pace.advance(20)
    world.host.stopped.discard(child.pid)
    await world.pace.advance(30)
    assert (await world.session(child.session)).state is SessionState.ALIVE
    assert world.spawner.children == [child]
