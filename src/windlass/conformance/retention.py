"""Retention: what sweep removes of finished jobs, when, and what it never removes."""

from windlass.broker.contract import Options
from windlass.conformance.endings import deadline_lease
from windlass.conformance.harness import Harness, ids, new_id
from windlass.core.job import Edge, NewJob, OnFailure, Status
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.session import ENDED_KEPT
from windlass.core.settings import Retention
from windlass.core.state import Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId

_WINDOW = Options().resend_window


async def _kept(store: Harness, jobs: list[JobId]) -> list[bool]:
    """Which jobs are kept, rather than forgotten or remembered by their end alone."""
    found = await store.broker.get(jobs)
    return [detail is not None and not detail.pruned for detail in found]


async def _finished(store: Harness, count: int = 1, result: bytes | None = None) -> list[JobId]:
    """Jobs done one after the other, a second apart."""
    worker = await store.worker()
    jobs = await store.add_many(count)
    for job in jobs:
        lease = await worker.one()
        assert lease.job == job
        await store.done(lease, result)
        store.advance(SECOND)
    await worker.end(CauseKind.STOP)
    return jobs


async def test_sweep_prunes_by_retention(store: Harness) -> None:
    await store.queue("q", retention=MINUTE, result_ttl=MINUTE, dead_retention=HOUR)
    worker = await store.worker()
    done, dead, cancelled = jobs = await store.add_many(3)
    first, second = await worker.take(2)
    await store.done(first, b"r")
    await store.dead(second)
    await store.cancel(cancelled)
    (swept,) = await store.passes(1, MINUTE - 1)
    assert (swept.pruned, await _kept(store, jobs)) == (0, [True, True, True])
    await store.passes(1, 1)
    assert await _kept(store, jobs) == [False, True, False]
    assert (await store.missing(done), await store.missing(cancelled)) == (True, True)
    assert await store.listed() == await store.listed(states=frozenset({State.DEAD}))

    await store.passes(1, HOUR - MINUTE - 1)
    assert await _kept(store, [dead]) == [True]
    await store.passes(1, 1)
    assert await store.missing(dead)
    assert await store.listed() == []


async def test_sweep_prunes_by_retention__from_the_end_of_the_job(store: Harness) -> None:
    await store.queue("q", retention=MINUTE)
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    store.advance(HOUR)
    await store.done(lease)
    await store.passes(1, MINUTE - 1)
    assert await _kept(store, [job]) == [True]


async def test_sweep_prunes_by_retention__by_count(store: Harness) -> None:
    """The newest stay; dead letters do not count."""
    await store.queue("q", retention=DAY, retention_count=3, dead_retention=DAY)
    await store.queue("other", retention=DAY)
    worker = await store.worker()
    dead = await store.add_many(3)
    for lease in await worker.take(3):
        await store.dead(lease)
    elsewhere = await store.add_many(3, queue="other")
    for lease in await worker.take(3, "other"):
        await store.done(lease)
    jobs = await store.add_many(5)
    leases = await worker.take(5)
    finished = [leases[index] for index in (1, 4, 0, 2, 3)]
    for lease in finished[:2]:
        await store.done(lease)
        await store.passes(1, SECOND)
    assert await _kept(store, jobs) == [True] * 5
    for lease in finished[2:]:
        await store.done(lease)
        store.advance(SECOND)
    await store.sweep()
    assert await _kept(store, ids(finished)) == [False, False, True, True, True]
    assert await _kept(store, dead + elsewhere) == [True] * 6


async def test_sweep_prunes_by_retention__by_a_count_far_beyond_what_is_kept(store: Harness) -> None:
    """The work of a pass does not grow with the number that may be kept."""
    await store.queue("q", retention=DAY, retention_count=10**12)
    jobs = await _finished(store, 5)
    (swept,) = await store.passes(1, SECOND)
    assert (swept.pruned, await _kept(store, jobs)) == (0, [True] * 5)


async def test_sweep_prunes_by_retention__by_count_while_the_clock_goes_back(store: Harness) -> None:
    """What finished later than it is now counts, and goes, like the rest."""
    await store.queue("q", retention=DAY, retention_count=1)
    jobs = await _finished(store, 3)
    (cancelled,) = await store.add_many(1)
    await store.cancel(cancelled)
    (swept,) = await store.passes(1, -HOUR)
    assert (swept.pruned, await _kept(store, [*jobs, cancelled])) == (3, [False, False, False, True])


async def test_sweep_prunes_by_retention__by_both(store: Harness) -> None:
    await store.queue("q", retention=MINUTE, retention_count=2)
    await _finished(store, 5)
    (swept,) = await store.passes(1, HOUR)
    assert (swept.pruned, await store.listed()) == (5, [])


async def test_sweep_prunes_by_retention__of_the_namespace(store: Harness) -> None:
    """Where a queue says nothing."""
    retention = Retention(retention=MINUTE, result_ttl=SECOND, dead_retention=HOUR, retention_count=None)
    other = await store.fresh(retention=retention)
    worker = await other.worker()
    jobs = await other.add_many(2)
    first, second = await worker.take(2)
    await other.done(first, b"r")
    await other.dead(second)
    await other.passes(1, SECOND)
    assert ((await other.get(jobs[0])).result, await _kept(other, jobs)) == (None, [True, True])
    await other.passes(1, MINUTE)
    assert await _kept(other, jobs) == [False, True]
    await other.passes(1, HOUR)
    assert await _kept(other, jobs) == [False, False]


async def test_sweep_prunes_by_retention__ended_sessions(store: Harness) -> None:
    """They are remembered for an hour."""
    worker, other = await store.worker(), await store.worker()
    await worker.end(CauseKind.STOP)
    await store.passes(1, ENDED_KEPT - 1)
    assert len(await store.broker.sessions()) == 2
    await store.passes(1, 1)
    assert [view.id for view in await store.broker.sessions()] == [other.id]


async def test_long_step_back_is_followed__what_is_forgotten_stays_so(store: Harness) -> None:
    await store.queue("q", retention=5 * SECOND, result_ttl=5 * SECOND)
    worker = await store.worker()
    gone = [*await _finished(store, 2), *await _finished(store, 1, b"r")]
    await store.passes(1, 2 * _WINDOW)
    assert [await store.missing(job) for job in gone] == [True] * 3
    store.clock.advance(-HOUR)
    assert [await store.missing(job) for job in gone] == [True] * 3
    assert (await store.enqueue(store.job(id=gone[0])))[0].status is Status.CREATED
    await store.done(await worker.one())
    await store.passes(1, SECOND)
    assert [await store.missing(job) for job in gone] == [False, True, True]
    assert (await store.enqueue(store.job(id=gone[1])))[0].status is Status.CREATED

    # What ends now is remembered as long as ever.
    await store.done(await worker.one())
    await store.passes(1, _WINDOW - 1)
    assert (await store.enqueue(store.job(id=gone[1])))[0].status is Status.DUPLICATE
    await store.passes(1, 1)
    assert await store.missing(gone[1])


async def test_long_step_back_is_followed__what_is_forgotten_stays_so_behind_what_is_not(
    store: Harness,
) -> None:
    """What ended before the clock was set back is remembered for longer than what ends after."""
    await store.queue("q", retention=0)
    worker = await store.worker()
    first = await store.add()
    await store.done(await worker.one())
    later: list[JobId] = []
    for is_done in (False, True):
        store.clock.advance(-HOUR)
        later.append(await store.add())
        if is_done:
            await store.done(await worker.one())
        else:
            await store.cancel(later[-1])
        await store.passes(2, _WINDOW)
        assert [await store.missing(job) for job in (first, later[-1])] == [False, True]
    store.clock.advance(-HOUR)
    assert [await store.missing(job) for job in (first, *later)] == [False, True, True]


async def test_sweep_drops_results_by_ttl(store: Harness) -> None:
    await store.queue("q", retention=DAY, result_ttl=MINUTE)
    (job,) = await _finished(store, result=b"r")
    before = await store.get(job)
    await store.passes(1, MINUTE - SECOND - 1)
    assert (await store.get(job)).result == b"r"
    await store.passes(1, 1)
    after = await store.get(job)
    assert (after.result, after.state, after.pruned) == (None, State.DONE, False)
    assert (after.finished_at, after.deliveries) == (before.finished_at, before.deliveries)


async def test_nothing_kept_means_nothing_left(store: Harness) -> None:
    await store.queue("q", retention=0)
    worker = await store.worker()
    done, cancelled = jobs = await store.add_many(2)
    await store.done(await worker.one())
    await store.cancel(cancelled)
    assert await store.listed() == []
    for job, state in ((done, State.DONE), (cancelled, State.CANCELLED)):
        memory = await store.get(job)
        assert (memory.pruned, memory.state, memory.finished_at) == (True, state, store.clock.now())
        assert (memory.payload, memory.deliveries, memory.logs) == (b"", (), ())
        assert await store.count(state) == 1

    await store.passes(1, _WINDOW - 1)
    assert [await store.missing(job) for job in jobs] == [False, False]
    await store.passes(1, 1)
    assert [await store.missing(job) for job in jobs] == [True, True]
    assert [await store.count(state) for state in (State.DONE, State.CANCELLED)] == [1, 1]


async def test_nothing_kept_means_nothing_left__however_it_ended(store: Harness) -> None:
    """Cancelled runs that end with their session, or when their deadline passes."""
    await store.queue("q", retention=0)
    worker = await store.worker()
    jobs = await store.add_many(2)
    await worker.one()
    await deadline_lease(store)
    for job in jobs:
        await store.cancel(job)
    ended = await worker.end(CauseKind.LOST)
    assert [view.id for view in await store.listed()] == jobs[1:]
    (swept,) = await store.passes(1, SECOND)
    assert [moved.after for moved in (*ended.moved, *swept.moved)] == [State.CANCELLED, State.CANCELLED]
    assert await store.listed() == []
    assert await store.states(jobs) == [State.CANCELLED, State.CANCELLED]


async def test_nothing_kept_means_nothing_left__unless_a_job_that_it_spawned_needs_it(store: Harness) -> None:
    """It is kept whole, and a settlement that is sent again is known."""
    await store.queue("q", retention=0, result_ttl=0)
    worker = await store.worker()
    parent = await store.add()
    lease = await worker.one()
    child = NewJob(id=new_id(), task="t", queue="q", after=(Edge(parent, OnFailure.CANCEL),))
    await store.settle(lease, Outcome.DONE, spawn=(child,))
    assert [end.outcome for end in (await store.get(parent)).deliveries] == [Outcome.DONE]
    again = await store.settle(lease, Outcome.DONE, spawn=(child,))
    assert (again.verdict, again.state) == (Verdict.ALREADY, State.DONE)


async def test_prune_keeps_what_is_needed(store: Harness) -> None:
    """However long: unfinished jobs, and the done parents of unfinished jobs."""
    await store.queue("q", retention=0, result_ttl=0, dead_retention=0)
    worker = await store.worker()
    parent = await store.add(priority=1)
    lease = await worker.one()
    waiting = await store.add(priority=-1, after=(Edge(parent),))
    await store.done(lease, b"r")
    running = await worker.one()
    assert running.job == waiting
    others = [
        await store.add(priority=-2),
        await store.add(delay=900 * DAY),
    ]
    others.append(await store.add(after=(Edge(others[1]),)))
    await store.passes(3, 30 * DAY)
    assert await _kept(store, [parent, waiting, *others]) == [True] * 5
    assert (await store.get(parent)).result == b"r"
    assert await store.states(others) == [State.READY, State.SCHEDULED, State.BLOCKED]

    await store.done(running)
    await store.passes(1, _WINDOW)
    assert (await store.missing(parent), await store.missing(waiting)) == (True, True)
    assert await _kept(store, others) == [True] * 3


async def test_sweep_prunes_by_retention__behind_many_that_are_needed(store: Harness) -> None:
    """However many are in front of them."""
    await store.queue("q", retention=MINUTE)
    await store.queue("later")
    worker = await store.worker()
    undone = await store.add(queue="later")
    parents: list[JobId] = []
    for _ in range(2):
        more = await store.add_many(600)
        for lease in await worker.take(600):
            await store.done(lease)
        await store.add(after=tuple(Edge(parent) for parent in (*more, undone)), queue="later")
        parents += more
    store.advance(SECOND)
    done, cancelled = others = await store.add_many(2)
    await store.done(await worker.one())
    await store.cancel(cancelled)
    await store.passes(2, MINUTE)
    assert await _kept(store, parents[:100] + parents[-100:]) == [True] * 200
    assert [await store.missing(job) for job in (done, cancelled)] == [True, True], others


async def test_prune_keeps_what_is_needed__a_cancelled_parent_too(store: Harness) -> None:
    await store.queue("q", retention=0)
    worker = await store.worker()
    parent = await store.add(delay=DAY)
    child = await store.add(after=(Edge(parent, OnFailure.IGNORE),))
    await store.cancel(parent)
    await store.passes(2, HOUR)
    assert await _kept(store, [parent, child]) == [True, True]
    await store.done(await worker.one())
    await store.passes(1, _WINDOW)
    assert (await store.missing(parent), await store.missing(child)) == (True, True)


async def test_prune_keeps_what_is_needed__not_a_dead_parent(store: Harness) -> None:
    """It goes, and the edges of those who wait for it act."""
    await store.queue("q", dead_retention=HOUR)
    worker = await store.worker()
    parent = await store.add()
    cancelled = await store.add(after=(Edge(parent, OnFailure.CANCEL),))
    freed = await store.add(after=(Edge(parent, OnFailure.IGNORE),))
    await store.dead(await worker.one())
    await store.passes(1, HOUR - 1)
    assert await _kept(store, [parent]) == [True]
    assert await store.states([cancelled, freed]) == [State.BLOCKED, State.BLOCKED]
    store.advance(1)
    await store.sweep()
    assert await store.missing(parent)
    assert await store.states([cancelled, freed]) == [State.CANCELLED, State.READY]
    assert (await store.get(cancelled)).reason is Reason.PARENT_FAILED


async def test_prune_keeps_what_is_needed__not_by_another_job_that_has_the_id_of_a_dependent(
    store: Harness,
) -> None:
    """A dependent that is forgotten leaves its id free; who takes it depends on nobody."""
    await store.queue("q", retention=0, result_ttl=0, dead_retention=0)
    worker = await store.worker()
    parent = await store.add()
    lease = await worker.one()
    child = await store.add(expires=SECOND, after=(Edge(parent),))
    await store.passes(2, _WINDOW)
    assert await store.missing(child)
    assert await store.add(id=child, delay=DAY) == child
    await store.done(lease)
    assert await _kept(store, [parent, child]) == [False, True]


async def test_prune_keeps_what_is_needed__not_a_job_that_has_the_id_of_a_parent_that_was_gone(
    store: Harness,
) -> None:
    """Who names a parent of which only the end is known is not tied to a later job with its id."""
    await store.queue("q", retention=0, result_ttl=0, dead_retention=0)
    worker = await store.worker()
    parent = await store.add()
    await store.done(await worker.one())
    child = await store.add(delay=DAY, after=(Edge(parent),))
    await store.passes(2, _WINDOW)
    for _ in range(2):  # at once, and after somebody depended on it
        assert await store.add(id=parent) == parent
        lease = await worker.one()
        later = await store.add(after=(Edge(parent),))
        await store.done(lease)
        assert await _kept(store, [parent, child, later]) == [True, True, True]
        await store.done(await worker.one())
        await store.passes(2, _WINDOW)
        assert await _kept(store, [parent, child, later]) == [False, True, False]
        assert await store.add(id=parent) == parent
        await store.done(await worker.one())
        assert await _kept(store, [parent, child]) == [False, True]
        await store.passes(2, _WINDOW)


async def test_prune_keeps_what_is_needed__not_a_job_that_has_the_id_of_a_parent_that_died(
    store: Harness,
) -> None:
    await store.queue("q", retention=0, result_ttl=0, dead_retention=HOUR)
    worker = await store.worker()
    parent = await store.add()
    child = await store.add(delay=900 * DAY, after=(Edge(parent, OnFailure.IGNORE),))
    await store.dead(await worker.one())
    await store.passes(2, HOUR)
    await store.passes(1, _WINDOW)
    assert await store.states([child]) == [State.SCHEDULED]
    assert await store.add(id=parent) == parent
    later = await store.add(after=(Edge(parent),))
    await store.done(await worker.one())
    assert await _kept(store, [parent, child, later]) == [True, True, True]
    await store.done(await worker.one())
    await store.passes(1, _WINDOW)
    assert await _kept(store, [parent, child, later]) == [False, True, False]


async def test_prune_keeps_what_is_needed__by_a_job_that_was_replayed(store: Harness) -> None:
    """It reads its parents again: those that are still there."""
    await store.queue("q", retention=HOUR, result_ttl=HOUR)
    worker = await store.worker()
    parent = await store.add()
    await store.done(await worker.one(), b"r")
    child = await store.add(after=(Edge(parent),))
    await store.dead(await worker.one())
    await store.passes(2, HOUR // 4)
    await store.replay(child)
    await store.passes(3, HOUR)
    assert await _kept(store, [parent, child]) == [True, True]
    assert (await store.get(parent)).result == b"r"
    lease = await worker.one()
    assert (lease.job, lease.parents) == (child, (parent,))
    await store.done(lease)
    await store.passes(2, HOUR)
    assert await store.missing(parent)


async def test_prune_keeps_what_is_needed__by_a_job_that_was_replayed_though_its_parent_is_another(
    store: Harness,
) -> None:
    await store.queue("q", retention=0, result_ttl=0)
    worker = await store.worker()
    parent = await store.add()
    child = await store.add(after=(Edge(parent),))
    await store.done(await worker.one())
    await store.dead(await worker.one())
    await store.passes(2, _WINDOW)
    assert await store.missing(parent)
    assert await store.add(id=parent) == parent
    await store.done(await worker.one())
    assert await _kept(store, [parent]) == [False]
    await store.passes(2, _WINDOW)
    assert await store.add(id=parent, delay=HOUR) == parent
    await store.replay(child)
    lease = await worker.one()
    assert lease.job == child
    await store.passes(1, HOUR)
    await store.done(await worker.one())
    assert await _kept(store, [parent, child]) == [True, True]
    await store.done(lease)
    await store.passes(1, _WINDOW)
    assert await _kept(store, [parent, child]) == [False, False]


async def test_prune_keeps_what_is_needed__by_a_replayed_job_though_its_parent_is_another_that_is_done(
    store: Harness,
) -> None:
    """Wherever a store keeps what is done: it is not pruned while the replayed job may read it."""
    await store.queue("q", retention=HOUR, result_ttl=HOUR)
    worker = await store.worker()
    parent = await store.add()
    child = await store.add(after=(Edge(parent),))
    await store.done(await worker.one())
    await store.dead(await worker.one())
    await store.passes(2, HOUR)
    assert await store.missing(parent)
    assert await store.add(id=parent) == parent
    await store.done(await worker.one(), b"r")
    await store.passes(2, MINUTE)
    await store.replay(child)
    await store.passes(4, HOUR)
    assert await _kept(store, [parent, child]) == [True, True]
    assert (await store.get(parent)).result == b"r"


async def test_prune_keeps_what_is_needed__and_tells_those_of_a_parent_that_died_though_its_id_is_taken(
    store: Harness,
) -> None:
    """More than one step tells: the rest is told later, even if a job depends on the new one meanwhile."""
    await store.queue("q", retention=HOUR, dead_retention=HOUR)
    worker = await store.worker()
    parent = await store.add(priority=50)
    waiting = await store.add_many(150, after=(Edge(parent, OnFailure.IGNORE),), delay=DAY)
    await store.dead(await worker.one())
    store.advance(_WINDOW)
    await store.discard(parent)
    assert await store.missing(parent)
    assert await store.add(id=parent, delay=DAY) == parent
    await store.add(after=(Edge(parent),))
    await store.sweep()
    assert set(await store.states(waiting)) == {State.SCHEDULED}
