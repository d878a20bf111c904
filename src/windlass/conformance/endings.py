"""How a lease ends, and what comes after: the situations in which a stale word is tried."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from windlass.conformance.harness import Harness, Worker
from windlass.core.event import Emit
from windlass.core.job import Mode, Status
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Effect
from windlass.core.outcome import CauseKind, Error, Outcome
from windlass.core.settlement import HoldKey
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, Micros

# What a holder can say of a lease.

SAID: Mapping[Outcome, Mapping[str, Any]] = {
    Outcome.DONE: {"result": b"said", "runtime": 1_000},
    Outcome.RETRY: {"delay": MINUTE, "runtime": 1_000, "error": Error(type="ValueError", message="said")},
    Outcome.SNOOZE: {"delay": MINUTE, "runtime": 1_000},
    Outcome.RELEASE: {},
    Outcome.HOLD: {"hold": HoldKey("task:t", "said")},
    Outcome.DEAD: {"runtime": 1_000, "error": Error(type="GiveUp", message="said")},
    Outcome.CANCELLED: {"runtime": 1_000},
}


# How a lease is taken away.

Taken: TypeAlias = Callable[[Harness, int], Awaitable[Lease]]


async def claimed(store: Harness, max_attempts: int, **info: Any) -> tuple[Worker, Lease]:
    await store.queue("q", emit=Emit.ALL)
    worker = await store.worker(**info)
    await store.add(lane="a", key="k", mode=Mode.REPLACE, max_attempts=max_attempts)
    return worker, await worker.one()


async def _crashed(store: Harness, max_attempts: int = 5) -> Lease:
    worker, lease = await claimed(store, max_attempts)
    await worker.end(CauseKind.CRASH, [lease])
    return lease


async def _crashed_before_it_started(store: Harness, max_attempts: int = 5) -> Lease:
    worker, lease = await claimed(store, max_attempts)
    await worker.end(CauseKind.CRASH)
    return lease


async def _stopped(store: Harness, max_attempts: int = 5) -> Lease:
    worker, lease = await claimed(store, max_attempts)
    await worker.end(CauseKind.STOP, [lease])
    return lease


async def lost(store: Harness, max_attempts: int = 5) -> Lease:
    worker, lease = await claimed(store, max_attempts)
    await worker.end(CauseKind.LOST)
    return lease


async def _reaped(store: Harness, max_attempts: int = 5) -> Lease:
    worker, lease = await claimed(store, max_attempts, ttl=SECOND)
    swept = await store.passes(3, SECOND)
    assert worker.id in [session for one in swept for session in one.reaped]
    return lease


async def ran_out(store: Harness, max_attempts: int = 5) -> Lease:
    await store.queue("q", emit=Emit.ALL)
    await store.add(lane="a", key="k", mode=Mode.REPLACE, max_attempts=max_attempts)
    lease = await deadline_lease(store)
    await store.passes(1, 2 * SECOND)
    return lease


async def deadline_lease(store: Harness, visibility: Micros = SECOND) -> Lease:
    (lease,) = (await store.broker.claim(Ask(queues=("q",), slots=1, limit=1, visibility=visibility))).leases
    return lease


TAKEN = [_crashed, _crashed_before_it_started, _stopped, lost, _reaped, ran_out]
TAKEN_FOR_GOOD = [_crashed, lost, _reaped, ran_out]
"""At the last attempt these leave a dead job."""

# What happens to the job afterwards. Some hand it out again.

Later: TypeAlias = Callable[[Harness, Lease], Awaitable[Lease | None]]


async def _it_waits(store: Harness, lease: Lease) -> None:
    assert await store.state(lease.job) in (State.READY, State.SCHEDULED)


async def _it_runs_again(store: Harness, lease: Lease) -> Lease:
    store.advance(HOUR)
    newer = await (await store.worker()).one()
    assert newer.job == lease.job
    assert newer.fence > lease.fence
    return newer


async def it_runs_again_with_a_deadline(store: Harness, lease: Lease) -> Lease:
    store.advance(HOUR)
    newer = await deadline_lease(store)
    assert newer.job == lease.job
    assert newer.fence > lease.fence
    return newer


async def _it_was_replaced(store: Harness, lease: Lease) -> None:
    (receipt,) = await store.enqueue(store.job(lane="a", key="k", mode=Mode.REPLACE, payload=b"newest"))
    assert (receipt.status, receipt.of) == (Status.REPLACED, lease.job)


async def _it_was_cancelled(store: Harness, lease: Lease) -> None:
    await store.cancel(lease.job)
    assert await store.state(lease.job) is State.CANCELLED


async def _it_is_dead(store: Harness, lease: Lease) -> None:
    assert await store.state(lease.job) is State.DEAD


async def _it_was_replayed(store: Harness, lease: Lease) -> None:
    assert (await store.replay(lease.job)).effect is Effect.APPLIED


async def _it_was_replayed_and_runs(store: Harness, lease: Lease) -> Lease:
    await _it_was_replayed(store, lease)
    return await _it_runs_again(store, lease)


WHILE_UNFINISHED = [
    _it_waits,
    _it_runs_again,
    it_runs_again_with_a_deadline,
    _it_was_replaced,
    _it_was_cancelled,
]
WHILE_DEAD = [_it_is_dead, _it_was_replayed, _it_was_replayed_and_runs]


def words(function: object) -> str:
    return getattr(function, "__name__", str(function)).lstrip("_")
