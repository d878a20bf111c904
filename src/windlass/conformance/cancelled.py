"""Cancelled runs: with the flag set done stands, and every other end is `cancelled`."""

import pytest

from windlass.conformance.endings import SAID, deadline_lease
from windlass.conformance.harness import Harness
from windlass.core.operate import Effect
from windlass.core.outcome import Answer, CauseKind, Error, Outcome, Verdict
from windlass.core.state import Reason, State
from windlass.core.units import HOUR, SECOND


@pytest.mark.parametrize("failed", [False, True])
async def test_done_stands_over_cancel(store: Harness, *, failed: bool) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=2)
    if failed:
        await store.retry(await worker.one())
    lease = await worker.one()
    assert (await store.cancel(job)).effect is Effect.FLAGGED
    assert await store.done(lease, b"1") == Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.result) == (State.DONE, None, b"1")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.DONE], ids=str)
async def test_cancelled_run_ends_cancelled(store: Harness, outcome: Outcome) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=1)
    lease = await worker.one()
    assert (await store.cancel(job)).effect is Effect.FLAGGED
    answer = await store.settle(lease, outcome, **SAID[outcome])
    assert answer == Answer(Verdict.APPLIED, Outcome.CANCELLED, State.CANCELLED)
    await _is_cancelled_for_good(store, job)


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("kind", [CauseKind.CRASH, CauseKind.STOP, CauseKind.LOST], ids=str)
async def test_cancelled_run_ends_cancelled__with_its_session(
    store: Harness, kind: CauseKind, *, started: bool
) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    await store.cancel(job)
    ended = await worker.end(kind, [lease] if started else [])
    assert [(moved.job, moved.after) for moved in ended.moved] == [(job, State.CANCELLED)]
    await _is_cancelled_for_good(store, job)


async def test_cancelled_run_ends_cancelled__when_swept(store: Harness) -> None:
    silent = await store.worker(ttl=SECOND)
    lost, late = await store.add(), await store.add()
    await silent.one()
    await deadline_lease(store)
    await store.cancel(lost)
    await store.cancel(late)
    await store.passes(3, SECOND)
    for job in (lost, late):
        await _is_cancelled_for_good(store, job)


async def test_cancelled_run_ends_cancelled__by_its_own_word(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    why = Error(type="Cancelled", message="cancelled itself: sold out")
    answer = await store.settle(await worker.one(), Outcome.CANCELLED, runtime=1, error=why)
    assert answer == Answer(Verdict.APPLIED, Outcome.CANCELLED, State.CANCELLED)
    assert (await store.get(job)).error == why
    (finished,) = await store.broker.watch([job], 0.0)
    assert finished.error == why
    await _is_cancelled_for_good(store, job)


async def _is_cancelled_for_good(store: Harness, job: str) -> None:
    detail = await store.get(job)
    assert (detail.state, detail.reason) == (State.CANCELLED, Reason.CANCELLED)
    assert (detail.session, detail.held, detail.cancel_requested) == (None, None, False)
    assert detail.finished_at is not None
    assert detail.deliveries[-1].outcome is Outcome.CANCELLED
    store.advance(HOUR)
    await store.broker.sweep(limit=100)
    worker = await store.worker()
    assert (await worker.claim()).leases == ()
    assert (await worker.claim(slots=1, alone=True)).leases == ()
