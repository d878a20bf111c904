"""Limits: concurrency of queues and lanes, parked lanes, limits that change."""

from collections.abc import Awaitable, Callable

from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.query import Parked
from windlass.core.settings import Kind, LaneSettings, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND, Micros


async def _claimed(store: Harness, *queues: str) -> list[Lease]:
    """All that a new worker is given."""
    return list((await (await store.worker()).claim(*queues)).leases)


def _deadline_ask(queue: str, visibility: Micros = SECOND) -> Ask:
    return Ask(queues=(queue,), slots=10, limit=10, visibility=visibility)


def _lanes(leases: list[Lease]) -> str:
    return "".join(lease.lane for lease in leases)


# concurrency


async def test_queue_concurrency_holds(store: Harness) -> None:
    """For all askers and lanes together, of this queue alone."""
    await store.queue("limited", concurrency=3)
    for lane in ("a", "", "b"):
        await store.add_many(4, queue="limited", lane=lane)
    await store.add_many(5)
    worker = await store.worker()
    first = await worker.take(2, "limited")
    assert len((await store.broker.claim(_deadline_ask("limited"))).leases) == 1
    assert len(await _claimed(store, "limited", "q")) == 5
    assert await _claimed(store, "limited") == []
    await store.done(first[0])
    assert len(await _claimed(store, "limited")) == 1
    assert await store.count(State.RUNNING, "limited") == 3


async def test_lane_concurrency_holds(store: Harness) -> None:
    """For each lane apart, the lane of jobs without one among them."""
    await store.queue("limited", lane_concurrency=2)
    for lane in ("", "a", "b"):
        await store.add_many(4, queue="limited", lane=lane)
    leases = await _claimed(store, "limited")
    assert sorted(lease.lane for lease in leases) == ["", "", "a", "a", "b", "b"]
    assert await _claimed(store, "limited") == []
    assert (await store.broker.claim(_deadline_ask("limited"))).leases == ()
    await store.done(next(lease for lease in leases if lease.lane == "a"))
    assert _lanes(await _claimed(store, "limited")) == "a"


async def test_lane_concurrency_holds__its_own_before_the_queues_for_lanes(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=2)
    await store.lane("limited", "more", concurrency=3)
    await store.lane("limited", "less", concurrency=1)
    await store.lane("limited", "none", concurrency=None)
    await store.lane("limited", "weighed", weight=5)
    lanes = {"more": 3, "less": 1, "none": 4, "weighed": 2, "other": 2}
    for lane in lanes:
        await store.add_many(4, queue="limited", lane=lane)
    leases = await _claimed(store, "limited")
    assert {lane: sum(lease.lane == lane for lease in leases) for lane in lanes} == lanes


async def test_lane_concurrency_holds__with_that_of_the_queue(store: Harness) -> None:
    await store.queue("limited", concurrency=5, lane_concurrency=2)
    for lane in "abc":
        await store.add_many(4, queue="limited", lane=lane)
    leases = await _claimed(store, "limited")
    assert _lanes(leases) == "abcab"
    await store.done(leases[2])
    assert _lanes(await _claimed(store, "limited")) == "c"


async def test_lane_concurrency_holds__as_mutual_exclusion_over_bands(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=1)
    for priority in (10, 0, -10):
        await store.add(queue="limited", lane="a", priority=priority)
    assert [lease.priority for lease in await _claimed(store, "limited")] == [10]


# one end, one slot

_End = Callable[[Worker, Lease], Awaitable[object]]


def _ends(store: Harness) -> dict[str, _End]:
    async def cancelled_while_running(_: Worker, lease: Lease) -> None:
        await store.cancel(lease.job)
        await store.retry(lease)

    async def silent(_: Worker, lease: Lease) -> None:
        await store.passes(4, SECOND)
        assert await store.state(lease.job) is State.READY

    return {
        "done": lambda _, lease: store.done(lease),
        "retry": lambda _, lease: store.retry(lease, HOUR),
        "snooze": lambda _, lease: store.snooze(lease, HOUR),
        "release": lambda _, lease: store.release(lease),
        "hold": lambda _, lease: store.hold(lease),
        "dead": lambda _, lease: store.dead(lease),
        "cancelled": lambda _, lease: store.settle(lease, Outcome.CANCELLED),
        "flagged": cancelled_while_running,
        "stop": lambda worker, lease: worker.end(CauseKind.STOP, started=[lease]),
        "crash": lambda worker, lease: worker.end(CauseKind.CRASH, started=[lease]),
        "unstarted": lambda worker, _: worker.end(CauseKind.CRASH),
        "lost": lambda worker, _: worker.end(CauseKind.LOST),
        "silent": silent,
    }


async def _later_words(store: Harness, lease: Lease) -> list[Verdict]:
    """Everything that may still be said of a lease that has ended."""
    answers = [await store.done(lease), await store.release(lease), await store.retry(lease)]
    return [answer.verdict for answer in answers]


async def _frees_one_slot(store: Harness, queue: str, end: _End) -> None:
    await store.add_many(4, queue=queue, lane="a")
    holder, others = await store.worker(ttl=2 * SECOND), await store.worker()
    lease = await holder.one(queue)
    assert (await others.claim(queue)).leases == ()
    await end(holder, lease)
    (successor,) = (await others.claim(queue)).leases
    assert Verdict.APPLIED not in await _later_words(store, lease)
    await holder.end(CauseKind.CRASH, started=[lease])
    await store.sweep()
    assert (await others.claim(queue)).leases == ()
    await store.done(successor)
    assert len((await others.claim(queue)).leases) == 1


async def test_slot_is_freed_once(store: Harness) -> None:
    """By the end of the lease, and by no later word about it: that would free the slot of somebody else."""
    for name, end in _ends(store).items():
        await store.queue(f"{name}-queue", concurrency=1)
        await _frees_one_slot(store, f"{name}-queue", end)
        await store.queue(f"{name}-lane", lane_concurrency=1)
        await _frees_one_slot(store, f"{name}-lane", end)


async def test_slot_is_freed_once__by_a_deadline(store: Harness) -> None:
    for queue, limit in (("by-queue", {"concurrency": 1}), ("by-lane", {"lane_concurrency": 1})):
        await store.queue(queue, **limit)
        await store.add_many(3, queue=queue, lane="a")
        (lease,) = (await store.broker.claim(_deadline_ask(queue))).leases
        store.advance(SECOND)
        await store.sweep()
        (successor,) = (await store.broker.claim(_deadline_ask(queue, HOUR))).leases
        assert await _later_words(store, lease) == [Verdict.STALE] * 3
        await store.sweep()
        assert (await store.broker.claim(_deadline_ask(queue))).leases == ()
        await store.done(successor)
        assert len((await store.broker.claim(_deadline_ask(queue))).leases) == 1


async def test_slot_is_freed_once__for_each_lease_of_a_session(store: Harness) -> None:
    await store.queue("limited", concurrency=4)
    await store.add_many(9, queue="limited")
    worker = await store.worker()
    settled, *left = await worker.take(4, "limited")
    await store.done(settled)
    await worker.end(CauseKind.CRASH, started=left[:1])
    assert len(await _claimed(store, "limited")) == 4
    assert await _claimed(store, "limited") == []


# parked lanes


async def test_parked_lane_does_not_block_others(store: Harness) -> None:
    """At its limit, without a token or paused: what stands behind it is handed out, and it is not `more`."""
    await store.lane("q", "full", concurrency=1)
    await store.lane("q", "spent", rate=Rate(1, HOUR, 1))
    await store.broker.pause("q", "paused")
    for lane in ("full", "spent", "paused"):
        await store.add_many(20, lane=lane, priority=100)
    worker = await store.worker()
    assert [lease.lane for lease in await worker.take(2)] == ["full", "spent"]
    free = [await store.add(lane=lane, priority=-100) for lane in ("z", "", "z")]
    claimed = await worker.claim()
    assert (ids(claimed.leases), claimed.more) == ([free[1], free[0], free[2]], False)


async def test_parked_lane_does_not_block_others__however_many_there_are(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=1, order="lane")
    for number in range(120):
        await store.add_many(2, queue="limited", lane=f"lane {number}")
    worker = await store.worker()
    assert len((await worker.claim("limited", slots=200)).leases) == 120
    free = await store.add(queue="limited", lane="z")
    assert ids((await worker.claim("limited")).leases) == [free]


async def test_parked_lane_does_not_block_others__nor_does_a_limited_queue(store: Harness) -> None:
    await store.queue("full", concurrency=1)
    await store.queue("spent", rate=Rate(1, HOUR, 1))
    await store.add_many(3, queue="full")
    await store.add_many(3, queue="spent")
    worker = await store.worker()
    assert len((await worker.claim("full", "spent", "q")).leases) == 2
    free = await store.add()
    assert ids((await worker.claim("full", "spent", "q")).leases) == [free]


async def test_paused_lane_is_parked(store: Harness) -> None:
    """What runs goes on, what comes waits, and the same lane of another queue is another lane."""
    await store.queue("other")
    worker = await store.worker()
    waiting = await store.add_many(2, lane="a")
    lease = await worker.one()
    assert await store.broker.pause("q", "a")
    waiting.append(await store.add(lane="a"))
    elsewhere = [await store.add(lane="b"), await store.add(lane="a", queue="other")]
    assert ids((await worker.claim("q", "other")).leases) == elsewhere
    assert (await store.broker.claim(_deadline_ask("q"))).leases == ()
    assert (await store.done(lease)).verdict is Verdict.APPLIED
    view = await store.lane_view("a")
    assert (view.paused, view.parked, view.ready) == (True, Parked.PAUSED, 2)
    assert await store.broker.resume("q", "a")
    assert ids((await worker.claim()).leases) == waiting[1:]


async def test_paused_lane_is_parked__what_becomes_due_too(store: Harness) -> None:
    worker = await store.worker()
    await store.broker.pause("q", "a")
    due = await store.add(lane="a", delay=SECOND)
    store.advance(SECOND)
    await store.sweep()
    assert (await worker.claim()).leases == ()
    await store.broker.resume("q", "a")
    assert (await worker.one()).job == due


async def test_paused_lane_is_parked__and_still_limited_when_resumed(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=1)
    worker = await store.worker()
    await store.add_many(2, queue="limited", lane="a")
    lease = await worker.one("limited")
    await store.broker.pause("limited", "a")
    await store.broker.resume("limited", "a")
    assert (await worker.claim("limited")).leases == ()
    await store.broker.pause("limited", "a")
    await store.done(lease)
    assert (await worker.claim("limited")).leases == ()
    await store.broker.resume("limited", "a")
    assert len((await worker.claim("limited")).leases) == 1


# limits that change


async def test_changed_limit_takes_effect(store: Harness) -> None:
    """Raised, lowered below what runs, and lifted."""
    await store.queue("limited", concurrency=1)
    await store.add_many(10, queue="limited")
    worker = await store.worker()
    leases = list((await worker.claim("limited")).leases)
    await store.queue("limited", concurrency=3)
    leases += (await worker.claim("limited")).leases
    assert len(leases) == 3
    await store.queue("limited", concurrency=1)
    for lease in leases[:2]:
        await store.done(lease)
        assert (await worker.claim("limited")).leases == ()
    await store.done(leases[2])
    assert len((await worker.claim("limited")).leases) == 1
    await store.queue("limited")
    assert len((await worker.claim("limited")).leases) == 6


async def test_changed_limit_takes_effect__of_a_parked_lane(store: Harness) -> None:
    await store.queue("limited", lane_concurrency=1)
    for lane in "ab":
        await store.add_many(6, queue="limited", lane=lane)
    worker = await store.worker()
    assert _lanes(list((await worker.claim("limited")).leases)) == "ab"
    await store.queue("limited", lane_concurrency=2)
    assert _lanes(list((await worker.claim("limited")).leases)) == "ab"
    await store.lane("limited", "a", concurrency=4)
    assert _lanes(list((await worker.claim("limited")).leases)) == "aa"
    await store.lane("limited", "a", concurrency=None)
    assert _lanes(list((await worker.claim("limited")).leases)) == "aa"


async def test_changed_limit_takes_effect__by_an_override_and_its_reset(store: Harness) -> None:
    changed = await store.queue("limited", concurrency=1)
    await store.add_many(6, queue="limited", lane="a")
    worker = await store.worker()
    await worker.one("limited")
    queue, lane = Subject(Kind.QUEUE, "limited"), Subject(Kind.LANE, "limited", "a")
    changed = await store.broker.override(queue, QueueSettings(concurrency=5), changed.version)
    lane_changed = await store.broker.override(lane, LaneSettings(concurrency=2), 0)
    assert len((await worker.claim("limited")).leases) == 1
    await store.broker.override(lane, None, lane_changed.version)
    assert len((await worker.claim("limited")).leases) == 3
    await store.broker.override(queue, None, changed.version)
    assert (await worker.claim("limited")).leases == ()


async def test_changed_limit_takes_effect__of_a_rate(store: Harness) -> None:
    """A new rate keeps the tokens at hand, up to its burst, and counts from there."""
    for queue, kind in (("by-queue", "rate"), ("by-lane", "lane_rate")):
        await store.queue(queue, **{kind: Rate(1, HOUR, 2)})
        await store.add_many(30, queue=queue, lane="a")
        worker = await store.worker()
        assert len((await worker.claim(queue)).leases) == 2
        await store.queue(queue, **{kind: Rate(10, SECOND, 5)})
        assert (await worker.claim(queue)).leases == ()
        store.advance(200_000)
        assert len((await worker.claim(queue)).leases) == 2
        store.advance(SECOND)
        await worker.one(queue)
        await store.queue(queue, **{kind: Rate(10, SECOND, 3)})
        await worker.one(queue)
        await store.queue(queue, **{kind: Rate(1, HOUR, 3)})
        assert len((await worker.claim(queue)).leases) == 2
        store.advance(HOUR - 1)
        assert (await worker.claim(queue)).leases == ()
        await store.queue(queue)
        assert len((await worker.claim(queue)).leases) == 22
