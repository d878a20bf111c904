"""Sweep: what only time brings about, in bounded steps. See also `liveness` and `retention`."""

from collections.abc import Awaitable, Callable

import pytest

from windlass.broker.contract import Options
from windlass.conformance.endings import deadline_lease, words
from windlass.conformance.harness import Harness
from windlass.core.job import Edge
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.state import Move, Reason, State
from windlass.core.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Micros

_WINDOW = Options().resend_window


# due jobs


async def test_sweep_promotes_due_jobs(store: Harness) -> None:
    jobs = {delay: await store.add(delay=delay * SECOND) for delay in (5, 3, 9, 1, 7)}
    store.advance(SECOND - 1)
    assert (await store.broker.sweep(limit=100)).promoted == 0
    store.advance(1)
    swept = await store.broker.sweep(limit=100)
    assert (swept.promoted, swept.more) == (1, False)
    assert await store.state(jobs[1]) is State.READY
    (swept,) = await store.passes(1, 6 * SECOND)
    assert swept.promoted == 3
    states = await store.states([jobs[delay] for delay in (3, 5, 7, 9)])
    assert states == [State.READY, State.READY, State.READY, State.SCHEDULED]
    assert (await store.get(jobs[3])).due_at == store.clock.now() - 4 * SECOND
    assert await (await store.worker()).drain() == [jobs[delay] for delay in (1, 3, 5, 7)]


async def test_sweep_promotes_due_jobs__in_order_over_several_steps(store: Harness) -> None:
    worker = await store.worker()
    retried = await store.add()
    await store.retry(await worker.one(), 4 * SECOND)
    jobs = {delay: await store.add(delay=delay * SECOND) for delay in (5, 3, 9, 1, 7)}
    jobs[4] = retried
    store.advance(MINUTE)
    for delays in ((1, 3), (4, 5), (7, 9)):
        assert (await store.broker.sweep(limit=2)).promoted == 2
        assert await store.states([jobs[delay] for delay in delays]) == [State.READY, State.READY]
    assert await worker.drain() == [jobs[delay] for delay in (1, 3, 4, 5, 7, 9)]


async def test_sweep_promotes_due_jobs__ties_as_they_were_scheduled(store: Harness) -> None:
    worker = await store.worker()
    retried = await store.add()
    lease = await worker.one()
    first = await store.add(delay=2 * SECOND)
    store.advance(SECOND)
    second = await store.add(delay=SECOND)
    await store.retry(lease, SECOND)
    third = await store.add(run_at=store.clock.now() + SECOND)
    await store.passes(1, SECOND)
    assert await worker.drain() == [first, second, retried, third]


# deadlines


async def test_sweep_ends_deadline_leases(store: Harness) -> None:
    jobs = await store.add_many(2)
    lease = await deadline_lease(store, 10 * SECOND)
    (swept,) = await store.passes(1, 10 * SECOND - 1)
    assert swept.moved == ()
    assert await store.states(jobs) == [State.RUNNING, State.READY]
    (swept,) = await store.passes(1, 1)
    (moved,) = swept.moved
    assert (moved.job, moved.move) == (jobs[0], Move.DEADLINE)
    assert (moved.before, moved.after, moved.reason) == (State.RUNNING, State.READY, None)
    detail = await store.get(jobs[0])
    assert (detail.state, detail.attempt, detail.crashes) == (State.READY, 1, 0)
    (delivery,) = detail.deliveries
    assert (delivery.fence, delivery.outcome, delivery.settled) == (lease.fence, Outcome.RETRY, False)
    assert (delivery.cause and delivery.cause.kind, delivery.session) == (CauseKind.DEADLINE, None)
    assert (await store.broker.sweep(limit=100)).moved == ()
    assert await (await store.worker()).drain() == jobs


async def test_sweep_ends_deadline_leases__dead_at_the_last_attempt(store: Harness) -> None:
    job = await store.add(max_attempts=3)
    for attempt in (1, 2, 3):
        assert (await deadline_lease(store)).attempt == attempt
        await store.passes(1, 2 * SECOND)
    dead = await store.get(job)
    assert (dead.state, dead.reason, dead.attempt, dead.crashes) == (State.DEAD, Reason.DEADLINE, 3, 0)
    assert dead.finished_at == store.clock.now()
    assert [one.outcome for one in dead.deliveries] == [Outcome.RETRY, Outcome.RETRY, Outcome.DEAD]


async def test_sweep_ends_deadline_leases__and_no_others(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    await worker.one()
    await store.passes(3, DAY)
    assert await store.state(job) is State.RUNNING


async def test_sweep_ends_deadline_leases__that_are_still_held(store: Harness) -> None:
    """A deadline that a settlement overtook ends nothing, not even the lease after it."""
    job = await store.add()
    await store.release(await deadline_lease(store, SECOND))
    newer = await deadline_lease(store, HOUR)
    await store.passes(2, MINUTE)
    assert await store.state(job) is State.RUNNING
    assert (await store.done(newer)).verdict is Verdict.APPLIED


# expiry


async def test_sweep_expires_waiting_jobs(store: Harness) -> None:
    parent = await store.add(delay=DAY)
    jobs = [
        await store.add(expires=MINUTE),
        await store.add(expires=MINUTE, delay=HOUR),
        await store.add(expires=MINUTE, after=(Edge(parent),)),
    ]
    waiting = [State.READY, State.SCHEDULED, State.BLOCKED]
    (swept,) = await store.passes(1, MINUTE - 1)
    assert (swept.moved, await store.states(jobs)) == ((), waiting)
    (swept,) = await store.passes(1, 1)
    moves = {(moved.job, moved.move, moved.before, moved.after, moved.reason) for moved in swept.moved}
    assert len(swept.moved) == len(jobs)
    assert moves == {
        (job, Move.EXPIRE, state, State.DEAD, Reason.EXPIRED)
        for job, state in zip(jobs, waiting, strict=True)
    }
    for job in jobs:
        dead = await store.get(job)
        assert (dead.state, dead.reason, dead.attempt) == (State.DEAD, Reason.EXPIRED, 0)
        assert dead.finished_at == store.clock.now()
    assert await store.state(parent) is State.SCHEDULED
    assert (await (await store.worker()).claim()).leases == ()


async def test_sweep_expires_waiting_jobs__only_before_their_first_start(store: Harness) -> None:
    """A lease that ended with a runtime, or that was charged, was a start."""
    jobs = await store.add_many(9, expires=MINUTE)
    worker, crashing, stopping = await store.worker(), await store.worker(), await store.worker()
    retried, charged, snoozed, released, unstarted, _ = await worker.take(6)
    started, bystander = await crashing.take(2)
    stopped = await stopping.one()
    await store.retry(retried)
    await store.retry(charged, runtime=None)
    await store.snooze(snoozed, HOUR)
    await store.release(released, runtime=1)
    await store.release(unstarted)
    await crashing.end(CauseKind.CRASH, [started])
    await stopping.end(CauseKind.STOP, [stopped])
    again = await worker.one()
    assert again.job == released.job
    await store.release(again)
    await store.passes(1, MINUTE)
    dead = [job for job in jobs if await store.state(job) is State.DEAD]
    assert dead == [unstarted.job, bystander.job, stopped.job]


async def test_sweep_expires_waiting_jobs__held_ones_too(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(expires=MINUTE)
    await store.hold(await worker.one())
    await store.passes(1, MINUTE)
    assert (await store.get(job)).reason is Reason.EXPIRED


# bounds


async def _due(store: Harness) -> None:
    await store.add_many(25, delay=SECOND)


async def _late(store: Harness) -> None:
    await store.time_task()
    await store.add_many(25)
    for _ in range(25):
        await deadline_lease(store)


async def _expiring(store: Harness) -> None:
    await store.add_many(25, expires=SECOND)


async def _held_by_the_lost(store: Harness) -> None:
    await store.add_many(25)
    silent = await store.worker(ttl=1)
    await silent.take(25)


async def _outdated(store: Harness) -> None:
    await store.queue("q", retention=SECOND)
    for job in await store.add_many(25):
        await store.cancel(job)


async def _with_old_results(store: Harness) -> None:
    await store.queue("q", retention=DAY, result_ttl=SECOND)
    await store.add_many(25)
    for lease in await (await store.worker()).take(25):
        await store.done(lease, b"r")


async def _left(store: Harness, state: State) -> int:
    """How many jobs are still in the state that the sweep is to end; of done ones, those with a result."""
    found = [await store.get(view.id) for view in await store.listed(states=frozenset({state}))]
    return sum(state is not State.DONE or detail.result is not None for detail in found)


_OLD: list[tuple[Callable[[Harness], Awaitable[None]], State]] = [
    (_due, State.SCHEDULED),
    (_late, State.RUNNING),
    (_expiring, State.READY),
    (_held_by_the_lost, State.RUNNING),
    (_outdated, State.CANCELLED),
    (_with_old_results, State.DONE),
]


@pytest.mark.parametrize(("made", "state"), _OLD, ids=words)
async def test_sweep_is_bounded(
    store: Harness, made: Callable[[Harness], Awaitable[None]], state: State
) -> None:
    await store.broker.sweep(limit=100)
    await made(store)
    store.advance(MINUTE)
    left = 25
    while left:
        swept = await store.broker.sweep(limit=10)
        done = left - await _left(store, state)
        left -= done
        assert 0 < done <= 10
        assert swept.promoted + len(swept.moved) + swept.pruned <= 10
        assert swept.more or not left
    assert not (await store.sweep())[-1].more


async def test_sweep_is_bounded__sessions_too(store: Harness) -> None:
    await store.broker.sweep(limit=100)
    silent = {(await store.worker(ttl=1)).id for _ in range(25)}
    store.advance(SECOND)
    reaped: list[str] = []
    while len(reaped) < len(silent):
        swept = await store.broker.sweep(limit=10)
        assert 0 < len(swept.reaped) <= 10
        reaped.extend(swept.reaped)
        assert swept.more or len(reaped) == len(silent)
    assert sorted(reaped) == sorted(silent)


async def test_sweep_is_bounded__and_starves_nothing(store: Harness) -> None:
    """One item at a time, everything gets its turn."""
    await store.broker.sweep(limit=100)
    await store.queue("q", retention=SECOND)
    await store.time_task()
    lost, late = await store.add_many(2, priority=1)
    await (await store.worker(ttl=1)).one()
    await deadline_lease(store)
    expiring, due = await store.add(expires=SECOND), await store.add(delay=SECOND)
    outdated = await store.add()
    await store.cancel(outdated)
    store.advance(MINUTE)
    passes = await store.sweep(limit=1)
    assert all(swept.promoted + len(swept.moved) + swept.pruned <= 1 for swept in passes)
    assert await store.states([lost, late, expiring, due]) == [
        State.READY,
        State.READY,
        State.DEAD,
        State.READY,
    ]
    assert await store.missing(outdated)


# pace


async def _pace(store: Harness, every: Micros, limit: int = 100) -> tuple[int, bool]:
    swept = await store.broker.sweep(limit=limit, every=every)
    return swept.promoted, swept.more


async def test_sweep_paces_the_fleet(store: Harness) -> None:
    every = 250 * MILLISECOND
    assert await _pace(store, every) == (0, False)
    worker = await store.worker()
    await store.add(delay=1)
    store.advance(every - 1)
    assert await _pace(store, every) == (0, False)
    store.advance(1)
    assert await _pace(store, every) == (1, False)
    assert [view.silent_for for view in await store.broker.sessions()] == [every]
    assert (await worker.beat()).alive


async def test_sweep_paces_the_fleet__and_says_how_long_ago_the_last_pass_was(store: Harness) -> None:
    await store.broker.sweep(limit=100)
    answers: list[tuple[bool, Micros]] = []
    for gap in (SECOND - 1, 1, 1, HOUR):
        store.advance(gap)
        swept = await store.broker.sweep(limit=100, every=SECOND)
        answers.append((swept.early, swept.since))
    assert answers == [(True, SECOND - 1), (False, SECOND), (True, 1), (False, HOUR + 1)]


async def test_sweep_paces_the_fleet__at_the_same_moment(store: Harness) -> None:
    await store.queue("q", retention=DAY)
    worker = await store.worker()
    job = await store.add()
    await store.done(await worker.one())
    await _pace(store, MILLISECOND)
    await store.queue("q", retention=0)
    await _pace(store, MILLISECOND)
    assert not (await store.get(job)).pruned
    await _pace(store, 0)
    assert (await store.get(job)).pruned


async def test_sweep_paces_the_fleet__passes_that_did_nothing_do_not_count(store: Harness) -> None:
    """However many ask, and however often: one pass in `every`."""
    every = 250 * MILLISECOND
    await _pace(store, every)
    await store.worker()
    promoted: list[int] = []
    for _ in range(10):
        await store.add(delay=1)
        store.advance(100 * MILLISECOND)
        promoted.append((await _pace(store, every))[0])
    assert promoted == [0, 0, 3, 0, 0, 3, 0, 0, 3, 0]
    assert [view.silent_for for view in await store.broker.sessions()] == [900 * MILLISECOND]


async def test_sweep_paces_the_fleet__unless_work_is_left(store: Harness) -> None:
    await store.add_many(25, delay=SECOND)
    store.advance(SECOND)
    passes = [await _pace(store, HOUR, limit=10) for _ in range(3)]
    assert passes == [(10, True), (10, True), (5, False)]
    await store.add(delay=SECOND)
    store.advance(SECOND)
    assert await _pace(store, HOUR) == (0, False)
    assert await _pace(store, 0) == (1, False)
