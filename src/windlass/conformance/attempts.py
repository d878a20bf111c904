"""Attempts: who is charged when a session ends, and what becomes of jobs that keep killing their workers."""

from collections.abc import Awaitable, Callable

import pytest

from windlass.conformance.endings import deadline_lease, words
from windlass.conformance.harness import Harness, Worker, ids
from windlass.core.job import Moved
from windlass.core.lease import Lease
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Ended
from windlass.core.state import Move, Reason, State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_CHARGING = [CauseKind.CRASH, CauseKind.LOST]


async def _counted(store: Harness, jobs: list[JobId]) -> list[tuple[State, int, int]]:
    """State, attempts spent and crashes of each."""
    details = [await store.get(job) for job in jobs]
    return [(detail.state, detail.attempt, detail.crashes) for detail in details]


async def _crash(store: Harness, kind: CauseKind = CauseKind.CRASH, *, alone: bool = False) -> Lease:
    """Claim one job, start it, and have the worker end."""
    worker = await store.worker()
    lease = await worker.one(alone=alone)
    await worker.end(kind, [lease])
    return lease


def _back(jobs: list[JobId], *moves: Move) -> list[Moved]:
    return [
        Moved(job=job, queue="q", task="t", lane="", move=move, before=State.RUNNING, after=State.READY)
        for job, move in zip(jobs, moves, strict=True)
    ]


def _by_job(ended: Ended) -> list[Moved]:
    return sorted(ended.moved, key=lambda moved: moved.job)


# who is charged


async def test_crash_charges_what_had_started(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(4)
    leases = await worker.take(3)
    ended = await worker.end(CauseKind.CRASH, [leases[1]], "signal 11")
    moved = _back(jobs[:3], Move.RELEASE, Move.CRASH, Move.RELEASE)
    assert (ended.known, ended.more, _by_job(ended)) == (True, False, moved)
    assert await _counted(store, jobs) == [
        (State.READY, 0, 0),
        (State.READY, 1, 1),
        (State.READY, 0, 0),
        (State.READY, 0, 0),
    ]
    deliveries = [(await store.get(job)).deliveries for job in jobs[:3]]
    outcomes = [Outcome.RELEASE, Outcome.RETRY, Outcome.RELEASE]
    for (delivery,), lease, outcome in zip(deliveries, leases, outcomes, strict=True):
        assert (delivery.fence, delivery.outcome, delivery.settled) == (lease.fence, outcome, False)
        assert delivery.cause == Cause(CauseKind.CRASH, "signal 11")
    assert (await store.get(jobs[0])).session is None
    again = await (await store.worker()).take(4)
    assert ids(again) == jobs
    assert [lease.attempt for lease in again] == [1, 2, 1, 1]


async def test_crash_charges_what_had_started__under_that_fence(store: Harness) -> None:
    """A start that belongs to an earlier lease, or to nobody, charges nothing."""
    worker = await store.worker()
    job = await store.add(max_attempts=1)
    earlier = await worker.one()
    await store.release(earlier)
    lease = await worker.one()
    started = [(job, earlier.fence), (job, lease.fence + 1), ("unknown", lease.fence)]
    await store.broker.end_session(worker.id, Cause(CauseKind.CRASH), started)
    assert await _counted(store, [job]) == [(State.READY, 0, 0)]


async def test_crash_charges_what_had_started__of_its_own(store: Harness) -> None:
    """What another session runs is none of its business, even if it is named."""
    crashing, other = await store.worker(), await store.worker()
    jobs = await store.add_many(2)
    own = await crashing.one()
    foreign = await other.one()
    ended = await crashing.end(CauseKind.CRASH, [own, foreign])
    assert [moved.job for moved in ended.moved] == [own.job]
    assert await _counted(store, jobs) == [(State.READY, 1, 1), (State.RUNNING, 1, 0)]
    assert (await store.get(foreign.job)).session == other.id
    await store.done(foreign)


async def test_crash_charges_what_had_started__and_no_innocent(store: Harness) -> None:
    """One poison job among many in the same worker: it ends dead, they lose nothing and finish."""
    jobs = await store.add_many(20, max_attempts=5)
    poison, innocents = jobs[7], [job for job in jobs if job != jobs[7]]
    for _ in range(2):
        worker = await store.worker()
        leases = await worker.take(20)
        await worker.end(CauseKind.CRASH, [lease for lease in leases if lease.job == poison])
        store.advance(MINUTE)
    while await store.state(poison) is not State.DEAD:
        lease = await _crash(store, alone=True)
        assert lease.job == poison
        store.advance(MINUTE)
    assert await _counted(store, [poison]) == [(State.DEAD, 5, 5)]
    assert await _counted(store, innocents) == [(State.READY, 0, 0)] * 19
    assert await (await store.worker()).drain() == innocents


async def test_stop_charges_nobody(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(3, max_attempts=1)
    leases = await worker.take(2)
    ended = await worker.end(CauseKind.STOP, leases[:1], "grace over")
    moved = _back(jobs[:2], Move.RELEASE, Move.RELEASE)
    assert (ended.known, ended.more, _by_job(ended)) == (True, False, moved)
    assert await _counted(store, jobs) == [(State.READY, 0, 0)] * 3
    (delivery,) = (await store.get(jobs[0])).deliveries
    assert (delivery.outcome, delivery.settled) == (Outcome.RELEASE, False)
    assert delivery.cause == Cause(CauseKind.STOP, "grace over")
    again = await (await store.worker()).take(3)
    assert ids(again) == jobs
    assert [lease.attempt for lease in again] == [1, 1, 1]


@pytest.mark.parametrize("named", [0, 1, 3])
async def test_lost_charges_everybody(store: Harness, named: int) -> None:
    """Whatever was said to have started: nobody can tell."""
    worker = await store.worker()
    jobs = await store.add_many(4)
    leases = await worker.take(3)
    ended = await worker.end(CauseKind.LOST, leases[:named], "host gone")
    moved = _back(jobs[:3], Move.LOST, Move.LOST, Move.LOST)
    assert (ended.known, ended.more, _by_job(ended)) == (True, False, moved)
    assert await _counted(store, jobs) == [(State.READY, 1, 1)] * 3 + [(State.READY, 0, 0)]
    for job in jobs[:3]:
        (delivery,) = (await store.get(job)).deliveries
        assert (delivery.outcome, delivery.settled) == (Outcome.RETRY, False)
        assert delivery.cause == Cause(CauseKind.LOST, "host gone")
    again = await (await store.worker()).take(4)
    assert ids(again) == jobs
    assert [lease.attempt for lease in again] == [2, 2, 2, 1]


# when it runs again


@pytest.mark.parametrize("kind", _CHARGING, ids=str)
async def test_first_crash_reruns_at_once(store: Harness, kind: CauseKind) -> None:
    """At once the first time, in its old place; then after 1 s, doubling, to 60 s."""
    job, behind = await store.add(max_attempts=20), await store.add()
    due_at = (await store.get(job)).due_at
    await _crash(store, kind)
    detail = await store.get(job)
    assert (detail.state, detail.due_at) == (State.READY, due_at)
    assert (await _crash(store, kind)).job == job

    for crashes, seconds in enumerate((1, 2, 4, 8, 16, 32, 60, 60), start=2):
        detail = await store.get(job)
        assert (detail.state, detail.attempt, detail.crashes) == (State.SCHEDULED, crashes, crashes)
        assert detail.due_at == store.clock.now() + seconds * SECOND
        store.advance(seconds * SECOND - 1)
        assert (await (await store.worker()).claim(slots=1, alone=True)).leases == ()
        store.advance(1)
        assert (await _crash(store, kind, alone=True)).job == job
    assert await _counted(store, [behind]) == [(State.READY, 0, 0)]


async def test_first_crash_reruns_at_once__while_the_clock_goes_back(store: Harness) -> None:
    job = await store.add()
    await store.sweep()
    store.advance(-HOUR)
    await store.sweep()
    await _crash(store)
    assert await _counted(store, [job]) == [(State.READY, 1, 1)]


async def test_first_crash_reruns_at_once__whatever_failed_before(store: Harness) -> None:
    """Crashes count, not attempts."""
    worker = await store.worker()
    job = await store.add(max_attempts=20)
    for _ in range(3):
        await store.retry(await worker.one())
    await _crash(store)
    assert await _counted(store, [job]) == [(State.READY, 4, 1)]


# at the last attempt


@pytest.mark.parametrize(
    ("kind", "reason"), [(CauseKind.CRASH, Reason.CRASHED), (CauseKind.LOST, Reason.LOST)], ids=str
)
async def test_crash_of_the_last_attempt_is_dead(store: Harness, kind: CauseKind, reason: Reason) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=2, payload=b"p")
    await store.retry(await worker.one())
    lease = await worker.one()
    assert lease.attempt == 2
    store.advance(SECOND)
    ended = await worker.end(kind, [lease], "signal 11")
    (moved,) = ended.moved
    assert (moved.job, moved.move) == (job, Move(kind.value))
    assert (moved.before, moved.after, moved.reason) == (State.RUNNING, State.DEAD, reason)
    dead = await store.get(job)
    assert (dead.state, dead.reason, dead.attempt, dead.crashes) == (State.DEAD, reason, 2, 1)
    assert (dead.finished_at, dead.payload, dead.session) == (store.clock.now(), b"p", None)
    last = dead.deliveries[-1]
    assert (last.fence, last.attempt, last.outcome, last.settled) == (lease.fence, 2, Outcome.DEAD, False)
    assert last.cause == Cause(kind, "signal 11")
    store.advance(HOUR)
    await store.sweep()
    for alone in (False, True):
        assert (await (await store.worker()).claim(slots=1, alone=alone)).leases == ()


async def test_crash_of_the_last_attempt_is_dead__if_it_had_started(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=1)
    await worker.one()
    await worker.end(CauseKind.CRASH)
    assert await _counted(store, [job]) == [(State.READY, 0, 0)]


# suspects


async def _is_suspect(store: Harness, job: JobId) -> bool:
    """Whether only an ask with `alone` gets it; leaves it as it was."""
    worker = await store.worker()
    plain = await worker.claim(slots=1)
    alone = await worker.claim(slots=1, alone=True)
    assert ids([*plain.leases, *alone.leases]) == [job]
    assert (plain.suspects, len(plain.leases)) in ((0, 1), (1, 0))
    await worker.end(CauseKind.STOP)
    return not plain.leases


@pytest.mark.parametrize("second", _CHARGING, ids=str)
@pytest.mark.parametrize("first", _CHARGING, ids=str)
async def test_second_crash_makes_a_suspect(store: Harness, first: CauseKind, second: CauseKind) -> None:
    job = await store.add()
    await _crash(store, first)
    assert not await _is_suspect(store, job)
    await _crash(store, second)
    store.advance(SECOND)
    assert await _is_suspect(store, job)
    assert await _is_suspect(store, job)
    assert (await (await store.worker()).one(alone=True)).crashes == 2


async def test_second_crash_makes_a_suspect__if_reaped(store: Harness) -> None:
    job = await store.add()
    for _ in range(2):
        silent = await store.worker(ttl=SECOND)
        await silent.one()
        await store.passes(3, SECOND)
    store.advance(SECOND)
    assert await _is_suspect(store, job)


async def test_second_crash_makes_a_suspect__whatever_happened_between(store: Harness) -> None:
    job = await store.add(max_attempts=20)
    worker = await store.worker()
    await _crash(store)
    await store.retry(await worker.one())
    await store.snooze(await worker.one(), 0)
    await store.release(await worker.one())
    await store.hold(await worker.one())
    store.advance(SECOND)
    assert not await _is_suspect(store, job)
    await _crash(store)
    store.advance(SECOND)
    assert await _is_suspect(store, job)
    await store.retry(await worker.one(alone=True))
    assert await _is_suspect(store, job)


async def _fail(worker: Worker) -> None:
    await worker.store.retry(await worker.one())


async def _stop(worker: Worker) -> None:
    await worker.end(CauseKind.STOP, [await worker.one()])


async def _crash_unstarted(worker: Worker) -> None:
    await worker.one()
    await worker.end(CauseKind.CRASH)


async def _run_out(worker: Worker) -> None:
    await deadline_lease(worker.store)
    await worker.store.passes(1, 2 * SECOND)


@pytest.mark.parametrize("end", [_fail, _stop, _crash_unstarted, _run_out], ids=words)
async def test_second_crash_makes_a_suspect__and_nothing_else(
    store: Harness, end: Callable[[Worker], Awaitable[None]]
) -> None:
    job = await store.add(max_attempts=20)
    for _ in range(3):
        await end(await store.worker())
    assert (await store.get(job)).crashes == 0
    assert not await _is_suspect(store, job)


async def test_second_crash_makes_a_suspect__until_replay(store: Harness) -> None:
    job = await store.add(max_attempts=2)
    await _crash(store)
    await _crash(store)
    assert await _counted(store, [job]) == [(State.DEAD, 2, 2)]
    await store.replay(job)
    assert await _counted(store, [job]) == [(State.READY, 0, 0)]
    assert not await _is_suspect(store, job)
    await _crash(store)
    assert not await _is_suspect(store, job)
