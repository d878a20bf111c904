"""Groups of new jobs: each comes into being whole or not at all, whatever else the same call brings."""

from collections.abc import Sequence

from windlass.conformance.harness import Harness, new_id
from windlass.core.job import GROUP_BYTES, GROUP_JOBS, Edge, Mode, Receipt, Refusal, Status
from windlass.core.state import State
from windlass.core.units import HOUR

_CREATED, _DUPLICATE, _REPLACED, _REFUSED = Status.CREATED, Status.DUPLICATE, Status.REPLACED, Status.REFUSED


def _statuses(receipts: Sequence[Receipt]) -> list[Status]:
    return [receipt.status for receipt in receipts]


def _refusals(receipts: Sequence[Receipt]) -> list[Refusal | None]:
    assert all(receipt.status is _REFUSED for receipt in receipts), receipts
    return [receipt.refusal for receipt in receipts]


async def test_group_is_all_or_nothing(store: Harness) -> None:
    first, bad, last = store.job(), store.job(queue="nowhere"), store.job(delay=HOUR)
    before = await store.everything(first.id, bad.id, last.id)
    receipts = await store.enqueue(first, bad, last)
    assert _refusals(receipts) == [Refusal.NEIGHBOUR, Refusal.UNKNOWN_QUEUE, Refusal.NEIGHBOUR]
    assert [receipt.job for receipt in receipts] == [first.id, bad.id, last.id]
    assert await store.everything(first.id, bad.id, last.id) == before
    assert _statuses(await store.enqueue(first, last)) == [_CREATED, _CREATED]


async def test_group_is_all_or_nothing__and_an_id_that_comes_twice_is_refused_for_what_it_said_last(
    store: Harness,
) -> None:
    first = store.job(after=(Edge(new_id()),))
    for last, why in (
        (store.job(id=first.id, queue="nowhere"), Refusal.UNKNOWN_QUEUE),
        (first, Refusal.UNKNOWN_PARENT),
    ):
        assert _refusals(await store.enqueue(first, last)) == [why, why]


async def test_group_is_all_or_nothing__keys(store: Harness) -> None:
    """A refused group takes no key, replaces nothing, follows nobody and absorbs no call."""
    waiting = await store.add(key="waits", payload=b"old")
    running = await store.add(key="runs", priority=1)
    worker = await store.worker()
    lease = await worker.one()
    newest, follower, fresh = (
        store.job(key="waits", mode=Mode.REPLACE, payload=b"new"),
        store.job(key="runs", mode=Mode.REPLACE),
        store.job(key="free"),
    )
    before = await store.everything(newest.id, follower.id, fresh.id)
    await store.enqueue(newest, follower, fresh, store.job(queue="nowhere"))
    assert await store.everything(newest.id, follower.id, fresh.id) == before
    assert (lease.job, (await store.get(waiting)).payload) == (running, b"old")
    await store.retry(lease, HOUR)
    assert await store.state(running) is State.SCHEDULED, "nobody follows it"
    assert _statuses(await store.enqueue(newest)) == [_REPLACED]
    assert (await store.get(waiting)).payload == b"new"
    assert _statuses(await store.enqueue(store.job(key="free"))) == [_CREATED]


async def test_group_is_all_or_nothing__edges(store: Harness) -> None:
    """A refused group leaves no edge behind that could unblock a later job of that id."""
    first, second = await store.add(priority=1), await store.add()
    child = store.job(after=(Edge(first), Edge(second)))
    await store.enqueue(child, store.job(queue="nowhere"))
    assert _statuses(await store.enqueue(child)) == [_CREATED]
    worker = await store.worker()
    await store.done(await worker.one())
    detail = await store.get(child.id)
    assert (detail.state, detail.waiting_for) == (State.BLOCKED, 1)


async def test_groups_are_independent(store: Harness) -> None:
    good, bad, neighbour, last = (
        store.job(),
        store.job(queue="nowhere"),
        store.job(key="k"),
        store.job(key="k"),
    )
    receipts = await store.broker.enqueue([[good], [neighbour, bad], [last]])
    assert [_statuses(group) for group in receipts] == [[_CREATED], [_REFUSED, _REFUSED], [_CREATED]]
    assert await store.states([good.id, last.id]) == [State.READY, State.READY]
    assert await store.missing(neighbour.id)
    assert await store.missing(bad.id)


async def test_groups_are_independent__order(store: Harness) -> None:
    """Later groups of a call come after the earlier ones."""
    jobs = [store.job() for _ in range(4)]
    await store.broker.enqueue([[jobs[2]], [jobs[0], jobs[3]], [jobs[1]]])
    worker = await store.worker()
    assert await worker.drain() == [jobs[index].id for index in (2, 0, 3, 1)]


async def test_groups_are_independent__many_of_them_plain(store: Harness) -> None:
    """What callers side by side send is mostly alike: a store may take it in one step, but not mix it up."""
    jobs = [store.job(payload=b"%d" % number) for number in range(6)]
    groups = [[jobs[5]], [], [jobs[1], jobs[0]], [jobs[4]], [jobs[2], jobs[3]]]
    receipts = await store.broker.enqueue(groups)
    assert [[(one.status, one.job) for one in group] for group in receipts] == [
        [(_CREATED, job.id) for job in group] for group in groups
    ]
    assert [(await store.get(job.id)).payload for job in jobs] == [job.payload for job in jobs]
    assert await store.count(State.READY) == 6
    worker = await store.worker()
    assert await worker.drain() == [jobs[number].id for number in (5, 1, 0, 4, 2, 3)]


async def test_groups_are_independent__one_was_sent_before(store: Harness) -> None:
    """An id that is known, or comes in two groups, is one job, and takes nothing from its neighbours."""
    known, twice, *others = (store.job() for _ in range(5))
    await store.enqueue(known)
    groups = [[others[0]], [known, others[1]], [twice], [others[2], twice]]
    receipts = await store.broker.enqueue(groups)
    assert [_statuses(group) for group in receipts] == [
        [_CREATED], [_DUPLICATE, _CREATED], [_CREATED], [_CREATED, _DUPLICATE],
    ]  # fmt: skip
    assert (receipts[1][0].of, receipts[3][1].of) == (known.id, twice.id)
    worker = await store.worker()
    assert await worker.drain() == [known.id, others[0].id, others[1].id, twice.id, others[2].id]


async def test_groups_are_independent__together_over_the_bound_of_one(store: Harness) -> None:
    half = [store.job() for _ in range(GROUP_JOBS // 2 + 1)]
    other = [store.job() for _ in range(GROUP_JOBS // 2 + 1)]
    receipts = await store.broker.enqueue([half, other])
    assert [_statuses(group) for group in receipts] == [[_CREATED] * len(half)] * 2
    assert await store.count(State.READY) == 2 * len(half)


async def test_group_over_its_bound_is_refused(store: Harness) -> None:
    jobs, other = [store.job() for _ in range(GROUP_JOBS + 1)], store.job()
    receipts = await store.broker.enqueue([jobs, [other]])
    assert _refusals(receipts[0]) == [Refusal.GROUP_TOO_LARGE] * (GROUP_JOBS + 1)
    assert _statuses(receipts[1]) == [_CREATED]
    assert [view.id for view in await store.listed()] == [other.id]
    assert _statuses(await store.enqueue(*jobs[:GROUP_JOBS])) == [_CREATED] * GROUP_JOBS


async def test_group_over_its_bound_is_refused__bytes(store: Harness) -> None:
    half = bytes(GROUP_BYTES // 2)
    jobs = [store.job(payload=half), store.job(payload=half), store.job(payload=b"x")]
    assert _refusals(await store.enqueue(*jobs)) == [Refusal.GROUP_TOO_LARGE] * 3
    assert await store.count(State.READY) == 0
    assert _statuses(await store.enqueue(*jobs[:2])) == [_CREATED, _CREATED]
