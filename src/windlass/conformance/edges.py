"""Edges: what becomes of dependents once a parent's fate is sealed, and what is kept for them until then."""

import pytest

from windlass.conformance.family import (
    FATES,
    after,
    finish_parent,
    is_cancelled,
    is_free,
    kill_parent,
    new_parent,
    waits,
)
from windlass.conformance.harness import Harness
from windlass.core.job import OnFailure, Receipt, Status
from windlass.core.operate import Effect
from windlass.core.state import Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId

_CANCEL, _IGNORE, _RUN = OnFailure.CANCEL, OnFailure.IGNORE, OnFailure.RUN

_each_fate = pytest.mark.parametrize("fate", FATES)


async def _sealed(store: Harness, fate: str, policy: OnFailure) -> tuple[JobId, JobId]:
    """A child that was there when its parent's fate was sealed, and one that comes after."""
    parent = await new_parent(store, dead_retention=5 * SECOND)
    child = await store.add(after=after(parent, on=policy))
    await FATES[fate](store, parent)
    late = store.job(after=after(parent, on=policy))
    assert await store.enqueue(late) == [Receipt(Status.CREATED, late.id)]
    return child, late.id


@_each_fate
async def test_cancel_edge_cancels_dependents(store: Harness, fate: str) -> None:
    child, late = await _sealed(store, fate, _CANCEL)
    await is_cancelled(store, child, late)
    assert (await store.get(late)).finished_at == store.clock.now()
    assert (await store.cancel(child)).effect is Effect.WRONG_STATE
    await store.sweep()
    assert await (await store.worker()).drain() == []
    assert [await store.count(state) for state in (State.BLOCKED, State.CANCELLED)] == [0, 2]


@_each_fate
async def test_ignore_edge_runs_dependents(store: Harness, fate: str) -> None:
    child, late = await _sealed(store, fate, _IGNORE)
    await is_free(store, child)
    await is_free(store, late)
    await store.sweep()
    assert sorted(await (await store.worker()).drain()) == sorted([child, late])


@pytest.mark.parametrize("fate", [fate for fate in FATES if fate != "pruned while dead"])
async def test_run_edge_does_not_wait_for_a_replay__nor_for_anything_else(store: Harness, fate: str) -> None:
    child, late = await _sealed(store, fate, _RUN)
    await is_free(store, child)
    await is_free(store, late)
    await store.sweep()
    assert sorted(await (await store.worker()).drain()) == sorted([child, late])


async def test_run_edge_does_not_wait_for_a_replay(store: Harness) -> None:
    parent, other = await new_parent(store), await new_parent(store)
    alone = await store.add(after=after(parent, on=_RUN))
    both = await store.add(after=(*after(parent, on=_RUN), *after(other)))
    await kill_parent(store)
    await is_free(store, alone)
    await waits(store, both, 1)
    assert await store.state(parent) is State.DEAD
    await is_free(store, await store.add(after=after(parent, on=_RUN)))
    await is_free(store, await store.add(after=after(parent, on=_RUN), delay=HOUR), State.SCHEDULED)
    await finish_parent(store)
    await is_free(store, both)


async def test_run_edge_does_not_wait_for_a_replay__of_a_parent_that_never_started(store: Harness) -> None:
    await store.queue("parents")
    parent = await store.add(queue="parents", expires=MINUTE)
    child = await store.add(after=after(parent, on=_RUN))
    store.advance(MINUTE)
    moved = [moved for swept in await store.sweep() for moved in swept.moved]
    assert [(move.job, move.before, move.after) for move in moved] == [
        (parent, State.READY, State.DEAD),
        (child, State.BLOCKED, State.READY),
    ]
    await is_free(store, child)


# several parents, and chains


@pytest.mark.parametrize("policy", OnFailure)
async def test_cancel_edge_cancels_dependents__whatever_their_other_parents_do(
    store: Harness, policy: OnFailure
) -> None:
    first, second = await new_parent(store), await new_parent(store)
    child = await store.add(after=(*after(first), *after(second, on=policy)))
    await store.cancel(first)
    await is_cancelled(store, child)
    before = await store.get(child)
    await finish_parent(store)
    assert await store.state(second) is State.DONE
    assert await store.get(child) == before


async def test_cancel_edge_cancels_dependents__also_the_last_of_several(store: Harness) -> None:
    first, second, third = [await new_parent(store) for _ in range(3)]
    child = await store.add(after=(*after(first, on=_IGNORE), *after(second), *after(third)))
    await store.cancel(first)
    await waits(store, child, 2)
    await finish_parent(store)
    await waits(store, child, 1)
    await store.cancel(third)
    await is_cancelled(store, child)


async def test_cancel_edge_cancels_dependents__born_with_another_parent(store: Harness) -> None:
    """Cancelled at birth, a child leaves no edge behind on the parent that goes on."""
    first, second = await new_parent(store), await new_parent(store)
    await store.cancel(first)
    child = await store.add(after=after(second, first))
    await is_cancelled(store, child)
    before = await store.get(child)
    await finish_parent(store)
    await store.sweep()
    assert await store.get(child) == before


async def test_cancel_edge_cancels_dependents__and_their_dependents(store: Harness) -> None:
    root = await new_parent(store)
    first = await store.add(after=after(root))
    second = await store.add(after=after(first))
    third = await store.add(after=after(second, first, root))
    ignoring, running = [await store.add(after=after(second, on=policy)) for policy in (_IGNORE, _RUN)]
    behind = await store.add(after=after(ignoring))
    await store.cancel(root)
    await is_cancelled(store, first, second, third)
    await is_free(store, ignoring)
    await is_free(store, running)
    await waits(store, behind, 1)
    assert await store.count(State.CANCELLED) == 3, "each once, although the third had three reasons"


async def test_cancel_edge_cancels_dependents__and_their_dependents_in_a_group(store: Harness) -> None:
    root = await new_parent(store)
    await store.cancel(root)
    first = store.job(after=after(root))
    second = store.job(after=after(first.id))
    third = store.job(after=after(second.id, on=_IGNORE))
    receipts = await store.enqueue(third, second, first)
    assert [receipt.status for receipt in receipts] == [Status.CREATED] * 3
    await is_cancelled(store, first.id, second.id)
    await is_free(store, third.id)


async def test_cancel_edge_cancels_dependents__of_a_dead_parent_when_it_is_discarded(store: Harness) -> None:
    root = await new_parent(store)
    first = await store.add(after=after(root))
    second = await store.add(after=after(first, on=_RUN))
    await kill_parent(store)
    await waits(store, first, 1, Reason.PARENT_DEAD)
    await waits(store, second, 1)
    await store.discard(root)
    await is_cancelled(store, first)
    await is_free(store, second)


async def test_cancel_edge_cancels_dependents__and_gives_up_their_keys(store: Harness) -> None:
    root = await new_parent(store)
    await store.add(after=after(root), key="k")
    await store.cancel(root)
    await store.add(key="k")


async def test_ignore_edge_runs_dependents__after_their_other_parents(store: Harness) -> None:
    first, _ = await new_parent(store), await new_parent(store)
    child = await store.add(after=after(first, _, on=_IGNORE))
    await store.cancel(first)
    await waits(store, child, 1)
    await finish_parent(store)
    await is_free(store, child)


async def test_ignore_edge_runs_dependents__when_they_are_due(store: Harness) -> None:
    parent = await new_parent(store)
    child = await store.add(after=after(parent, on=_IGNORE), delay=HOUR)
    await store.cancel(parent)
    await is_free(store, child, State.SCHEDULED)


# what is kept for dependents


@pytest.mark.parametrize("end", [State.DONE, State.DEAD, State.CANCELLED])
async def test_parent_is_kept_while_a_dependent_is_unfinished(store: Harness, end: State) -> None:
    parent = await new_parent(store, retention=MINUTE, result_ttl=SECOND)
    other = await store.add(delay=DAY)
    child = await store.add(after=after(parent, other))
    await finish_parent(store, b"result")
    worker = await store.worker()

    async def is_kept() -> bool:
        store.advance(DAY)
        await store.sweep()
        detail = (await store.broker.get([parent]))[0]
        assert detail is None or (detail.pruned, detail.result) == (False, b"result")
        return detail is not None

    assert await is_kept()
    await store.done(await worker.one())
    assert await store.state(child) is State.READY
    assert await is_kept()
    if end is State.CANCELLED:
        await store.cancel(child)
    else:
        lease = await worker.one()
        assert await is_kept()
        await (store.done(lease) if end is State.DONE else store.dead(lease))
    assert not await is_kept()


async def test_parent_is_kept_while_a_dependent_is_unfinished__then_its_result_goes(store: Harness) -> None:
    parent = await new_parent(store, retention=DAY, result_ttl=MINUTE)
    child = await store.add(after=after(parent))
    await finish_parent(store, b"result")
    store.advance(HOUR)
    await store.sweep()
    assert (await store.get(parent)).result == b"result"
    assert await (await store.worker()).drain() == [child]
    await store.sweep()
    assert ((await store.get(parent)).state, (await store.get(parent)).result) == (State.DONE, None)


async def test_parent_is_kept_while_a_dependent_is_unfinished__beyond_the_count(store: Harness) -> None:
    parents = [await new_parent(store, retention_count=1) for _ in range(3)]
    child = await store.add(after=after(*parents))
    for _ in parents:
        await finish_parent(store)
    await store.sweep()
    assert [(await store.get(parent)).pruned for parent in parents] == [False] * 3
    assert await (await store.worker()).drain() == [child]
    await store.sweep()
    assert [(await store.get(parent)).pruned for parent in parents] == [True, True, False]


@pytest.mark.parametrize("policy", [_IGNORE, _RUN])
async def test_parent_is_kept_while_a_dependent_is_unfinished__although_it_failed(
    store: Harness, policy: OnFailure
) -> None:
    parent = await new_parent(store, retention=0)
    child = await store.add(after=after(parent, on=policy))
    await store.cancel(parent)
    store.advance(MINUTE)
    await store.sweep()
    assert not (await store.get(parent)).pruned
    assert await (await store.worker()).drain() == [child]
    await store.sweep()
    assert await store.missing(parent)


async def test_parent_is_kept_while_a_dependent_is_unfinished__although_it_is_dead(store: Harness) -> None:
    """For the clean-up work that its death set off; those that still wait for it have no claim on it."""
    parent = await new_parent(store, dead_retention=MINUTE)
    cleaner, other = [await store.add(after=after(parent, on=policy)) for policy in (_RUN, _CANCEL)]
    await kill_parent(store)
    store.advance(HOUR)
    await store.sweep()
    assert (await store.get(parent)).error is not None
    assert await store.states([cleaner, other]) == [State.READY, State.BLOCKED]
    assert await (await store.worker()).drain() == [cleaner]
    await store.sweep()
    assert await store.missing(parent)
    await is_cancelled(store, other)


async def test_parent_is_kept_while_a_dependent_is_unfinished__by_a_purge_too(store: Harness) -> None:
    parent = await new_parent(store)
    child = await store.add(after=after(parent))
    await finish_parent(store, b"result")
    await store.broker.purge("parents", State.DONE, 10)
    assert (await store.get(parent)).result == b"result"
    assert await (await store.worker()).drain() == [child]
    assert (await store.broker.purge("parents", State.DONE, 10)).count == 1
