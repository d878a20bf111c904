"""Take: an offset moves and jobs come into being, together or not at all."""

import asyncio
from typing import Any

import pytest

from windlass.conformance.harness import Harness, new_id
from windlass.core.job import (
    GROUP_BYTES,
    GROUP_JOBS,
    Edge,
    Mode,
    NewJob,
    Refusal,
    Status,
)
from windlass.core.outcome import Error
from windlass.core.state import State
from windlass.core.take import Offset, Source, Take, Taken, TakeStatus
from windlass.core.units import HOUR, MINUTE, SECOND
from windlass.errors import ContractError

ORDERS = Source("kafka://host/orders/3", "topic-1")
UNREADABLE = Error(type="Unreadable", message="no JSON: 'ÿ' at 0", traceback="", retryable=False)


def take_of(
    *groups: tuple[NewJob, ...], expect: str | None = None, then: str | None = "9", **more: Any
) -> Take:
    """A take from `ORDERS`, which has no offset yet."""
    wish: dict[str, Any] = {"source": ORDERS, "expect": expect, "then": then, "groups": groups, **more}
    return Take(**wish)


def statuses(taken: Taken) -> list[list[Status]]:
    """What became of each job, by group."""
    return [[receipt.status for receipt in group] for group in taken.receipts]


def refusals(taken: Taken) -> list[list[Refusal | None]]:
    """Why each job was refused, by group."""
    return [[receipt.refusal for receipt in group] for group in taken.receipts]


async def accepted(store: Harness, take: Take) -> Taken:
    """Take and require that it was taken, and all of its jobs were created."""
    taken = await store.broker.take(take)
    assert taken.status is TakeStatus.TAKEN, taken
    created = [[(Status.CREATED, job.id) for job in group] for group in take.groups]
    assert [[(receipt.status, receipt.job) for receipt in group] for group in taken.receipts] == created
    return taken


async def test_take_moves_and_enqueues_together(store: Harness) -> None:
    one, two, three = store.job(payload=b"1"), store.job(priority=1, delay=HOUR), store.job()
    store.advance(SECOND)
    taken = await accepted(store, take_of((one, two), (three,), then="12@7"))
    assert taken.offset == Offset(ORDERS, "12@7", store.clock.now())
    assert list(await store.broker.offsets()) == [taken.offset]
    assert [(await store.get(job.id)).state for job in (one, two, three)] == [
        State.READY,
        State.SCHEDULED,
        State.READY,
    ]
    assert await (await store.worker()).drain() == [one.id, three.id]


async def test_take_moves_and_enqueues_together__many_alike(store: Harness) -> None:
    jobs = [store.job(payload=str(nth).encode()) for nth in range(GROUP_JOBS)]
    taken = await accepted(store, take_of(*((job,) for job in jobs)))
    assert taken.offset == Offset(ORDERS, "9", store.clock.now())
    counts = await store.broker.counts()
    assert [(row.state, row.count) for row in counts.rows] == [(State.READY, GROUP_JOBS)]
    claimed = await (await store.worker()).take(100)
    assert [(lease.job, lease.payload) for lease in claimed] == [(job.id, job.payload) for job in jobs[:100]]


async def test_take_moves_and_enqueues_together__lanes_keys_and_parents(store: Harness) -> None:
    """A child may stand in the group of another message, before its parent."""
    parent = store.job(lane="a", key="k")
    child = store.job(after=(Edge(parent.id),))
    await accepted(store, take_of((child,), (parent,)))
    assert await store.state(child.id) is State.BLOCKED
    assert await (await store.worker()).drain() == [parent.id, child.id]


async def test_take_moves_and_enqueues_together__what_is_known(store: Harness) -> None:
    """A known id and a call that a key absorbs count as taken, and a replacing call replaces."""
    known, holder = await store.add(), await store.add(key="k", payload=b"old")
    absorbed, newest, fresh = (
        store.job(key="k"),
        store.job(key="k", mode=Mode.REPLACE, payload=b"new"),
        store.job(),
    )
    taken = await store.broker.take(
        take_of((store.job(id=known), absorbed), (), (newest,), (fresh,), (store.job(id=fresh.id),))
    )
    assert taken.status is TakeStatus.TAKEN
    assert statuses(taken) == [
        [Status.DUPLICATE] * 2,
        [],
        [Status.REPLACED],
        [Status.CREATED],
        [Status.DUPLICATE],
    ]
    assert [taken.receipts[0][0].of, taken.receipts[0][1].of, taken.receipts[2][0].of] == [
        known,
        holder,
        holder,
    ]
    assert (await store.get(holder)).payload == b"new"
    assert [offset.at for offset in await store.broker.offsets()] == ["9"]


async def test_offset_moves_once(store: Harness) -> None:
    takes = [take_of((store.job(),)) for _ in range(8)]
    answers = await asyncio.gather(*(store.broker.take(take) for take in takes))
    won = [nth for nth, answer in enumerate(answers) if answer.status is TakeStatus.TAKEN]
    assert len(won) == 1
    stands = Offset(ORDERS, "9", store.clock.now())
    lost = [answer for nth, answer in enumerate(answers) if nth not in won]
    assert lost == [Taken(status=TakeStatus.RACED, offset=stands)] * 7
    assert [await store.missing(take.groups[0][0].id) for take in takes] == [n not in won for n in range(8)]


async def test_offset_moves_once__further_on(store: Harness) -> None:
    await accepted(store, take_of(then="1"))
    takes = [
        take_of((store.job(**options),), expect="1") for options in ({}, {"lane": "a"}, {"key": "k"}, {})
    ]
    answers = await asyncio.gather(*(store.broker.take(take) for take in takes))
    assert sorted(answer.status for answer in answers) == [TakeStatus.RACED] * 3 + [TakeStatus.TAKEN]
    jobs = (await store.broker.counts()).rows
    assert sum(row.count for row in jobs) == 1


async def test_offset_moves_once__again(store: Harness) -> None:
    """A caller that repeats a take whose answer was lost is told where the offset is."""
    take = take_of((store.job(),))
    first = await accepted(store, take)
    store.advance(MINUTE)
    before = await store.everything(take.groups[0][0].id)
    assert await store.broker.take(take) == Taken(status=TakeStatus.RACED, offset=first.offset)
    assert await store.everything(take.groups[0][0].id) == before


@pytest.mark.parametrize("expect", [None, "8", "90", ""])
async def test_offset_moves_once__from_where_it_is(store: Harness, expect: str | None) -> None:
    await accepted(store, take_of())
    job = store.job()
    assert (await store.broker.take(take_of((job,), expect=expect))).status is TakeStatus.RACED
    assert await store.missing(job.id)


async def test_offset_moves_once__of_its_source(store: Harness) -> None:
    """Sources that differ in their names know nothing of each other."""
    other = Source("kafka://host/orders/4", "topic-1")
    await accepted(store, take_of())
    taken = await store.broker.take(take_of((store.job(),), source=other, expect="9"))
    assert taken == Taken(status=TakeStatus.RACED, offset=None)
    await accepted(store, take_of((store.job(),), source=other, then="1"))
    assert [(offset.source, offset.at) for offset in await store.broker.offsets()] == [
        (ORDERS, "9"),
        (other, "1"),
    ]


async def test_refused_take_keeps_its_offset(store: Harness) -> None:
    await accepted(store, take_of(then="1"))
    first, bad, last = store.job(key="k"), store.job(queue="nowhere"), store.job()
    before = await store.everything(first.id, bad.id, last.id)
    taken = await store.broker.take(take_of((first,), (bad,), (last,), expect="1"))
    assert taken.status is TakeStatus.REFUSED
    assert refusals(taken) == [[Refusal.NEIGHBOUR], [Refusal.UNKNOWN_QUEUE], [Refusal.NEIGHBOUR]]
    assert [receipt.job for group in taken.receipts for receipt in group] == [first.id, bad.id, last.id]
    assert taken.offset is None
    assert await store.everything(first.id, bad.id, last.id) == before
    await accepted(store, take_of((first,), (last,), expect="1"))


async def test_refused_take_keeps_its_offset__that_is_none(store: Harness) -> None:
    taken = await store.broker.take(take_of((store.job(after=(Edge(new_id()),)),)))
    assert (taken.status, refusals(taken), taken.offset) == (
        TakeStatus.REFUSED,
        [[Refusal.UNKNOWN_PARENT]],
        None,
    )
    assert list(await store.broker.offsets()) == []


async def test_refused_take_keeps_its_offset__of_a_full_store(store: Harness) -> None:
    store = await store.fresh(max_size=1_000)
    await accepted(store, take_of((store.job(payload=bytes(900)),), then="1"))
    small, large = store.job(), store.job(payload=bytes(200))
    take = take_of((small,), (large,), expect="1", dead={large.id: UNREADABLE})
    taken = await store.broker.take(take)
    assert taken.status is TakeStatus.REFUSED
    assert {why for group in refusals(taken) for why in group} <= {Refusal.STORE_FULL, Refusal.NEIGHBOUR}
    assert [offset.at for offset in await store.broker.offsets()] == ["1"]
    assert await store.missing(small.id)
    await store.done(await (await store.worker()).one())
    store.advance(48 * HOUR)
    await store.sweep()
    await accepted(store, take)


async def test_foreign_offset_is_refused(store: Harness) -> None:
    """A source that was deleted and made anew: not even an offset that looks right is taken for its own."""
    await accepted(store, take_of())
    anew = Source(ORDERS.name, "topic-2")
    (stands,) = await store.broker.offsets()
    for expect in ("9", None, "8"):
        for groups in ((), ((store.job(),),), ((store.job(queue="nowhere"),),)):
            for then in ("10", None):
                taken = await store.broker.take(take_of(*groups, source=anew, expect=expect, then=then))
                assert taken == Taken(status=TakeStatus.FOREIGN, offset=stands)
                assert all([await store.missing(job.id) for group in groups for job in group])
    assert list(await store.broker.offsets()) == [stands]


async def test_foreign_offset_is_refused__until_it_is_forgotten(store: Harness) -> None:
    await accepted(store, take_of())
    anew = Source(ORDERS.name, "topic-2")
    forgotten = await store.broker.take(take_of(expect="9", then=None))
    assert forgotten == Taken(status=TakeStatus.TAKEN, offset=None)
    await accepted(store, take_of((store.job(),), source=anew, then="0"))
    assert [(offset.source, offset.at) for offset in await store.broker.offsets()] == [(anew, "0")]


async def test_take_is_bounded(store: Harness) -> None:
    half = tuple(store.job() for _ in range(GROUP_JOBS // 2))
    heavy = (store.job(payload=bytes(GROUP_BYTES)),)
    for groups in ((half, half, (store.job(),)), (heavy, (store.job(payload=b"1"),))):
        with pytest.raises(ContractError, match="at most 1000 jobs, 8388608 bytes"):
            await store.broker.take(take_of(*groups))
        assert await store.missing(groups[0][0].id)
    assert list(await store.broker.offsets()) == []
    await accepted(store, take_of(half, tuple(store.job() for _ in range(GROUP_JOBS // 2)), then="1"))
    await accepted(store, take_of(heavy, expect="1"))


async def test_take_is_bounded__born_dead_in_no_group(store: Harness) -> None:
    job, stranger = store.job(), store.job()
    with pytest.raises(ContractError, match=stranger.id):
        await store.broker.take(take_of((job,), dead={stranger.id: UNREADABLE}))
    assert await store.missing(job.id)
    assert list(await store.broker.offsets()) == []


async def test_take_without_jobs_moves_the_offset(store: Harness) -> None:
    """By compare-and-set, in any direction; the store's settings do not count it."""
    version = (await (await store.worker()).beat()).settings
    for expect, then in ((None, "5"), ("5", "3"), ("3", "3"), ("3", "")):
        taken = await accepted(store, take_of(expect=expect, then=then))
        assert taken.offset == Offset(ORDERS, then, store.clock.now())
        store.advance(SECOND)
    assert (await store.broker.take(take_of(expect="3", then="4"))).status is TakeStatus.RACED
    assert (await accepted(store, take_of((), (), expect="", then="1"))).receipts == ((), ())
    assert (await (await store.worker()).beat()).settings == version


async def test_take_without_jobs_moves_the_offset__away(store: Harness) -> None:
    await accepted(store, take_of(then="5"))
    assert (await store.broker.take(take_of(expect="4", then=None))).status is TakeStatus.RACED
    assert (await accepted(store, take_of(expect="5", then=None))).offset is None
    assert list(await store.broker.offsets()) == []
    assert (await accepted(store, take_of(expect=None, then=None))).offset is None
    await accepted(store, take_of((store.job(),), then="1"))


async def test_take_without_jobs_moves_the_offset__of_a_full_store(store: Harness) -> None:
    store = await store.fresh(max_size=10)
    await store.add(payload=bytes(10))
    await accepted(store, take_of(then="5"))
    await accepted(store, take_of(expect="5", then=None))


async def test_offset_is_readable(store: Harness) -> None:
    strange = ("a", "b'\"\\{}", "kafka://h/ö/0", "zz\n%_*")
    for nth, name in enumerate(reversed(strange), 1):
        source = Source(name, f"identity {name} 'of' \"{nth}\"")
        await accepted(store, take_of((store.job(),), source=source, then=f"{{{nth}}} é"))
        store.advance(SECOND)
    whole = list(await store.broker.offsets("", 100))
    names = [offset.source.name for offset in whole]
    assert names == sorted(strange)
    assert whole[0] == Offset(Source("a", "identity a 'of' \"4\""), "{4} é", store.clock.now() - SECOND)
    found: list[Offset] = []
    while page := await store.broker.offsets(found[-1].source.name if found else "", 2):
        assert len(page) <= 2
        found += page
    assert found == whole
    for limit in (0, 1_001):
        with pytest.raises(ContractError, match="a page has 1 to"):
            await store.broker.offsets("", limit)
