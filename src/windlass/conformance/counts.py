"""Counts: how many jobs there are, exactly, at every moment."""

from collections import Counter

import pytest

from windlass.conformance.harness import Harness
from windlass.conformance.journeys import JOURNEYS, Journey
from windlass.core.job import Edge
from windlass.core.outcome import CauseKind
from windlass.core.state import UNFINISHED, State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND

_every_journey = pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.__name__)


async def _counted(store: Harness, *states: State) -> Counter[tuple[str, str, State]]:
    rows = [row for row in (await store.broker.counts()).rows if row.state in states]
    keys = [(row.queue, row.task, row.state) for row in rows]
    assert len(set(keys)) == len(keys), "one row for each queue, task and state"
    assert all(row.count >= 0 for row in rows)
    return +Counter(dict(zip(keys, (row.count for row in rows), strict=True)))


async def _listed(store: Harness) -> Counter[tuple[str, str, State]]:
    views = {view.id: view for view in await store.listed(states=UNFINISHED | {State.DEAD})}
    return Counter((view.queue, view.task, view.state) for view in views.values())


@_every_journey
async def test_counts_are_exact_for_unfinished_and_dead(store: Harness, journey: Journey) -> None:
    """After every transition of the table."""
    expected = Counter[State | None]()
    async for steps in journey(store):
        for step in steps:
            expected[step.before] -= 1
            expected[step.after] += 1
        counted = await _counted(store, *UNFINISHED, State.DEAD)
        assert counted == await _listed(store)
        here = {state: count for (queue, _, state), count in counted.items() if queue == "q"}
        assert here == {
            state: count for state, count in expected.items() if count and state in UNFINISHED | {State.DEAD}
        }


async def test_counts_are_exact_for_unfinished_and_dead__by_queue_and_task(store: Harness) -> None:
    await store.queue("r")
    worker = await store.worker()
    await store.add_many(3, task="a")
    await store.add_many(2, task="b", queue="r", lane="acme")
    await store.add_many(4, task="a", queue="r", delay=HOUR)
    dying, *_ = await worker.take(2)
    await store.dead(dying)
    await worker.take(1, "r")
    assert await _counted(store, *UNFINISHED, State.DEAD) == {
        ("q", "a", State.READY): 1,
        ("q", "a", State.RUNNING): 1,
        ("q", "a", State.DEAD): 1,
        ("r", "b", State.READY): 1,
        ("r", "b", State.RUNNING): 1,
        ("r", "a", State.SCHEDULED): 4,
    }
    await worker.end(CauseKind.STOP)
    assert await _counted(store, *UNFINISHED, State.DEAD) == {
        ("q", "a", State.READY): 2,
        ("q", "a", State.DEAD): 1,
        ("r", "b", State.READY): 2,
        ("r", "a", State.SCHEDULED): 4,
    }


async def test_counts_are_exact_for_unfinished_and_dead__in_bulk(store: Harness) -> None:
    """Groups, resends, refused groups, fan-outs, children, repeated settlements and purges."""
    worker = await store.worker()
    parent = await store.add()
    children = [store.job(after=(Edge(parent),), key=f"k{n % 100}") for n in range(150)]
    await store.enqueue(*children)
    assert await _counted(store, *UNFINISHED) == {("q", "t", State.READY): 1, ("q", "t", State.BLOCKED): 100}
    await store.enqueue(*children)
    await store.enqueue(store.job(), store.job(queue="unknown"))
    assert await _counted(store, *UNFINISHED) == {("q", "t", State.READY): 1, ("q", "t", State.BLOCKED): 100}
    lease = await worker.one()
    await store.done(lease, spawn=(store.job(task="child"), store.job(task="child", delay=MINUTE)))
    await store.done(lease, spawn=(store.job(task="child"),))
    await store.sweep()
    assert await _counted(store, *UNFINISHED) == {
        ("q", "t", State.READY): 100,
        ("q", "child", State.READY): 1,
        ("q", "child", State.SCHEDULED): 1,
    }
    assert (await store.broker.purge("q", State.READY, 60)).more
    assert sum((await _counted(store, State.READY)).values()) == 41
    assert await _counted(store, *UNFINISHED) == await _listed(store)


@_every_journey
async def test_counts_of_done_and_cancelled_never_fall(store: Harness, journey: Journey) -> None:
    """They count transitions, so neither a prune nor a purge lowers them."""
    expected = Counter[State | None]()
    async for steps in journey(store):
        expected.update(step.after for step in steps if step.after in (State.DONE, State.CANCELLED))
        counted = await _counted(store, State.DONE, State.CANCELLED)
        assert {state: count for (queue, _, state), count in counted.items() if queue == "q"} == expected


async def test_counts_of_done_and_cancelled_never_fall__although_nothing_is_kept(store: Harness) -> None:
    await store.queue("q", retention=0)
    worker = await store.worker()
    for task in ("a", "b", "a"):
        await store.add(task=task)
        lease = await worker.one()
        await store.done(lease)
        await store.done(lease)
        await store.cancel(await store.add(task="c"))
    store.advance(DAY)
    await store.sweep()
    assert await store.listed() == []
    assert await _counted(store, State.DONE, State.CANCELLED) == {
        ("q", "a", State.DONE): 2,
        ("q", "b", State.DONE): 1,
        ("q", "c", State.CANCELLED): 3,
    }


async def test_counts_tell_the_oldest(store: Harness) -> None:
    """Whatever its band and lane."""
    await store.queue("r")
    assert (await store.broker.counts()).oldest.get("q", 0) == 0
    old = await store.add(priority=-5, lane="z")
    store.advance(5 * SECOND)
    await store.add(priority=5, lane="a")
    await store.add(queue="r")
    store.advance(3 * SECOND)
    assert dict((await store.broker.counts()).oldest) == {"q": 8 * SECOND, "r": 3 * SECOND}
    worker = await store.worker()
    await worker.one()
    assert (await store.broker.counts()).oldest["q"] == 8 * SECOND
    assert (await worker.one()).job == old
    assert (await store.broker.counts()).oldest.get("q", 0) == 0
    assert (await store.broker.counts()).oldest["r"] == 3 * SECOND


async def test_counts_tell_the_oldest__since_it_was_due(store: Harness) -> None:
    """Not since it was accepted, nor since somebody noticed that it was due."""
    await store.add(delay=MINUTE)
    store.advance(MINUTE - 1)
    await store.sweep()
    assert (await store.broker.counts()).oldest.get("q", 0) == 0
    store.advance(1 + 7 * SECOND)
    await store.sweep()
    assert (await store.broker.counts()).oldest["q"] == 7 * SECOND


async def test_counts_tell_what_is_paused(store: Harness) -> None:
    await store.queue("b")
    await store.queue("a")
    await store.queue("c")
    assert (await store.broker.counts()).paused == ()
    await store.broker.pause("b")
    await store.broker.pause("a")
    await store.broker.pause("c", lane="acme")
    assert (await store.broker.counts()).paused == ("a", "b"), "a paused lane is no paused queue"
    await store.broker.resume("b")
    assert (await store.broker.counts()).paused == ("a",)
