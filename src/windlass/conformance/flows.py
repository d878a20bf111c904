"""Flows: when a job that waits for others may run, and what becomes of it when they fail."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from windlass.conformance.family import after, finish_parent, is_free, kill_parent, new_parent, waits
from windlass.conformance.harness import Harness
from windlass.core.job import OnFailure, Receipt, Refusal, Status
from windlass.core.lease import Ask
from windlass.core.operate import Effect
from windlass.core.outcome import CauseKind, Verdict
from windlass.core.query import Why
from windlass.core.settlement import HOLD_LIMIT
from windlass.core.state import Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId

_CANCEL, _IGNORE, _RUN = OnFailure.CANCEL, OnFailure.IGNORE, OnFailure.RUN

# waiting for parents


async def test_child_waits_for_its_parents(store: Harness) -> None:
    parents = [await new_parent(store) for _ in range(3)]
    child = await store.add(after=after(*parents))
    worker = await store.worker()
    for left in (3, 2, 1):
        await waits(store, child, left)
        assert (await store.explain(child)).why is Why.PARENTS
        assert not (await worker.claim()).leases
        await finish_parent(store)
    await is_free(store, child)
    lease = await worker.one()
    assert (lease.job, list(lease.parents)) == (child, parents)


async def test_child_waits_for_its_parents__through_all_their_attempts(store: Harness) -> None:
    parent = await new_parent(store)
    child = await store.add(after=after(parent, on=_RUN))
    worker = await store.worker()
    await store.release(await worker.one("parents"))
    await store.retry(await worker.one("parents"))
    await store.snooze(await worker.one("parents"), 0)
    await store.hold(await worker.one("parents"))
    store.advance(SECOND)
    await worker.end(CauseKind.CRASH, [await worker.one("parents")])
    await waits(store, child, 1)
    await finish_parent(store)
    await is_free(store, child)


async def test_child_waits_for_its_parents__in_a_chain(store: Harness) -> None:
    first = await store.add()
    second = await store.add(after=after(first))
    third = await store.add(after=after(second))
    fourth = await store.add(after=after(first, third))
    assert await (await store.worker()).drain() == [first, second, third, fourth]


async def test_child_waits_for_its_parents__for_whom_a_key_absorbed(store: Harness) -> None:
    """An edge to a call that a key absorbed is an edge to the job that stands for it."""
    await store.queue("parents")
    parent = await store.add(queue="parents", key="k")
    absorbed = store.job(queue="parents", key="k")
    child = store.job(after=after(absorbed.id))
    receipts = await store.enqueue(child, absorbed)
    assert receipts == [Receipt(Status.CREATED, child.id), Receipt(Status.DUPLICATE, absorbed.id, of=parent)]
    await waits(store, child.id, 1)
    await finish_parent(store)
    await is_free(store, child.id)


async def test_child_waits_for_its_parents__of_whom_two_are_one(store: Harness) -> None:
    await store.queue("parents")
    parent = await store.add(queue="parents", key="k")
    absorbed = store.job(queue="parents", key="k")
    await store.enqueue(absorbed)
    child = await store.add(after=after(parent, absorbed.id))
    assert await store.state(child) is State.BLOCKED
    await finish_parent(store)
    await is_free(store, child)


async def test_finished_parent_does_not_block(store: Harness) -> None:
    done, other = await new_parent(store), await new_parent(store)
    await finish_parent(store)
    await is_free(store, await store.add(after=after(done)))
    await is_free(store, await store.add(after=after(done), delay=HOUR), State.SCHEDULED)
    child = await store.add(after=after(done, other))
    await waits(store, child, 1)
    await finish_parent(store)
    await is_free(store, child)


async def test_finished_parent_does_not_block__although_it_is_not_kept(store: Harness) -> None:
    """A parent that finished within the resend window counts by its state."""
    parent = await new_parent(store, retention=0)
    await finish_parent(store)
    await store.sweep()
    assert (await store.get(parent)).pruned
    await is_free(store, await store.add(after=after(parent)))


async def test_parents_may_come_in_the_same_group(store: Harness) -> None:
    first, second = store.job(), store.job()
    third, fourth = store.job(after=after(first.id, second.id)), store.job()
    fifth = store.job(after=after(third.id, fourth.id))
    receipts = await store.enqueue(fifth, first, third, second, fourth)
    assert [receipt.status for receipt in receipts] == [Status.CREATED] * 5
    await waits(store, third.id, 2)
    await waits(store, fifth.id, 2)
    assert await (await store.worker()).drain() == [job.id for job in (first, second, fourth, third, fifth)]


async def test_parents_may_come_in_the_same_group__again(store: Harness) -> None:
    """A parent that was sent before is the one that is there."""
    parent = await new_parent(store)
    child = store.job(after=after(parent))
    await store.enqueue(child, store.job(id=parent, queue="parents"))
    await waits(store, child.id, 1)
    await finish_parent(store)
    await is_free(store, child.id)


async def test_parents_may_come_in_the_same_group__of_spawned_children(store: Harness) -> None:
    await store.add()
    worker = await store.worker()
    first = store.job()
    second = store.job(after=after(first.id))
    await store.done(await worker.one(), spawn=(second, first))
    assert await store.states([first.id, second.id]) == [State.READY, State.BLOCKED]
    assert await worker.drain() == [first.id, second.id]


async def test_unknown_parent_is_refused(store: Harness) -> None:
    parent, neighbour = await new_parent(store), store.job()
    child = store.job(after=(*after(parent), *after("01900000-0000-7000-8000-ffffffffffff")))
    receipts = await store.enqueue(neighbour, child)
    assert [receipt.refusal for receipt in receipts] == [Refusal.NEIGHBOUR, Refusal.UNKNOWN_PARENT]
    assert "01900000-0000-7000-8000-ffffffffffff" in receipts[1].why
    assert await store.missing(child.id)
    assert await store.missing(neighbour.id)
    await finish_parent(store)


async def test_unknown_parent_is_refused__beyond_the_resend_window(store: Harness) -> None:
    parent = await new_parent(store, retention=0)
    await finish_parent(store)
    store.advance(MINUTE)
    await store.sweep()
    (receipt,) = await store.enqueue(store.job(after=after(parent)))
    assert receipt.refusal is Refusal.UNKNOWN_PARENT


@pytest.mark.parametrize("length", [2, 3, 10])
async def test_cycle_is_refused(store: Harness, length: int) -> None:
    names = [store.job().id for _ in range(length)]
    cycle = [store.job(id=name, after=after(names[place - 1])) for place, name in enumerate(names)]
    other = store.job()
    before = await store.everything(*names, other.id)
    receipts = await store.enqueue(other, *cycle)
    assert [receipt.refusal for receipt in receipts] == [Refusal.NEIGHBOUR, *[Refusal.CYCLE] * length]
    assert await store.everything(*names, other.id) == before


async def test_cycle_is_refused__that_goes_through_a_key(store: Harness) -> None:
    """The second call under a key is the first: what waits for it waits for that."""
    names = [store.job().id for _ in range(3)]
    first = store.job(id=names[0], key="k", after=after(names[2]))
    second = store.job(id=names[1], key="k")
    third = store.job(id=names[2], after=after(names[1]))
    before = await store.everything(*names)
    receipts = await store.enqueue(first, second, third)
    assert [receipt.status for receipt in receipts] == [Status.REFUSED] * 3
    assert Refusal.CYCLE in {receipt.refusal for receipt in receipts}
    assert await store.everything(*names) == before


async def test_cycle_is_refused__but_not_one_of_edges_that_a_key_absorbed(store: Harness) -> None:
    """A call that is a duplicate waits for nobody."""
    first, name = store.job(key="k"), store.job().id
    second, third = store.job(key="k", after=after(name)), store.job(id=name, after=after(first.id))
    receipts = await store.enqueue(first, second, third)
    assert [receipt.status for receipt in receipts] == [Status.CREATED, Status.DUPLICATE, Status.CREATED]
    assert await (await store.worker()).drain() == [first.id, third.id]


async def test_cycle_is_refused__but_not_one_of_edges_that_were_sent_before(store: Harness) -> None:
    """Whatever an id says that is sent again, it is the job that it was."""
    first, name = store.job(), store.job().id
    await store.enqueue(first)
    again = store.job(id=first.id, after=after(name))
    receipts = await store.enqueue(again, store.job(id=name, after=after(first.id)))
    assert [receipt.status for receipt in receipts] == [Status.DUPLICATE, Status.CREATED]
    assert await (await store.worker()).drain() == [first.id, name]


async def test_cycle_is_refused__of_an_id_that_comes_twice_by_what_it_said_first(store: Harness) -> None:
    """The second call is a duplicate, whatever it says: what it does not wait for, the job may."""
    first = store.job()
    second = store.job(after=after(first.id))
    waits, free = store.job(id=first.id, after=after(second.id)), first
    receipts = await store.enqueue(waits, second, free)
    assert [receipt.refusal for receipt in receipts] == [Refusal.CYCLE] * 3
    receipts = await store.enqueue(free, second, waits)
    assert [receipt.status for receipt in receipts] == [Status.CREATED, Status.CREATED, Status.DUPLICATE]
    assert await (await store.worker()).drain() == [first.id, second.id]


async def test_cycle_is_refused__with_calls_that_a_key_of_it_absorbed(store: Harness) -> None:
    name = store.job().id
    first = store.job(key="k", after=after(name))
    receipts = await store.enqueue(first, store.job(key="k"), store.job(id=name, after=after(first.id)))
    assert [receipt.refusal for receipt in receipts] == [Refusal.CYCLE] * 3


@pytest.mark.parametrize("other", [{"queue": "another"}, {"lane": "a"}, {"task": "another"}], ids=str)
async def test_cycle_is_refused__but_not_by_the_same_key_elsewhere(
    store: Harness, other: dict[str, str]
) -> None:
    await store.queue("another")
    free, name = store.job(key="k", **other), store.job().id
    waiting = store.job(key="k", after=after(name))
    receipts = await store.enqueue(waiting, free, store.job(id=name, after=after(free.id)))
    assert {receipt.status for receipt in receipts} == {Status.CREATED}


async def test_cycle_is_refused__but_not_a_diamond(store: Harness) -> None:
    top = store.job()
    left, right = store.job(after=after(top.id)), store.job(after=after(top.id))
    bottom = store.job(after=after(left.id, right.id, top.id))
    await store.enqueue(bottom, right, left, top)
    order = await (await store.worker()).drain()
    assert (order[0], set(order[1:3]), order[3:]) == (top.id, {left.id, right.id}, [bottom.id])


@pytest.mark.parametrize("option", ["delay", "run_at"])
async def test_unblocked_child_waits_for_its_own_delay(store: Harness, option: str) -> None:
    parent = await new_parent(store)
    due = store.clock.now() + MINUTE
    child = await store.add(after=after(parent), **{option: MINUTE if option == "delay" else due})
    store.advance(MINUTE // 2)
    await finish_parent(store)
    await is_free(store, child, State.SCHEDULED)
    assert (await store.get(child)).due_at == due
    worker = await store.worker()
    store.advance(MINUTE // 2 - 1)
    assert not (await worker.claim()).leases
    store.advance(1)
    assert (await worker.one()).job == child


async def test_unblocked_child_waits_for_its_own_delay__which_may_be_over(store: Harness) -> None:
    child = await store.add(after=after(await new_parent(store)), delay=MINUTE)
    store.advance(MINUTE)
    await store.sweep()
    await waits(store, child, 1)
    await finish_parent(store)
    await is_free(store, child)


# once


async def test_child_is_unblocked_once(store: Harness) -> None:
    """A parent that dies, is replayed and done resolves its edge once: the child waits for the other."""
    first, second = await new_parent(store), await new_parent(store)
    child = await store.add(after=(*after(first, on=_RUN), *after(second)))
    worker = await store.worker()
    lease, _ = await worker.take(2, "parents")
    await store.dead(lease)
    await waits(store, child, 1)
    await store.replay(first)
    await waits(store, child, 1)
    await finish_parent(store)
    await store.sweep()
    await waits(store, child, 1)
    await worker.end(CauseKind.STOP)
    await finish_parent(store)
    await is_free(store, child)


async def test_child_is_unblocked_once__by_a_repeated_settlement(store: Harness) -> None:
    child = await store.add(after=after(await new_parent(store), await new_parent(store)))
    lease = await (await store.worker()).one("parents")
    await store.done(lease)
    assert (await store.done(lease)).verdict is Verdict.ALREADY
    await waits(store, child, 1)


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.DONE, State.DEAD, State.CANCELLED])
async def test_child_is_unblocked_once__wherever_it_is_by_then(store: Harness, state: State) -> None:
    parent = await new_parent(store)
    child = await store.add(after=after(parent, on=_RUN))
    if state is State.CANCELLED:
        await store.cancel(child)
    await kill_parent(store)
    if state not in (State.READY, State.CANCELLED):
        lease = await (await store.worker()).one()
        if state is not State.RUNNING:
            await (store.done(lease) if state is State.DONE else store.dead(lease))
    before = await store.get(child)
    assert before.state is state
    await store.replay(parent)
    await finish_parent(store)
    await store.sweep()
    assert await store.get(child) == before
    assert await store.count(State.READY) == (state is State.READY)


async def test_child_is_unblocked_once__although_it_was_replayed_before(store: Harness) -> None:
    """A child that expired while it was blocked and was sent back waits for nobody any more."""
    parent = await new_parent(store)
    child = await store.add(after=after(parent), expires=MINUTE)
    store.advance(MINUTE)
    await store.sweep()
    assert await store.state(child) is State.DEAD
    await store.replay(child)
    await is_free(store, child)
    await store.cancel(parent)
    await is_free(store, child)
    assert await (await store.worker()).drain() == [child]


# dead parents


async def _exhaust(store: Harness, parent: JobId) -> None:
    worker = await store.worker()
    while await store.state(parent) is not State.DEAD:
        await store.retry(await worker.one("parents"))


async def _crash(store: Harness, parent: JobId) -> None:
    while await store.state(parent) is not State.DEAD:
        worker = await store.worker()
        alone = (await store.get(parent)).crashes >= 2
        await worker.end(CauseKind.CRASH, [await worker.one("parents", alone=alone)])
        store.advance(MINUTE)


async def _run_out(store: Harness, parent: JobId) -> None:
    while await store.state(parent) is not State.DEAD:
        claimed = await store.broker.claim(Ask(queues=("parents",), slots=1, limit=1, visibility=SECOND))
        assert len(claimed.leases) == 1
        store.advance(SECOND)
        await store.sweep()


async def _hold(store: Harness, _: JobId) -> None:
    worker = await store.worker()
    await store.hold(await worker.one("parents"))
    store.advance(HOLD_LIMIT)
    await store.hold(await worker.one("parents"))


async def _give_up(store: Harness, _: JobId) -> None:
    await kill_parent(store)


_DEATHS: Mapping[str, Callable[[Harness, JobId], Awaitable[None]]] = {
    "gave up": _give_up,
    "attempts exhausted": _exhaust,
    "crashed": _crash,
    "lease ran out": _run_out,
    "held too long": _hold,
}


@pytest.mark.parametrize("death", _DEATHS)
async def test_dependents_of_a_dead_parent_wait(store: Harness, death: str) -> None:
    parent = await new_parent(store)
    children = [await store.add(after=after(parent, on=policy)) for policy in (_CANCEL, _IGNORE)]
    await _DEATHS[death](store, parent)
    assert await store.state(parent) is State.DEAD
    children += [await store.add(after=after(parent, on=policy)) for policy in (_CANCEL, _IGNORE)]
    store.advance(DAY)
    await store.sweep()
    for child in children:
        await waits(store, child, 1, Reason.PARENT_DEAD)
        assert (await store.explain(child)).why is Why.PARENT_DEAD
    assert not (await (await store.worker()).claim()).leases


async def test_dependents_of_a_dead_parent_wait__that_never_started(store: Harness) -> None:
    await store.queue("parents")
    parent = await store.add(queue="parents", expires=MINUTE)
    child = await store.add(after=after(parent))
    store.advance(MINUTE)
    await store.sweep()
    assert await store.state(parent) is State.DEAD
    await waits(store, child, 1, Reason.PARENT_DEAD)


async def test_dependents_of_a_dead_parent_wait__all_of_them(store: Harness) -> None:
    parent = await new_parent(store)
    children = await store.add_many(250, after=after(parent))
    await kill_parent(store)
    await store.sweep()
    for child in children:
        await waits(store, child, 1, Reason.PARENT_DEAD)


async def test_replayed_parent_frees_its_dependents(store: Harness) -> None:
    parent = await new_parent(store)
    children = [await store.add(after=after(parent, on=policy)) for policy in (_CANCEL, _IGNORE)]
    for _ in range(2):
        await kill_parent(store)
        assert (await store.replay(parent)).effect is Effect.APPLIED
        for child in children:
            await waits(store, child, 1)
    await finish_parent(store)
    for child in children:
        await is_free(store, child)
    assert sorted(await (await store.worker()).drain()) == sorted(children)


async def test_replayed_parent_frees_its_dependents__one_of_two(store: Harness) -> None:
    first, second = await new_parent(store), await new_parent(store)
    child = await store.add(after=after(first, second))
    await kill_parent(store)
    await waits(store, child, 2, Reason.PARENT_DEAD)
    await kill_parent(store)
    await store.replay(first)
    await waits(store, child, 2, Reason.PARENT_DEAD)
    await finish_parent(store)
    await waits(store, child, 1, Reason.PARENT_DEAD)
    await store.replay(second)
    await waits(store, child, 1)
    await finish_parent(store)
    await is_free(store, child)
