"""Unfinished flows: which are listed, and what is told of them."""

import pytest

from windlass.conformance.harness import Harness
from windlass.core.job import Edge, OnFailure
from windlass.core.operate import Target
from windlass.core.query import FIRST_PAGE, JobQuery, UnfinishedFlow
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, JobId


def _flow(name: str, *, moving: bool = False, held: bool = False, dead: bool = False) -> UnfinishedFlow:
    return UnfinishedFlow(flow=name, moving=moving, held=held, dead=dead)


async def _flows(store: Harness, limit: int = 100) -> list[UnfinishedFlow]:
    """Every flow, over as many pages as it takes."""
    page = await store.broker.flows(FIRST_PAGE, limit)
    found = list(page.flows)
    while page.cursor is not None:
        assert len(page.flows) <= limit
        page = await store.broker.flows(page.cursor, limit)
        found.extend(page.flows)
    return found


async def _chain(store: Harness, flow: str, count: int = 2) -> list[JobId]:
    """Jobs of a flow, each of which waits for the one before."""
    jobs = [await store.add(flow=flow)]
    for _ in range(count - 1):
        jobs.append(await store.add(flow=flow, after=(Edge(jobs[-1]),)))
    return jobs


@pytest.mark.parametrize("state", State)
async def test_flows_are_listed_until_they_finish(store: Harness, state: State) -> None:
    await store.reach(state, flow="f")
    unfinished = state in (State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING)
    assert [flow.flow for flow in await _flows(store)] == ["f"] * unfinished


async def test_flows_are_listed_until_they_finish__job_by_job(store: Harness) -> None:
    await _chain(store, "f", 3)
    worker = await store.worker()
    for _ in range(3):
        assert await _flows(store) == [_flow("f", moving=True)]
        lease = await worker.one()
        assert await _flows(store) == [_flow("f", moving=True)]
        await store.done(lease)
    assert await _flows(store) == []


@pytest.mark.parametrize("result", [None, b"4"])
@pytest.mark.parametrize("retention", [0, DAY])
async def test_flows_are_listed_until_they_finish__however_much_is_kept(
    store: Harness, retention: int, result: bytes | None
) -> None:
    await store.queue("q", retention=retention)
    await store.add_many(3, flow="f")
    await store.add_many(2)
    worker = await store.worker()
    for lease in await worker.take(3):
        assert await _flows(store) == [_flow("f", moving=True)]
        await store.done(lease, result)
    assert await _flows(store) == []
    store.advance(2 * DAY)
    await store.sweep()
    assert await _flows(store) == []
    assert await store.listed(flow="f") == []


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_flows_are_listed_until_they_finish__by_name(store: Harness, limit: int) -> None:
    names = ["b", "a.b", "B", "a-1", "z", "a"]
    for name in names:
        await store.add_many(2, flow=name)
    await store.add()
    await store.reach(State.SCHEDULED, flow="later")
    assert [flow.flow for flow in await _flows(store, limit)] == sorted([*names, "later"])


async def test_flows_are_listed_until_they_finish__whatever_came_after(store: Harness) -> None:
    """Behind more jobs, and more flows that have finished, than a call examines."""
    dead, waiting = await _chain(store, "stuck")
    worker = await store.worker()
    await store.dead(await worker.one())
    for number in range(3):
        await store.add_many(1_000)
        over = [store.job(flow=f"over-{number}-{place}") for place in range(1_000)]
        await store.enqueue(*over)
        await store.broker.cancel([Target(job.id) for job in over])
    assert await _flows(store) == [_flow("stuck", dead=True)]
    assert [job.id for job in await store.listed(flow="stuck")] == [waiting, dead]


async def test_list_of_a_flow_examines_no_others(store: Harness) -> None:
    """Also of jobs that have finished."""
    jobs = [await store.add(flow="f") for _ in range(3)]
    worker = await store.worker()
    await store.done(await worker.one())
    await store.dead(await worker.one())
    await store.add_many(3, flow="g")
    for _ in range(2):
        await store.add_many(1_000)
    page = await store.broker.list(JobQuery(flow="f"))
    assert ([job.id for job in page.jobs], page.cursor) == (jobs[::-1], None)
    page = await store.broker.list(JobQuery(flow="f"), limit=2)
    assert [job.id for job in page.jobs] == jobs[:0:-1]
    assert page.cursor is not None
    page = await store.broker.list(JobQuery(flow="f"), page.cursor, 2)
    assert ([job.id for job in page.jobs], page.cursor) == (jobs[:1], None)


async def test_flows_tell_what_stops_them(store: Harness) -> None:
    parent, child = await _chain(store, "f")
    worker = await store.worker()
    assert await _flows(store) == [_flow("f", moving=True)]
    await store.hold(await worker.one())
    assert await _flows(store) == [_flow("f", held=True)]
    assert (await _flows(store))[0].stuck
    await store.broker.unhold("task:t", 10)
    assert await _flows(store) == [_flow("f", moving=True)]
    assert not (await _flows(store))[0].stuck
    await store.dead(await worker.one())
    assert await _flows(store) == [_flow("f", dead=True)]
    assert (await _flows(store))[0].stuck
    await store.replay(parent)
    assert await _flows(store) == [_flow("f", moving=True)]
    await store.dead(await worker.one())
    await store.discard(parent)
    assert await store.state(child) is State.CANCELLED
    assert await _flows(store) == []


async def test_flows_tell_what_stops_them__not_what_waits_for_its_time(store: Harness) -> None:
    """A delay and a retry pass by themselves, and so does a hold once it is due."""
    await store.add(flow="delayed", delay=HOUR)
    await store.add(flow="retried", max_attempts=9)
    worker = await store.worker()
    await store.retry(await worker.one(), HOUR)
    assert await _flows(store) == [_flow("delayed", moving=True), _flow("retried", moving=True)]
    await store.add(flow="held")
    await store.hold(await worker.one())
    assert (await _flows(store))[1] == _flow("held", held=True)
    store.advance(MINUTE)
    await store.sweep()
    assert (await _flows(store))[1] == _flow("held", moving=True)
    await store.retry(await worker.one(), HOUR)
    assert (await _flows(store))[1] == _flow("held", moving=True)


async def test_flows_tell_what_stops_them__of_all_their_jobs(store: Harness) -> None:
    await store.add(flow="f")
    worker = await store.worker()
    await store.dead(await worker.one())
    assert await _flows(store) == [], "a flow that failed has finished"
    await store.add(flow="f", delay=HOUR)
    assert await _flows(store) == [_flow("f", moving=True, dead=True)]
    assert not (await _flows(store))[0].stuck
    await store.add(flow="f")
    await store.hold(await worker.one())
    assert await _flows(store) == [_flow("f", moving=True, held=True, dead=True)]


async def test_flows_tell_what_stops_them__whatever_else_their_jobs_are(store: Harness) -> None:
    """Suspects, jobs of lanes, of a sequence, with a key, spawned, expired: all are counted alike."""
    await store.queue("line", sequence=True)
    await store.queue("laned", lane_concurrency=1)
    await store.add(flow="keyed", key="k")
    await store.add(flow="laned", queue="laned", lane="a")
    await store.add(flow="lined", queue="line", lane="a")
    await store.add(flow="mortal", delay=HOUR, expires=MINUTE)
    every = ["keyed", "laned", "lined", "mortal"]
    assert await _flows(store) == [_flow(name, moving=True) for name in every]
    worker = await store.worker()
    for queue in ("q", "laned", "line"):
        lease = await worker.one(queue)
        await store.done(lease, spawn=(store.job(flow=f"{lease.flow}-child", delay=DAY),))
    store.advance(MINUTE + SECOND)
    await store.sweep()
    children = [_flow(f"{name}-child", moving=True) for name in every[:3]]
    assert await _flows(store) == children


async def test_flows_tell_what_stops_them__when_their_parents_are_elsewhere(store: Harness) -> None:
    """Blocked by a job that is no member, and runs: nothing moves in the flow, and nothing stops it."""
    outside = await store.add()
    await store.add(flow="f", after=(Edge(outside, OnFailure.RUN),))
    assert await _flows(store) == [_flow("f")]
    assert not (await _flows(store))[0].stuck
    await store.dead(await (await store.worker()).one())
    assert await _flows(store) == [_flow("f", moving=True)]
