"""Jobs that are born dead: what an intake took and nobody can run is a dead letter like any other."""

from typing import Any

import pytest

from windlass.conformance.harness import Harness
from windlass.conformance.takes import UNREADABLE, accepted, refusals, statuses, take_of
from windlass.core.event import FROM_START, Emit
from windlass.core.job import Edge, JobDetail, Mode, OnFailure, Refusal, Status
from windlass.core.operate import Edit, Effect
from windlass.core.query import JobQuery, Why
from windlass.core.state import Move, Reason, State
from windlass.core.take import TakeStatus
from windlass.core.units import HOUR, MINUTE, SECOND, JobId


async def _born_dead(store: Harness, **options: Any) -> JobId:
    """A job that is born dead, beside one that is not."""
    job, other = store.job(**options), store.job(queue=options.get("queue", "q"), task="other")
    stands = await store.broker.offsets()
    take = take_of((job,), (other,), expect=stands[0].at if stands else None, dead={job.id: UNREADABLE})
    await accepted(store, take)
    assert await store.state(other.id) is State.READY
    return job.id


async def test_born_dead_is_kept_whole(store: Harness) -> None:
    parent = await store.add(delay=HOUR, queue="q")
    job = store.job(
        task="ship", lane="a", priority=3, payload=b"\xff\x00{", headers={"h": "ö"}, tags=("x", "y"),
        revision=4, max_attempts=2, flow="f", key="k", mode=Mode.REPLACE, window=HOUR, delay=HOUR,
        expires=HOUR, after=(Edge(parent),),
    )  # fmt: skip
    store.advance(SECOND)
    now = store.clock.now()
    await accepted(store, take_of((job,), dead={job.id: UNREADABLE}))
    assert await store.get(job.id) == JobDetail(
        id=job.id, task="ship", queue="q", lane="a", priority=3, state=State.DEAD, reason=Reason.UNFIT,
        attempt=0, max_attempts=2, crashes=0, fence=0, key=None, tags=("x", "y"), flow="f", parent=None,
        revision=4, accepted_at=now, due_at=now, expires_at=None, finished_at=now, session=None,
        cancel_requested=False, held=None, waiting_for=0, replays=0, progress=None, payload=b"\xff\x00{",
        headers={"h": "ö"}, after=(), error=UNREADABLE,
    )  # fmt: skip
    assert (await store.explain(job.id)).why is Why.FINISHED
    assert not (await (await store.worker()).claim()).leases


@pytest.mark.parametrize(
    "settings", [{}, {"sequence": True}, {"age_step": SECOND}], ids=["plain", "sequence", "aging"]
)
@pytest.mark.parametrize("lane", ["", "a"])
async def test_born_dead_is_kept_whole__and_replayed(
    store: Harness, lane: str, settings: dict[str, Any]
) -> None:
    await store.queue("r", **settings)
    job = await _born_dead(store, queue="r", lane=lane, payload=b"no")
    worker = await store.worker()
    assert len(await worker.drain("r")) == 1, "it blocks nobody"
    store.advance(MINUTE)
    edited = await store.broker.edit([Edit(job=job, expect=State.DEAD, payload=b"yes")])
    assert edited[0].effect is Effect.APPLIED
    assert (await store.replay(job)).effect is Effect.APPLIED
    lease = await worker.one("r")
    assert (lease.job, lease.payload, lease.attempt) == (job, b"yes", 1)
    await store.done(lease)
    assert (await store.get(job)).reason is None


async def test_born_dead_is_kept_whole__is_counted_and_listed(store: Harness) -> None:
    jobs = [await _born_dead(store, task="ship", flow="f", payload=bytes(3)) for _ in range(3)]
    dead = JobQuery(states=frozenset({State.DEAD}))
    page = await store.broker.list(dead)
    assert [(view.id, view.reason) for view in page.jobs] == [(job, Reason.UNFIT) for job in reversed(jobs)]
    of_flow = await store.broker.list(JobQuery(flow="f"))
    assert [view.id for view in of_flow.jobs] == jobs[::-1]
    counted = {(row.task, row.state): row.count for row in (await store.broker.counts()).rows}
    assert counted == {("ship", State.DEAD): 3, ("other", State.READY): 3}
    assert (await store.broker.flows()).flows == ()
    assert (await store.discard(jobs[0])).effect is Effect.APPLIED
    assert [view.id for view in (await store.broker.list(dead)).jobs] == jobs[:0:-1]
    counted = {(row.task, row.state): row.count for row in (await store.broker.counts()).rows}
    assert counted[("ship", State.DEAD)] == 2


async def test_born_dead_is_kept_whole__for_the_retention_of_dead_letters(store: Harness) -> None:
    await store.queue("q", retention=0, dead_retention=HOUR)
    job = await _born_dead(store)
    store.advance(HOUR - 1)
    await store.sweep()
    assert (await store.get(job)).state is State.DEAD
    store.advance(1)
    await store.sweep()
    assert await store.missing(job)


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.ALL])
async def test_born_dead_is_kept_whole__and_told(store: Harness, emit: Emit) -> None:
    await store.queue("q", emit=emit)
    job = store.job()
    await accepted(store, take_of((job,), dead={job.id: UNREADABLE}))
    (event,) = (await store.broker.events(FROM_START, 10, 0)).items
    assert (event.job, event.move, event.before, event.after) == (job.id, Move.ENQUEUE, None, State.DEAD)
    assert (event.reason, event.outcome, event.attempt) == (Reason.UNFIT, None, 0)
    (told,) = await store.broker.watch([job.id], 0)
    assert (told.state, told.reason, told.error) == (State.DEAD, Reason.UNFIT, UNREADABLE)


async def test_born_dead_is_kept_whole__and_meets_no_key(store: Harness) -> None:
    """It neither replaces a job that can run, nor keeps its key from others."""
    holder = await store.add(key="k", payload=b"good")
    job = await _born_dead(store, key="k", mode=Mode.REPLACE, payload=b"bad")
    assert (await store.get(holder)).payload == b"good"
    assert (await store.get(job)).payload == b"bad"
    other = await _born_dead(store, key="l", window=HOUR)
    assert await store.add(key="l") != other


async def test_born_dead_is_kept_whole__and_known(store: Harness) -> None:
    """An id that was accepted before stays what it is."""
    job = await store.add()
    again = store.job(id=job)
    taken = await store.broker.take(take_of((again,), dead={job: UNREADABLE}))
    assert (taken.status, statuses(taken)) == (TakeStatus.TAKEN, [[Status.DUPLICATE]])
    assert await store.state(job) is State.READY
    born = await _born_dead(store)
    assert [receipt.of for receipt in await store.enqueue(store.job(id=born))] == [born]
    assert await store.state(born) is State.DEAD


async def test_born_dead_is_kept_whole__in_a_declared_queue(store: Harness) -> None:
    job = store.job(queue="nowhere")
    taken = await store.broker.take(take_of((job,), dead={job.id: UNREADABLE}))
    assert (taken.status, refusals(taken)) == (TakeStatus.REFUSED, [[Refusal.UNKNOWN_QUEUE]])
    assert await store.missing(job.id)


@pytest.mark.parametrize("first", [True, False])
async def test_born_dead_is_kept_whole__and_its_dependents_wait(store: Harness, *, first: bool) -> None:
    job = store.job()
    waits = store.job(after=(Edge(job.id),))
    cleans_up = store.job(after=(Edge(job.id, OnFailure.RUN),))
    groups = ((job,), (waits, cleans_up)) if first else ((waits, cleans_up), (job,))
    await accepted(store, take_of(*groups, dead={job.id: UNREADABLE}))
    assert [await store.state(each.id) for each in (waits, cleans_up)] == [State.BLOCKED, State.READY]
    assert (await store.explain(waits.id)).why is Why.PARENT_DEAD
    await store.replay(job.id)
    assert await (await store.worker()).drain() == [cleans_up.id, job.id, waits.id]
