"""Suspects: jobs that had started in two crashes run alone."""

from windlass.conformance.harness import Harness, ids
from windlass.core.lease import Ask
from windlass.core.limits import Rate
from windlass.core.outcome import CauseKind
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND, JobId


async def _suspects(store: Harness, count: int, queue: str = "q", lane: str = "") -> list[JobId]:
    """New jobs of an empty queue that had started in two crashes, ready again."""
    jobs = await store.add_many(count, queue=queue, lane=lane)
    for _ in range(2):
        worker = await store.worker()
        await worker.end(CauseKind.CRASH, started=await worker.take(count, queue))
        store.advance(SECOND)
    await store.sweep()
    assert await store.states(jobs) == [State.READY] * count
    return jobs


async def test_suspects_run_alone(store: Harness) -> None:
    """A plain ask gets what stands behind them, an ask with `alone` gets one of them and nothing else."""
    suspects = await _suspects(store, 2)
    others = await store.add_many(2)
    worker, alone = await store.worker(), await store.worker()
    assert ids((await worker.claim()).leases) == others
    lease, *more = (await alone.claim(alone=True)).leases
    assert (lease.job, lease.attempt, lease.crashes, more) == (suspects[0], 3, 2, [])
    assert ids((await alone.claim(alone=True)).leases) == [suspects[1]]
    assert (await alone.claim(alone=True)).leases == ()
    await store.done(lease)
    assert await store.state(suspects[0]) is State.DONE


async def test_suspects_run_alone__and_nobody_else_does(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    assert (await worker.claim(alone=True)).leases == ()
    assert ids((await worker.claim()).leases) == [job]


async def test_suspects_run_alone__not_after_one_crash(store: Harness) -> None:
    """Nor after any number of ends that were no crash of a job that had started."""
    job = await store.add()
    for kind, started in ((CauseKind.CRASH, True), (CauseKind.CRASH, False), (CauseKind.STOP, True)):
        worker = await store.worker()
        lease = await worker.one()
        await worker.end(kind, started=[lease] if started else [])
    worker = await store.worker()
    lease = await worker.one()
    assert (lease.job, lease.crashes) == (job, 1)


async def test_suspects_run_alone__one_at_a_time_also_with_a_deadline(store: Harness) -> None:
    suspects = await _suspects(store, 2)
    ask = Ask(queues=("q",), slots=10, limit=10, visibility=SECOND, alone=True)
    assert ids((await store.broker.claim(ask)).leases) == suspects[:1]


async def test_suspects_run_alone__in_the_order_of_queues(store: Harness) -> None:
    await store.queue("other")
    (here,) = await _suspects(store, 1)
    (there,) = await _suspects(store, 1, "other")
    worker = await store.worker()
    assert ids((await worker.claim("other", "q", alone=True)).leases) == [there]
    assert ids((await worker.claim("other", "q", alone=True)).leases) == [here]


async def test_suspects_run_alone__within_limits_and_pauses(store: Harness) -> None:
    worker, alone = await store.worker(), await store.worker()
    (suspect,) = await _suspects(store, 1)
    await store.broker.pause("q")
    assert (await alone.claim(alone=True)).leases == ()
    await store.broker.resume("q")

    await store.queue("q", concurrency=1)
    await store.add()
    running = await worker.one()
    assert (await alone.claim(alone=True)).leases == ()
    await store.done(running)
    assert (await alone.one(alone=True)).job == suspect
    await store.add()
    assert (await worker.claim()).leases == ()


async def test_suspects_run_alone__within_those_of_their_lane(store: Harness) -> None:
    worker, alone = await store.worker(), await store.worker()
    (suspect,) = await _suspects(store, 1, lane="a")
    await store.lane("q", "a", concurrency=1)
    await store.add_many(2, lane="a")
    running = await worker.one()
    assert (await alone.claim(alone=True)).leases == ()
    await store.done(running)
    await store.broker.pause("q", "a")
    assert (await alone.claim(alone=True)).leases == ()
    await store.broker.resume("q", "a")
    assert (await alone.one(alone=True)).job == suspect
    assert (await worker.claim()).leases == ()


async def test_suspects_run_alone__at_the_cost_of_a_token(store: Harness) -> None:
    worker, alone = await store.worker(), await store.worker()
    (suspect,) = await _suspects(store, 1)
    await store.queue("q", rate=Rate(1, HOUR, 1))
    await store.add_many(2)
    await worker.one()
    assert (await alone.claim(alone=True)).leases == ()
    store.advance(HOUR)
    assert (await alone.one(alone=True)).job == suspect
    assert (await worker.claim()).leases == ()


async def test_suspects_run_alone__until_they_are_replayed(store: Harness) -> None:
    (suspect,) = await _suspects(store, 1)
    alone = await store.worker()
    await store.dead(await alone.one(alone=True))
    await store.replay(suspect)
    lease = await (await store.worker()).one()
    assert (lease.job, lease.crashes, lease.attempt) == (suspect, 0, 1)


async def test_suspects_are_reported(store: Harness) -> None:
    """Every claim on the queue reports them, and no claim on another queue does."""
    await store.queue("other")
    await _suspects(store, 2)
    worker, alone = await store.worker(), await store.worker()
    deadline = Ask(queues=("q",), slots=1, limit=1, visibility=SECOND)
    assert (await worker.claim()).suspects == 2
    assert (await worker.claim("other", "q")).suspects == 2
    assert (await store.broker.claim(deadline)).suspects == 2
    assert (await worker.claim("other")).suspects == 0
    lease = await alone.one(alone=True)
    assert (await worker.claim()).suspects == 1
    await store.release(lease)
    assert (await worker.claim()).suspects == 2


async def test_suspects_are_reported__none_where_there_are_none(store: Harness) -> None:
    worker = await store.worker()
    await store.add_many(2)
    assert (await worker.claim(slots=1)).suspects == 0
