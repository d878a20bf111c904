"""Enqueue: what is accepted, what is refused, and what a repeated call does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from windlass.conformance.harness import Harness, new_id
from windlass.core.job import (
    Edge,
    JobDetail,
    Mode,
    NewJob,
    OnFailure,
    Receipt,
    Refusal,
    Status,
)
from windlass.core.operate import Effect
from windlass.core.outcome import Verdict
from windlass.core.settings import Kind
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_CREATED, _DUPLICATE, _REPLACED, _REFUSED = Status.CREATED, Status.DUPLICATE, Status.REPLACED, Status.REFUSED


def _statuses(receipts: Sequence[Receipt]) -> list[Status]:
    return [receipt.status for receipt in receipts]


def _refusals(receipts: Sequence[Receipt]) -> list[Refusal | None]:
    assert all(receipt.status is _REFUSED for receipt in receipts), receipts
    return [receipt.refusal for receipt in receipts]


async def _send(store: Harness, job: NewJob) -> Receipt:
    """Enqueue one job alone."""
    (receipt,) = await store.enqueue(job)
    assert receipt.job == job.id
    return receipt


# accepted


async def test_accepted_is_readable(store: Harness) -> None:
    parent = await store.add(delay=HOUR)
    edges = (Edge(parent, OnFailure.IGNORE),)
    job = store.job(
        task="mail.send", lane="acme", priority=-7, key="order-42", window=MINUTE, delay=HOUR,
        expires=2 * HOUR, payload=b'{"to":"a"}', headers={"trace": "00-1"}, tags=("mail", "eu"), after=edges,
        max_attempts=3, revision=9, flow="flow-1",
    )  # fmt: skip
    store.advance(SECOND)
    now = store.clock.now()
    assert await store.enqueue(job) == [Receipt(_CREATED, job.id)]
    detail = await store.get(job.id)
    assert detail == JobDetail(
        id=job.id, task="mail.send", queue="q", lane="acme", priority=-7, state=State.BLOCKED, reason=None,
        attempt=0, max_attempts=3, crashes=0, fence=detail.fence, key="order-42", tags=("mail", "eu"),
        flow="flow-1", parent=None, revision=9, accepted_at=now, due_at=now + HOUR, expires_at=now + 2 * HOUR,
        finished_at=None, session=None, cancel_requested=False, held=None, waiting_for=1, replays=0,
        progress=None, payload=b'{"to":"a"}', headers={"trace": "00-1"}, after=edges,
    )  # fmt: skip


async def test_accepted_is_readable__in_its_state(store: Harness) -> None:
    now = store.clock.now()
    ready, late = await store.add(), await store.add(run_at=now - HOUR)
    delayed, planned = await store.add(delay=MINUTE), await store.add(run_at=now + MINUTE)
    child = await store.add(after=(Edge(ready),))
    jobs = [ready, late, delayed, planned, child]
    assert await store.states(jobs) == [State.READY] * 2 + [State.SCHEDULED] * 2 + [State.BLOCKED]
    assert [(await store.get(job)).due_at for job in (ready, delayed, planned)] == [
        now,
        now + MINUTE,
        now + MINUTE,
    ]
    assert {view.id: view.state for view in await store.listed()} == dict(
        zip(jobs, await store.states(jobs), strict=True)
    )
    assert [await store.count(state) for state in (State.READY, State.SCHEDULED, State.BLOCKED)] == [2, 2, 1]


async def test_receipts_come_in_order(store: Harness) -> None:
    first = await store.add(key="k")
    jobs = [store.job() for _ in range(5)]
    absorbed, refused = store.job(key="k"), store.job(queue="nowhere")
    groups = [[jobs[0], jobs[1]], [], [jobs[2], absorbed, jobs[3]], [refused], [jobs[4]]]
    receipts = await store.broker.enqueue(groups)
    assert [[receipt.job for receipt in group] for group in receipts] == [
        [job.id for job in group] for group in groups
    ]
    assert [_statuses(group) for group in receipts] == [
        [_CREATED, _CREATED], [], [_CREATED, _DUPLICATE, _CREATED], [_REFUSED], [_CREATED],
    ]  # fmt: skip
    assert receipts[2][1].of == first
    assert list(await store.broker.enqueue([])) == []


# refused


async def test_unknown_queue_is_refused(store: Harness) -> None:
    job = store.job(queue="nowhere")
    receipt = await _send(store, job)
    assert (receipt.status, receipt.refusal, receipt.of) == (_REFUSED, Refusal.UNKNOWN_QUEUE, None)
    assert "nowhere" in receipt.why
    assert await store.missing(job.id)
    assert [document.subject.name for document in await store.broker.documents(Kind.QUEUE)] == ["q"]
    await store.queue("nowhere")
    assert (await _send(store, job)).status is _CREATED


# the same call again


@pytest.mark.parametrize("state", State)
async def test_resend_is_a_no_op(store: Harness, state: State) -> None:
    job = await store.reach(state, payload=b"first", key="k")
    before = await store.everything()
    again = store.job(
        id=job, payload=b"second", priority=9, delay=2 * HOUR, tags=("x",), key="k", mode=Mode.REPLACE
    )
    assert await _send(store, again) == Receipt(_DUPLICATE, job, of=job)
    assert await store.everything() == before


async def test_resend_is_a_no_op__takes_no_key(store: Harness) -> None:
    job = await store.add()
    assert (await _send(store, store.job(id=job, key="k"))).status is _DUPLICATE
    assert (await _send(store, store.job(key="k"))).status is _CREATED


async def test_resend_is_a_no_op__keeps_its_place(store: Harness) -> None:
    jobs = await store.add_many(3)
    assert _statuses(await store.enqueue(*[store.job(id=job) for job in jobs])) == [_DUPLICATE] * 3
    assert await (await store.worker()).drain() == jobs


async def test_resend_is_a_no_op__inside_a_group(store: Harness) -> None:
    job = store.job(payload=b"first")
    receipts = await store.enqueue(job, store.job(id=job.id, payload=b"second"))
    assert _statuses(receipts) == [_CREATED, _DUPLICATE]
    assert (await store.get(job.id)).payload == b"first"
    assert await store.count(State.READY) == 1


async def test_resend_is_a_no_op__while_it_is_kept(store: Harness) -> None:
    """A record that is still there is known, however long ago it finished."""
    await store.queue("kept", retention=HOUR)
    job = await store.reach(State.DONE, queue="kept")
    store.advance(HOUR - SECOND)
    await store.sweep()
    assert (await _send(store, store.job(id=job, queue="kept"))).status is _DUPLICATE
    assert await store.state(job) is State.DONE


async def _purge(store: Harness, state: State) -> None:
    await store.broker.purge("unkept", state, 10)


_REMOVALS: dict[str, tuple[State, Callable[[Harness, JobId], Awaitable[object]]]] = {
    "done, not kept": (State.DONE, lambda store, _: store.sweep()),
    "cancelled, not kept": (State.CANCELLED, lambda store, _: store.sweep()),
    "dead, not kept": (State.DEAD, lambda store, _: store.sweep()),
    "dead, discarded": (State.DEAD, lambda store, job: store.discard(job)),
    "dead, purged": (State.DEAD, lambda store, _: _purge(store, State.DEAD)),
}


@pytest.mark.parametrize("removal", _REMOVALS)
async def test_resend_window_outlasts_retention(store: Harness, removal: str) -> None:
    state, remove = _REMOVALS[removal]
    store = await store.fresh(resend_window=MINUTE)
    await store.queue("unkept", retention=0, dead_retention=0)
    job = await store.reach(state, queue="unkept")
    await remove(store, job)
    assert (await store.get(job)).pruned
    store.advance(MINUTE - 1)
    await store.sweep()
    again = store.job(id=job, queue="unkept")
    assert await _send(store, again) == Receipt(_DUPLICATE, job, of=job)
    assert await store.count(State.READY, "unkept") == 0
    store.advance(2)
    await store.sweep()
    assert await store.missing(job)
    assert (await _send(store, again)).status is _CREATED
    assert (await (await store.worker()).one("unkept")).job == job


async def test_resend_of_an_absorbed_call_is_a_no_op(store: Harness) -> None:
    """Also when the key is free again: the call was answered once, and for good."""
    first, call = await store.add(key="k"), store.job(key="k")
    answer = await _send(store, call)
    assert answer == Receipt(_DUPLICATE, call.id, of=first)
    await store.done(await (await store.worker()).one())
    store.advance(10 * SECOND - 1)
    await store.sweep()
    assert await _send(store, call) == answer
    assert await store.missing(call.id)
    store.advance(2)
    await store.sweep()
    assert (await _send(store, call)).status is _CREATED, (
        "the window counts from the call, not from its repetition"
    )


async def test_resend_of_an_absorbed_call_is_a_no_op__replaced(store: Harness) -> None:
    first = await store.add(key="k", payload=b"1")
    second, third = (store.job(key="k", mode=Mode.REPLACE, payload=payload) for payload in (b"2", b"3"))
    answer = await _send(store, second)
    assert answer == Receipt(_REPLACED, second.id, of=first)
    assert (await _send(store, third)).status is _REPLACED
    neighbour = await store.add()
    assert await _send(store, second) == answer
    assert (await store.get(first)).payload == b"3", "the older call does not win by being repeated"
    worker = await store.worker()
    lease = await worker.one()
    assert (lease.job, lease.payload) == (first, b"3")
    assert await _send(store, third) == Receipt(_REPLACED, third.id, of=first)
    await store.done(lease)
    assert await _send(store, third) == Receipt(_REPLACED, third.id, of=first)
    assert await worker.drain() == [neighbour]


async def test_resend_of_an_absorbed_call_is_a_no_op__throttled(store: Harness) -> None:
    first, call = (
        await store.add(key="k", mode=Mode.THROTTLE, window=SECOND),
        store.job(key="k", mode=Mode.THROTTLE),
    )
    answer = await _send(store, call)
    assert answer == Receipt(_DUPLICATE, call.id, of=first)
    await store.done(await (await store.worker()).one())
    store.advance(2 * SECOND)
    assert await _send(store, call) == answer


# when, and what


@pytest.mark.parametrize("option", ["delay", "run_at"])
async def test_delayed_job_waits_until_due(store: Harness, option: str) -> None:
    start = store.clock.now() if option == "run_at" else 0
    job = await store.add(**{option: start + MINUTE})
    worker = await store.worker()
    store.advance(MINUTE - 1)
    await store.sweep()
    assert not (await worker.claim()).leases
    assert await store.state(job) is State.SCHEDULED
    store.advance(1)
    assert (await worker.one()).job == job


@pytest.mark.parametrize("option", ["delay", "run_at"])
@pytest.mark.parametrize("first", [True, False])
async def test_delayed_job_waits_until_due__its_neighbours_do_not(
    store: Harness, option: str, *, first: bool
) -> None:
    start = store.clock.now() if option == "run_at" else 0
    late, *others = store.job(**{option: start + MINUTE}), store.job(), store.job()
    await store.enqueue(*((late, *others) if first else (*others, late)))
    assert await store.state(late.id) is State.SCHEDULED
    assert [await store.state(job.id) for job in others] == [State.READY] * 2


async def test_delayed_job_waits_until_due__past_times_are_now(store: Harness) -> None:
    job = await store.add(run_at=store.clock.now() - HOUR)
    assert (await (await store.worker()).one()).job == job


_PAYLOADS = (
    b"",
    bytes(range(256)) * 2,
    b"\x00",
    b"\xff\xfe\xed\xa0\x80",
    b'{"a": 1e999, "a": NaN}',
    b'"\\u0000"',
    b"\x80\x04N.",
    bytes(1024 * 1024),
)


@pytest.mark.parametrize("payload", _PAYLOADS, ids=range(len(_PAYLOADS)))
async def test_payload_is_opaque(store: Harness, payload: bytes) -> None:
    job = await store.add(payload=payload)
    assert (await store.get(job)).payload == payload
    lease = await (await store.worker()).one()
    assert lease.payload == payload
    assert (await store.done(lease, payload)).verdict is Verdict.APPLIED
    assert (await store.get(job)).result == payload


_TEXTS = (
    "'; DROP TABLE jobs; --",
    'a "quoted" \\ back\\slash',
    "{braces} [brackets] %s %% $1 :name ?",
    "a:b|c,d;e/f",
    " leading, trailing\n",
    "\x01\x1f\t\r\n\x7f",
    "ключ 鍵 🔑 e\u0301 \u202e",
    "return redis.call('FLUSHALL')",
    "null",
)


@pytest.mark.parametrize("text", _TEXTS)
async def test_text_is_data(store: Harness, text: str) -> None:
    headers, tags = {text: text, "empty": ""}, (text, "", "x", text)
    job = await store.add(lane=text, key=text, headers=headers, tags=tags)
    plain = await store.add(lane=f"{text}x", key=text)
    detail = await store.get(job)
    assert (detail.lane, detail.key, detail.headers, detail.tags) == (text, text, headers, tags)
    assert [view.id for view in await store.listed(lane=text)] == [job]
    assert {view.lane for view in (await store.broker.lanes("q")).lanes} == {text, f"{text}x"}
    assert (await _send(store, store.job(lane=text, key=text))).of == job
    await store.broker.pause("q", text)
    worker = await store.worker()
    assert await worker.drain() == [plain]
    await store.broker.resume("q", text)
    lease = await worker.one()
    assert (lease.job, lease.lane, lease.headers, lease.tags) == (job, text, headers, tags)


# a full store


async def _filled(store: Harness, kilobytes: int = 16) -> tuple[Harness, list[JobId]]:
    """A namespace of that size, filled with jobs of a kilobyte until enqueue was refused."""
    store = await store.fresh(max_size=kilobytes * 1024)
    await store.queue("q", retention=0, result_ttl=HOUR)
    jobs: list[JobId] = []
    for _ in range(2 * kilobytes):
        job = store.job(payload=bytes(1024))
        (receipt,) = await store.enqueue(job)
        if receipt.status is _REFUSED:
            assert receipt.refusal is Refusal.STORE_FULL
            assert await store.missing(job.id)
            break
        jobs.append(job.id)
    assert kilobytes - 1 <= len(jobs) <= kilobytes
    return store, jobs


async def test_full_store_refuses_enqueue_but_drains(store: Harness) -> None:
    store, jobs = await _filled(store)
    small, large = store.job(), store.job(payload=bytes(1024), key="k")
    assert set(_refusals(await store.enqueue(small, large))) <= {Refusal.STORE_FULL, Refusal.NEIGHBOUR}
    assert await store.missing(small.id)
    worker = await store.worker()
    lease, *others = await worker.take(len(jobs))
    assert (await store.retry(lease, MINUTE)).verdict is Verdict.APPLIED
    for other in others:
        assert (await store.done(other)).verdict is Verdict.APPLIED
    store.advance(MINUTE)
    await store.sweep()
    assert (await store.done(await worker.one(), bytes(32 * 1024))).verdict is Verdict.APPLIED
    store.advance(2 * HOUR)
    await store.sweep()
    assert _statuses(await store.enqueue(small, large)) == [_CREATED, _CREATED], (
        "room again, and no key taken"
    )


async def test_full_store_refuses_enqueue_but_drains__resend(store: Harness) -> None:
    """A producer whose reply was lost learns that its job was accepted."""
    store, jobs = await _filled(store)
    assert (await _send(store, store.job(id=jobs[-1], payload=bytes(1024)))).status is _DUPLICATE


async def test_full_store_refuses_enqueue_but_drains__spawn(store: Harness) -> None:
    store, _ = await _filled(store)
    lease = await (await store.worker()).one()
    child = store.job(id=new_id(), payload=bytes(4096))
    assert (await store.done(lease, spawn=(child,))).verdict is Verdict.APPLIED
    assert await store.state(child.id) is State.READY


async def test_full_store_refuses_enqueue_but_drains__operate(store: Harness) -> None:
    store, jobs = await _filled(store)
    await store.dead(await (await store.worker()).one())
    assert (await store.replay(jobs[0])).effect is Effect.APPLIED
    assert (await store.cancel(jobs[1])).effect is Effect.APPLIED
    assert (await store.broker.purge("q", State.READY, 100)).count == len(jobs) - 1
    assert (await _send(store, store.job(payload=bytes(1024)))).status is _CREATED


async def test_blocking_enqueue_is_the_same(store: Harness) -> None:
    blocking = store.broker.blocking
    if blocking is None:
        pytest.skip(f"{store.broker.capabilities.store} has no blocking client")
    job, unknown = store.job(payload=b"1"), store.job(queue="nowhere")
    receipts = await asyncio.to_thread(blocking.enqueue, [[job], [unknown]])
    assert [[receipt.status for receipt in group] for group in receipts] == [
        [Status.CREATED],
        [Status.REFUSED],
    ]
    assert blocking.enqueue([[job]])[0][0].status is Status.DUPLICATE
    assert (await (await store.worker()).one()).job == job.id
