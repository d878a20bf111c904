"""Prune: finished jobs that go before their time, as when somebody asks to be forgotten."""

import pytest

from windlass.conformance.family import after, finish_parent, kill_parent, new_parent
from windlass.conformance.harness import Harness
from windlass.core.event import FROM_NOW, Emit
from windlass.core.job import OnFailure, Status
from windlass.core.operate import Effect, Operated
from windlass.core.outcome import Verdict
from windlass.core.state import TERMINAL, Move, State
from windlass.core.units import HOUR, MINUTE


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_prune_removes_finished_jobs(store: Harness, state: State) -> None:
    job, other = await store.reach(state), await store.reach(state)
    assert await store.prune(job) == Operated(job, Effect.APPLIED)
    left = await store.get(job)
    assert (left.pruned, left.state) == (True, state)
    assert (left.payload, left.headers, left.tags, left.result) == (b"", {}, (), None)
    assert (left.error, left.deliveries, left.logs, left.progress) == (None, (), (), None)
    assert [view.id for view in await store.listed()] == [other]
    assert await store.prune(job) == Operated(job, Effect.NOT_FOUND)
    await store.passes(1, MINUTE)
    assert await store.missing(job)


@pytest.mark.parametrize("state", sorted(TERMINAL))
async def test_prune_removes_finished_jobs__and_tells_it_as_a_prune(store: Harness, state: State) -> None:
    await store.queue("q", emit=Emit.ALL)
    job = await store.reach(state)
    place = (await store.broker.events(FROM_NOW, 1, 0)).cursor
    await store.prune(job)
    told = (await store.broker.events(place, 100, 0)).items
    assert [(event.job, event.move, event.before, event.after) for event in told] == [
        (job, Move.PRUNE, state, None)
    ]


async def test_prune_removes_finished_jobs__that_a_sweep_has_set_aside(store: Harness) -> None:
    """Wherever a store keeps what is done: many that ended together, with results, some passes ago."""
    await store.queue("q", retention=HOUR, result_ttl=HOUR)
    worker = await store.worker()
    jobs = await store.add_many(20)
    for lease in await worker.take(20):
        await store.done(lease, b"result")
    await store.passes(3, MINUTE)
    answers = [await store.prune(job) for job in jobs[:10]]
    assert {answer.effect for answer in answers} == {Effect.APPLIED}
    assert {view.id for view in await store.listed()} == set(jobs[10:])
    assert [await store.missing(job) for job in jobs] == [True] * 10 + [False] * 10
    assert (await store.get(jobs[10])).result == b"result"
    await store.passes(2, HOUR)
    assert await store.listed() == []


async def test_prune_removes_finished_jobs__and_what_their_workers_say_later(store: Harness) -> None:
    await store.add()
    worker = await store.worker()
    lease = await worker.one()
    await store.dead(lease)
    await store.prune(lease.job)
    assert (await store.dead(lease)).verdict is Verdict.ALREADY


async def test_prune_removes_finished_jobs__and_edges_to_a_dead_one_act(store: Harness) -> None:
    parent = await new_parent(store)
    children = [
        await store.add(after=after(parent, on=policy)) for policy in (OnFailure.CANCEL, OnFailure.IGNORE)
    ]
    await kill_parent(store)
    assert await store.prune(parent) == Operated(parent, Effect.APPLIED)
    assert await store.states(children) == [State.CANCELLED, State.READY]


async def test_prune_refuses_what_is_needed(store: Harness) -> None:
    parent = await new_parent(store)
    child = await store.add(after=after(parent))
    await finish_parent(store, b"result")
    before = await store.everything(parent)
    assert await store.prune(parent) == Operated(parent, Effect.CONFLICT, State.DONE)
    assert await store.everything(parent) == before
    lease = await (await store.worker()).one()
    assert (lease.job, await store.prune(parent)) == (child, Operated(parent, Effect.CONFLICT, State.DONE))
    await store.done(lease)
    assert await store.prune(parent) == Operated(parent, Effect.APPLIED)


async def test_prune_refuses_what_is_needed__a_cancelled_parent_too(store: Harness) -> None:
    parent = await new_parent(store)
    await store.add(after=after(parent, on=OnFailure.IGNORE))
    await store.cancel(parent)
    assert await store.prune(parent) == Operated(parent, Effect.CONFLICT, State.CANCELLED)


async def test_prune_keeps_what_sweep_keeps(store: Harness) -> None:
    """The id, and the unique key to the end of its window."""
    first = store.job(key="k", window=HOUR)
    await store.enqueue(first)
    await store.done(await (await store.worker()).one())
    await store.prune(first.id)
    again, other = await store.enqueue(first), await store.enqueue(store.job(key="k"))
    assert [(receipt.status, receipt.of) for receipt in (*again, *other)] == [
        (Status.DUPLICATE, first.id)
    ] * 2
    await store.passes(1, HOUR)
    assert [receipt.status for receipt in await store.enqueue(store.job(key="k"))] == [Status.CREATED]
