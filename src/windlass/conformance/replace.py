"""Replace: the newest call under a key wins, whether the first still waits, runs, or has ended."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import pytest

from windlass.conformance.calls import absorbed_by, call, creates, replaces
from windlass.conformance.harness import Harness, Worker
from windlass.core.job import Edge, Mode
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Effect
from windlass.core.outcome import Answer, CauseKind, Outcome, Verdict
from windlass.core.query import Why
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.core.state import Reason, State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId

_REPLACE, _THROTTLE = Mode.REPLACE, Mode.THROTTLE


async def _followed(store: Harness, **options: Any) -> tuple[Worker, Lease, JobId]:
    """A running job, and a newer call that waits for it to end."""
    worker = await store.worker()
    await store.add(key="k", **options)
    lease = await worker.one()
    return worker, lease, await creates(store, _REPLACE, payload=b"newest")


# while the first waits


async def test_replace_takes_the_newest(store: Harness) -> None:
    first = await store.add(
        key="k", payload=b"old", headers={"a": "1"}, tags=("old",), priority=1, delay=HOUR, expires=2 * HOUR,
        max_attempts=2, revision=1,
    )  # fmt: skip
    store.advance(MINUTE)
    now = store.clock.now()
    detail = await replaces(
        store, first, payload=b"new", headers={"b": "2"}, tags=("new",), priority=2, expires=HOUR,
        max_attempts=7, revision=2,
    )  # fmt: skip
    assert (detail.payload, detail.headers, detail.tags, detail.priority) == (b"new", {"b": "2"}, ("new",), 2)
    assert (detail.max_attempts, detail.revision, detail.expires_at) == (7, 2, now + HOUR)
    assert (detail.state, detail.due_at, detail.key) == (State.READY, now, "k")
    lease = await (await store.worker()).one()
    assert (lease.job, lease.payload, lease.headers, lease.tags) == (first, b"new", {"b": "2"}, ("new",))
    assert (lease.priority, lease.max_attempts, lease.revision, lease.expires_in) == (2, 7, 2, HOUR)


async def test_replace_takes_the_newest__also_of_nothing(store: Harness) -> None:
    """What the newest call does not ask for is gone."""
    first = await store.add(
        key="k", payload=b"old", headers={"a": "1"}, tags=("old",), priority=1, expires=HOUR
    )
    detail = await replaces(store, first)
    assert (detail.payload, detail.headers, detail.tags, detail.priority) == (b"", {}, (), 0)
    assert detail.expires_at is None


async def test_replace_takes_the_newest__time(store: Harness) -> None:
    """Debounce: every call puts it off, counted from itself."""
    first, worker = await store.add(key="k"), await store.worker()
    for _ in range(3):
        detail = await replaces(store, first, delay=MINUTE)
        assert (detail.state, detail.due_at) == (State.SCHEDULED, store.clock.now() + MINUTE)
        store.advance(MINUTE - 1)
        await store.sweep()
        assert not (await worker.claim()).leases
    store.advance(1)
    assert await worker.drain() == [first]


async def test_replace_takes_the_newest__and_a_new_place(store: Harness) -> None:
    first, second = await store.add(key="k"), await store.add()
    await replaces(store, first)
    assert await (await store.worker()).drain() == [second, first]


async def test_replace_takes_the_newest__and_a_new_band_of_its_lane(store: Harness) -> None:
    first, second = await store.add(key="k", lane="a"), await store.add(lane="b", priority=1)
    await replaces(store, first, lane="a", priority=2)
    third = await store.add(lane="b", priority=2)
    assert sorted((order := await (await store.worker()).drain())[:2]) == sorted([first, third])
    assert order[2:] == [second]


async def test_replace_takes_the_newest__window(store: Harness) -> None:
    first = await store.add(key="k")
    await replaces(store, first, window=MINUTE)
    await store.done(await (await store.worker()).one())
    store.advance(MINUTE - 1)
    await absorbed_by(store, first)
    store.advance(1)
    await creates(store)


async def test_replace_takes_the_newest__and_forgets_attempts(store: Harness) -> None:
    first, worker = await store.add(key="k", max_attempts=2), await store.worker()
    fence = (lease := await worker.one()).fence
    await store.retry(lease, HOUR)
    detail = await replaces(store, first, max_attempts=2)
    assert (detail.state, detail.attempt) == (State.READY, 0)
    lease = await worker.one()
    assert (lease.job, lease.attempt, lease.fence > fence) == (first, 1, True)
    assert (await store.retry(lease, HOUR)).state is State.SCHEDULED


async def test_replace_takes_the_newest__and_forgets_crashes(store: Harness) -> None:
    first = await store.add(key="k")
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, [await worker.one()])
    assert (await store.get(first)).crashes == 2
    assert (await replaces(store, first)).crashes == 0
    assert (await (await store.worker()).one()).job == first, "it is no suspect any more"


async def test_replace_takes_the_newest__and_forgets_holds(store: Harness) -> None:
    first, worker = await store.add(key="k"), await store.worker()
    for _ in range(3):
        await store.hold(await worker.one())
        store.advance(HOUR)
    await store.hold(await worker.one())
    detail = await replaces(store, first)
    assert (detail.state, detail.held) == (State.READY, None)
    await store.hold(await worker.one())
    detail = await store.get(first)
    assert detail.held is not None
    assert (detail.held.times, detail.due_at) == (1, store.clock.now() + SECOND)


async def test_replace_takes_the_newest__of_a_child(store: Harness) -> None:
    """It keeps its parents, and its own delay counts from the newest call."""
    parent, worker = await store.add(), await store.worker()
    first = await store.add(key="k", after=(Edge(parent),))
    store.advance(MINUTE)
    detail = await replaces(store, first, payload=b"new", delay=MINUTE)
    assert (detail.state, detail.waiting_for, detail.after) == (State.BLOCKED, 1, (Edge(parent),))
    await store.done(await worker.one())
    assert await store.state(first) is State.SCHEDULED
    store.advance(MINUTE)
    lease = await worker.one()
    assert (lease.job, lease.payload, lease.parents) == (first, b"new", (parent,))


# while the first runs


async def test_replace_while_running_follows(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    detail = await store.get(follower)
    assert (detail.state, detail.reason, detail.payload, detail.after) == (State.BLOCKED, None, b"newest", ())
    assert (await store.explain(follower)).why is Why.FOLLOWS
    runner = await store.get(lease.job)
    assert (runner.state, runner.fence, runner.cancel_requested) == (State.RUNNING, lease.fence, False)
    assert not (await worker.beat()).cancel
    assert not (await worker.claim()).leases
    await absorbed_by(store, lease.job)
    await absorbed_by(store, lease.job, _THROTTLE)


async def test_replace_replaces_the_follower(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    for payload in (b"1", b"2", b"3"):
        detail = await replaces(store, follower, payload=payload, priority=3, max_attempts=9, tags=("x",))
        assert (detail.state, detail.payload, detail.priority) == (State.BLOCKED, payload, 3)
        assert (detail.max_attempts, detail.tags) == (9, ("x",))
    assert await store.count(State.BLOCKED) == 1
    assert await store.state(lease.job) is State.RUNNING
    await store.done(lease)
    last = await worker.one()
    assert (last.job, last.payload) == (follower, b"3")


async def test_replace_replaces_the_follower__and_its_window(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    await replaces(store, follower, window=MINUTE)
    await store.done(lease)
    assert await worker.drain() == [follower]
    store.advance(MINUTE - 1)
    await absorbed_by(store, follower)
    store.advance(1)
    await creates(store)


async def test_replace_replaces_the_follower__for_ever(store: Harness) -> None:
    """However calls and runs interleave, what runs last is what was asked for last."""
    worker = await store.worker()
    await store.add(key="k", payload=b"0")
    ran = [lease := await worker.one()]
    for number in range(1, 7):
        await call(store, _REPLACE, payload=str(number).encode())
        if number % 2 == 0:
            await store.done(lease)
            ran.append(lease := await worker.one())
    await store.done(lease)
    assert [lease.payload for lease in ran] == [b"0", b"2", b"4", b"6"]
    assert len({lease.job for lease in ran}) == 4
    assert await worker.drain() == []


async def test_follower_runs_after_done(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    assert await store.done(lease, b"result") == Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
    runner = await store.get(lease.job)
    assert (runner.state, runner.reason, runner.result) == (State.DONE, None, b"result")
    assert await store.state(follower) is State.READY
    await absorbed_by(store, follower)
    last = await worker.one()
    assert (last.job, last.payload, last.parents, last.attempt) == (follower, b"newest", (), 1)


async def test_follower_runs_after_done__when_it_is_due(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    await replaces(store, follower, delay=MINUTE)
    store.advance(SECOND)
    await store.done(lease)
    assert await store.state(follower) is State.SCHEDULED
    store.advance(MINUTE - SECOND - 1)
    assert not (await worker.claim()).leases
    store.advance(1)
    assert await worker.drain() == [follower]


async def test_follower_runs_after_done__of_a_runner_that_is_not_kept(store: Harness) -> None:
    await store.queue("q", retention=0)
    worker, lease, follower = await _followed(store, window=HOUR)
    await store.done(lease)
    await store.sweep()
    assert await worker.drain() == [follower]
    await creates(store, payload=b"the follower had no window")


async def test_follower_runs_after_done__in_the_same_step(store: Harness) -> None:
    await store.queue("q", concurrency=1)
    worker, lease, follower = await _followed(store)
    settled = await store.broker.settle(
        [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE)], worker.ask(slots=1)
    )
    assert settled.claimed is not None
    assert [lease.job for lease in settled.claimed.leases] == [follower]


# superseded: the runner ends in any other way than done

_End: TypeAlias = Callable[[Harness, Worker, Lease], Awaitable[object]]


async def _silent(store: Harness, worker: Worker, _: Lease) -> None:
    assert [session for swept in await store.passes(33, SECOND) for session in swept.reaped] == [worker.id]


_ENDS: Mapping[str, _End] = {
    "retry": lambda store, _, lease: store.retry(lease, HOUR),
    "retry at once": lambda store, _, lease: store.retry(lease),
    "snooze": lambda store, _, lease: store.snooze(lease, HOUR),
    "release": lambda store, _, lease: store.release(lease),
    "hold": lambda store, _, lease: store.hold(lease),
    "dead": lambda store, _, lease: store.dead(lease),
    "cancelled by its worker": lambda store, _, lease: store.settle(lease, Outcome.CANCELLED),
    "crash": lambda _, worker, lease: worker.end(CauseKind.CRASH, [lease]),
    "crash before its start": lambda _, worker, __: worker.end(CauseKind.CRASH),
    "stop": lambda _, worker, lease: worker.end(CauseKind.STOP, [lease]),
    "lost": lambda _, worker, __: worker.end(CauseKind.LOST),
    "silent": _silent,
}


@pytest.mark.parametrize("max_attempts", [1, 5])
@pytest.mark.parametrize("end", _ENDS)
async def test_superseded_runner_is_cancelled(store: Harness, end: str, max_attempts: int) -> None:
    worker, lease, follower = await _followed(store, max_attempts=max_attempts)
    answer = await _ENDS[end](store, worker, lease)
    if isinstance(answer, Answer):
        assert answer == Answer(Verdict.APPLIED, Outcome.CANCELLED, State.CANCELLED)
    await _is_superseded_by(store, lease, follower)


async def _is_superseded_by(store: Harness, lease: Lease, follower: JobId) -> None:
    runner = await store.get(lease.job)
    assert (runner.state, runner.reason, runner.held) == (State.CANCELLED, Reason.SUPERSEDED, None)
    assert runner.session is None
    assert [delivery.outcome for delivery in runner.deliveries] == [Outcome.CANCELLED]
    assert await store.state(follower) is State.READY
    await absorbed_by(store, follower)
    store.advance(2 * HOUR)
    await store.sweep()
    assert await (await store.worker()).drain() == [follower], "the runner never comes back"


async def test_superseded_runner_is_cancelled__by_its_deadline(store: Harness) -> None:
    await store.add(key="k")
    ask = Ask(queues=("q",), slots=1, limit=1, visibility=MINUTE)
    (lease,) = (await store.broker.claim(ask)).leases
    follower = await creates(store, _REPLACE)
    store.advance(MINUTE)
    await store.sweep()
    await _is_superseded_by(store, lease, follower)


async def test_superseded_runner_is_cancelled__on_request(store: Harness) -> None:
    """A runner that an operator cancelled says so; its follower runs all the same."""
    worker, lease, follower = await _followed(store)
    assert (await store.cancel(lease.job)).effect is Effect.FLAGGED
    await worker.end(CauseKind.CRASH, [lease])
    runner = await store.get(lease.job)
    assert (runner.state, runner.reason) == (State.CANCELLED, Reason.CANCELLED)
    assert await (await store.worker()).drain() == [follower]


async def test_superseded_runner_is_cancelled__with_its_dependents(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    child = await store.add(after=(Edge(lease.job),))
    await store.retry(lease)
    detail = await store.get(child)
    assert (detail.state, detail.reason) == (State.CANCELLED, Reason.PARENT_FAILED)
    assert await worker.drain() == [follower]


async def test_superseded_runner_is_cancelled__and_frees_its_slot(store: Harness) -> None:
    await store.queue("q", concurrency=1)
    worker, lease, follower = await _followed(store)
    release = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.RELEASE)
    settled = await store.broker.settle([release], worker.ask(slots=5))
    assert settled.claimed is not None
    assert [lease.job for lease in settled.claimed.leases] == [follower]


async def test_superseded_runner_is_cancelled__with_the_newest_of_many_calls(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    await replaces(store, follower, payload=b"even newer")
    await store.retry(lease)
    last = await worker.one()
    assert (last.job, last.payload, last.attempt) == (follower, b"even newer", 1)
    third = await creates(store, _REPLACE)
    await store.retry(last)
    assert (await store.get(follower)).reason is Reason.SUPERSEDED
    assert await worker.drain() == [third]


async def _expire(store: Harness, follower: JobId) -> None:
    await replaces(store, follower, expires=SECOND)
    store.advance(SECOND)
    await store.sweep()
    assert await store.state(follower) is State.DEAD


_WITHDRAWALS: Mapping[str, Callable[[Harness, JobId], Awaitable[object]]] = {
    "cancelled": lambda store, follower: store.cancel(follower),
    "purged": lambda store, _: store.broker.purge("q", State.BLOCKED, 10),
    "expired": _expire,
}


@pytest.mark.parametrize("withdrawal", _WITHDRAWALS)
async def test_superseded_runner_is_cancelled__unless_nobody_follows_any_more(
    store: Harness, withdrawal: str
) -> None:
    """The follower withdrawn, the runner goes on and holds its key as if there had been none."""
    worker, lease, follower = await _followed(store)
    await replaces(store, follower, window=HOUR)
    await _WITHDRAWALS[withdrawal](store, follower)
    await absorbed_by(store, lease.job)
    assert (await store.retry(lease, MINUTE)).state is State.SCHEDULED
    await replaces(store, lease.job, payload=b"later")
    last = await worker.one()
    assert (last.job, last.payload) == (lease.job, b"later")
    await store.done(last)
    await creates(store)


async def test_superseded_runner_is_cancelled__by_the_next_follower(store: Harness) -> None:
    worker, lease, follower = await _followed(store)
    await store.cancel(follower)
    second = await creates(store, _REPLACE)
    assert await store.states([follower, second]) == [State.CANCELLED, State.BLOCKED]
    await store.retry(lease)
    assert (await store.get(lease.job)).reason is Reason.SUPERSEDED
    assert await worker.drain() == [second]


# after the first has ended


@pytest.mark.parametrize("state", [State.DONE, State.DEAD, State.CANCELLED])
async def test_replace_creates_after_the_end(store: Harness, state: State) -> None:
    first = await store.reach(state, key="k", mode=_REPLACE, window=HOUR, payload=b"first")
    before = await store.get(first)
    second = await creates(store, _REPLACE, payload=b"second", window=MINUTE)
    assert await store.get(first) == before
    assert await store.state(second) is State.READY
    await absorbed_by(store, second)
    await store.done(await (await store.worker()).one())
    store.advance(MINUTE)
    await creates(store)


async def test_replace_creates_after_the_end__although_nothing_is_kept(store: Harness) -> None:
    await store.queue("q", retention=0)
    first = await store.reach(State.DONE, key="k", window=HOUR)
    await store.sweep()
    assert (await store.get(first)).pruned
    await creates(store, _REPLACE)


async def test_replace_takes_the_newest__without_what_older_runs_recorded(store: Harness) -> None:
    """A memo was computed from the older payload."""
    worker = await store.worker()
    job = await store.add(key="k", mode=Mode.REPLACE)
    lease = await worker.one()
    note = Note(job=job, fence=lease.fence, memo=("step", b"1"), permille=500)
    assert list(await store.broker.annotate([note])) == [Verdict.APPLIED]
    await store.retry(lease)
    await store.enqueue(store.job(key="k", mode=Mode.REPLACE))
    assert (await store.get(job)).progress is None
    assert (await worker.one()).memos == {}
