"""Operate: cancel, replay, discard and prune, and the state that an operator expects."""

import asyncio

import pytest

from windlass.conformance.harness import Harness
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import Edge, Held, OnFailure
from windlass.core.lease import Ask
from windlass.core.operate import Edit, Effect, Operated, Purged, Target
from windlass.core.outcome import CauseKind, Verdict
from windlass.core.session import Note
from windlass.core.settlement import HOLD_LIMIT
from windlass.core.state import TERMINAL, Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId
from windlass.errors import ContractError

_WAITING = (State.BLOCKED, State.SCHEDULED, State.READY)


async def _later(store: Harness) -> None:
    """Let so much time pass that everything which can become due is."""
    store.advance(DAY)
    await store.sweep()


# cancel


@pytest.mark.parametrize("state", _WAITING)
async def test_cancel_of_a_waiting_job_is_immediate(store: Harness, state: State) -> None:
    job = await store.reach(state)
    store.advance(SECOND)
    assert await store.cancel(job) == Operated(job, Effect.APPLIED, State.CANCELLED)
    detail = await store.get(job)
    assert (detail.state, detail.reason) == (State.CANCELLED, Reason.CANCELLED)
    assert (detail.finished_at, detail.attempt, detail.cancel_requested) == (store.clock.now(), 0, False)
    await _later(store)
    assert await (await store.worker()).drain("q", "parents") in ([], [edge.parent for edge in detail.after])
    assert [await store.count(each) for each in (state, State.CANCELLED)] == [0, 1]


async def test_cancel_of_a_waiting_job_is_immediate__between_attempts(store: Harness) -> None:
    retried, held, suspect = [await store.add(priority=priority) for priority in (2, 1, 0)]
    worker = await store.worker()
    first, second, third = await worker.take(3)
    await store.retry(first, MINUTE)
    await store.hold(second, "task:t")
    await worker.end(CauseKind.CRASH, [third])
    worker = await store.worker()
    await worker.end(CauseKind.CRASH, [await worker.one()])
    for job in (retried, held, suspect):
        assert await store.cancel(job) == Operated(job, Effect.APPLIED, State.CANCELLED)
    assert await store.states([retried, held, suspect]) == [State.CANCELLED] * 3
    assert await store.broker.unhold("task:t", 10) == Purged(0, more=False)
    await _later(store)
    worker = await store.worker()
    assert [*(await worker.claim()).leases, *(await worker.claim(alone=True)).leases] == []


async def test_cancel_of_a_waiting_job_is_immediate__for_its_dependents(store: Harness) -> None:
    parent = await store.add()
    policies = (OnFailure.CANCEL, OnFailure.IGNORE, OnFailure.RUN)
    children = [await store.add(after=(Edge(parent, policy),)) for policy in policies]
    await store.cancel(parent)
    assert await store.states(children) == [State.CANCELLED, State.READY, State.READY]
    assert (await store.get(children[0])).reason is Reason.PARENT_FAILED


async def test_cancel_of_a_waiting_job_is_immediate__for_its_key_and_its_lane(store: Harness) -> None:
    await store.queue("line", sequence=True)
    head, second = [
        await store.add(queue="line", lane="a", delay=delay, key=key)
        for delay, key in ((HOUR, "k"), (0, None))
    ]
    worker = await store.worker()
    assert not (await worker.claim("line")).leases
    await store.cancel(head)
    assert (await worker.one("line")).job == second
    await store.add(queue="line", lane="a", key="k")


async def test_cancel_of_a_running_job_sets_a_flag(store: Harness) -> None:
    job, child = await store.add(), store.job()
    await store.enqueue(store.job(id=child.id, after=(Edge(job),)))
    worker, other = await store.worker(), await store.worker()
    lease = await worker.one()
    assert not (await worker.beat()).cancel
    for _ in range(2):
        assert await store.cancel(job) == Operated(job, Effect.FLAGGED, State.RUNNING)
        detail = await store.get(job)
        assert (detail.state, detail.cancel_requested, detail.session) == (State.RUNNING, True, worker.id)
        assert (await worker.beat()).cancel == ((job, lease.fence),)
        assert not (await other.beat()).cancel
    assert await store.state(child.id) is State.BLOCKED, "nothing has ended yet"
    assert (await store.retry(lease, MINUTE)).state is State.CANCELLED
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.cancel_requested) == (
        State.CANCELLED,
        Reason.CANCELLED,
        False,
    )
    assert await store.state(child.id) is State.CANCELLED
    assert not (await worker.beat()).cancel


async def test_cancel_of_a_running_job_sets_a_flag__that_a_done_run_outruns(store: Harness) -> None:
    job = await store.add()
    lease = await (await store.worker()).one()
    await store.cancel(job)
    assert (await store.done(lease, b"result")).state is State.DONE
    detail = await store.get(job)
    assert (detail.state, detail.result, detail.cancel_requested) == (State.DONE, b"result", False)


async def test_cancel_of_a_running_job_sets_a_flag__without_a_session_too(store: Harness) -> None:
    job = await store.add()
    await store.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE))
    assert await store.cancel(job) == Operated(job, Effect.FLAGGED, State.RUNNING)
    store.advance(MINUTE)
    await store.sweep()
    assert ((await store.get(job)).state, (await store.get(job)).reason) == (
        State.CANCELLED,
        Reason.CANCELLED,
    )


# the expected state

_MEANT_FOR = {
    "cancel": {State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING},
    "replay": {State.DEAD},
    "discard": {State.DEAD},
    "prune": TERMINAL,
    "edit": {State.BLOCKED, State.SCHEDULED, State.READY, State.DEAD},
}


async def _operate(store: Harness, verb: str, job: JobId, expect: State | None = None) -> Operated:
    match verb:
        case "cancel":
            return await store.cancel(job, expect)
        case "replay":
            return await store.replay(job, expect)
        case "discard":
            return await store.discard(job, expect)
        case "prune":
            return await store.prune(job, expect)
        case _:
            return (await store.broker.edit([Edit(job=job, expect=expect, payload=b"edited")]))[0]


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", _MEANT_FOR)
async def test_operation_respects_the_expected_state(store: Harness, verb: str, state: State) -> None:
    job = await store.reach(state)
    before = await store.everything(job)
    for expect in [other for other in State if other is not state]:
        assert await _operate(store, verb, job, expect) == Operated(job, Effect.WRONG_STATE, state)
    if state in _MEANT_FOR[verb]:
        assert await store.everything(job) == before
        effect = Effect.FLAGGED if state is State.RUNNING else Effect.APPLIED
        assert (await _operate(store, verb, job, state)).effect is effect
        return
    for expect in (state, None):
        assert await _operate(store, verb, job, expect) == Operated(job, Effect.WRONG_STATE, state)
    assert await store.everything(job) == before


@pytest.mark.parametrize("verb", _MEANT_FOR)
async def test_operation_respects_the_expected_state__of_unknown_jobs(store: Harness, verb: str) -> None:
    unknown = store.job().id
    for expect in (None, State.READY, State.DEAD):
        assert await _operate(store, verb, unknown, expect) == Operated(unknown, Effect.NOT_FOUND)
    assert await store.missing(unknown)


async def test_operation_respects_the_expected_state__of_each_by_itself(store: Harness) -> None:
    dead = await store.reach(State.DEAD)
    first, second, unknown = await store.add(), await store.add(), store.job().id
    targets = [
        Target(dead),
        Target(first, State.READY),
        Target(unknown),
        Target(second, State.DONE),
        Target(first),
    ]
    assert list(await store.broker.cancel(targets)) == [
        Operated(dead, Effect.WRONG_STATE, State.DEAD),
        Operated(first, Effect.APPLIED, State.CANCELLED),
        Operated(unknown, Effect.NOT_FOUND),
        Operated(second, Effect.WRONG_STATE, State.READY),
        Operated(first, Effect.WRONG_STATE, State.CANCELLED),
    ]
    assert list(await store.broker.cancel([])) == []


async def test_operation_respects_the_expected_state__of_a_thousand_jobs_a_call(store: Harness) -> None:
    targets = [Target(job) for job in [*await store.add_many(CALL_ITEMS), await store.add()]]
    before = await store.count(State.READY)
    for verb in (store.broker.cancel, store.broker.replay, store.broker.discard, store.broker.prune):
        with pytest.raises(ContractError):
            await verb(targets)
    with pytest.raises(ContractError):
        await store.broker.edit([Edit(job=target.job, priority=1) for target in targets])
    assert await store.count(State.READY) == before
    answers = await store.broker.cancel(targets[:CALL_ITEMS])
    assert {answer.effect for answer in answers} == {Effect.APPLIED}
    assert [answer.job for answer in answers] == [target.job for target in targets[:CALL_ITEMS]]


# replay


async def test_replay_sends_dead_letters_back(store: Harness) -> None:
    job = await store.add(payload=b"payload", max_attempts=2, expires=HOUR, delay=SECOND, tags=("x",))
    store.advance(SECOND)
    worker = await store.worker()
    for _ in range(2):
        lease = await worker.one()
        await store.broker.annotate([Note(job=job, fence=lease.fence, permille=500, memo=("step", b"1"))])
        await store.retry(lease)
    before = await store.get(job)
    assert (before.state, before.reason, before.attempt) == (State.DEAD, Reason.EXHAUSTED, 2)
    store.advance(DAY)
    assert await store.replay(job) == Operated(job, Effect.APPLIED, State.READY)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.finished_at) == (State.READY, None, None)
    assert (detail.attempt, detail.crashes, detail.replays, detail.held) == (0, 0, 1, None)
    assert (detail.expires_at, detail.due_at) == (None, store.clock.now())
    assert detail.deliveries == before.deliveries
    lease = await worker.one()
    assert (lease.job, lease.payload, lease.tags) == (job, b"payload", ("x",))
    assert (lease.attempt, lease.crashes, lease.memos, lease.expires_in) == (1, 0, {}, None)
    assert lease.fence > before.fence
    assert (await store.retry(lease)).state is State.READY
    assert (await store.retry(await worker.one())).state is State.DEAD
    assert [await store.count(state) for state in (State.READY, State.DEAD)] == [0, 1]
    await store.replay(job)
    assert (await store.get(job)).replays == 2


async def test_replay_sends_dead_letters_back__to_a_new_place(store: Harness) -> None:
    first = await store.reach(State.DEAD)
    second = await store.add()
    await store.replay(first)
    third = await store.add()
    assert await (await store.worker()).drain() == [second, first, third]


async def test_replay_sends_dead_letters_back__each_once(store: Harness) -> None:
    job = await store.reach(State.DEAD)
    answers = await store.broker.replay([Target(job), Target(job)])
    assert [answer.effect for answer in answers] == [Effect.APPLIED, Effect.WRONG_STATE]
    assert (await store.get(job)).replays == 1
    assert await (await store.worker()).drain() == [job]


async def test_replay_sends_dead_letters_back__each_once_at_once(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(20)
    for lease in await worker.take(20):
        await store.dead(lease)
    targets = [Target(job, State.DEAD) for job in jobs]
    answers = await asyncio.gather(*[store.broker.replay(targets) for _ in range(5)])
    for job in range(20):
        effects = sorted(answer[job].effect for answer in answers)
        assert effects == [Effect.APPLIED, *[Effect.WRONG_STATE] * 4]
    assert sorted(await worker.drain()) == sorted(jobs)


async def test_replay_sends_dead_letters_back__that_had_expired(store: Harness) -> None:
    job = await store.add(expires=SECOND)
    store.advance(SECOND)
    await store.sweep()
    assert (await store.get(job)).reason is Reason.EXPIRED
    await store.replay(job)
    await _later(store)
    assert await (await store.worker()).drain() == [job]


async def test_replay_sends_dead_letters_back__that_crashed_their_workers(store: Harness) -> None:
    job = await store.add(max_attempts=3)
    for crashes in range(3):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one(alone=crashes == 2)])
        store.advance(MINUTE)
    detail = await store.get(job)
    assert (detail.state, detail.crashes) == (State.DEAD, 3)
    await store.replay(job)
    worker = await store.worker()
    lease = await worker.one()
    assert (lease.job, lease.crashes) == (job, 0), "it is no suspect any more"
    await worker.end(CauseKind.CRASH, [lease])
    assert await store.state(job) is State.READY, "and this was its first crash"


async def test_replay_sends_dead_letters_back__that_were_held_too_long(store: Harness) -> None:
    job, worker = await store.add(), await store.worker()
    await store.hold(await worker.one())
    store.advance(HOLD_LIMIT)
    assert (await store.hold(await worker.one())).state is State.DEAD
    await store.replay(job)
    assert (await store.hold(await worker.one())).state is State.SCHEDULED
    detail = await store.get(job)
    assert detail.held == Held("task:t", "unknown task", store.clock.now(), 1)
    assert detail.due_at == store.clock.now() + SECOND


# discard


async def test_discard_removes_dead_letters(store: Harness) -> None:
    job, other = await store.reach(State.DEAD), await store.reach(State.DEAD)
    store.advance(MINUTE)
    assert await store.discard(job) == Operated(job, Effect.APPLIED)
    assert await store.missing(job)
    assert [view.id for view in await store.listed()] == [other]
    assert await store.count(State.DEAD) == 1
    assert await store.discard(job) == Operated(job, Effect.NOT_FOUND)
    assert await store.replay(job) == Operated(job, Effect.NOT_FOUND)


async def test_discard_removes_dead_letters__and_what_their_workers_say_later(store: Harness) -> None:
    await store.add()
    worker = await store.worker()
    lease = await worker.one()
    await store.dead(lease)
    store.advance(MINUTE)
    await store.discard(lease.job)
    assert (await store.done(lease)).verdict is Verdict.GONE
    assert await store.missing(lease.job)


async def test_discard_removes_dead_letters__and_their_edges_act(store: Harness) -> None:
    parent = await store.add()
    policies = (OnFailure.CANCEL, OnFailure.IGNORE)
    children = [await store.add(after=(Edge(parent, policy),)) for policy in policies]
    await store.dead(await (await store.worker()).one())
    await store.discard(parent)
    assert await store.states(children) == [State.CANCELLED, State.READY]
