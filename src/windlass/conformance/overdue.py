"""Dead letters whose time is over: left to the program that archives them, which then prunes them."""

from windlass.conformance.harness import Harness
from windlass.core.job import Edge, OnFailure
from windlass.core.operate import Effect, Target
from windlass.core.session import OVERDUE
from windlass.core.state import State
from windlass.core.units import HOUR, MINUTE, SECOND, JobId


async def _kept(store: Harness, jobs: list[JobId]) -> list[bool]:
    found = await store.broker.get(jobs)
    return [detail is not None and not detail.pruned for detail in found]


async def test_sweep_leaves_dead_letters_to_their_archive(store: Harness) -> None:
    """They stay and are named, pass by pass, until they are pruned; all else is pruned as ever."""
    await store.queue("q", retention=MINUTE, dead_retention=HOUR)
    worker = await store.worker()
    jobs = await store.add_many(4)
    leases = await worker.take(4)
    for lease in leases[:3]:
        await store.dead(lease)
        store.advance(SECOND)
    await store.done(leases[3])
    store.advance(HOUR - 2 * SECOND)
    first = await store.broker.sweep(limit=1_000, keep_dead=True)
    assert (first.overdue, first.pruned) == (tuple(jobs[:2]), 1)
    store.advance(HOUR)
    again = await store.broker.sweep(limit=1_000, keep_dead=True)
    assert (again.overdue, again.pruned, again.more) == (tuple(jobs[:3]), 0, False)
    assert await _kept(store, jobs) == [True, True, True, False]
    await store.replay(jobs[0])
    answers = await store.broker.prune([Target(job, State.DEAD) for job in jobs[:2]])
    assert [answer.effect for answer in answers] == [Effect.WRONG_STATE, Effect.APPLIED]
    assert (await store.broker.sweep(limit=1_000, keep_dead=True)).overdue == (jobs[2],)
    assert (await store.broker.sweep(limit=1_000)).pruned == 1
    assert await _kept(store, jobs) == [True, False, False, False]


async def test_sweep_leaves_dead_letters_to_their_archive__some_at_a_time(store: Harness) -> None:
    """Those that nobody prunes hide nothing but dead letters of their own queue."""
    for queue in ("q", "other"):
        await store.queue(queue, retention=MINUTE, dead_retention=MINUTE)
    worker = await store.worker()
    for queue in ("q", "other"):
        await store.add_many(OVERDUE + 1, queue=queue)
        for lease in await worker.take(OVERDUE + 1, queue):
            await store.dead(lease)
    parent = await store.add()
    child = await store.add(after=(Edge(parent, OnFailure.RUN),))
    await store.dead(await worker.one())
    await store.passes(1, MINUTE - 1)
    store.advance(1)
    overdue = (await store.broker.sweep(limit=1, keep_dead=True)).overdue
    assert len(overdue) == len(set(overdue)) == 2 * OVERDUE
    assert not {parent, child} & set(overdue)
