"""How much one claim hands out (slots, limit, bytes), and what it says of the rest (`more`, `next_in`)."""

from collections.abc import AsyncIterator

from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.lease import Ask, Lease
from windlass.core.limits import Rate
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import HOUR, SECOND, JobId, Micros

LIMITS = {
    "concurrency": {"concurrency": 10},
    "rate": {"rate": Rate(1_000)},
    "lane-concurrency": {"lane_concurrency": 10},
    "lane-rate": {"lane_rate": Rate(1_000)},
    "sequence": {"sequence": True},
}


async def _limited(store: Harness, *, lanes: str) -> AsyncIterator[tuple[str, list[JobId]]]:
    """A queue under each kind of limit in turn, with a job that may be prefetched in each of the lanes."""
    for queue, settings in LIMITS.items():
        await store.queue(queue, **settings)
        await store.time_task(queue=queue)
        yield queue, [await store.add(queue=queue, lane=lane) for lane in lanes]


# slots


async def test_slots_bound_untimed_jobs(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(5)
    none = await worker.claim(slots=0, limit=5)
    assert (none.leases, none.more) == ((), True)
    two = await worker.claim(slots=2, limit=5)
    assert (ids(two.leases), two.more) == (jobs[:2], True)
    await store.done(two.leases[0])
    assert ids((await worker.claim(slots=0, limit=5)).leases) == jobs[2:]


async def test_slots_bound_untimed_jobs__until_a_settlement_tells_a_runtime(store: Harness) -> None:
    """Any settlement of a job of that task; one that never started tells none."""
    worker = await store.worker()
    await store.add_many(2)
    await store.add_many(2, task="other")
    await store.done(await worker.one(), runtime=None)
    await store.release(await worker.one())
    assert (await worker.claim(slots=0, limit=5)).leases == ()
    await store.retry(await worker.one())
    timed = await worker.claim(slots=2, limit=5)
    assert [lease.task for lease in timed.leases] == ["other", "other", "t"]


async def test_slots_bound_untimed_jobs__where_the_next_may_not_go_the_claim_stops(store: Harness) -> None:
    """It hands out nothing that stands behind, in this queue or another: prefetch overtakes nobody."""
    await store.queue("other")
    await store.time_task("timed")
    first, second = await store.add_many(2, task="timed")
    untimed = await store.add(task="untimed")
    behind = [await store.add(task="timed"), await store.add(task="timed", queue="other")]
    worker = await store.worker()
    claimed = await worker.claim("q", "other", slots=2, limit=10)
    assert (ids(claimed.leases), claimed.more) == ([first, second], True)
    assert ids((await worker.claim("q", "other", slots=1, limit=10)).leases) == [untimed, *behind]


async def test_slots_bound_untimed_jobs__by_their_place_in_the_claim(store: Harness) -> None:
    """Slots are what runs at once, so the timed jobs before them take slots too."""
    await store.time_task("timed")
    tasks = ["timed", "untimed", "timed", "untimed", "timed"]
    jobs = [await store.add(task=task) for task in tasks]
    worker = await store.worker()
    assert ids((await worker.claim(slots=3, limit=10)).leases) == jobs[:3]
    assert ids((await worker.claim(slots=1, limit=10)).leases) == jobs[3:]


async def test_slots_bound_last_attempts(store: Harness) -> None:
    await store.time_task()
    worker = await store.worker()
    jobs = await store.add_many(3, max_attempts=1)
    claimed = await worker.claim(slots=1, limit=5)
    assert (ids(claimed.leases), claimed.more) == (jobs[:1], True)


async def test_slots_bound_last_attempts__not_those_before(store: Harness) -> None:
    """Counted by the attempts that were spent."""
    await store.time_task()
    worker = await store.worker()
    await store.add_many(2, max_attempts=2)
    snoozed, retried = (await worker.claim(slots=0, limit=5)).leases
    await store.snooze(snoozed, 0)
    await store.retry(retried)
    claimed = await worker.claim(slots=0, limit=5)
    assert (ids(claimed.leases), claimed.more) == ([snoozed.job], True)
    assert (await worker.one()).attempt == 2


async def test_slots_bound_limited_jobs(store: Harness) -> None:
    worker = await store.worker()
    async for queue, jobs in _limited(store, lanes="abc"):
        none = await worker.claim(queue, slots=0, limit=5)
        assert (none.leases, none.more) == ((), True), queue
        claimed = await worker.claim(queue, slots=2, limit=5)
        assert (ids(claimed.leases), claimed.more) == (jobs[:2], True), queue


async def test_slots_bound_limited_jobs__by_the_limits_of_their_own_lane(store: Harness) -> None:
    await store.queue("laned", lane_concurrency=10)
    await store.time_task(queue="laned")
    await store.lane("laned", "free", concurrency=None)
    await store.lane("q", "limited", rate=Rate(1_000))
    worker = await store.worker()
    for queue, free, limited in (("laned", "free", "other"), ("q", "other", "limited")):
        jobs = await store.add_many(3, queue=queue, lane=free)
        assert ids((await worker.claim(queue, slots=0, limit=5)).leases) == jobs
        await store.add_many(3, queue=queue, lane=limited)
        assert len((await worker.claim(queue, slots=1, limit=5)).leases) == 1


# soon


async def test_soon_bounds_limited_jobs(store: Harness) -> None:
    worker = await store.worker()
    async for queue, jobs in _limited(store, lanes="abcdef"):
        three = await worker.claim(queue, slots=1, soon=3, limit=9)
        assert (ids(three.leases), three.more) == (jobs[:3], True), queue
        none = await worker.claim(queue, slots=0, soon=0, limit=9)
        assert (none.leases, none.more) == ((), True), queue
        rest = await worker.claim(queue, slots=0, soon=9, limit=9)
        assert (ids(rest.leases), rest.more) == (jobs[3:], False), queue


async def test_soon_bounds_limited_jobs__less_than_slots_says_nothing(store: Harness) -> None:
    worker = await store.worker()
    async for queue, jobs in _limited(store, lanes="abcd"):
        claimed = await worker.claim(queue, slots=3, soon=2, limit=9)
        assert (ids(claimed.leases), claimed.more) == (jobs[:3], True), queue


async def test_soon_bounds_limited_jobs__not_last_attempts_nor_untimed_ones(store: Harness) -> None:
    """Whatever limits there are: those are handed out to free slots."""
    worker = await store.worker()
    for queue, settings in {**LIMITS, "unlimited": {}}.items():
        await store.queue(queue, **settings)
        await store.time_task(queue=queue)
        for odd in ({"max_attempts": 1}, {"task": f"untimed-{queue}"}):
            first = [await store.add(queue=queue, lane=lane) for lane in "ab"]
            other = await store.add(queue=queue, lane="c", **odd)
            behind = await store.add(queue=queue, lane="d")
            claimed = await worker.claim(queue, slots=1, soon=9, limit=9)
            assert (ids(claimed.leases), claimed.more) == (first, True), queue
            rest = await worker.claim(queue, slots=1, soon=9, limit=9)
            assert (ids(rest.leases), rest.more) == ([other, behind], False), queue
            for lease in (*claimed.leases, *rest.leases):
                await store.done(lease, runtime=None)


async def test_soon_bounds_limited_jobs__within_their_limits(store: Harness) -> None:
    await store.queue("laned", lane_concurrency=2, concurrency=5)
    await store.time_task(queue="laned")
    worker = await store.worker()
    for lane in "abc":
        await store.add_many(3, queue="laned", lane=lane)
    claimed = await worker.claim("laned", slots=1, soon=20, limit=20)
    assert [lease.lane for lease in claimed.leases] == ["a", "b", "c", "a", "b"]
    assert not claimed.more
    settled = await store.broker.settle(
        [_done(lease) for lease in claimed.leases[:2]], worker.ask("laned", slots=0, soon=20, limit=20)
    )
    assert settled.claimed is not None
    assert [lease.lane for lease in settled.claimed.leases] == ["c", "a"]


def _done(lease: Lease) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)


async def test_soon_bounds_limited_jobs__by_their_place_in_the_claim(store: Harness) -> None:
    """What goes before them starts before them, so it counts as well."""
    await store.queue("limited", concurrency=10)
    await store.time_task()
    worker = await store.worker()
    free = await store.add_many(3)
    limited = await store.add_many(3, queue="limited")
    claimed = await worker.claim("q", "limited", slots=1, soon=4, limit=20)
    assert (ids(claimed.leases), claimed.more) == ([*free, limited[0]], True)


# limit and bytes


async def test_limit_bounds_the_rest(store: Harness) -> None:
    await store.time_task()
    worker = await store.worker()
    jobs = await store.add_many(9)
    claimed = await worker.claim(slots=2, limit=5)
    assert (ids(claimed.leases), claimed.more) == (jobs[:5], True)
    claimed = await worker.claim(slots=0, limit=3)
    assert (ids(claimed.leases), claimed.more) == (jobs[5:8], True)
    assert (await worker.claim(slots=0, limit=0)).leases == ()


async def test_limit_bounds_the_rest__over_all_queues(store: Harness) -> None:
    await store.queue("other")
    await store.time_task()
    worker = await store.worker()
    jobs = [*await store.add_many(2), *await store.add_many(2, queue="other")]
    claimed = await worker.claim("q", "other", slots=1, limit=3)
    assert (ids(claimed.leases), claimed.more) == (jobs[:3], True)


async def test_max_bytes_bounds_a_claim(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(5, payload=b"x" * 100)
    claimed = await worker.claim(max_bytes=200)
    assert (ids(claimed.leases), claimed.more) == (jobs[:2], True)
    claimed = await worker.claim(max_bytes=299)
    assert (ids(claimed.leases), claimed.more) == (jobs[2:4], True)


async def test_max_bytes_bounds_a_claim__but_never_its_first_job(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(2, payload=b"x" * 100)
    for job in jobs:
        assert ids((await worker.claim(max_bytes=0)).leases) == [job]


async def test_max_bytes_bounds_a_claim__the_first_of_all_queues(store: Harness) -> None:
    """A job that does not fit ends the claim: nothing smaller overtakes it."""
    await store.queue("other")
    worker = await store.worker()
    small = await store.add(payload=b"x" * 100)
    large = await store.add(payload=b"x" * 300, queue="other")
    await store.add(payload=b"x", queue="other")
    claimed = await worker.claim("q", "other", max_bytes=200)
    assert (ids(claimed.leases), claimed.more) == ([small], True)
    assert ids((await worker.claim("q", "other", max_bytes=200)).leases) == [large]


# more


async def test_more_says_the_claim_was_cut_short(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(3)
    assert (await worker.claim(slots=2)).more
    last = await worker.claim(slots=1)
    assert (len(last.leases), last.more) == (1, False)
    assert not (await worker.claim(slots=2)).more


async def test_more_says_the_claim_was_cut_short__in_any_asked_queue(store: Harness) -> None:
    await store.queue("other")
    worker = await store.worker()
    await store.add()
    await store.add(queue="other")
    assert not (await worker.claim("nowhere", slots=1)).more
    assert (await worker.claim("q", "other", slots=1)).more
    assert not (await worker.claim("q", "other", slots=1)).more


async def test_more_says_the_claim_was_cut_short__not_that_something_waits(store: Harness) -> None:
    """Asking again at once is of no use for what is paused, at a limit or not due."""
    await store.queue("limited", concurrency=1)
    await store.queue("rated", lane_rate=Rate(1, HOUR, 1))
    worker = await store.worker()
    await store.add_many(3, queue="limited")
    await store.add_many(3, queue="rated")
    await store.add(delay=HOUR)
    claimed = await worker.claim("limited", "rated", "q")
    assert (len(claimed.leases), claimed.more) == (2, False)
    await store.add()
    await store.broker.pause("q")
    assert not (await worker.claim("limited", "rated", "q")).more


# next_in


async def _waited(store: Harness, worker: Worker, *queues: str) -> Micros:
    """How long a worker waits for its next job that sleeps exactly as long as it is told."""
    start = store.clock.now()
    for _ in range(20):
        claimed = await worker.claim(*queues, slots=1)
        if claimed.leases:
            return store.clock.now() - start
        assert claimed.next_in, "nothing was handed out, so there is something to wait for"
        store.advance(claimed.next_in)
    raise AssertionError("next_in leads nowhere")


async def test_next_in_tells_the_next_chance(store: Harness) -> None:
    """Of several queues, the first; for retries and snoozes as for delays."""
    await store.queue("other")
    worker = await store.worker()
    for _ in range(3):
        await store.add(delay=5 * SECOND + 1)
        await store.add(queue="other", delay=7 * SECOND)
    assert await _waited(store, worker, "other", "q") == 5 * SECOND + 1
    retried, snoozed = await worker.take(2)
    await store.retry(retried, SECOND)
    await store.snooze(snoozed, HOUR)
    assert await _waited(store, worker, "q", "other") == SECOND
    assert await _waited(store, worker, "q") == HOUR - SECOND


async def test_next_in_tells_the_next_chance__also_with_leases(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    await store.add(delay=5 * SECOND)
    claimed = await worker.claim()
    assert len(claimed.leases) == 1
    assert claimed.next_in is not None
    assert 0 < claimed.next_in <= 5 * SECOND


async def test_next_in_tells_the_next_chance__the_token_of_a_queue(store: Harness) -> None:
    await store.queue("rated", rate=Rate(2, 3 * SECOND, 1))
    worker = await store.worker()
    await store.add_many(4, queue="rated")
    await worker.one("rated")
    assert await _waited(store, worker, "rated") == 1_500_000
    store.advance(SECOND)
    assert await _waited(store, worker, "rated", "q") == 500_000
    await store.add(delay=SECOND)
    assert await _waited(store, worker, "rated", "q") == SECOND


async def test_next_in_tells_the_next_chance__the_token_of_a_lane(store: Harness) -> None:
    await store.queue("rated", lane_rate=Rate(1, 9 * SECOND, 1))
    await store.lane("rated", "fast", rate=Rate(3, SECOND, 1))
    worker = await store.worker()
    await store.add_many(2, queue="rated", lane="slow")
    await store.add_many(2, queue="rated", lane="fast")
    await worker.take(2, "rated")
    assert await _waited(store, worker, "rated") == 333_334
    assert await _waited(store, worker, "rated") == 9 * SECOND - 333_334


async def test_next_in_tells_the_next_chance__of_a_due_job_in_a_lane_without_a_token(store: Harness) -> None:
    await store.queue("rated", lane_rate=Rate(1, 5 * SECOND, 1))
    worker = await store.worker()
    await store.add(queue="rated")
    await worker.one("rated")
    await store.add(queue="rated", delay=2 * SECOND)
    assert await _waited(store, worker, "rated") == 5 * SECOND


async def test_next_in_tells_the_next_chance__none_where_there_is_none(store: Harness) -> None:
    """Only an enqueue brings work to an empty queue."""
    await store.queue("other")
    worker = await store.worker()
    assert (await worker.claim()).next_in is None
    await store.add()
    await store.add(queue="other", delay=SECOND)
    await worker.one()
    assert (await worker.claim()).next_in is None


async def test_next_in_tells_the_next_chance__not_at_once_where_there_is_none_now(store: Harness) -> None:
    """A worker that waits as it is told does not spin in front of a limit or a pause."""
    await store.queue("limited", concurrency=1)
    await store.queue("laned", lane_concurrency=1)
    await store.queue("spent", rate=Rate(1, HOUR, 1))
    await store.queue("paused")
    await store.broker.pause("paused")
    worker = await store.worker()
    for queue in ("limited", "laned", "spent", "paused"):
        await store.add_many(2, queue=queue)
        await worker.claim(queue)
        assert (await worker.claim(queue)).next_in != 0, queue


async def test_next_in_tells_the_next_chance__to_consumers_with_deadlines(store: Harness) -> None:
    await store.add(delay=5 * SECOND)
    claimed = await store.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=SECOND))
    assert claimed.next_in is not None
    assert 0 < claimed.next_in <= 5 * SECOND
