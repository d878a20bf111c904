"""Many jobs that are alike: a store may take them in one step, and what is different among them stays so."""

import msgspec

from windlass.conformance.harness import Harness, ids
from windlass.core.job import Status
from windlass.core.lease import Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.core.state import State

COUNT = 30


def _done(lease: Lease, **more: object) -> Settlement:
    word = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)
    return msgspec.structs.replace(word, **more)


async def test_accepted_is_readable__of_many_that_are_alike(store: Harness) -> None:
    """Headers, tags and payload are of each job; all else is shared."""
    jobs = [
        store.job(payload=b"%d" % n, headers={"n": str(n)} if n % 3 else {}, tags=("odd",) if n % 2 else ())
        for n in range(COUNT)
    ]
    receipts = await store.enqueue(*jobs)
    assert [(one.status, one.job) for one in receipts] == [(Status.CREATED, job.id) for job in jobs]
    for job in jobs:
        found = await store.get(job.id)
        assert (found.payload, found.headers, found.tags) == (job.payload, job.headers, job.tags)
        assert found.state is State.READY
    assert await store.count(State.READY) == COUNT
    worker = await store.worker()
    assert await worker.drain() == [job.id for job in jobs]


async def test_resend_is_a_no_op__among_many_that_are_alike(store: Harness) -> None:
    jobs = [store.job() for _ in range(COUNT)]
    await store.enqueue(jobs[7])
    receipts = await store.enqueue(*jobs)
    duplicates = [place for place, one in enumerate(receipts) if one.status is Status.DUPLICATE]
    assert duplicates == [7]
    assert await store.count(State.READY) == COUNT
    worker = await store.worker()
    assert await worker.drain() == [jobs[7].id, *(job.id for job in jobs if job is not jobs[7])]


async def test_settlements_are_independent__of_many_that_are_done(store: Harness) -> None:
    """A lease that was taken away, a job with progress, a result, a cancel: each is judged by itself."""
    await store.time_task()
    worker, other = await store.worker(), await store.worker()
    jobs = await store.add_many(COUNT)
    leases = await worker.take(COUNT)
    assert ids(leases) == jobs
    await store.release(leases[7])
    (again,) = await other.take(1)
    assert again.job == jobs[7]
    await store.cancel(jobs[9])
    await store.broker.annotate([Note(job=jobs[11], fence=leases[11].fence, permille=500)])
    words = [_done(lease) for lease in leases[:25]]
    words[13] = _done(leases[13], result=b"42")
    words[15] = _done(leases[15], outcome=Outcome.RELEASE, runtime=None)
    settled = await store.broker.settle(words)
    stale = [place for place, answer in enumerate(settled.answers) if answer.verdict is not Verdict.APPLIED]
    assert stale == [7]
    expected = [State.DONE] * 25 + [State.RUNNING] * 5
    expected[7], expected[15] = State.RUNNING, State.READY
    assert await store.states(jobs) == expected
    assert (await store.get(jobs[13])).result == b"42"
    assert [len((await store.get(jobs[place])).deliveries) for place in (0, 7, 9, 11, 24)] == [1] * 5
    assert await store.count(State.RUNNING) == 6
    assert {answer.verdict for answer in (await store.broker.settle(words[:7])).answers} == {Verdict.ALREADY}


async def test_release_spends_no_attempt__of_many_in_their_old_places(store: Harness) -> None:
    """What comes back goes before what came after it, and a retry behind it."""
    await store.time_task()
    worker = await store.worker()
    jobs = await store.add_many(COUNT)
    leases = await worker.take(6)
    for lease in leases:
        await (store.retry(lease) if lease.job == jobs[2] else store.release(lease))
    assert ids(await worker.take(COUNT)) == [*jobs[:2], *jobs[3:], jobs[2]]
