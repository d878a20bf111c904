"""Lanes: a ring in which every lane has its share, without credit and without shedding debt.

Tests spell the order of claims as a word, a letter for each lane: weights 2 and 1 give "aabaab".
"""

from collections.abc import Awaitable, Callable

import pytest

from windlass.conformance.harness import Harness, Worker
from windlass.core.lease import Lease
from windlass.core.limits import Rate
from windlass.core.order import STRIDE
from windlass.core.units import HOUR, SECOND


async def _backlog(store: Harness, lanes: str, count: int = 20, queue: str = "q") -> None:
    """Jobs in each of the lanes, more than any test takes from it."""
    for lane in lanes:
        await store.add_many(count, queue=queue, lane=lane)


async def _served(store: Harness, worker: Worker, count: int, queue: str = "q") -> str:
    """The lanes of so many jobs, claimed one by one and finished at once."""
    lanes = ""
    for _ in range(count):
        lease = await worker.one(queue)
        lanes += lease.lane or "-"
        await store.done(lease)
    return lanes


# shares


async def test_lanes_share_by_weight(store: Harness) -> None:
    await store.lane("q", "a", weight=2)
    await store.lane("q", "b", weight=1)
    await _backlog(store, "ba")
    assert await _served(store, await store.worker(), 9) == "aabaabaab"


async def test_lanes_share_by_weight__in_one_claim_of_many(store: Harness) -> None:
    await store.lane("q", "a", weight=2)
    await _backlog(store, "ba")
    leases = await (await store.worker()).take(9)
    assert "".join(lease.lane for lease in leases) == "aabaabaab"


async def test_lanes_share_by_weight__in_whole_numbers(store: Harness) -> None:
    """A third of 2^20 is cut, so that `a` has three claims just before `b` has two; ties go by name."""
    for lane, weight in (("a", 3), ("b", 2), ("c", 1)):
        await store.lane("q", lane, weight=weight)
    await _backlog(store, "cba")
    assert await _served(store, await store.worker(), 12) == "abaabcabaabc"


async def test_lanes_share_by_weight__one_by_default(store: Harness) -> None:
    """Jobs without a lane share a lane of their own; each lane is first in first out."""
    jobs = {lane: await store.add_many(3, lane=lane) for lane in ("b", "", "a")}
    order = await (await store.worker()).drain()
    assert order == [jobs[lane][number] for number in range(3) for lane in ("", "a", "b")]


async def test_lanes_share_by_weight__in_each_band_apart(store: Harness) -> None:
    """What a lane had in one band counts for nothing in another."""
    await store.add_many(3, lane="a", priority=10)
    await _backlog(store, "ab")
    assert await _served(store, await store.worker(), 7) == "aaaabab"


async def test_lanes_share_by_weight__over_all_bands_where_lanes_come_first(store: Harness) -> None:
    await store.queue("lanes", order="lane")
    worker = await store.worker()
    await store.add_many(2, queue="lanes", lane="a", priority=10)
    await store.add_many(2, queue="lanes", lane="a", priority=5)
    assert await _served(store, worker, 2, "lanes") == "aa"
    await _backlog(store, "b", queue="lanes")
    assert await _served(store, worker, 4, "lanes") == "baba"


async def test_lanes_share_by_weight__of_claims_whatever_becomes_of_them(store: Harness) -> None:
    """A turn is a claim: a job given back does not give its lane another one."""
    worker = await store.worker()
    await _backlog(store, "ab")
    lanes = ""
    for _ in range(6):
        lease = await worker.one()
        lanes += lease.lane
        await store.release(lease)
    assert lanes == "ababab"


@pytest.mark.parametrize("by_job", [False, True])
async def test_lanes_share_by_weight__by_the_one_from_before_a_queue_had_lanes(
    store: Harness, *, by_job: bool
) -> None:
    """What waits takes its place when the first lane comes, though its token came after anybody looked."""
    await store.queue("q", lane_rate=Rate(1, SECOND))
    worker = await store.worker()
    await store.add_many(2)
    await worker.one()
    assert not (await worker.claim()).leases
    store.advance(SECOND)
    if by_job:
        await store.add(lane="a", priority=-1)
    else:
        await store.lane("q", "a", weight=2)
    await store.lane("q", "", weight=5, rate=None)
    await worker.one()
    assert (await store.lane_view("")).lag == STRIDE


# idle lanes


async def test_idle_lane_returns_without_credit(store: Harness) -> None:
    worker = await store.worker()
    await _backlog(store, "a")
    await store.add(lane="b")
    assert await _served(store, worker, 10) == "abaaaaaaaa"
    store.advance(HOUR)
    await store.sweep()
    await _backlog(store, "b")
    assert await _served(store, worker, 6) == "bababa"


async def test_idle_lane_returns_without_credit__nor_does_a_new_one(store: Harness) -> None:
    """It comes at the time at which `b` had its last turn, so that turn of `b` is set against two of `a`."""
    worker = await store.worker()
    await _backlog(store, "b")
    await store.lane("q", "a", weight=2)
    assert await _served(store, worker, 10) == "bbbbbbbbbb"
    await _backlog(store, "a")
    assert await _served(store, worker, 8) == "aaaabaab"


async def test_idle_lane_returns_with_its_debt(store: Harness) -> None:
    """A lane that is filled one job at a time has the share of one with a backlog, and no more."""
    await store.lane("q", "a", weight=2)
    worker = await store.worker()
    await _backlog(store, "a")
    lanes = ""
    await store.add(lane="b")
    for _ in range(12):
        served = await _served(store, worker, 1)
        lanes += served
        if served == "b":
            await store.sweep()
            await store.add(lane="b")
    assert lanes == "aabaabaabaab"


async def test_idle_lane_returns_with_its_debt__from_before_the_others_came(store: Harness) -> None:
    """It has had its turn; what came meanwhile has its own first."""
    await store.lane("q", "a", weight=5)
    worker = await store.worker()
    await store.add(lane="b")
    assert await _served(store, worker, 1) == "b"
    await store.sweep()
    await _backlog(store, "ab")
    assert await _served(store, worker, 12) == "aaaaaaaaaaba"


async def test_idle_lane_returns_with_its_debt__after_its_last_job_was_cancelled(store: Harness) -> None:
    worker = await store.worker()
    await _backlog(store, "a")
    await store.lane("q", "a", weight=2)
    last = [await store.add(lane="b") for _ in range(2)]
    assert await _served(store, worker, 2) == "ab"
    await store.cancel(last[1])
    await store.add(lane="b")
    assert await _served(store, worker, 4) == "aaba"


# parked lanes

_Parking = Callable[[Lease], Awaitable[object]]


async def _parked_and_back(store: Harness, finish: _Parking) -> str:
    """Claims of `a` (weight 2) and `b`, where `finish` ends a claim of `b` and brings its lane back."""
    await store.lane("q", "a", weight=2)
    worker = await store.worker()
    await _backlog(store, "ab")
    lanes = ""
    for _ in range(9):
        lease = await worker.one()
        lanes += lease.lane
        await (finish(lease) if lease.lane == "b" else store.done(lease))
    return lanes


async def test_parked_lane_returns_with_its_debt(store: Harness) -> None:
    """Parked at its concurrency limit while its job runs."""
    await store.lane("q", "b", concurrency=1)

    async def finish(lease: Lease) -> None:
        await store.done(lease)

    assert await _parked_and_back(store, finish) == "aabaabaab"


async def test_parked_lane_returns_with_its_debt__from_a_rate(store: Harness) -> None:
    await store.lane("q", "b", rate=Rate(1, SECOND, 1))

    async def finish(lease: Lease) -> None:
        await store.done(lease)
        store.advance(SECOND)

    assert await _parked_and_back(store, finish) == "aabaabaab"


async def test_parked_lane_returns_with_its_debt__from_a_rate_by_sweep(store: Harness) -> None:
    await store.lane("q", "b", rate=Rate(1, SECOND, 1))

    async def finish(lease: Lease) -> None:
        await store.done(lease)
        await store.sweep()
        store.advance(SECOND)
        await store.sweep()

    assert await _parked_and_back(store, finish) == "aabaabaab"


async def test_parked_lane_returns_with_its_debt__from_a_pause(store: Harness) -> None:
    async def finish(lease: Lease) -> None:
        await store.done(lease)
        await store.broker.pause("q", "b")
        await store.sweep()
        await store.broker.resume("q", "b")

    assert await _parked_and_back(store, finish) == "aabaabaab"


async def test_parked_lane_returns_with_its_debt__and_without_credit(store: Harness) -> None:
    await store.lane("q", "b", concurrency=1)
    worker, other = await store.worker(), await store.worker()
    await _backlog(store, "ab")
    assert await _served(store, worker, 1) == "a"
    running = await other.one()
    assert running.lane == "b"
    assert await _served(store, worker, 10) == "aaaaaaaaaa"
    await store.done(running)
    assert await _served(store, worker, 6) == "bababa"


# weights and plain queues


async def test_weight_can_change_under_a_backlog(store: Harness) -> None:
    """The next claim is filed already; the one after it counts by the new weight."""
    worker = await store.worker()
    await _backlog(store, "ab")
    await store.lane("q", "b", weight=2)
    assert await _served(store, worker, 10) == "abbabbabba"
    await store.lane("q", "b", weight=1)
    assert await _served(store, worker, 6) == "bababa"


async def test_plain_queue_leaves_no_debt(store: Harness) -> None:
    """A fast path that pays for no lanes must not be seen when lanes come."""
    worker = await store.worker()
    await store.add_many(20)
    assert await _served(store, worker, 10) == "----------"
    await _backlog(store, "a")
    assert await _served(store, worker, 6) == "-a-a-a"


async def test_plain_queue_leaves_no_debt__until_it_has_a_lane(store: Harness) -> None:
    """A lane's document makes a queue laned, and so it stays."""
    worker = await store.worker()
    await store.add_many(20)
    await store.lane("q", "b")
    assert await _served(store, worker, 1) == "-"
    await _backlog(store, "a")
    assert await _served(store, worker, 5) == "a-a-a"


@pytest.mark.parametrize(("waited", "first"), [(10 * SECOND - 1, "b"), (10 * SECOND, "a")])
async def test_empty_ring_is_forgotten(store: Harness, waited: int, first: str) -> None:
    """Until then a lane's debt counts: it had a job in advance."""
    fresh = await store.fresh(resend_window=10 * SECOND)
    worker = await fresh.worker()
    await fresh.add(lane="a")
    assert len(await worker.drain()) == 1
    fresh.advance(waited)
    await fresh.sweep()
    jobs = {await fresh.add(lane=lane): lane for lane in ("a", "b")}
    assert jobs[(await worker.drain())[0]] == first
