"""Children: jobs that travel inside the settlement of the run that made them."""

from collections.abc import Callable

import pytest

from windlass.conformance.harness import Harness, ids, new_id
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import GROUP_BYTES, Edge, NewJob, Refusal, Status
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.units import MINUTE
from windlass.errors import ContractError


async def test_children_exist_exactly_when_applied(store: Harness) -> None:
    worker = await store.worker()
    parent = await store.add(flow="f")
    lease = await worker.one()
    first = store.job(payload=b"1", tags=("x",))
    later = store.job(delay=MINUTE)
    last = store.job(after=(Edge(first.id),))
    answer = await store.done(lease, spawn=(first, later, last))
    assert (answer.verdict, answer.state) == (Verdict.APPLIED, State.DONE)
    details = [await store.get(job.id) for job in (first, later, last)]
    assert [detail.parent for detail in details] == [parent] * 3
    assert [detail.state for detail in details] == [State.READY, State.SCHEDULED, State.BLOCKED]
    assert (details[0].payload, details[0].tags) == (b"1", ("x",))
    assert (await store.get(parent)).parent is None
    assert await worker.drain() == [first.id, last.id]


async def test_children_exist_exactly_when_applied__not_when_repeated(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    lease = await worker.one()
    child, other = store.job(), store.job()
    await store.done(lease, spawn=(child,))
    before = await store.everything()
    assert (await store.done(lease, spawn=(child,))).verdict is Verdict.ALREADY
    assert (await store.done(lease, spawn=(other,))).verdict is Verdict.ALREADY
    assert await store.everything() == before
    assert await store.missing(other.id)


async def test_children_exist_exactly_when_applied__not_when_stale(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    lease = await worker.one()
    await worker.end(CauseKind.LOST)
    child = store.job()
    assert (await store.done(lease, spawn=(child,))).verdict is Verdict.STALE
    assert (await store.done(await (await store.worker()).one())).verdict is Verdict.APPLIED
    assert (await store.done(lease, spawn=(child,))).verdict is Verdict.STALE
    assert await store.missing(child.id)


async def test_children_exist_exactly_when_applied__known_ones_are_not_made_twice(store: Harness) -> None:
    """A child that enqueue would answer DUPLICATE does not stand in the way."""
    worker = await store.worker()
    known = store.job(payload=b"first")
    keyed = await store.add(key="k", priority=-1)
    await store.add(priority=1)
    lease = await worker.one()
    await store.enqueue(known)
    children = (store.job(id=known.id, payload=b"second"), store.job(key="k"), store.job())
    assert (await store.done(lease, spawn=children)).verdict is Verdict.APPLIED
    assert ((await store.get(known.id)).payload, (await store.get(known.id)).parent) == (b"first", None)
    assert (await store.get(keyed)).parent is None
    assert await store.missing(children[1].id)
    assert await store.state(children[2].id) is State.READY


async def test_children_exist_exactly_when_applied__in_a_full_store(store: Harness) -> None:
    """Draining must work, so children are not subject to `max_size`."""
    full = await store.fresh(max_size=100)
    worker = await full.worker()
    receipts = [(await full.enqueue(full.job(payload=b"x" * 40)))[0] for _ in range(10)]
    assert (receipts[0].status, receipts[-1].refusal) == (Status.CREATED, Refusal.STORE_FULL)
    child = full.job(payload=b"x" * 40)
    assert (await full.done(await worker.one(), spawn=(child,))).verdict is Verdict.APPLIED
    assert (await full.get(child.id)).payload == b"x" * 40


async def test_children_come_only_with_done(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    first, second = await worker.take(2)
    before = await store.everything()
    for outcome in Outcome:
        if outcome is Outcome.DONE:
            continue
        wrong = Settlement(
            job=second.job,
            fence=second.fence,
            outcome=outcome,
            hold=HoldKey("k", "r") if outcome is Outcome.HOLD else None,
            spawn=(store.job(),),
        )
        right = Settlement(job=first.job, fence=first.fence, outcome=Outcome.DONE)
        with pytest.raises(ContractError):
            await store.broker.settle([right, wrong], worker.ask())
        assert await store.everything() == before, outcome


def _into_an_unknown_queue(store: Harness) -> tuple[NewJob, ...]:
    return store.job(), store.job(queue="unknown"), store.job()


def _after_an_unknown_parent(store: Harness) -> tuple[NewJob, ...]:
    return store.job(), store.job(after=(Edge(new_id()),))


def _in_a_cycle(store: Harness) -> tuple[NewJob, ...]:
    one, two = new_id(), new_id()
    return store.job(id=one, after=(Edge(two),)), store.job(id=two, after=(Edge(one),))


def _too_large(store: Harness) -> tuple[NewJob, ...]:
    return (store.job(payload=bytes(GROUP_BYTES)), store.job(payload=b"x"))


@pytest.mark.parametrize("made", [_into_an_unknown_queue, _after_an_unknown_parent, _in_a_cycle, _too_large])
async def test_refused_child_changes_nothing(
    store: Harness, made: Callable[[Harness], tuple[NewJob, ...]]
) -> None:
    await store.queue("q", concurrency=1)
    worker = await store.worker()
    await store.add_many(2)
    lease = await worker.one()
    before = await store.everything()
    children = made(store)
    word = Settlement(
        job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1, result=b"r", spawn=children
    )
    settled = await store.broker.settle([word], worker.ask(slots=1, limit=2))
    (answer,) = settled.answers
    assert (answer.verdict, answer.outcome, answer.state) == (Verdict.REFUSED, None, None)
    assert answer.why
    assert settled.claimed is not None
    assert settled.claimed.leases == ()
    assert await store.everything() == before
    assert all([await store.missing(child.id) for child in children])

    assert (await store.done(lease, b"without")).verdict is Verdict.APPLIED
    assert (await store.get(lease.job)).result == b"without"
    assert len(ids((await worker.claim()).leases)) == 1


async def test_children_come_only_with_done__and_not_too_many_of_them(store: Harness) -> None:
    await store.add_many(2)
    leases = await (await store.worker()).take(2)
    settlements = [
        Settlement(
            job=lease.job,
            fence=lease.fence,
            outcome=Outcome.DONE,
            spawn=tuple(store.job() for _ in range(CALL_ITEMS // 2 + place)),
        )
        for place, lease in enumerate(leases)
    ]
    with pytest.raises(ContractError):
        await store.broker.settle(settlements)
    assert await store.count(State.RUNNING) == 2
