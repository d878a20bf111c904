"""Children live, die and are replaced; the store hears of each end, and of what had started."""

import asyncio
import signal
from typing import Any

from tests.worker.simulated import World, add, capture, job, scenario

from windlass.conformance.harness import new_id
from windlass.core.lease import Ask
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import SessionState
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import StoreUnavailable
from windlass.worker.messages import Begin, Cancel, Drain, Failed, Go, Lost, Ready, Suspects, Tally

# --- starting -----------------------------------------------------------------------------------------------


@scenario()
async def test_each_child_has_a_session_and_claims_when_it_is_open(world: World) -> None:
    await world.begin()
    assert len(world.spawner.children) == 2
    for child in world.spawner.children:
        assert [type(message) for message in child.heard] == [Begin, Go]
        view = await world.session(child.session)
        assert (view.info.pid, view.info.process_started) == (child.pid, 7_000 + child.pid)
        assert (view.info.host, view.info.boot, view.info.pid_namespace) == ("machine", "boot-1", "pid:[1]")
        assert (view.info.queues, view.info.slots, view.info.ttl) == (("q",), 4, world.config.session_ttl)
        assert child.table.alive_until() == world.pace.now() + 25
    assert world.started == 1


@scenario(processes=1)
async def test_a_child_that_is_not_ready_does_not_claim(world: World) -> None:
    world.spawner.obedient = False
    await world.begin()
    (child,) = world.spawner.children
    assert [type(message) for message in child.heard] == [Begin]
    child.say(Ready())
    await world.pace.rest()
    assert [type(message) for message in child.heard] == [Begin, Go]


@scenario(processes=1)
async def test_a_child_without_an_open_session_does_not_claim(world: World) -> None:
    beat, away = world.broker.beat, [True]

    async def unavailable(beats: Any) -> Any:
        if away[0]:
            raise StoreUnavailable("away")
        return await beat(beats)

    world.broker.beat = unavailable
    await world.begin()
    (child,) = world.spawner.children
    await world.pace.advance(3)
    assert child.heard_of(Go) == []
    away[0] = False
    await world.pace.advance(1)
    assert len(child.heard_of(Go)) == 1


@scenario()
async def test_an_app_that_cannot_be_imported_ends_the_worker_with_the_reason(world: World) -> None:
    world.spawner.obedient = False
    world.spawner.on_spawn = lambda child: (child.say(Failed("no module tasks")), child.die(3))
    with capture() as lines:
        await world.begin()
        await world.pace.advance(1)
        assert await world.code() == 1
    assert lines == ["ERROR the worker cannot start: no module tasks"]
    assert world.tables == set()


@scenario()
async def test_children_that_die_before_they_are_ready_end_the_worker_after_some_tries(world: World) -> None:
    world.spawner.obedient = False
    world.spawner.on_spawn = lambda child: child.die(-signal.SIGSEGV)
    await world.begin()
    await world.pace.advance(1)
    assert not world.ended
    await world.pace.advance(3)
    assert await world.code() == 1


@scenario(processes=1)
async def test_a_child_that_dies_in_a_long_start_is_said_though_none_has_worked_yet(world: World) -> None:
    """Such as one that a lifespan kills: others try, and an operator has to see why nothing happens."""
    world.spawner.obedient = False
    with capture() as lines:
        await world.begin()
        for _ in range(3):
            await world.pace.advance(6)
            (child,) = world.spawner.alive
            child.die(-signal.SIGKILL)
            await world.pace.advance(0.1)
    said = [line for line in lines if line.startswith("ERROR child ") and "signal 9 (SIGKILL)" in line]
    assert len(said) == 3
    assert not world.ended


@scenario()
async def test_a_worker_that_has_worked_never_gives_up(world: World) -> None:
    await world.begin()
    world.spawner.obedient = False
    world.spawner.on_spawn = lambda child: (child.say(Failed("deployed nonsense")), child.die(3))
    for child in list(world.spawner.alive):
        child.die(1)
    await world.pace.advance(120)
    assert not world.ended
    # 0, 0.5, 1, 2, 4, 8, 16, 30, 30: about nine tries for each of two seats, and not a hundred.
    assert 14 <= len(world.spawner.children) <= 24
    world.spawner.obedient, world.spawner.on_spawn = True, lambda _: None
    await world.pace.advance(31)
    assert len(world.spawner.alive) == 2
    assert all(child.heard_of(Go) for child in world.spawner.alive)


@scenario(processes=1)
async def test_a_machine_without_room_is_asked_again(world: World) -> None:
    await world.begin()
    world.spawner.error = OSError("cannot allocate memory")
    world.spawner.children[0].die(1)
    await world.pace.advance(10)
    world.spawner.error = None
    await world.pace.advance(30)
    assert len(world.spawner.alive) == 1
    assert world.tables == {world.spawner.alive[0].session}


# --- dying --------------------------------------------------------------------------------------------------


@scenario(processes=1)
async def test_a_crash_is_charged_to_what_had_started_and_to_nothing_else(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    ran, waited = await add(world, 2)
    await world.claim(child, 2)
    child.table.start(0)
    child.die(-signal.SIGSEGV)
    await world.pace.rest()
    view = await world.session(child.session)
    assert (view.state, view.cause.kind, view.cause.detail) == (
        SessionState.ENDED,
        CauseKind.CRASH,
        "signal 11 (SIGSEGV)",
    )
    assert [(await job(world, each)).attempt for each in (ran, waited)] == [1, 0]
    assert [(await job(world, each)).state for each in (ran, waited)] == [State.READY, State.READY]
    (other,) = world.spawner.alive
    assert other.session != child.session
    assert other.heard_of(Go)
    assert world.tables == {other.session}
    assert child.closed


@scenario(processes=1)
async def test_an_end_without_a_word_is_a_crash_whatever_the_exit_code(world: World) -> None:
    await world.begin()
    world.spawner.children[0].die(0)
    await world.pace.rest()
    cause = (await world.session(world.spawner.children[0].session)).cause
    assert (cause.kind, cause.detail) == (CauseKind.CRASH, "exit code 0")


@scenario(processes=1)
async def test_a_clean_end_charges_nobody(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    child.end_cleanly()
    await world.pace.rest()
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert (await job(world, identity)).attempt == 0
    assert len(world.spawner.alive) == 1


@scenario(processes=1)
async def test_a_kill_for_want_of_memory_is_told_from_another(world: World) -> None:
    await world.begin()
    first = world.spawner.children[0]
    first.die(-signal.SIGKILL)
    await world.pace.rest()
    assert (await world.session(first.session)).cause.detail == "signal 9 (SIGKILL)"
    second = world.spawner.alive[0]
    world.host.ooms += 1
    await world.pace.advance(6)  # counted a while before its end is seen
    second.die(-signal.SIGKILL)
    await world.pace.rest()
    assert (await world.session(second.session)).cause.detail == "out of memory"
    third = world.spawner.alive[0]
    third.die(-signal.SIGKILL)
    await world.pace.rest()
    assert (await world.session(third.session)).cause.detail == "signal 9 (SIGKILL)"


@scenario(processes=1)
async def test_crashes_by_jobs_are_followed_by_another_child_at_once(world: World) -> None:
    await world.begin()
    for _ in range(6):
        (child,) = world.spawner.alive
        child.table.file(0, new_id(), 1)
        child.table.start(0)
        child.die(-signal.SIGKILL)
        await world.pace.rest()
    assert len(world.spawner.children) == 7
    assert world.spawner.alive[0].heard_of(Go)


@scenario(processes=1)
async def test_children_that_end_before_anything_starts_are_followed_ever_more_slowly(world: World) -> None:
    await world.begin()
    for _ in range(2):
        world.spawner.alive[0].die(1)
        await world.pace.rest()
    assert world.spawner.alive == []
    await world.pace.advance(0.5)
    assert len(world.spawner.alive) == 1
    await world.pace.advance(5)  # it lives for long enough: all is forgiven
    world.spawner.alive[0].die(1)
    await world.pace.rest()
    assert len(world.spawner.alive) == 1


@scenario(processes=1)
async def test_an_end_is_told_until_the_store_has_heard_it(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    end, tries = world.broker.end_session, []

    async def unavailable(*asked: Any) -> Any:
        tries.append(asked)
        if len(tries) < 5:
            raise StoreUnavailable("away")
        return await end(*asked)

    world.broker.end_session = unavailable
    child.die(1)
    await world.pace.rest()
    assert child.session in world.tables
    assert len(world.spawner.alive) == 1
    await world.pace.advance(10)
    assert len(tries) == 5
    assert (await job(world, identity)).attempt == 1
    assert child.session not in world.tables


@scenario(processes=1)
async def test_more_leases_than_one_call_returns_all_go_back(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    jobs = await add(world, 800) + await add(world, 800)
    # Timed once, so that a claim hands out more than its slots; the model bounds one end at 1,000.
    for seq in (1, 2):
        ask = Ask(session=child.session, seq=seq, queues=("q",), slots=800, limit=800)
        assert len((await world.broker.claim(ask)).leases) == 800
    child.die(1)
    await world.pace.rest()
    states = {(await job(world, each)).state for each in (jobs[0], jobs[-1])}
    assert states == {State.READY}
    assert (await world.session(child.session)).leases == 0


@scenario(processes=1)
async def test_a_session_whose_opening_is_under_way_is_ended_after_it(world: World) -> None:
    beat, gate = world.broker.beat, asyncio.Event()

    async def slow(beats: Any) -> Any:
        await gate.wait()
        return await beat(beats)

    world.broker.beat = slow
    await world.begin()
    (first,) = world.spawner.children
    first.die(1)
    await world.pace.advance(0.2)
    gate.set()
    await world.pace.rest()
    assert (await world.session(first.session)).state is SessionState.ENDED


@scenario(processes=2)
async def test_each_kill_for_want_of_memory_is_told(world: World) -> None:
    await world.begin()
    world.host.ooms += 2
    doomed = list(world.spawner.alive)
    for child in doomed:
        child.die(-signal.SIGKILL)
    await world.pace.rest()
    assert {(await world.session(child.session)).cause.detail for child in doomed} == {"out of memory"}


@scenario(processes=1)
async def test_a_child_of_newer_code_is_replaced_without_charging_anybody(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    child.garble()
    await world.pace.rest()
    assert not child.alive
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert (await job(world, identity)).attempt == 0
    assert len(world.spawner.alive) == 1


# --- lost, cancelled, recycled ------------------------------------------------------------------------------


@scenario(processes=1)
async def test_a_child_whose_session_the_store_gave_up_is_replaced(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    await world.broker.end_session(child.session, _lost())
    await world.pace.advance(5.1)
    assert [drain.grace for drain in child.heard_of(Drain)] == [30.0]
    (_, other) = world.spawner.alive
    assert other.heard_of(Go)
    await world.pace.advance(20)
    assert len(world.spawner.children) == 2


def _lost() -> Any:
    return Cause(CauseKind.LOST, "for the test")


@scenario(processes=1)
async def test_a_child_that_says_it_is_lost_is_replaced(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.say(Lost())
    await world.pace.rest()
    assert child.heard_of(Drain)
    assert len(world.spawner.alive) == 1


@scenario(processes=1)
async def test_a_cancelled_job_is_told_to_its_child_with_every_beat(world: World) -> None:
    """It may have been on its way, and started, since the last one."""
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    (lease,) = await world.claim(child, 1)
    child.table.start(0)
    await world.broker.cancel([Target(identity)])
    await world.pace.advance(16)
    assert child.heard_of(Cancel) == [Cancel(((identity, lease.fence),))] * 3


@scenario(processes=1, max_jobs=100)
async def test_a_child_is_replaced_after_so_many_jobs(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    child.obedient = False
    child.say(Tally(jobs=99))
    await world.pace.rest()
    assert not child.heard_of(Drain)
    child.say(Tally(jobs=100))
    child.say(Tally(jobs=101))
    await world.pace.rest()
    assert len(child.heard_of(Drain)) == 1
    assert len(world.spawner.alive) == 2
    child.end_cleanly()
    await world.pace.advance(1)
    assert len(world.spawner.children) == 2


@scenario(processes=1, max_memory=100 << 20)
async def test_a_child_is_replaced_when_it_holds_too_much_memory(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    world.host.resident[child.pid] = 100 << 20
    await world.pace.advance(2)
    assert not child.heard_of(Drain)
    world.host.resident[child.pid] = 101 << 20
    await world.pace.advance(1)
    assert child.heard_of(Drain)
    assert len(world.spawner.alive) == 1


@scenario(processes=1)
async def test_what_drains_is_beaten_and_killed_when_it_outlasts_its_grace(world: World) -> None:
    await world.begin()
    (child,) = world.spawner.children
    (identity,) = await add(world)
    await world.claim(child, 1)
    child.table.start(0)
    child.obedient = False
    world.supervisor.restart()
    await world.pace.advance(34)
    assert child.alive
    assert (await world.session(child.session)).silent_for < 6 * SECOND
    await world.pace.advance(2)
    assert not child.alive
    assert (await world.session(child.session)).cause.kind is CauseKind.STOP
    assert (await job(world, identity)).attempt == 0


@scenario()
async def test_a_restart_replaces_one_after_the_other(world: World) -> None:
    await world.begin()
    first, second = world.spawner.children
    world.spawner.obedient = False
    world.supervisor.restart()
    await world.pace.advance(3)
    assert (first.alive, second.alive) == (False, True)
    world.spawner.children[2].say(Ready())
    world.spawner.obedient = True
    await world.pace.advance(1)
    assert (first.alive, second.alive) == (False, False)
    assert len(world.spawner.alive) == 2


# --- suspects -----------------------------------------------------------------------------------------------


@scenario()
async def test_suspects_get_a_child_of_their_own_one_at_a_time(world: World) -> None:
    await world.begin()
    first, second = world.spawner.children
    first.say(Suspects(1))
    second.say(Suspects(3))
    await world.pace.advance(1)
    alone = [child for child in world.spawner.children if child.begin.alone]
    assert len(alone) == 1
    assert [(group.slots, group.queues) for group in alone[0].begin.groups] == [(1, ("q",))]
    assert (await world.session(alone[0].session)).info.slots == 1
    alone[0].end_cleanly()
    await world.pace.advance(5)
    assert len(world.spawner.alive) == 2
    second.say(Suspects(1))
    await world.pace.rest()
    assert sum(child.begin.alone for child in world.spawner.alive) == 1


@scenario()
async def test_a_suspect_that_kills_its_child_does_not_keep_others_waiting(world: World) -> None:
    await world.begin()
    for _ in range(4):
        world.spawner.children[0].say(Suspects(1))
        await world.pace.rest()
        (alone,) = [child for child in world.spawner.alive if child.begin.alone]
        alone.table.file(0, new_id(), 1)
        alone.table.start(0)
        alone.die(-signal.SIGKILL)
        await world.pace.rest()
    assert sum(child.begin.alone for child in world.spawner.children) == 4
