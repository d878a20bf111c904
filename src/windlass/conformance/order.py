"""Order: first in first out, bands by priority, by weight and by age, and who keeps its place."""

import itertools
from collections.abc import Awaitable, Callable

from windlass.conformance.harness import Harness, Worker, ids, new_id
from windlass.core.job import Edge
from windlass.core.lease import Ask, Lease
from windlass.core.order import next_draw
from windlass.core.outcome import CauseKind
from windlass.core.units import HOUR, SECOND

# first in first out


async def test_first_in_first_out(store: Harness) -> None:
    """By the store's sequence: neither the id nor the clock of an hour ago has a say."""
    names = sorted((new_id() for _ in range(6)), reverse=True)
    jobs = [await store.add(id=name) for name in names[:2]]
    await store.enqueue(*(store.job(id=name) for name in names[2:4]))
    store.advance(-HOUR)
    jobs += [*names[2:4], *[await store.add(id=name) for name in names[4:]]]
    worker = await store.worker()
    assert ids(await worker.take(3)) == jobs[:3]
    assert await worker.drain() == jobs[3:]


async def test_first_in_first_out__over_groups_of_one_call(store: Harness) -> None:
    groups = [[store.job() for _ in range(2)] for _ in range(3)]
    await store.broker.enqueue(groups)
    assert await (await store.worker()).drain() == [job.id for group in groups for job in group]


# bands


async def test_higher_priority_goes_first(store: Harness) -> None:
    priorities = [0, -100, 5, 100, 5, 0, -1, 100]
    jobs = [(await store.add(priority=priority), priority) for priority in priorities]
    expected = [job for job, _ in sorted(jobs, key=lambda job: -job[1])]
    worker = await store.worker()
    assert ids(await worker.take(3)) == expected[:3]
    late = await store.add(priority=6)
    assert await worker.drain() == [late, *expected[3:]]


async def _drawn(store: Harness, worker: Worker, queue: str, count: int, draw: int) -> list[int]:
    """The priorities of so many jobs, claimed one by one by an asker that goes on where it stopped."""
    priorities: list[int] = []
    for number in range(count):
        lease = await worker.one(queue, draw=next_draw(draw, number))
        priorities.append(lease.priority)
        await store.done(lease)
    return priorities


async def test_weighted_bands_share_by_draw(store: Harness) -> None:
    await store.queue("w", bands={10: 80, 0: 20})
    await store.add_many(50, queue="w", priority=10)
    await store.add_many(50, queue="w", priority=0)
    worker = await store.worker()
    drawn = await _drawn(store, worker, "w", 50, 0)
    # 2^32 divided by the golden ratio, as `windlass.core.order` says.
    points = [number * 2_654_435_769 % 2**32 * 100 >> 32 for number in range(50)]
    assert drawn == [10 if point < 80 else 0 for point in points]
    assert 9 <= drawn.count(0) <= 11


async def test_weighted_bands_share_by_draw__one_draw_for_each_job(store: Harness) -> None:
    """One claim of many hands out what as many claims of one would."""
    orders: list[list[int]] = []
    for queue in ("at-once", "one-by-one"):
        await store.queue(queue, bands={10: 3, 5: 2, 0: 1})
        for priority in (0, 5, 10):
            await store.add_many(20, queue=queue, priority=priority)
    worker = await store.worker()
    leases = await worker.take(20, "at-once", draw=12345)
    orders.append([lease.priority for lease in leases])
    orders.append(await _drawn(store, worker, "one-by-one", 20, 12345))
    assert orders[0] == orders[1]
    assert set(orders[0]) == {0, 5, 10}


async def test_weighted_bands_share_by_draw__among_the_bands_that_have_a_job(store: Harness) -> None:
    await store.queue("w", bands={10: 1, 5: 1, 0: 1})
    worker = await store.worker()
    for priority in (10, 0):
        await store.add_many(2, queue="w", priority=priority)
    draws = {0: 10, 2**31 - 1: 10, 2**31: 0, 2**32 - 1: 0}
    assert [(await worker.one("w", draw=draw)).priority for draw in draws] == list(draws.values())
    await store.add(queue="w", priority=0)
    assert (await worker.one("w", draw=0)).priority == 0


async def test_weighted_bands_share_by_draw__unlisted_goes_with_the_nearest_lower(store: Harness) -> None:
    """First in first out with it; what is below all of them goes with the lowest."""
    await store.queue("w", bands={10: 50, 0: 50})
    high = [await store.add(queue="w", priority=priority) for priority in (10, 100, 11, 10)]
    low = [await store.add(queue="w", priority=priority) for priority in (-100, 0, 9, -1)]
    worker = await store.worker()
    assert ids([await worker.one("w", draw=0) for _ in high]) == high
    assert ids([await worker.one("w", draw=0) for _ in low]) == low


async def test_weighted_bands_share_by_draw__changed_weights_count_for_filed_jobs(store: Harness) -> None:
    """What was filed under other weights keeps its band and counts with the one it would fall in now."""
    await store.queue("w", bands={20: 1, 10: 1, 0: 1})
    jobs = {priority: await store.add(queue="w", priority=priority) for priority in (20, 10, 0)}
    await store.queue("w", bands={10: 1, 0: 99})
    worker = await store.worker()
    assert (await worker.one("w", draw=2**32 // 50)).job == jobs[0]
    assert [(await worker.one("w", draw=2**31)).job for _ in range(2)] == [jobs[20], jobs[10]]


async def test_weighted_low_band_never_starves(store: Harness) -> None:
    """A band with a tenth of the weight runs once in 2.6 / 0.1 jobs, wherever the asker starts."""
    for number, draw in enumerate((0, 2**30, 2**31, 3 * 2**30, 3_865_470_567, 2**32 - 1)):
        queue = f"w{number}"
        await store.queue(queue, bands={10: 9, 0: 1})
        worker = await store.worker()
        await store.add_many(100, queue=queue, priority=10)
        for _ in range(2):
            await store.add(queue=queue, priority=0)
            drawn = await _drawn(store, worker, queue, 27, draw)
            assert drawn.count(0) == 1, draw
            draw = next_draw(draw, 27)


async def test_aging_lifts_old_jobs(store: Harness) -> None:
    """Two priorities are worth two steps of waiting, to the microsecond."""
    step = 10 * SECOND
    assert store.clock.now() % step == 0
    for waited, first in ((2 * step - 1, "new"), (2 * step, "old"), (3 * step, "old")):
        queue = f"aging-{waited}"
        await store.queue(queue, age_step=step)
        store.advance(-store.clock.now() % step)
        jobs = {await store.add(queue=queue, priority=0): "old"}
        store.advance(waited)
        jobs[await store.add(queue=queue, priority=2)] = "new"
        assert jobs[(await (await store.worker()).one(queue)).job] == first, waited


async def test_aging_lifts_old_jobs__by_their_due_time(store: Harness) -> None:
    """Not by their acceptance, and nothing moves while it waits."""
    await store.queue("aging", age_step=10 * SECOND)
    late = await store.add(queue="aging", priority=3, delay=40 * SECOND)
    store.advance(5 * SECOND)
    early = await store.add(queue="aging", priority=0)
    store.advance(40 * SECOND)
    newest = await store.add(queue="aging", priority=6)
    store.advance(HOUR)
    assert await (await store.worker()).drain("aging") == [newest, early, late]


async def test_aging_lifts_old_jobs__also_those_found_due_late(store: Harness) -> None:
    """Nobody looked when it became due; it is as old as its due time all the same."""
    await store.queue("aging", age_step=10 * SECOND)
    due = await store.add(queue="aging", delay=10 * SECOND)
    store.advance(30 * SECOND)
    newer = await store.add(queue="aging")
    store.advance(30 * SECOND)
    assert await (await store.worker()).drain("aging") == [due, newer]


# lanes before bands


async def test_order_lane_puts_lanes_before_bands(store: Harness) -> None:
    """A lane's own bands go in order; another lane's do not matter to it."""
    await store.queue("lanes", order="lane")
    for queue in ("lanes", "q"):
        for priority in (90, 100):
            await store.add(queue=queue, lane="a", priority=priority)
        for priority in (-100, 0):
            await store.add(queue=queue, lane="b", priority=priority)
    worker = await store.worker()
    by_lane = [(lease.lane, lease.priority) for lease in await worker.take(4, "lanes")]
    assert by_lane == [("a", 100), ("b", 0), ("a", 90), ("b", -100)]
    by_band = [(lease.lane, lease.priority) for lease in await worker.take(4, "q")]
    assert by_band == [("a", 100), ("a", 90), ("b", 0), ("b", -100)]


async def test_order_lane_puts_lanes_before_bands__implied_by_aging(store: Harness) -> None:
    await store.queue("aging", age_step=SECOND)
    await store.add_many(2, queue="aging", lane="b", priority=0)
    store.advance(HOUR)
    await store.add_many(2, queue="aging", lane="a", priority=0)
    leases = await (await store.worker()).take(4, "aging")
    assert [lease.lane for lease in leases] == ["a", "b", "a", "b"]


async def test_order_lane_puts_lanes_before_bands__weighted_within_the_lane(store: Harness) -> None:
    await store.queue("lanes", order="lane", bands={10: 1, 0: 1})
    for lane, priority in itertools.product("ab", (10, 0)):
        await store.add(queue="lanes", lane=lane, priority=priority)
    worker = await store.worker()
    leases = [await worker.one("lanes", draw=draw) for draw in (2**32 - 1, 0, 0, 0)]
    assert [(lease.lane, lease.priority) for lease in leases] == [("a", 0), ("b", 10), ("a", 10), ("b", 0)]


# who keeps its place


async def test_given_back_job_keeps_its_place(store: Harness) -> None:
    """In whatever order they come back: released, left by a stop or a crash, after a first crash, or lost."""
    ends: dict[str, Callable[[Worker, list[Lease]], Awaitable[object]]] = {
        "stop": lambda worker, leases: worker.end(CauseKind.STOP, started=leases),
        "unstarted": lambda worker, _: worker.end(CauseKind.CRASH),
        "crash": lambda worker, leases: worker.end(CauseKind.CRASH, started=leases),
        "lost": lambda worker, _: worker.end(CauseKind.LOST),
    }
    for queue, end in ends.items():
        await store.queue(queue)
        jobs = await store.add_many(4, queue=queue)
        worker = await store.worker()
        leases = await worker.take(3, queue)
        await end(worker, leases)
        assert await (await store.worker()).drain(queue) == jobs, queue


async def test_given_back_job_keeps_its_place__released(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(4)
    leases = await worker.take(3)
    for lease in reversed(leases):
        await store.release(lease, runtime=1_000 if lease is leases[1] else None)
        store.advance(SECOND)
    assert await worker.drain() == jobs


async def test_given_back_job_keeps_its_place__after_a_deadline(store: Harness) -> None:
    jobs = await store.add_many(3)
    await store.broker.claim(Ask(queues=("q",), slots=2, limit=2, visibility=SECOND))
    store.advance(SECOND)
    await store.sweep()
    assert await (await store.worker()).drain() == jobs


async def test_given_back_job_keeps_its_place__and_its_band(store: Harness) -> None:
    """An hour later it is still as old as it was."""
    await store.queue("aging", age_step=SECOND)
    worker = await store.worker()
    old = await store.add(queue="aging")
    lease = await worker.one("aging")
    store.advance(HOUR)
    newer = await store.add(queue="aging", priority=100)
    await store.release(lease)
    assert await worker.drain("aging") == [old, newer]


async def test_retried_job_takes_a_new_place(store: Harness) -> None:
    worker = await store.worker()
    first, second, third = await store.add_many(3)
    await store.retry(await worker.one())
    await store.snooze(await worker.one(), 0)
    assert await worker.drain() == [third, first, second]


async def test_retried_job_takes_a_new_place__and_a_new_band(store: Harness) -> None:
    """Under aging it is as young as its retry."""
    await store.queue("aging", age_step=SECOND)
    worker = await store.worker()
    retried = await store.add(queue="aging")
    lease = await worker.one("aging")
    store.advance(10 * SECOND)
    newer = await store.add(queue="aging", priority=5)
    await store.retry(lease)
    assert await worker.drain("aging") == [newer, retried]


async def test_retried_job_takes_a_new_place__after_a_second_crash(store: Harness) -> None:
    """From then on a crash delays, and a delayed job is filed when it is due."""
    crashing = [await store.worker() for _ in range(3)]
    await store.add_many(2)
    await crashing[0].end(CauseKind.CRASH, started=await crashing[0].take(2))
    first, second = await crashing[1].one(), await crashing[2].one()
    await crashing[2].end(CauseKind.CRASH, started=[second])
    store.advance(1)
    await crashing[1].end(CauseKind.CRASH, started=[first])
    store.advance(SECOND)
    worker = await store.worker()
    assert [(await worker.one(alone=True)).job for _ in range(2)] == [second.job, first.job]


async def test_retried_job_takes_a_new_place__when_it_becomes_due(store: Harness) -> None:
    """Behind what was ready before, and in the order of the due times, not of acceptance."""
    later = await store.add(delay=20 * SECOND)
    sooner = await store.add(delay=10 * SECOND)
    ready = await store.add()
    store.advance(30 * SECOND)
    worker = await store.worker()
    assert await worker.drain() == [ready, sooner, later]


async def test_retried_job_takes_a_new_place__when_it_is_unblocked(store: Harness) -> None:
    await store.queue("parents")
    worker = await store.worker()
    parent = await store.add(queue="parents")
    child = await store.add(after=(Edge(parent),))
    ready = await store.add()
    await store.done(await worker.one("parents"))
    assert await worker.drain() == [ready, child]
