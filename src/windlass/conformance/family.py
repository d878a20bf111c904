"""Families: parents in the queue `parents`, children in `q`, how a parent ends and how a child stands."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from windlass.conformance.harness import Harness
from windlass.core.job import Edge, OnFailure
from windlass.core.operate import Effect
from windlass.core.outcome import Outcome, Verdict
from windlass.core.state import Reason, State
from windlass.core.units import DAY, SECOND, JobId


def after(*parents: JobId, on: OnFailure = OnFailure.CANCEL) -> tuple[Edge, ...]:
    """Edges to parents."""
    return tuple(Edge(parent, on) for parent in parents)


async def new_parent(store: Harness, **settings: int) -> JobId:
    """A job in a queue of its own, so that a test can end it whatever else is ready."""
    await store.queue("parents", **{"dead_retention": 30 * DAY, **settings})
    return await store.add(queue="parents")


async def finish_parent(store: Harness, result: bytes | None = None) -> None:
    """Bring the first parent that is ready to its end."""
    lease = await (await store.worker()).one("parents")
    assert (await store.done(lease, result)).verdict is Verdict.APPLIED


async def kill_parent(store: Harness) -> None:
    """Let the first parent that is ready die."""
    lease = await (await store.worker()).one("parents")
    assert (await store.dead(lease)).state is State.DEAD


async def waits(store: Harness, child: JobId, count: int, reason: Reason | None = None) -> None:
    """Require that a child is blocked on so many parents."""
    detail = await store.get(child)
    assert (detail.state, detail.waiting_for, detail.reason) == (State.BLOCKED, count, reason)


async def is_free(store: Harness, child: JobId, state: State = State.READY) -> None:
    """Require that a child waits for no parent."""
    detail = await store.get(child)
    assert (detail.state, detail.waiting_for, detail.reason) == (state, 0, None)


async def is_cancelled(store: Harness, *children: JobId) -> None:
    """Require that children are cancelled because of a parent."""
    for child in children:
        detail = await store.get(child)
        assert (detail.state, detail.reason) == (State.CANCELLED, Reason.PARENT_FAILED)


# how the fate of a parent is sealed

Fate: TypeAlias = Callable[[Harness, JobId], Awaitable[object]]


async def _cancelled(store: Harness, parent: JobId) -> None:
    assert (await store.cancel(parent)).effect is Effect.APPLIED


async def _cancelled_running(store: Harness, parent: JobId) -> None:
    lease = await (await store.worker()).one("parents")
    assert (await store.cancel(parent)).effect is Effect.FLAGGED
    assert (await store.retry(lease)).state is State.CANCELLED


async def _cancelled_by_its_worker(store: Harness, _: JobId) -> None:
    lease = await (await store.worker()).one("parents")
    assert (await store.settle(lease, Outcome.CANCELLED)).state is State.CANCELLED


async def _purged(store: Harness, _: JobId) -> None:
    assert (await store.broker.purge("parents", State.READY, 10)).count == 1


async def _discarded(store: Harness, parent: JobId) -> None:
    await kill_parent(store)
    assert (await store.discard(parent)).effect is Effect.APPLIED


async def _purged_dead(store: Harness, _: JobId) -> None:
    await kill_parent(store)
    assert (await store.broker.purge("parents", State.DEAD, 10)).count == 1


async def _pruned_dead(store: Harness, parent: JobId) -> None:
    await kill_parent(store)
    store.advance(5 * SECOND)
    await store.sweep()
    assert (await store.get(parent)).pruned


FATES: Mapping[str, Fate] = {
    "cancelled": _cancelled,
    "cancelled while running": _cancelled_running,
    "cancelled by its worker": _cancelled_by_its_worker,
    "purged": _purged,
    "discarded": _discarded,
    "purged while dead": _purged_dead,
    "pruned while dead": _pruned_dead,
}
