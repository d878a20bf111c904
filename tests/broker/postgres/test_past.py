"""Finished jobs in partitions are found as before and forgotten at their moment."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.postgres.past_store import Store, with_store

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness, new_id
from windlass.core.event import FROM_START
from windlass.core.job import Edge, JobDetail, Status
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND

__all__ = ["namespaces"]


async def _seen(store: Harness, jobs: list[str], *, memories: bool = True) -> list[object]:
    """All that can be read of these jobs, but for what names the store's own sessions.

    Memories: also of ids of which nothing else is known. A clock that is set back brings those back that the
    resend window had ended, as long as their segment is there; the model has removed them.
    """
    details = await store.broker.get(jobs)
    if not memories:
        jobs = [detail.id for detail in details if detail and not detail.pruned]
        details = await store.broker.get(jobs)
    finished = await store.broker.watch(jobs, 0)
    return [
        [_plain(detail) for detail in details],
        sorted((end.job, end.state, end.result) for end in finished),
        [view.id for view in await store.listed(states=frozenset({State.DONE, State.CANCELLED, State.DEAD}))],
        [view.id for view in await store.listed(limit=1, queue="q")],
        sorted((row.queue, row.task, row.state, row.count) for row in (await store.broker.counts()).rows),
    ]


def _plain(detail: JobDetail | None) -> object:
    if detail is None:
        return None
    return (
        detail.id,
        detail.state,
        detail.reason,
        detail.payload,
        detail.result,
        detail.finished_at,
        detail.pruned,
    )


async def _finish(store: Harness, *jobs: str, result: bytes | None = None, queue: str = "q") -> None:
    worker = await store.worker()
    leases = await worker.take(len(jobs), queue)
    assert [lease.job for lease in leases] == list(jobs)
    for lease in leases:
        await store.done(lease, result)


async def _passes(
    store: Harness, jobs: list[str], *steps: int, limit: int = 1_000, memories: bool = True
) -> list[object]:
    """What is seen, and how many were pruned, after each of these steps of time and a pass of sweep."""
    found: list[object] = [await _seen(store, jobs, memories=memories)]
    for step in steps:
        store.advance(step)
        found.append((await store.broker.sweep(limit=limit)).pruned)
        found.append(await _seen(store, jobs, memories=memories))
    return found


async def _results_before_jobs(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=3 * HOUR, result_ttl=HOUR)
    jobs = [await store.add(id=ids[0]), await store.add(id=ids[1])]
    await _finish(store, jobs[0], result=b"r")
    await _finish(store, jobs[1])
    return await _passes(store, jobs, HOUR - 1, 1, HOUR, HOUR, 1, 10 * SECOND, DAY)


async def _jobs_for_their_results(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE, result_ttl=HOUR)
    jobs = [await store.add(id=ids[0]), await store.add(id=ids[1])]
    await _finish(store, jobs[0], result=b"r")
    await _finish(store, jobs[1])
    return await _passes(store, jobs, MINUTE, 30 * SECOND, HOUR, MINUTE)


async def _a_pass_has_a_limit(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE, result_ttl=0)
    jobs = [await store.add(id=each) for each in ids[:5]]
    for job in jobs:
        await _finish(store, job)
        store.advance(SECOND)
    return await _passes(store, jobs, MINUTE, 0, 0, 0, limit=2)


async def _the_queues_have_horizons_of_their_own(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=HOUR)
    await store.queue("short", retention=MINUTE)
    jobs = [await store.add(id=ids[0]), await store.add(id=ids[1], queue="short"), await store.add(id=ids[2])]
    await _finish(store, jobs[0], jobs[2])
    await _finish(store, jobs[1], queue="short")
    return await _passes(store, jobs, MINUTE, 30 * MINUTE, HOUR)


async def _retention_grows_and_shrinks(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=HOUR)
    jobs = [await store.add(id=each) for each in ids[:3]]
    await _finish(store, jobs[0])
    found = await _passes(store, jobs, HOUR)
    await store.queue("q", retention=7 * DAY)
    await _finish(store, jobs[1])
    found += await _passes(store, jobs, HOUR, DAY)
    await _finish(store, jobs[2])
    await store.queue("q", retention=MINUTE)
    return found + await _passes(store, jobs, SECOND, MINUTE, DAY)


async def _a_bound_comes_later(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=DAY)
    jobs = [await store.add(id=each) for each in ids[:6]]
    for job in jobs[:5]:
        await _finish(store, job, result=b"r" if job in jobs[1:3] else None)
        store.advance(SECOND)
    await store.queue("q", retention=DAY, retention_count=2)
    found = await _passes(store, jobs, 0, limit=2)
    found += await _passes(store, jobs, 0, SECOND)
    await _finish(store, jobs[5])
    found += await _passes(store, jobs, SECOND)
    await store.queue("q", retention=DAY)
    return found + await _passes(store, jobs, HOUR, DAY, DAY)


async def _events_come_later(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    jobs = [await store.add(id=each) for each in ids[:2]]
    await _finish(store, jobs[0])
    await store.queue("q", retention=MINUTE, emit="all")
    await _finish(store, jobs[1])
    found = await _passes(store, jobs, MINUTE)
    events = await store.broker.events(FROM_START, 100, 0)
    return [*found, [(event.job, event.move) for event in events.items if event.move == "prune"]]


async def _the_clock_is_set_back(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    jobs = [await store.add(id=each) for each in ids[:4]]
    await _finish(store, jobs[0])
    found = await _passes(store, jobs, 2 * MINUTE, memories=False)
    await _finish(store, jobs[1])
    found += await _passes(store, jobs, 2 * MINUTE, -HOUR, memories=False)
    await _finish(store, jobs[2])
    found += await _passes(store, jobs, SECOND, MINUTE, memories=False)
    await _finish(store, jobs[3])
    return found + await _passes(store, jobs, 2 * MINUTE, 2 * HOUR, DAY, memories=False)


async def _the_clock_leaps(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    jobs = [await store.add(id=each) for each in ids[:3]]
    await _finish(store, jobs[0])
    found = await _passes(store, jobs, 3_650 * DAY, memories=False)
    await _finish(store, jobs[1])
    found += await _passes(store, jobs, SECOND, -3_650 * DAY, memories=False)
    await _finish(store, jobs[2])
    return found + await _passes(store, jobs, SECOND, 2 * MINUTE, DAY, memories=False)


async def _an_id_comes_again(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    jobs = ids[:1]
    found: list[object] = []
    for step in (0, MINUTE - 1, 5 * SECOND, 6 * SECOND, MINUTE, HOUR):
        store.advance(step)
        await store.broker.sweep(limit=100)
        receipt = (await store.enqueue(store.job(id=jobs[0])))[0]
        found.append((step, receipt.status))
        if receipt.status is Status.CREATED:
            await _finish(store, jobs[0])
        found.append(await _seen(store, jobs))
    return found


async def _a_key_outlasts_its_job(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    found: list[object] = []
    for number, step in enumerate((0, MINUTE, MINUTE, 10 * MINUTE)):
        store.advance(step)
        await store.broker.sweep(limit=100)
        job = store.job(id=ids[number], key="k", window=5 * MINUTE)
        receipt = (await store.enqueue(job))[0]
        found.append((receipt.status, receipt.of))
        if receipt.status is Status.CREATED:
            await _finish(store, ids[number])
        found.append(await _seen(store, ids[:4]))
    return found


async def _a_parent_comes_back(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    jobs = ids[:3]
    await store.add(id=jobs[0])
    await _finish(store, jobs[0], result=b"r")
    await store.sweep()
    await store.add(id=jobs[1], after=(Edge(jobs[0]),))
    # Needed by one that has not finished: kept, result and all, however late it is.
    found = await _passes(store, jobs, 2 * HOUR, DAY)
    await _finish(store, jobs[1])
    return found + await _passes(store, jobs, MINUTE, HOUR, DAY)


async def _a_purge_takes_the_oldest(store: Harness, ids: list[str]) -> list[object]:
    jobs = [await store.add(id=each) for each in ids[:5]]
    await _finish(store, *jobs[:4], result=b"r")
    await store.sweep()
    await store.cancel(jobs[4])
    found: list[object] = []
    for state, limit in ((State.DONE, 1), (State.DONE, 2), (State.CANCELLED, 5), (State.DONE, 5)):
        purged = await store.broker.purge("q", state, limit)
        found.append((purged.count, purged.more))
        found.append(await _seen(store, jobs))
        await store.sweep()
    return found + await _passes(store, jobs, 11 * SECOND, DAY)


async def _late_words_are_judged(store: Harness, ids: list[str]) -> list[object]:
    await store.queue("q", retention=MINUTE)
    await store.add(id=ids[0])
    lease = await (await store.worker()).one()
    found: list[object] = []
    for step in (0, SECOND, MINUTE, SECOND, MINUTE):
        store.advance(step)
        await store.broker.sweep(limit=100)
        answer = await store.done(lease, b"r")
        operated = await store.cancel(ids[0])
        found.append((answer.verdict, answer.outcome, answer.state, operated.effect, operated.state))
    return found


@pytest.mark.parametrize(
    "scenario",
    [
        _results_before_jobs,
        _jobs_for_their_results,
        _a_pass_has_a_limit,
        _the_queues_have_horizons_of_their_own,
        _retention_grows_and_shrinks,
        _a_bound_comes_later,
        _events_come_later,
        _the_clock_is_set_back,
        _the_clock_leaps,
        _an_id_comes_again,
        _a_key_outlasts_its_job,
        _a_parent_comes_back,
        _a_purge_takes_the_oldest,
        _late_words_are_judged,
    ],
)
def test_it_is_as_in_the_reference_model(
    namespaces: Namespaces, scenario: Callable[[Harness, list[str]], Awaitable[list[object]]]
) -> None:
    ids = [new_id() for _ in range(8)]

    async def modelled(clock: ManualClock, options: Options) -> Broker:
        return MemoryBroker(clock=clock, options=options)

    async def test() -> None:
        seen: list[list[object]] = []
        for opened in (modelled, namespaces.open):
            harness = await Harness.open(opened, Options(resend_window=10 * SECOND))
            try:
                seen.append(await scenario(harness, ids))
            finally:
                await harness.close()
        expected, found = seen
        assert len(found) == len(expected)
        for number, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
            assert ours == theirs, f"observation {number}"

    asyncio.run(test())


# the segments


def test_what_is_done_is_in_the_past(namespaces: Namespaces) -> None:
    """Otherwise nothing here tests anything."""

    async def body(store: Store) -> None:
        await store.done(3)
        assert await store.past() == 3
        assert await store.rows("SELECT count(*) FROM {s}.job") == [0]
        cancelled = await store.harness.reach(State.CANCELLED)
        dead = await store.harness.reach(State.DEAD)
        await store.harness.sweep()
        assert await store.past() == 4
        assert await store.rows("SELECT id::text FROM {s}.job") == [dead]
        assert await store.rows("SELECT id::text FROM {s}.past WHERE state = 6") == [cancelled]

    with_store(namespaces, body)


def test_jobs_that_stay_do_not_keep_others_out_of_the_past(namespaces: Namespaces) -> None:
    """A sweep looks at a thousand of each kind, and the jobs of flows stay where they are."""

    async def body(store: Store) -> None:
        for result in (None, b"r"):
            for count in (1_000, 1):
                await store.done(count, flow="f", result=result)
            store.harness.advance(1)
        cancelled = await store.harness.reach(State.CANCELLED)
        await store.harness.sweep()
        assert await store.rows("SELECT id::text FROM {s}.past") == [cancelled]

    with_store(namespaces, body)
