"""Backlog: what operators do to the work that waits in a queue: edit, purge, unhold, pause and resume."""

from typing import Any

import msgspec
import pytest

from windlass.conformance.harness import Harness, Worker
from windlass.core.job import Edge, Mode, Refusal, Status
from windlass.core.operate import Edit, Effect, Operated, Purged
from windlass.core.outcome import CauseKind, Verdict
from windlass.core.settings import Kind
from windlass.core.state import Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId
from windlass.errors import ContractError

_WAITING = (State.BLOCKED, State.SCHEDULED, State.READY)
_ENDED = (State.DONE, State.DEAD, State.CANCELLED)


# edit


async def _edit(store: Harness, job: JobId, **changes: Any) -> Operated:
    return (await store.broker.edit([Edit(job=job, **changes)]))[0]


@pytest.mark.parametrize("state", [*_WAITING, State.DEAD])
async def test_edit_changes_a_waiting_or_dead_job(store: Harness, state: State) -> None:
    """What is given, and nothing else."""
    job = await store.reach(state, payload=b"old", headers={"a": "1"}, tags=("old",), priority=1, key="k")
    changes = {"payload": b"new", "headers": {"b": "2"}, "tags": ("new",), "priority": -3, "max_attempts": 9}
    for name, value in changes.items():
        before = await store.get(job)
        store.advance(SECOND)
        assert await _edit(store, job, **{name: value}) == Operated(job, Effect.APPLIED, state)
        assert await store.get(job) == msgspec.structs.replace(before, **{name: value})
    assert await store.count(state) == 1


async def test_edit_changes_a_waiting_or_dead_job__also_to_nothing(store: Harness) -> None:
    job = await store.add(payload=b"old", headers={"a": "1"}, tags=("old",), priority=1)
    await _edit(store, job, payload=b"", headers={}, tags=(), priority=0)
    detail = await store.get(job)
    assert (detail.payload, detail.headers, detail.tags, detail.priority) == (b"", {}, (), 0)


async def test_edit_changes_a_waiting_or_dead_job__for_its_next_run(store: Harness) -> None:
    job, worker = await store.add(max_attempts=1, payload=b"old"), await store.worker()
    await store.retry(await worker.one())
    assert await store.state(job) is State.DEAD
    await _edit(store, job, payload=b"new", max_attempts=2, headers={"b": "2"}, tags=("x",))
    await store.replay(job)
    lease = await worker.one()
    assert (lease.payload, lease.max_attempts, lease.headers, lease.tags) == (b"new", 2, {"b": "2"}, ("x",))
    assert (await store.retry(lease)).state is State.READY


@pytest.mark.parametrize("order", ["band", "lane"])
@pytest.mark.parametrize("lane", ["", "a"])
async def test_edit_changes_a_waiting_or_dead_job__its_band_but_not_its_sequence(
    store: Harness, lane: str, order: str
) -> None:
    await store.queue("q", order=order)
    first, second, third, fourth, fifth = [
        await store.add(priority=priority, lane=lane) for priority in (0, 0, 5, 5, 0)
    ]
    await _edit(store, second, priority=5)
    await _edit(store, fourth, priority=-1)
    await _edit(store, fifth, priority=0)
    assert await (await store.worker()).drain() == [second, third, first, fifth, fourth]


async def test_edit_changes_a_waiting_or_dead_job__in_the_rings_of_its_bands(store: Harness) -> None:
    """The only job of a lane in a band takes its lane along to the other band."""
    first, second = await store.add(lane="a"), await store.add(lane="b")
    worker = await store.worker()
    await _edit(store, second, priority=5)
    assert (await worker.one()).job == second
    await _edit(store, first, priority=5)
    await _edit(store, first, priority=-5)
    third = await store.add(lane="b")
    assert await worker.drain() == [third, first]


async def test_edit_changes_a_waiting_or_dead_job__by_its_age(store: Harness) -> None:
    await store.queue("old", age_step=MINUTE)
    first = await store.add(queue="old")
    store.advance(2 * MINUTE)
    second, third = await store.add(queue="old", priority=1), await store.add(queue="old")
    await _edit(store, third, priority=3)
    await _edit(store, second, payload=b"new")
    assert await (await store.worker()).drain("old") == [third, first, second]


async def test_edit_changes_a_waiting_or_dead_job__that_is_filed_later(store: Harness) -> None:
    delayed, first = await store.add(delay=MINUTE), await store.add()
    child, second = await store.add(after=(Edge(first),)), await store.add()
    await _edit(store, delayed, priority=1)
    await _edit(store, child, priority=2)
    store.advance(MINUTE)
    worker = await store.worker()
    assert await worker.drain() == [delayed, first, child, second]


async def test_edit_changes_a_waiting_or_dead_job__that_runs_alone(store: Harness) -> None:
    suspect = await store.add()
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one()])
    store.advance(MINUTE)
    await store.sweep()
    other = await store.add()
    assert await store.state(suspect) is State.READY
    await _edit(store, suspect, priority=9)
    worker = await store.worker()
    assert await worker.drain() == [other]
    lease = await worker.one(alone=True)
    assert (lease.job, lease.priority) == (suspect, 9)


# purge


async def _one_of_each(store: Harness, queue: str = "q", **options: Any) -> dict[State, JobId]:
    """A job in each state; the ready one last, since nothing else may be ready when others are claimed."""
    order = [*(state for state in State if state is not State.READY), State.READY]
    return {state: await store.reach(state, queue=queue, **options) for state in order}


async def _purge(store: Harness, state: State, limit: int = 100) -> Purged:
    return await store.broker.purge("q", state, limit)


@pytest.mark.parametrize("state", _WAITING)
async def test_purge_cancels_waiting_and_removes_finished(store: Harness, state: State) -> None:
    await store.queue("r")
    elsewhere, jobs = await _one_of_each(store, "r"), await _one_of_each(store)
    job = jobs.pop(state)
    others = [*jobs.values(), *elsewhere.values()]
    before = [await store.get(other) for other in others]
    store.advance(SECOND)
    assert await _purge(store, state) == Purged(1, more=False)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.finished_at) == (
        State.CANCELLED,
        Reason.PURGED,
        store.clock.now(),
    )
    assert [await store.get(other) for other in others] == before
    assert await _purge(store, state) == Purged(0, more=False)
    store.advance(DAY)
    await store.sweep()
    assert job not in await (await store.worker()).drain()


@pytest.mark.parametrize("state", _ENDED)
async def test_purge_cancels_waiting_and_removes_finished__for_good(store: Harness, state: State) -> None:
    await store.queue("r")
    elsewhere, jobs = await _one_of_each(store, "r"), await _one_of_each(store)
    job = jobs.pop(state)
    others = [*jobs.values(), *elsewhere.values()]
    before = [await store.get(other) for other in others]
    store.advance(MINUTE)
    assert await _purge(store, state) == Purged(1, more=False)
    assert await store.missing(job)
    assert [await store.get(other) for other in others] == before
    assert job not in {view.id for view in await store.listed()}
    assert await store.count(State.DEAD) == (state is not State.DEAD)


async def test_purge_cancels_waiting_and_removes_finished__not_what_runs(store: Harness) -> None:
    await store.add()
    lease = await (await store.worker()).one()
    before = await store.everything()
    with pytest.raises(ContractError):
        await _purge(store, State.RUNNING)
    assert await store.everything() == before
    assert (await store.done(lease)).verdict is Verdict.APPLIED


@pytest.mark.parametrize("state", [*_WAITING, *_ENDED])
async def test_purge_cancels_waiting_and_removes_finished__in_bounded_steps(
    store: Harness, state: State
) -> None:
    jobs = [await store.reach(state) for _ in range(5)]
    left = [5]
    while (purged := await _purge(store, state, 2)).more:
        assert purged.count == 2
        left.append(left[-1] - purged.count)
        remaining = [view.id for view in await store.listed(queue="q", states=frozenset({state}))]
        if state is not State.CANCELLED:
            assert len(remaining) == left[-1]
    assert (left, purged.count) == ([5, 3, 1], 1)
    store.advance(MINUTE)
    assert [await store.missing(job) for job in jobs] == [state in _ENDED] * 5


async def test_purge_cancels_waiting_and_removes_finished__oldest_first(store: Harness) -> None:
    """Not the first to be due, nor the most urgent."""
    ready = [await store.add(priority=priority) for priority in range(3)]
    scheduled = [await store.add(delay=(3 - place) * HOUR) for place in range(3)]
    for state, jobs in ((State.READY, ready), (State.SCHEDULED, scheduled)):
        assert await _purge(store, state, 2) == Purged(2, more=True)
        assert await store.states(jobs) == [State.CANCELLED, State.CANCELLED, state]


async def test_purge_cancels_waiting_and_removes_finished__of_every_lane(store: Harness) -> None:
    jobs = [await store.add(lane=lane, priority=priority) for lane in ("", "a", "b") for priority in (0, 1)]
    assert await _purge(store, State.READY) == Purged(6, more=False)
    assert await store.states(jobs) == [State.CANCELLED] * 6
    worker = await store.worker()
    assert await worker.drain() == []
    last = await store.add(lane="a")
    assert await worker.drain() == [last]


async def test_purge_cancels_waiting_and_removes_finished__and_frees_their_keys(store: Harness) -> None:
    await store.add(key="k")
    await _purge(store, State.READY)
    await store.add(key="k")


async def test_purge_cancels_waiting_and_removes_finished__with_their_dependents(store: Harness) -> None:
    parent = await store.add()
    children = await store.add_many(2, after=(Edge(parent),))
    assert (await _purge(store, State.READY)).count == 1
    reasons = [(await store.get(job)).reason for job in (parent, *children)]
    assert reasons == [Reason.PURGED, Reason.PARENT_FAILED, Reason.PARENT_FAILED]


async def test_purge_cancels_waiting_and_removes_finished__of_known_queues(store: Harness) -> None:
    assert await store.broker.purge("nowhere", State.READY, 10) == Purged(0, more=False)
    assert [document.subject.name for document in await store.broker.documents(Kind.QUEUE)] == ["q"]


# unhold


async def _held(store: Harness, worker: Worker, count: int, hold: str, **options: Any) -> list[JobId]:
    """Jobs that were just held under a key."""
    jobs = await store.add_many(count, **options)
    for lease in await worker.take(count):
        await store.hold(lease, hold)
    return jobs


async def test_unhold_frees_held_jobs(store: Harness) -> None:
    worker = await store.worker()
    jobs, others = await _held(store, worker, 2, "task:a"), await _held(store, worker, 2, "task:b")
    delayed = await store.add(delay=HOUR)
    assert await store.broker.unhold("task:", 10) == Purged(0, more=False)
    assert await store.broker.unhold("task:a", 10) == Purged(2, more=False)
    assert await store.states([*jobs, *others, delayed]) == [State.READY] * 2 + [State.SCHEDULED] * 3
    assert await store.broker.unhold("task:a", 10) == Purged(0, more=False)
    leases = await worker.take(2)
    assert sorted((lease.job, lease.attempt) for lease in leases) == sorted((job, 1) for job in jobs)
    assert (await store.get(others[0])).held is not None


async def test_unhold_frees_held_jobs__in_bounded_steps(store: Harness) -> None:
    jobs = await _held(store, await store.worker(), 5, "task:a")
    assert [await store.broker.unhold("task:a", 2) for _ in range(3)] == [
        Purged(2, more=True),
        Purged(2, more=True),
        Purged(1, more=False),
    ]
    assert await store.states(jobs) == [State.READY] * 5


async def test_unhold_frees_held_jobs__of_every_queue_and_lane(store: Harness) -> None:
    await store.queue("r")
    jobs = [await store.add(), await store.add(lane="a"), await store.add(queue="r")]
    for lease in await (await store.worker()).take(3, "q", "r"):
        await store.hold(lease, "task:a")
    assert await store.broker.unhold("task:a", 10) == Purged(3, more=False)
    assert await store.states(jobs) == [State.READY] * 3


async def test_unhold_frees_held_jobs__under_their_latest_key(store: Harness) -> None:
    worker = await store.worker()
    (job,) = await _held(store, worker, 1, "task:a")
    store.advance(SECOND)
    await store.hold(await worker.one(), "task:b")
    assert await store.broker.unhold("task:a", 10) == Purged(0, more=False)
    assert await store.broker.unhold("task:b", 10) == Purged(1, more=False)
    assert await store.state(job) is State.READY


async def test_unhold_frees_held_jobs__not_those_that_wait_for_something_else_by_now(store: Harness) -> None:
    worker = await store.worker()
    replaced, retried, snoozed, cancelled = [
        *await _held(store, worker, 1, "task:a", key="k"),
        *await _held(store, worker, 3, "task:a"),
    ]
    await store.cancel(cancelled)
    store.advance(SECOND)
    leases = {lease.job: lease for lease in await worker.take(3)}
    await store.hold(leases[replaced], "task:a")
    await store.retry(leases[retried], HOUR)
    await store.snooze(leases[snoozed], HOUR)
    (receipt,) = await store.enqueue(store.job(key="k", mode=Mode.REPLACE, delay=HOUR))
    assert (receipt.status, receipt.of) == (Status.REPLACED, replaced)
    assert await store.broker.unhold("task:a", 10) == Purged(0, more=False)
    assert await store.states([replaced, retried, snoozed]) == [State.SCHEDULED] * 3
    assert await store.state(cancelled) is State.CANCELLED


# pause and resume


async def test_pause_and_resume_answer_for_unknown_queues(store: Harness) -> None:
    for verb in (store.broker.pause, store.broker.resume):
        assert not await verb("nowhere")
        assert not await verb("nowhere", "a")
        assert await verb("q")
        assert await verb("q", "a lane without jobs")
    assert [document.subject.name for document in await store.broker.documents(Kind.QUEUE)] == ["q"]
    (receipt,) = await store.enqueue(store.job(queue="nowhere"))
    assert receipt.refusal is Refusal.UNKNOWN_QUEUE


async def test_pause_and_resume_answer_for_unknown_queues__and_are_repeatable(store: Harness) -> None:
    worker = await store.worker()
    first = await store.add()
    lease = await worker.one()
    assert [await store.broker.pause("q") for _ in range(2)] == [True, True]
    second = await store.add()
    assert (await store.done(lease)).verdict is Verdict.APPLIED, "what runs goes on"
    assert await worker.drain() == []
    assert [await store.broker.resume("q") for _ in range(2)] == [True, True]
    assert await worker.drain() == [second]
    assert await store.state(first) is State.DONE


async def test_pause_and_resume_answer_for_unknown_queues__lane_by_lane(store: Harness) -> None:
    """A queue and its lanes are paused by themselves: a resumed lane of a paused queue stands still."""
    worker = await store.worker()
    jobs = [await store.add(lane=lane) for lane in ("a", "b", "")]
    await store.broker.pause("q", "a")
    await store.broker.pause("q")
    await store.broker.resume("q", "b")
    assert await worker.drain() == []
    await store.broker.resume("q")
    assert sorted(await worker.drain()) == sorted(jobs[1:])
    await store.broker.resume("q", "a")
    assert await worker.drain() == jobs[:1]
