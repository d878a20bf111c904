"""Ticks that are missed: a schedule that does not catch up makes no job while an earlier one waits."""

import asyncio
from typing import Any

import pytest

from windlass.conformance.harness import Harness
from windlass.core.job import Edge, NewJob, OnFailure
from windlass.core.state import State
from windlass.core.timetable import Fire, Fired, FireRecord, FireStatus, NewSchedule, ScheduleView
from windlass.core.units import HOUR, MINUTE, SECOND, Micros


async def _declare(store: Harness) -> int:
    """Declare a schedule that is due now; its version."""
    schedule = NewSchedule(name="s", spec=b"often", next_at=store.clock.now(), app="app")
    return (await store.broker.declare_schedule(schedule)).version


async def _view(store: Harness) -> ScheduleView:
    (view,) = (await store.broker.schedules()).schedules
    return view


async def _fire(store: Harness, *jobs: NewJob, then: Micros | None = None, **more: Any) -> Fired:
    """Fire the next tick; by default the one after it is due at once."""
    view = await _view(store)
    assert view.next_at is not None
    then = store.clock.now() if then is None else then
    wish = Fire(name="s", version=view.version, expect=view.next_at, then=then, jobs=jobs, **more)
    return await store.broker.fire(wish)


async def _status(store: Harness, job: NewJob) -> FireStatus:
    return (await _fire(store, job, unless_waiting=True)).status


async def test_tick_is_missed_while_a_job_waits(store: Harness) -> None:
    await store.queue("q")
    start = store.clock.now()
    await _declare(store)
    first = store.job()
    assert (await _fire(store, first, then=start + SECOND, unless_waiting=True)).status is FireStatus.FIRED
    for tick in range(1, 31):
        store.advance(SECOND)
        then = start + (tick + 1) * SECOND
        answer = await _fire(store, store.job(), then=then, missed=tick % 2, unless_waiting=True)
        assert answer == Fired(FireStatus.MISSED)
    run = FireRecord(start + SECOND, start + 30 * SECOND, (), missed=45)
    view = await _view(store)
    assert (view.next_at, view.fires) == (start + 31 * SECOND, (FireRecord(start, start, (first.id,)), run))
    assert [job.id for job in await store.listed()] == [first.id]

    store.advance(SECOND)
    await (await store.worker()).one()
    second = store.job()
    assert (await _fire(store, second, unless_waiting=True)).status is FireStatus.FIRED
    assert await store.states([first.id, second.id]) == [State.RUNNING, State.READY]


async def test_tick_is_missed_while_a_job_waits__and_one_wish_records_it(store: Harness) -> None:
    due = store.clock.now()
    version = await _declare(store)
    await _fire(store, store.job())
    wishes = [
        Fire(name="s", version=version, expect=due, then=due + HOUR, jobs=(store.job(),), unless_waiting=True)
        for _ in range(10)
    ]
    answers = await asyncio.gather(*(store.broker.fire(wish) for wish in wishes))
    assert sorted(answer.status for answer in answers) == [FireStatus.MISSED, *[FireStatus.RACED] * 9]
    assert [fire.missed for fire in (await _view(store)).fires] == [0, 1]
    assert await store.count(State.READY) == 1


async def test_tick_is_missed_while_a_job_waits__and_not_if_the_wish_does_not_say_so(store: Harness) -> None:
    await _declare(store)
    for _ in range(3):
        assert (await _fire(store, store.job())).status is FireStatus.FIRED
    assert await store.count(State.READY) == 3


@pytest.mark.parametrize(
    ("end", "then"),
    [
        ("release", FireStatus.MISSED),
        ("hold", FireStatus.MISSED),
        ("retry", FireStatus.FIRED),
        ("snooze", FireStatus.FIRED),
        ("done", FireStatus.FIRED),
        ("dead", FireStatus.FIRED),
    ],
)
async def test_tick_is_missed_while_a_job_waits__until_its_first_start(
    store: Harness, end: str, then: FireStatus
) -> None:
    """What a worker gave back, or could not run, has not started; what is to run again has."""
    await store.queue("q")
    await _declare(store)
    await _status(store, store.job(max_attempts=2))
    lease = await (await store.worker()).one()
    match end:
        case "release":
            await store.release(lease)
        case "hold":
            await store.hold(lease)
        case "retry":
            await store.retry(lease)
        case "snooze":
            await store.snooze(lease, HOUR, runtime=1)
        case "done":
            await store.done(lease)
        case _:
            await store.dead(lease)
    assert await _status(store, store.job()) is then


async def test_tick_is_missed_while_a_job_waits__that_is_due(store: Harness) -> None:
    """Nobody could have started a job before its time."""
    await _declare(store)
    later = store.job(delay=MINUTE)
    assert await _status(store, later) is FireStatus.FIRED
    assert await _status(store, store.job(delay=HOUR)) is FireStatus.FIRED
    store.advance(MINUTE)
    assert await _status(store, store.job()) is FireStatus.MISSED
    await store.cancel(later.id)
    parent = await store.add()
    blocked = store.job(after=(Edge(parent, OnFailure.RUN),))
    assert await _status(store, blocked) is FireStatus.FIRED
    assert await store.state(blocked.id) is State.BLOCKED
    assert await _status(store, store.job()) is FireStatus.MISSED
