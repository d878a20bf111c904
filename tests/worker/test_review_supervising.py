"""Who is charged when things come together: overruns and drains, stops and outages."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.worker.simulated import ManualPace, World, add, capture, job, scenario

from windlass import Windlass
from windlass.broker.memory import MemoryBroker
from windlass.core.lease import Ask
from windlass.core.operate import Target
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo, SessionState
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.errors import StoreUnavailable
from windlass.worker import table
from windlass.worker.endings import Orphans
from windlass.worker.holds import Holds, hold_key, own_tasks
from windlass.worker.messages import Cancel, Drain, Go
from windlass.worker.patience import Backoff
from windlass.worker.table import Table


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


class Odd(msgspec.Struct):
    """An argument whose reading fails in a way of its own."""

    n: int

    def __post_init__(self) -> None:
        if self.n == 13:
            raise RuntimeError("users' code")


def test_payloads_that_fail_in_their_own_way_do_not_end_the_search_for_held_jobs() -> None:
    app = Windlass("memory://")

    @app.task
    def odd(arg: Odd) -> None: ...

    async def main() -> None:
        pace = ManualPace()
        broker: Any = MemoryBroker(clock=pace.clock)
        await app.declare(broker)
        await broker.beat([Beat(session="old", open=SessionInfo())])
        call = odd.call(Odd(12)).job
        await broker.enqueue([[msgspec.structs.replace(call, payload=call.payload.replace(b"12", b"13"))]])
        ask = Ask(session="old", seq=1, queues=("default",), slots=1, limit=1)
        (lease,) = (await broker.claim(ask)).leases
        assert b"13" in lease.payload
        hold = HoldKey(hold_key(lease.task), "no such task")
        await broker.settle([Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.HOLD, hold=hold)])
        assert await Holds(broker, pace, own_tasks(app)).free_runnable() == 0
        assert (await broker.get([lease.job]))[0].state is State.SCHEDULED

    asyncio.run(main())


def test_two_threads_of_a_child_wait_for_the_same_decision(tmp_path: Path) -> None:
    """The rows of a decision: one was taken, the other not; whoever comes later finds the lock free."""
    child = Table.create(tmp_path / "table", 4)
    supervisor = Table.open(tmp_path / "table")
    for slot in range(2):
        child.file(slot, f"{slot:036d}", slot + 1)
    first, second = supervisor.waiting()
    assert supervisor.take_back([first]) == [first]
    assert not child.start(0)
    assert child.start(1)
    assert supervisor.take_back([second]) == []
    assert [entry.slot for entry in supervisor.started()] == [1]
    supervisor.close()
    child.remove()


def test_a_row_that_is_used_anew_during_a_decision_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Table.create(tmp_path / "table", 1)
    supervisor = Table.open(tmp_path / "table")
    old, new = f"{1:036d}", f"{2:036d}"

    def meanwhile(_seconds: float) -> None:
        child.clear(0)
        child.file(0, new, 2)

    child.file(0, old, 1)
    found = supervisor.waiting()
    monkeypatch.setattr(table, "time", SimpleNamespace(sleep=meanwhile))
    assert supervisor.take_back(found) == []
    assert [entry.job for entry in supervisor.waiting()] == [new]
    assert child.start(0)
    supervisor.close()
    child.remove()


def test_a_table_that_is_beaten_is_never_stale(tmp_path: Path) -> None:
    """However old its file is: it may belong to a worker that has run for months."""
    kept, left = (Table.create(tmp_path / f"windlass-{name}", 1) for name in ("kept", "left"))
    for each in (kept, left):
        os.utime(each.path, (0, 0))
    kept.beaten(1.0, 25.0)
    assert table.remove_stale(tmp_path, 86_400) == 1
    assert (kept.path.exists(), left.path.exists()) == (True, False)
    kept.remove()
    left.remove()


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


def test_a_fleet_does_not_come_back_all_at_once() -> None:
    """Pauses differ by chance, at every try."""
    pauses: list[list[float]] = []
    for draw in (0.0, 0.99):
        pace = ManualPace()
        pace.draw = draw
        backoff = Backoff(pace)
        pauses.append([backoff.failed() for _ in range(8)])
    assert all(later > 1.5 * sooner for sooner, later in zip(*pauses, strict=True))
