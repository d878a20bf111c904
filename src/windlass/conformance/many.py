"""Many jobs: what operators do and see comes to its end, however many there are.

Every test runs on more jobs than a call takes, or examines where that is more; and among the slow tests on
50,000.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from windlass.conformance.harness import Harness, batched
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import Edge
from windlass.core.operate import Effect, Operated, Purged, Target
from windlass.core.outcome import Error, Outcome
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.session import Beat
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, JobId

_VERY_MANY = pytest.param(50_000, marks=pytest.mark.slow)
more_than_taken = pytest.mark.parametrize("count", [CALL_ITEMS + 100, _VERY_MANY])
more_than_examined = pytest.mark.parametrize("count", [2 * CALL_ITEMS + 500, _VERY_MANY])


async def _add(store: Harness, count: int, lanes: int = 0, **options: Any) -> list[JobId]:
    """Enqueue so many jobs, in turn in so many lanes."""
    found: list[JobId] = []
    for start in range(0, count, CALL_ITEMS):
        places = range(start, min(start + CALL_ITEMS, count))
        jobs = [store.job(**{"lane": f"lane-{n % lanes:05}" if lanes else "", **options}) for n in places]
        await store.enqueue(*jobs)
        found += [job.id for job in jobs]
    return found


async def _end(
    store: Harness,
    outcome: Outcome,
    hold: HoldKey | None = None,
    count: int = 10**9,
    at_once: int = CALL_ITEMS,
) -> None:
    """Claim up to so many jobs of the queue, and end all leases in one way."""
    await store.time_task(queue="timing")
    worker, left = await store.worker(), count
    while left > 0:
        await store.broker.beat([Beat(session=worker.id)])
        leases = (await worker.claim(slots=min(left, at_once))).leases
        if not leases:
            return
        error = Error(type="GiveUp", message="no") if outcome is Outcome.DEAD else None
        runtime = None if outcome is Outcome.HOLD else 1_000
        await store.broker.settle(
            [
                Settlement(
                    job=lease.job, fence=lease.fence, outcome=outcome, hold=hold, error=error, runtime=runtime
                )
                for lease in leases
            ]
        )
        left -= len(leases)


async def _until_done(step: Callable[[], Awaitable[Purged]], count: int) -> int:
    """Repeat a step until it is done, in no more steps than it takes to come further with each."""
    total = 0
    for _ in range(10 + 2 * count // CALL_ITEMS):
        purged = await step()
        assert purged.count <= CALL_ITEMS
        total += purged.count
        if not purged.more:
            return total
    raise AssertionError(f"{total} of {count} after so many steps")


async def _purge(store: Harness, state: State, count: int) -> int:
    return await _until_done(lambda: store.broker.purge("q", state, 10 * CALL_ITEMS), count)


@more_than_examined
async def test_purge_comes_to_its_end(store: Harness, count: int) -> None:
    await _add(store, count)
    assert await _purge(store, State.READY, count) == count
    assert await store.count(State.READY) == 0
    assert not (await store.broker.counts()).oldest
    assert await _purge(store, State.CANCELLED, count) == count
    assert await store.listed(limit=1_000) == []


@more_than_examined
async def test_purge_comes_to_its_end__a_few_at_a_time(store: Harness, count: int) -> None:
    """What is left is handed out as if nothing had been before it, and the oldest is told."""
    jobs = await _add(store, count)
    store.advance(HOUR)
    last = await store.add()
    for _ in range(count // 500):
        assert await store.broker.purge("q", State.READY, 500) == Purged(500, more=True)
    assert await store.count(State.READY) == 1
    assert (await store.broker.counts()).oldest == {"q": 0}
    assert (await (await store.worker()).one()).job == last
    assert await store.states([jobs[0], jobs[-1]]) == [State.CANCELLED] * 2


@more_than_examined
async def test_purge_comes_to_its_end__in_many_lanes(store: Harness, count: int) -> None:
    """A lane that was emptied stays for a while: it must not be looked at for ever."""
    await _add(store, count, lanes=count)
    assert await _purge(store, State.READY, count) == count
    first, last = await store.add(lane="lane-00000"), await store.add(lane=f"lane-{count - 1:05}")
    assert await _purge(store, State.READY, count) == 2
    assert await store.states([first, last]) == [State.CANCELLED] * 2
    assert await store.count(State.READY) == 0


@more_than_taken
async def test_purge_comes_to_its_end__in_several_bands(store: Harness, count: int) -> None:
    for priority in (0, 5, -5):
        await _add(store, count // 3, lanes=3, priority=priority)
    assert await _purge(store, State.READY, count) == count // 3 * 3


@more_than_examined
async def test_purge_comes_to_its_end__behind_those_that_were_cancelled(store: Harness, count: int) -> None:
    """Jobs that left from the middle of the order do not hide those behind them."""
    first, *others = await _add(store, count)
    for page in batched(others):
        await store.broker.cancel([Target(job) for job in page])
    last = await _add(store, 2)
    assert await _purge(store, State.READY, count) == 3
    assert await store.states([first, *last]) == [State.CANCELLED] * 3


@more_than_taken
@pytest.mark.parametrize("state", [State.SCHEDULED, State.BLOCKED])
async def test_purge_comes_to_its_end__of_what_waits(store: Harness, count: int, state: State) -> None:
    await store.queue("parents")
    after = (Edge(await store.add(queue="parents")),) if state is State.BLOCKED else ()
    await _add(store, count, delay=HOUR, after=after)
    assert await _purge(store, state, count) == count


@more_than_taken
async def test_purge_comes_to_its_end__of_one_state_behind_another(store: Harness, count: int) -> None:
    """Cancelled jobs that ended after many that are done."""
    await store.queue("timing")
    await _add(store, count)
    await _end(store, Outcome.DONE)
    await _add(store, 10)
    assert await _purge(store, State.READY, 10) == 10
    assert await _purge(store, State.CANCELLED, 10) == 10
    assert await _purge(store, State.DONE, count) == count


@more_than_taken
async def test_purge_comes_to_its_end__behind_those_that_are_needed(store: Harness, count: int) -> None:
    """Done parents of unfinished jobs stay; those that nobody needs any more go."""
    await store.queue("timing")
    await store.queue("children")
    parents = await _add(store, count)
    children = [store.job(queue="children", after=(Edge(parent),)) for parent in parents]
    for start in range(0, count, 100):
        await store.enqueue(*children[start : start + 100])
    await _end(store, Outcome.DONE, at_once=100)
    await store.sweep()
    for child in children[-10:]:
        await store.cancel(child.id)
    assert await _purge(store, State.DONE, count) == 10
    assert [await store.missing(job) for job in (parents[0], parents[-11])] == [False, False]


@more_than_taken
async def test_unhold_comes_to_its_end(store: Harness, count: int) -> None:
    await store.queue("timing")
    await _add(store, count)
    await _end(store, Outcome.HOLD, HoldKey("task:t", "unknown task"), count)
    assert await store.count(State.SCHEDULED) == count
    assert await _until_done(lambda: store.broker.unhold("task:t", 10 * CALL_ITEMS), count) == count
    assert await store.count(State.READY) == count


async def _each(
    verb: Callable[[Sequence[Target]], Awaitable[Sequence[Operated]]], jobs: Sequence[JobId]
) -> list[Operated]:
    return [answer for page in batched(jobs) for answer in await verb([Target(job) for job in page])]


@more_than_taken
async def test_replay_sends_dead_letters_back__of_many(store: Harness, count: int) -> None:
    await store.queue("timing")
    jobs = await _add(store, count)
    await _end(store, Outcome.DEAD)
    dead = [job.id for job in await store.listed(limit=1_000, states=frozenset({State.DEAD}))]
    assert dead == jobs[::-1]
    replayed = await _each(store.broker.replay, dead)
    assert {answer.effect for answer in replayed} == {Effect.APPLIED}
    assert (await store.count(State.READY), await store.count(State.DEAD)) == (count, 0)


@more_than_taken
async def test_discard_removes_dead_letters__of_many(store: Harness, count: int) -> None:
    await store.queue("timing")
    jobs = await _add(store, count)
    await _end(store, Outcome.DEAD)
    assert {answer.effect for answer in await _each(store.broker.discard, jobs)} == {Effect.APPLIED}
    assert await store.count(State.DEAD) == 0
    assert [job.queue for job in await store.listed(limit=1_000)] == ["timing"]


@more_than_taken
async def test_cancel_of_a_waiting_job_is_immediate__of_many(store: Harness, count: int) -> None:
    """The newest first, as a listing names them; the oldest is handed out at once."""
    oldest, *others = await _add(store, count)
    listed = [job.id for job in await store.listed(limit=1_000)]
    assert listed == [*others[::-1], oldest]
    assert {answer.effect for answer in await _each(store.broker.cancel, listed[:-1])} == {Effect.APPLIED}
    assert await store.count(State.READY) == 1
    assert (await (await store.worker()).one()).job == oldest


@more_than_taken
async def test_list_is_newest_first__of_many(store: Harness, count: int) -> None:
    """Whatever becomes of them: page by page all of them, each once, and the rare among them."""
    await store.queue("timing")
    rare = await store.add(task="rare", lane="a", flow="f", delay=HOUR)
    jobs = await _add(store, count)
    await _end(store, Outcome.DONE, count=count // 2)
    assert [job.id for job in await store.listed(limit=999, queue="q")] == [*jobs[::-1], rare]
    queries: list[dict[str, Any]] = [
        {"task": "rare"},
        {"lane": "a"},
        {"flow": "f"},
        {"states": frozenset({State.SCHEDULED})},
    ]
    for query in queries:
        assert [job.id for job in await store.listed(**query)] == [rare]
    page = await store.broker.list(JobQuery(), FIRST_PAGE, 10)
    assert len(page.jobs) == 10


@more_than_examined
async def test_lanes_show_fairness_and_limits__of_many(store: Harness, count: int) -> None:
    """Lanes that are idle, and not forgotten yet, do not stand in the way of those behind them."""
    await _add(store, count, lanes=count)
    await store.add(lane="z")
    page = await store.broker.lanes("q", FIRST_PAGE, 1_000)
    names = [view.lane for view in page.lanes]
    while page.cursor is not None:
        page = await store.broker.lanes("q", page.cursor, 1_000)
        names += [view.lane for view in page.lanes]
    assert names == [*(f"lane-{n:05}" for n in range(count)), "z"]
    assert await _purge(store, State.READY, count) == count + 1
    last = await store.add(lane="zz")
    page = await store.broker.lanes("q", FIRST_PAGE, 10)
    for _ in range(10 + count // CALL_ITEMS):
        if page.cursor is None:
            break
        page = await store.broker.lanes("q", page.cursor, 10)
    assert [view.lane for view in page.lanes] == ["zz"]
    assert await store.state(last) is State.READY
