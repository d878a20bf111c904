"""Fan-out: many dependents are told of an end in bounded steps, each once."""

from collections.abc import Awaitable, Callable, Mapping

import pytest

from windlass.conformance.family import (
    FATES,
    Fate,
    after,
    finish_parent,
    is_cancelled,
    is_free,
    kill_parent,
    new_parent,
    waits,
)
from windlass.conformance.harness import Harness
from windlass.core.job import OnFailure
from windlass.core.lease import Lease
from windlass.core.operate import Effect, Target
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.session import Swept
from windlass.core.settlement import Settlement
from windlass.core.state import Reason, State
from windlass.core.units import DAY, MINUTE, JobId

_CANCEL, _IGNORE, _RUN = OnFailure.CANCEL, OnFailure.IGNORE, OnFailure.RUN


async def _finished(store: Harness, _: JobId) -> None:
    await finish_parent(store)


async def _killed(store: Harness, _: JobId) -> None:
    await kill_parent(store)


async def _tally(store: Harness, state: State) -> tuple[int, int]:
    """How many children are still blocked, and how many are in a state."""
    return await store.count(State.BLOCKED), await store.count(state)


_FAN_OUTS: Mapping[str, tuple[Fate, OnFailure, State]] = {
    "done": (_finished, _CANCEL, State.READY),
    "dead": (_killed, _RUN, State.READY),
    "cancelled": (FATES["cancelled"], _CANCEL, State.CANCELLED),
    "cancelled, ignored": (FATES["cancelled"], _IGNORE, State.READY),
    "cancelled while running": (FATES["cancelled while running"], _CANCEL, State.CANCELLED),
    "purged": (FATES["purged"], _CANCEL, State.CANCELLED),
    "discarded": (FATES["discarded"], _IGNORE, State.READY),
    "purged while dead": (FATES["purged while dead"], _CANCEL, State.CANCELLED),
}


@pytest.mark.parametrize("fan_out", _FAN_OUTS)
async def test_fan_out_is_bounded_per_step(store: Harness, fan_out: str) -> None:
    fate, policy, state = _FAN_OUTS[fan_out]
    parent = await new_parent(store)
    children = await store.add_many(250, after=after(parent, on=policy))
    await fate(store, parent)
    assert await _tally(store, state) == (150, 100)
    waiting = {child for child in children if await store.state(child) is State.BLOCKED}
    swept = await store.broker.sweep(limit=30)
    blocked, moved = await _tally(store, state)
    assert 120 <= blocked < 150
    assert (moved, swept.more) == (250 - blocked, True)
    passes = [swept, *await store.sweep()]
    assert await _tally(store, state) == (0, 250)
    assert _moves(passes) == dict.fromkeys(waiting, (State.BLOCKED, state))
    ran = await (await store.worker()).drain()
    assert sorted(ran) == (sorted(children) if state is State.READY else [])


def _moves(passes: list[Swept]) -> dict[JobId, tuple[State, State]]:
    moves = [moved for swept in passes for moved in swept.moved]
    assert len({moved.job for moved in moves}) == len(moves), "nothing is moved twice"
    return {moved.job: (moved.before, moved.after) for moved in moves}


async def test_fan_out_is_bounded_per_step__pruned_while_dead(store: Harness) -> None:
    parent = await new_parent(store, dead_retention=DAY)
    children = await store.add_many(250, after=after(parent))
    await kill_parent(store)
    store.advance(DAY)
    swept = await store.broker.sweep(limit=30)
    blocked, moved = await _tally(store, State.CANCELLED)
    assert (moved, swept.more) == (250 - blocked, True)
    assert blocked >= 220, "a sweep does no more than it was asked to"
    await store.sweep(limit=30)
    await is_cancelled(store, *children)


async def test_fan_out_is_bounded_per_step__down_a_chain(store: Harness) -> None:
    root = await new_parent(store)
    jobs = [store.job() for _ in range(250)]
    parents = [root, *[job.id for job in jobs]]
    chain = [store.job(id=job.id, after=after(parents[place])) for place, job in enumerate(jobs)]
    await store.enqueue(*chain)
    await store.cancel(root)
    assert await _tally(store, State.CANCELLED) == (150, 100)
    await store.sweep(limit=30)
    await is_cancelled(store, *[job.id for job in jobs])


async def test_fan_out_is_bounded_per_step__across_generations(store: Harness) -> None:
    root = await new_parent(store)
    children = await store.add_many(60, after=after(root))
    for child in children:
        await store.add_many(2, after=after(child))
    await store.cancel(root)
    assert await _tally(store, State.CANCELLED) == (80, 100)
    await store.sweep()
    assert await _tally(store, State.CANCELLED) == (0, 180)


async def test_fan_out_is_bounded_per_step__and_leaves_what_was_cancelled_meanwhile(store: Harness) -> None:
    parent = await new_parent(store)
    children = await store.add_many(101, after=after(parent))
    await finish_parent(store)
    (last,) = [child for child in children if await store.state(child) is State.BLOCKED]
    assert (await store.explain(last)).state is State.BLOCKED
    assert (await store.cancel(last)).effect is Effect.APPLIED
    await store.sweep()
    assert (await store.get(last)).reason is Reason.CANCELLED
    assert await _tally(store, State.READY) == (0, 100)


async def test_fan_out_is_bounded_per_step__but_newcomers_need_not_wait(store: Harness) -> None:
    parent = await new_parent(store)
    await store.add_many(150, after=after(parent))
    await finish_parent(store)
    child = await store.add(after=after(parent))
    await is_free(store, child)
    await store.sweep()
    assert await _tally(store, State.READY) == (0, 151)


async def test_child_is_unblocked_once__although_its_parent_is_replayed_meanwhile(store: Harness) -> None:
    """A replay while sweep has still to tell of the death does not resolve any edge twice, nor lose one."""
    parent, other = await new_parent(store), await new_parent(store)
    edges = (*after(parent, on=_RUN), *after(other))
    children = await store.add_many(150, after=edges)
    worker = await store.worker()
    lease, last = await worker.take(2, "parents")
    await store.dead(lease)
    await store.replay(parent)
    await finish_parent(store)
    await store.sweep()
    for child in children:
        await waits(store, child, 1)
    await store.done(last)
    await store.sweep()
    assert await _tally(store, State.READY) == (0, 150)


async def test_child_waits_for_its_parents__that_were_replayed(store: Harness) -> None:
    """A death that sweep has still to tell of is none for a child that came after the replay."""
    parent = await new_parent(store)
    await store.add_many(150, after=after(parent, on=_RUN))
    await kill_parent(store)
    await store.replay(parent)
    child = await store.add(after=after(parent, on=_RUN))
    await store.sweep()
    await waits(store, child, 1)
    await finish_parent(store)
    await store.sweep()
    await is_free(store, child)


# several ends in one step


async def _settle(store: Harness, parents: list[JobId]) -> None:
    leases = await (await store.worker()).take(len(parents), "parents")
    await store.broker.settle([_settlement(lease) for lease in leases])


def _settlement(lease: Lease) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1_000)


async def _crash(store: Harness, parents: list[JobId]) -> None:
    worker = await store.worker()
    await worker.end(CauseKind.CRASH, await worker.take(len(parents), "parents"))


async def _cancel(store: Harness, parents: list[JobId]) -> None:
    await store.broker.cancel([Target(parent) for parent in parents])


async def _discard(store: Harness, parents: list[JobId]) -> None:
    for lease in await (await store.worker()).take(len(parents), "parents"):
        await store.dead(lease)
    await store.broker.discard([Target(parent) for parent in parents])


async def _purge(store: Harness, _: list[JobId]) -> None:
    await store.broker.purge("parents", State.READY, 10)


_ENDS: Mapping[str, tuple[Callable[[Harness, list[JobId]], Awaitable[None]], OnFailure, State]] = {
    "settle": (_settle, _CANCEL, State.READY),
    "end_session": (_crash, _RUN, State.READY),
    "cancel": (_cancel, _CANCEL, State.CANCELLED),
    "discard": (_discard, _IGNORE, State.READY),
    "purge": (_purge, _CANCEL, State.CANCELLED),
}


@pytest.mark.parametrize("verb", _ENDS)
async def test_fan_out_is_bounded_per_step__not_per_parent(store: Harness, verb: str) -> None:
    end, policy, state = _ENDS[verb]
    await store.queue("parents")
    parents = await store.add_many(4, queue="parents", max_attempts=1)
    for parent in parents:
        await store.add_many(60, after=after(parent, on=policy))
    await end(store, parents)
    assert await _tally(store, state) == (140, 100)
    await store.sweep()
    assert await _tally(store, state) == (0, 240)


async def test_fan_out_is_bounded_per_step__in_a_sweep(store: Harness) -> None:
    await store.queue("parents")
    parents = await store.add_many(3, queue="parents", expires=MINUTE)
    for parent in parents:
        await store.add_many(60, after=after(parent, on=_RUN))
    store.advance(MINUTE)
    swept = await store.broker.sweep(limit=10)
    assert (len(swept.moved) <= 10, swept.more) == (True, True)
    assert await store.count(State.READY) <= 10
    await store.sweep(limit=10)
    assert await _tally(store, State.READY) == (0, 180)
