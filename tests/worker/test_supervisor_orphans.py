"""Sessions that other supervisors of this machine left behind are ended, and charged by their tables."""

import os
import time

from tests.worker.simulated import World, add, job, scenario

from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, SessionInfo, SessionState
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.worker.table import Table


async def _left_behind(
    world: World, pid: int, *, table: bool, supervisor: str = "99:1"
) -> tuple[str, list[str]]:
    """A session with two jobs, of which one has started, whose supervisor is gone."""
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="app")
    await world.broker.declare([queue])
    session = f"left-{pid}"
    info = SessionInfo(
        host="machine",
        boot="boot-1",
        pid_namespace="pid:[1]",
        pid=pid,
        process_started=5,
        supervisor=supervisor,
    )
    await world.broker.beat([Beat(session=session, open=info)])
    jobs = await add(world, 2)
    ask = Ask(session=session, seq=1, queues=("q",), slots=2, limit=2)
    leases = (await world.broker.claim(ask)).leases
    if table:
        kept = Table.create(world.place(session), 10)
        for slot, lease in enumerate(leases):
            kept.file(slot, lease.job, lease.fence)
        kept.start(0)
        kept.close()
    return session, jobs


@scenario()
async def test_sessions_of_processes_that_are_gone_are_ended_at_the_start(world: World) -> None:
    told, (ran, waited) = await _left_behind(world, 1, table=True)
    untold, others = await _left_behind(world, 2, table=False)
    alive, (runs, _) = await _left_behind(world, 3, table=True)
    reused, _ = await _left_behind(world, 4, table=True)
    world.host.processes |= {3: 5, 4: 6}
    await world.begin()
    assert (await world.session(told)).cause.kind is CauseKind.CRASH
    assert [(await job(world, each)).attempt for each in (ran, waited)] == [1, 0]
    assert (await world.session(untold)).cause.kind is CauseKind.LOST
    assert [(await job(world, each)).attempt for each in others] == [1, 1]
    assert (await world.session(alive)).state is SessionState.ALIVE
    assert (await job(world, runs)).state is State.RUNNING
    assert (await world.session(reused)).state is SessionState.ENDED
    assert world.tables & {told, untold, alive, reused} == {alive}


@scenario()
async def test_a_process_that_is_on_its_way_out_is_seen_later(world: World) -> None:
    session, _ = await _left_behind(world, 3, table=True)
    world.host.processes[3] = 5
    await world.begin()
    del world.host.processes[3]
    await world.broker.beat([Beat(session=session)])
    await world.pace.advance(29)
    assert (await world.session(session)).state is SessionState.ALIVE
    await world.pace.advance(1.5)
    view = await world.session(session)
    assert (view.state, view.cause.kind) == (SessionState.ENDED, CauseKind.CRASH)
    assert session not in world.tables


@scenario()
async def test_a_session_with_a_living_supervisor_is_left_to_it(world: World) -> None:
    session, _ = await _left_behind(world, 3, table=True, supervisor="50:7")
    world.host.processes[50] = 7
    await world.begin()
    assert (await world.session(session)).state is SessionState.ALIVE
    world.host.processes[50] = 8  # another process has its pid
    await world.pace.advance(29.5)
    await world.broker.beat([Beat(session=session)])
    await world.pace.advance(1)
    assert (await world.session(session)).state is SessionState.ENDED


@scenario()
async def test_a_session_that_has_ended_leaves_no_table(world: World) -> None:
    session, _ = await _left_behind(world, 3, table=True)
    await world.broker.end_session(session, Cause(CauseKind.CRASH, "said by itself"))
    await world.begin()
    assert session not in world.tables
    assert (await world.session(session)).cause.detail == "said by itself"


@scenario(processes=1)
async def test_tables_that_nobody_beats_are_removed_after_an_hour(world: World) -> None:
    for name, age in (("windlass-old", 3_700), ("windlass-new", 3_500), ("other-old", 3_700)):
        (world.folder / name).touch()
        then = time.time() - age
        os.utime(world.folder / name, (then, then))
    await world.begin()
    assert not (world.folder / "windlass-old").exists()
    assert (world.folder / "windlass-new").exists()
    assert (world.folder / "other-old").exists()


@scenario()
async def test_sessions_of_other_machines_are_left_alone(world: World) -> None:
    session, _ = await _left_behind(world, 1, table=True)
    world.host.boot = "boot-2"
    await world.begin()
    assert (await world.session(session)).state is SessionState.ALIVE
    assert session in world.tables


@scenario()
async def test_a_machine_that_cannot_name_its_boot_ends_nobody(world: World) -> None:
    session, _ = await _left_behind(world, 1, table=True)
    world.host.boot = ""
    await world.begin()
    assert (await world.session(session)).state is SessionState.ALIVE
