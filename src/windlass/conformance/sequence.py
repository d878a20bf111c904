"""Sequence: in a queue with `sequence` each lane runs one job at a time, in the order of enqueue."""

from collections.abc import Awaitable, Callable

from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.job import Edge
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Effect
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import Reason, State
from windlass.core.units import HOUR, SECOND, JobId

_Step = Callable[[Worker, Lease], Awaitable[object]]


async def _queue(store: Harness) -> None:
    await store.queue("s", sequence=True)


async def _add(store: Harness, count: int, lane: str = "a", **options: int) -> list[JobId]:
    return [await store.add(queue="s", lane=lane, **options) for _ in range(count)]


# order of enqueue


async def test_sequence_is_order_of_enqueue(store: Harness) -> None:
    """One at a time in each lane, whatever the priority and the slots; lanes do not wait for each other."""
    await _queue(store)
    jobs = [(await _add(store, 1, priority=priority))[0] for priority in (-5, 100, 0)]
    others = await _add(store, 2, lane="b")
    worker = await store.worker()
    first = await worker.claim("s")
    assert (ids(first.leases), first.more) == ([jobs[0], others[0]], False)
    assert (await worker.claim("s")).leases == ()
    await store.done(first.leases[0])
    second = await worker.claim("s")
    assert ids(second.leases) == [jobs[1]]
    await store.done(second.leases[0])
    assert ids((await worker.claim("s")).leases) == [jobs[2]]


async def test_sequence_is_order_of_enqueue__without_lanes_too(store: Harness) -> None:
    await _queue(store)
    jobs = await _add(store, 3, lane="")
    worker = await store.worker()
    assert ids((await worker.claim("s")).leases) == jobs[:1]
    ask = Ask(queues=("s",), slots=5, limit=5, visibility=HOUR)
    assert (await store.broker.claim(ask)).leases == ()


async def test_sequence_is_order_of_enqueue__not_of_due_times(store: Harness) -> None:
    await _queue(store)
    jobs = [(await _add(store, 1, delay=delay))[0] for delay in (3 * SECOND, 0, 2 * SECOND, SECOND)]
    worker = await store.worker()
    store.advance(3 * SECOND)
    assert await worker.drain("s") == jobs


async def test_sequence_is_order_of_enqueue__through_every_way_back(store: Harness) -> None:
    """Retried, snoozed, released, crashed or lost: it stays where it was."""
    ways: list[_Step] = [
        lambda _, lease: store.retry(lease),
        lambda _, lease: store.snooze(lease, SECOND),
        lambda _, lease: store.release(lease),
        lambda worker, lease: worker.end(CauseKind.CRASH, started=[lease]),
        lambda worker, _: worker.end(CauseKind.STOP),
        lambda _, lease: store.hold(lease),
    ]
    await _queue(store)
    jobs = await _add(store, 3)
    for back in ways:
        worker = await store.worker()
        lease = await worker.one("s")
        assert lease.job == jobs[0]
        await back(worker, lease)
        store.advance(SECOND)
        await store.sweep()
    assert await (await store.worker()).drain("s") == jobs


async def test_sequence_is_order_of_enqueue__whatever_lane_limits_say(store: Harness) -> None:
    await store.queue("s", sequence=True, lane_concurrency=5)
    await store.lane("s", "b", concurrency=None)
    for lane in "ab":
        await _add(store, 3, lane=lane)
    leases = (await (await store.worker()).claim("s")).leases
    assert [lease.lane for lease in leases] == ["a", "b"]


async def test_sequence_is_order_of_enqueue__once_unblocked(store: Harness) -> None:
    """A blocked job has no place: a child in front of its own parent would block both."""
    await _queue(store)
    worker = await store.worker()
    parent = store.job(queue="s", lane="a")
    child = store.job(queue="s", lane="a", after=(Edge(parent.id),))
    await store.enqueue(child, parent)
    (last,) = await _add(store, 1)
    assert await worker.drain("s") == [parent.id, last, child.id]


# heads that block


async def _is_blocked(store: Harness, others: list[JobId]) -> None:
    """Nothing of lane `a` is handed out; lane `b` goes on."""
    worker = await store.worker()
    (elsewhere,) = await _add(store, 1, lane="b")
    claimed = await worker.claim("s")
    assert ids(claimed.leases) == [elsewhere]
    await store.done(claimed.leases[0])
    assert await store.states(others) == [State.READY] * len(others)


async def test_sequence_head_blocks_its_lane(store: Harness) -> None:
    """While it is running or delayed."""
    await _queue(store)
    (head,) = await _add(store, 1, delay=SECOND)
    others = await _add(store, 2)
    await _is_blocked(store, others)
    store.advance(SECOND)
    worker = await store.worker()
    lease = await worker.one("s")
    assert lease.job == head
    await _is_blocked(store, others)
    await store.done(lease)
    assert await worker.drain("s") == others


async def test_sequence_head_blocks_its_lane__waiting_to_run_again(store: Harness) -> None:
    """Retrying, snoozed or held."""
    ways: dict[str, Callable[[Lease], Awaitable[object]]] = {
        "retrying": lambda lease: store.retry(lease, SECOND),
        "snoozed": lambda lease: store.snooze(lease, SECOND),
        "held": store.hold,
    }
    for way in ways.values():
        await _queue(store)
        jobs = await _add(store, 3)
        worker = await store.worker()
        await way(await worker.one("s"))
        await _is_blocked(store, jobs[1:])
        store.advance(SECOND)
        assert await worker.drain("s") == jobs


async def test_sequence_head_blocks_its_lane__until_it_is_unheld(store: Harness) -> None:
    await _queue(store)
    jobs = await _add(store, 2)
    worker = await store.worker()
    await store.hold(await worker.one("s"), key="task:t")
    await store.broker.unhold("task:t", 10)
    assert await worker.drain("s") == jobs


async def test_sequence_head_blocks_its_lane__as_a_suspect(store: Harness) -> None:
    await _queue(store)
    jobs = await _add(store, 3)
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, started=[await worker.one("s")])
    await _is_blocked(store, jobs[1:])
    store.advance(SECOND)
    await _is_blocked(store, jobs[1:])
    worker, alone = await store.worker(), await store.worker()
    lease = await alone.one("s", alone=True)
    assert lease.job == jobs[0]
    await _is_blocked(store, jobs[1:])
    await store.done(lease)
    assert await worker.drain("s") == jobs[1:]


async def test_sequence_head_blocks_its_lane__as_a_suspect_before_a_replayed_job(store: Harness) -> None:
    await _queue(store)
    first, second = await _add(store, 2)
    worker = await store.worker()
    await store.dead(await worker.one("s"))
    for _ in range(2):
        crashing = await store.worker()
        await crashing.end(CauseKind.CRASH, started=[await crashing.one("s")])
    store.advance(SECOND)
    assert (await store.replay(first)).effect is Effect.APPLIED
    assert (await worker.claim("s")).leases == ()
    lease = await worker.one("s", alone=True)
    assert lease.job == second
    await store.done(lease)
    assert await worker.drain("s") == [first]


# heads that do not


async def test_sequence_skips_finished_heads(store: Harness) -> None:
    """Dead or cancelled, while running and while waiting."""
    await _queue(store)
    jobs = await _add(store, 5)
    worker = await store.worker()
    await store.dead(await worker.one("s"))
    assert (await store.cancel(jobs[1])).effect is Effect.APPLIED
    running = await worker.one("s")
    assert running.job == jobs[2]
    assert (await store.cancel(running.job)).effect is Effect.FLAGGED
    await store.retry(running)
    assert (await store.get(running.job)).state is State.CANCELLED
    await store.settle(await worker.one("s"), Outcome.CANCELLED)
    assert await worker.drain("s") == jobs[4:]


async def test_sequence_skips_finished_heads__that_were_delayed(store: Harness) -> None:
    """The next one can be claimed at once, not when the cancelled one would have been due."""
    await _queue(store)
    (delayed,) = await _add(store, 1, delay=HOUR)
    (behind,) = await _add(store, 1)
    worker = await store.worker()
    await store.cancel(delayed)
    assert ids((await worker.claim("s")).leases) == [behind]


async def test_sequence_skips_finished_heads__that_expired(store: Harness) -> None:
    await _queue(store)
    expiring = [(await _add(store, 1, expires=SECOND, delay=delay))[0] for delay in (0, HOUR)]
    (behind,) = await _add(store, 1)
    store.advance(SECOND)
    worker = await store.worker()
    await store.sweep()
    assert [(await store.get(job)).reason for job in expiring] == [Reason.EXPIRED] * 2
    assert ids((await worker.claim("s")).leases) == [behind]


async def test_sequence_skips_finished_heads__that_spent_their_attempts(store: Harness) -> None:
    await _queue(store)
    retried, crashed, lost = await _add(store, 3, max_attempts=1)
    (behind,) = await _add(store, 1)
    ends: list[_Step] = [
        lambda _, lease: store.retry(lease, HOUR),
        lambda worker, lease: worker.end(CauseKind.CRASH, started=[lease]),
        lambda worker, _: worker.end(CauseKind.LOST),
    ]
    for job, end in zip((retried, crashed, lost), ends, strict=True):
        worker = await store.worker()
        lease = await worker.one("s")
        assert lease.job == job
        await end(worker, lease)
        assert await store.state(job) is State.DEAD
    assert (await (await store.worker()).one("s")).job == behind


async def test_sequence_skips_finished_heads__which_come_back_last(store: Harness) -> None:
    """Replay takes a new place."""
    await _queue(store)
    jobs = await _add(store, 3)
    worker = await store.worker()
    await store.dead(await worker.one("s"))
    await store.replay(jobs[0])
    assert await worker.drain("s") == [*jobs[1:], jobs[0]]
