"""Settle: what each outcome leads to, and what is kept of it."""

import msgspec
import pytest

from windlass.conformance.endings import SAID, deadline_lease
from windlass.conformance.harness import Harness, ids, new_id, same
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import Delivery, Edge, Held
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Answer, Cause, CauseKind, Error, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import Reason, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Micros
from windlass.errors import ContractError

_ERROR = Error(
    type="ValueError",
    message="no such “address” \\ '\n",
    traceback="File …, line 1",
    fingerprint="f00d",
    cause="KeyError: 'a'",
    retryable=False,
)


def _about(lease: Lease, outcome: Outcome = Outcome.DONE) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, **SAID[outcome])


# the call


async def test_settlements_are_independent(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(4)
    a, b, c, d = await worker.take(4)
    await store.done(d)
    settled = await store.broker.settle(
        [
            _about(a),
            msgspec.structs.replace(_about(b), fence=b.fence + 1),
            _about(b, Outcome.RETRY),
            Settlement(job=new_id(), fence=a.fence, outcome=Outcome.DONE),
            _about(a, Outcome.DEAD),
            msgspec.structs.replace(_about(c), spawn=(store.job(queue="unknown"),)),
            _about(d, Outcome.RETRY),
            _about(c, Outcome.RELEASE),
        ]
    )
    assert settled.claimed is None
    assert [(answer.verdict, answer.outcome, answer.state) for answer in settled.answers] == [
        (Verdict.APPLIED, Outcome.DONE, State.DONE),
        (Verdict.STALE, None, None),
        (Verdict.APPLIED, Outcome.RETRY, State.SCHEDULED),
        (Verdict.GONE, None, None),
        (Verdict.ALREADY, Outcome.DONE, State.DONE),
        (Verdict.REFUSED, None, None),
        (Verdict.ALREADY, Outcome.DONE, State.DONE),
        (Verdict.APPLIED, Outcome.RELEASE, State.READY),
    ]
    states = await store.states(ids([a, b, c, d]))
    assert states == [State.DONE, State.SCHEDULED, State.READY, State.DONE]


async def test_too_many_settlements_are_an_error(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    lease = await worker.one()
    before = await store.everything()
    filler = Settlement(job=new_id(), fence=1, outcome=Outcome.DONE)
    ask = worker.ask()
    with pytest.raises(ContractError):
        await store.broker.settle([_about(lease), *[filler] * CALL_ITEMS], ask)
    assert await store.everything() == before

    settled = await store.broker.settle([_about(lease), *[filler] * (CALL_ITEMS - 1)], ask)
    assert [answer.verdict for answer in settled.answers] == [
        Verdict.APPLIED,
        *[Verdict.GONE] * (CALL_ITEMS - 1),
    ]
    assert settled.claimed is not None
    assert len(settled.claimed.leases) == 1


async def test_ask_without_meaning_is_an_error__with_settlements(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    lease = await worker.one()
    before = await store.everything()
    with pytest.raises(ContractError):
        await store.broker.settle([_about(lease)], Ask(queues=("q",), slots=1, limit=1))
    assert await store.everything() == before


async def test_fused_ask_sees_freed_leases(store: Harness) -> None:
    await store.queue("q", concurrency=2, lane_concurrency=1)
    worker = await store.worker()
    await store.add(lane="a")
    second = await store.add(lane="a")
    lease = await worker.one()
    assert (await worker.claim()).leases == ()
    settled = await store.broker.settle([_about(lease)], worker.ask())
    assert settled.answers == (Answer(Verdict.APPLIED, Outcome.DONE, State.DONE),)
    assert settled.claimed is not None
    assert ids(settled.claimed.leases) == [second]


async def test_fused_ask_sees_freed_leases__of_its_queue_and_its_own_job(store: Harness) -> None:
    """Given back and asked for in one step, a job comes again, under a new fence."""
    await store.queue("q", concurrency=1)
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    settled = await store.broker.settle([_about(lease, Outcome.RELEASE)], worker.ask())
    assert settled.claimed is not None
    (again,) = settled.claimed.leases
    assert (again.job, again.fence, again.attempt) == (job, lease.fence + 1, 1)


async def test_fused_ask_sees_freed_leases__for_deadline_leases(store: Harness) -> None:
    await store.queue("q", concurrency=1)
    await store.add_many(2)
    ask = Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE)
    (lease,) = (await store.broker.claim(ask)).leases
    settled = await store.broker.settle([_about(lease)], ask)
    assert settled.claimed is not None
    assert len(settled.claimed.leases) == 1


async def test_repeated_fused_call_answers_the_same(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(5)
    held = await worker.take(2)
    items = [_about(held[0]), _about(held[1], Outcome.RETRY)]
    ask = worker.ask(slots=2)
    first = await store.broker.settle(items, ask)
    store.advance(SECOND)
    again = await store.broker.settle(items, ask)
    assert [answer.verdict for answer in first.answers] == [Verdict.APPLIED] * 2
    assert again.answers == tuple(
        msgspec.structs.replace(answer, verdict=Verdict.ALREADY) for answer in first.answers
    )
    assert first.claimed is not None
    assert again.claimed is not None
    assert len(first.claimed.leases) == 2
    assert [same(lease) for lease in again.claimed.leases] == [same(lease) for lease in first.claimed.leases]
    assert await store.count(State.READY) == 1


# done


async def test_done_keeps_its_result(store: Harness) -> None:
    await store.queue("q", retention=HOUR, result_ttl=MINUTE)
    worker = await store.worker()
    parent = await store.add()
    child = await store.add(after=(Edge(parent),))
    store.advance(SECOND)
    lease = await worker.one()
    answer = await store.done(lease, b"\x00\xff 42")
    assert answer == Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
    detail = await store.get(parent)
    assert (detail.state, detail.reason, detail.attempt) == (State.DONE, None, 1)
    assert (detail.result, detail.finished_at) == (b"\x00\xff 42", store.clock.now())
    assert detail.session is None

    reader = await worker.one()
    assert (reader.job, reader.parents) == (child, (parent,))
    store.advance(MINUTE - 1)
    await store.sweep()
    assert (await store.get(reader.parents[0])).result == b"\x00\xff 42"


async def test_done_keeps_its_result__although_the_job_is_not(store: Harness) -> None:
    await store.queue("q", retention=0, result_ttl=MINUTE)
    worker = await store.worker()
    job = await store.add()
    await store.done(await worker.one(), b"r")
    await store.passes(1, MINUTE - 1)
    assert (await store.get(job)).result == b"r"
    await store.passes(1, 1)
    assert await store.missing(job)


@pytest.mark.parametrize("result", [None, b"", b"null"])
async def test_done_keeps_its_result__none_is_not_empty(store: Harness, result: bytes | None) -> None:
    worker = await store.worker()
    job = await store.add()
    await store.done(await worker.one(), result)
    assert (await store.get(job)).result == result


# another time


async def test_retry_waits_for_its_delay(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    lease = await worker.one()
    store.advance(SECOND)
    answer = await store.retry(lease, MINUTE, error=_ERROR)
    assert answer == Answer(Verdict.APPLIED, Outcome.RETRY, State.SCHEDULED)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.attempt) == (State.SCHEDULED, None, 1)
    assert detail.due_at == store.clock.now() + MINUTE
    assert (detail.finished_at, detail.session) == (None, None)
    assert detail.deliveries[-1].error == _ERROR
    store.advance(MINUTE - 1)
    await store.sweep()
    assert (await worker.claim()).leases == ()
    store.advance(1)
    assert (await worker.one()).attempt == 2


async def test_retry_waits_for_its_delay__of_nothing(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    answer = await store.retry(await worker.one(), 0)
    assert answer == Answer(Verdict.APPLIED, Outcome.RETRY, State.READY)
    assert await store.state(job) is State.READY
    assert (await worker.one()).attempt == 2


async def test_retry_of_the_last_attempt_is_dead(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=3)
    for attempt in (1, 2):
        lease = await worker.one()
        assert lease.attempt == attempt
        assert (await store.retry(lease)).state is State.READY
    last = await worker.one()
    answer = await store.retry(last, MINUTE, error=_ERROR)
    assert answer == Answer(Verdict.APPLIED, Outcome.DEAD, State.DEAD)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.attempt) == (State.DEAD, Reason.EXHAUSTED, 3)
    assert (detail.finished_at, detail.error) == (store.clock.now(), _ERROR)
    store.advance(HOUR)
    await store.sweep()
    assert (await worker.claim()).leases == ()


async def test_snooze_spends_no_attempt(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=1)
    for _ in range(3):
        lease = await worker.one()
        assert lease.attempt == 1
        answer = await store.snooze(lease, MINUTE)
        assert answer == Answer(Verdict.APPLIED, Outcome.SNOOZE, State.SCHEDULED)
        detail = await store.get(job)
        assert (detail.state, detail.attempt, detail.crashes) == (State.SCHEDULED, 0, 0)
        assert detail.due_at == store.clock.now() + MINUTE
        store.advance(MINUTE - 1)
        assert (await worker.claim()).leases == ()
        store.advance(1)
    await store.done(await worker.one())


@pytest.mark.parametrize("runtime", [None, 1_000])
async def test_release_spends_no_attempt(store: Harness, runtime: Micros | None) -> None:
    worker = await store.worker()
    first, second = await store.add_many(2, max_attempts=1)
    due_at = (await store.get(first)).due_at
    for _ in range(3):
        store.advance(SECOND)
        lease = await worker.one()
        assert (lease.job, lease.attempt) == (first, 1)
        answer = await store.release(lease, runtime=runtime)
        assert answer == Answer(Verdict.APPLIED, Outcome.RELEASE, State.READY)
        detail = await store.get(first)
        assert (detail.state, detail.attempt, detail.due_at) == (State.READY, 0, due_at)
        assert detail.session is None
    assert await worker.drain() == [first, second]


@pytest.mark.parametrize("back", [10 * SECOND, HOUR])
async def test_release_spends_no_attempt__while_the_clock_goes_back(store: Harness, back: Micros) -> None:
    """Given back means ready, although the time at which it was due has not come again."""
    worker = await store.worker()
    first, second = await store.add_many(2)
    await store.sweep()
    store.advance(-back)
    await store.sweep()
    assert (await store.release(await worker.one())).state is State.READY
    assert await worker.drain() == [first, second]


# held


async def _held_once(store: Harness, job: str, delay: Micros) -> Held:
    """Claim and hold, and require that it waits for exactly so long, as an unspent attempt."""
    worker = await store.worker()
    lease = await worker.one()
    assert (lease.job, lease.attempt) == (job, 1)
    assert await store.hold(lease) == Answer(Verdict.APPLIED, Outcome.HOLD, State.SCHEDULED)
    detail = await store.get(job)
    assert (detail.state, detail.attempt) == (State.SCHEDULED, 0)
    assert detail.due_at == store.clock.now() + delay
    assert detail.held is not None
    store.advance(delay - 1)
    assert (await worker.claim()).leases == ()
    store.advance(1)
    await worker.end(CauseKind.STOP)
    return detail.held


async def test_hold_backs_off(store: Harness) -> None:
    job = await store.add(max_attempts=1)
    since = store.clock.now()
    seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    for times, delay in enumerate(seconds, start=1):
        assert await _held_once(store, job, delay * SECOND) == Held("task:t", "unknown task", since, times)


async def test_hold_backs_off__anew_after_a_run(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add(max_attempts=5)
    for delay in (1, 2, 4):
        await _held_once(store, job, delay * SECOND)
    await store.snooze(await worker.one(), MINUTE)
    assert (await store.get(job)).held is None
    store.advance(MINUTE)
    since = store.clock.now()
    assert await _held_once(store, job, SECOND) == Held("task:t", "unknown task", since, 1)


async def test_hold_ends_after_seven_days(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    await store.hold(await worker.one())
    store.advance(7 * DAY - 1)
    await store.sweep()
    assert (await store.hold(await worker.one())).state is State.SCHEDULED
    store.advance(2 * SECOND)
    answer = await store.hold(await worker.one())
    assert answer == Answer(Verdict.APPLIED, Outcome.DEAD, State.DEAD)
    detail = await store.get(job)
    assert (detail.state, detail.reason, detail.attempt) == (State.DEAD, Reason.HELD_TOO_LONG, 0)
    assert detail.finished_at == store.clock.now()


async def test_hold_ends_after_seven_days__to_the_microsecond(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    await store.hold(await worker.one())
    store.advance(7 * DAY)
    assert (await store.hold(await worker.one())).state is State.DEAD


async def test_hold_ends_after_seven_days__anew_after_a_run(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    await store.hold(await worker.one())
    store.advance(6 * DAY)
    await store.retry(await worker.one())
    assert (await store.hold(await worker.one())).state is State.SCHEDULED
    since = store.clock.now()
    store.advance(6 * DAY)
    assert (await store.hold(await worker.one())).state is State.SCHEDULED
    assert (await store.get(job)).held == Held("task:t", "unknown task", since, 2)


# the end


async def test_dead_is_kept_whole(store: Harness) -> None:
    asked = store.job(
        payload=b"\x00whole",
        headers={"trace": "1"},
        tags=("a", "b"),
        lane="l",
        priority=3,
        flow="f",
        revision=7,
    )
    await store.enqueue(asked)
    worker = await store.worker()
    await store.retry(await worker.one())
    store.advance(SECOND)
    answer = await store.settle(await worker.one(), Outcome.DEAD, error=_ERROR, runtime=5)
    assert answer == Answer(Verdict.APPLIED, Outcome.DEAD, State.DEAD)
    store.advance(DAY)
    await store.sweep()
    dead = await store.get(asked.id)
    assert (dead.state, dead.reason, dead.attempt) == (State.DEAD, Reason.GAVE_UP, 2)
    assert dead.finished_at == store.clock.now() - DAY
    assert (dead.error, [one.outcome for one in dead.deliveries]) == (_ERROR, [Outcome.RETRY, Outcome.DEAD])
    for field in (
        "task",
        "payload",
        "headers",
        "tags",
        "lane",
        "priority",
        "flow",
        "revision",
        "max_attempts",
    ):
        assert getattr(dead, field) == getattr(asked, field), field


async def test_history_is_kept(store: Harness) -> None:
    """Each end of a lease, with who held it and why it ended."""
    job = await store.add(max_attempts=20)
    start = store.clock.now()
    expected: list[Delivery] = []

    async def leased(kind: CauseKind | None, attempt: int, outcome: Outcome) -> None:
        worker = await store.worker()
        lease = await worker.one()
        assert lease.job == job
        store.advance(3)
        if kind is None:
            await store.broker.settle([_about(lease, outcome)])
        else:
            await worker.end(kind, [lease], "signal 11")
        expected.append(
            Delivery(
                fence=lease.fence,
                attempt=attempt,
                session=worker.id,
                claimed_at=store.clock.now() - 3,
                ended_at=store.clock.now(),
                outcome=outcome,
                settled=kind is None,
                cause=None if kind is None else Cause(kind, "signal 11"),
                runtime=SAID[outcome].get("runtime") if kind is None else None,
                error=SAID[outcome].get("error") if kind is None else None,
            )
        )
        store.advance(MINUTE)

    await leased(None, 1, Outcome.RETRY)
    await leased(None, 2, Outcome.SNOOZE)
    await leased(None, 2, Outcome.RELEASE)
    await leased(None, 2, Outcome.HOLD)
    await leased(CauseKind.STOP, 2, Outcome.RELEASE)
    await leased(CauseKind.CRASH, 2, Outcome.RETRY)
    await leased(None, 3, Outcome.DEAD)
    assert (await store.get(job)).deliveries == tuple(expected)
    assert expected[0].claimed_at == start

    await store.replay(job)
    await leased(CauseKind.LOST, 1, Outcome.RETRY)
    await leased(None, 2, Outcome.RETRY)
    await leased(None, 3, Outcome.RETRY)
    await leased(None, 4, Outcome.RETRY)
    await leased(None, 5, Outcome.DONE)
    assert len(expected) == 12
    assert (await store.get(job)).deliveries == tuple(expected[-10:])


async def test_history_is_kept__of_jobs_that_are_done_together(store: Harness) -> None:
    """One was given back before, one failed, one runs for the first time."""
    worker = await store.worker()
    jobs = await store.add_many(3)
    released, failed, new = await worker.take(3)
    await store.release(released)
    await store.retry(failed)
    again = [*await worker.take(2), new]
    await store.broker.settle([_about(lease) for lease in again])
    done = [await store.get(job) for job in jobs]
    assert [(detail.state, detail.session) for detail in done] == [(State.DONE, None)] * 3
    assert [[(end.outcome, end.attempt, end.runtime) for end in detail.deliveries] for detail in done] == [
        [(Outcome.RELEASE, 1, None), (Outcome.DONE, 1, 1_000)],
        [(Outcome.RETRY, 1, 1_000), (Outcome.DONE, 2, 1_000)],
        [(Outcome.DONE, 1, 1_000)],
    ]


async def test_history_is_kept__of_what_the_sweep_ended(store: Harness) -> None:
    silent = await store.worker(ttl=SECOND)
    lost, late = await store.add(), await store.add()
    await silent.one()
    await deadline_lease(store)
    await store.passes(3, SECOND)
    for job, kind, session in ((lost, CauseKind.LOST, silent.id), (late, CauseKind.DEADLINE, None)):
        (delivery,) = (await store.get(job)).deliveries
        assert delivery.cause is not None
        assert (delivery.cause.kind, delivery.session, delivery.settled) == (kind, session, False)
        assert (delivery.outcome, delivery.attempt, delivery.runtime) == (Outcome.RETRY, 1, None)
