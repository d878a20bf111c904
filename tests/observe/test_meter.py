"""What is counted of the calls of a broker."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.observe.test_exposition import read, sample

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.observed import observe
from windlass.clock import ManualClock
from windlass.conformance.harness import Harness
from windlass.core.lease import Ask
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.take import Source, Take
from windlass.core.units import SECOND
from windlass.errors import ContractError, StoreUnavailable
from windlass.observe import measures, meter
from windlass.observe.meter import Meter
from windlass.observe.stock import Stock

Seen = dict[tuple[str, frozenset[tuple[str, str]]], float]


def counted(story: Callable[[Harness, Meter], Awaitable[None]]) -> Seen:
    """What a story on a store in memory leaves in the metrics."""
    registry = measures.registry()
    count = Meter(registry)

    async def opened(clock: ManualClock, options: Options) -> Broker:
        return observe(MemoryBroker(clock=clock, options=options), [count])

    async def main() -> None:
        store = await Harness.open(opened)
        await story(store, count)
        await store.close()

    asyncio.run(main())
    return read(registry)


OF = {"queue": "q", "task": "t"}


def test_a_job_is_counted_from_its_enqueue_to_its_end() -> None:
    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t")
        store.advance(3 * SECOND)
        lease = await (await store.worker()).one()
        await store.done(lease, runtime=SECOND // 5)

    seen = counted(story)
    assert seen[sample("windlass_enqueued_total", **OF, status="created")] == 1
    assert seen[sample("windlass_attempts_total", **OF, outcome="done")] == 1
    assert seen[sample("windlass_job_wait_seconds_sum", **OF)] == 3
    assert seen[sample("windlass_job_run_seconds_sum", **OF)] == 0.2
    assert seen[sample("windlass_store_call_seconds_count", verb="settle")] == 1


def test_a_job_that_was_taken_is_counted_once() -> None:
    async def story(store: Harness, _: Meter) -> None:
        jobs = ((store.job(task="t"),), (store.job(task="t", id=await store.add(task="t")),))
        take = Take(source=Source("orders"), expect=None, then="1", groups=jobs)
        for _ in range(2):
            await store.broker.take(take)

    seen = counted(story)
    assert seen[sample("windlass_enqueued_total", **OF, status="created")] == 2
    assert seen[sample("windlass_enqueued_total", **OF, status="duplicate")] == 1
    assert seen[sample("windlass_store_call_seconds_count", verb="take")] == 2


def test_the_outcome_that_stands_is_counted() -> None:
    """A retry of the last attempt is a dead letter."""

    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t", max_attempts=1)
        await store.retry(await (await store.worker()).one())

    seen = counted(story)
    assert seen[sample("windlass_attempts_total", **OF, outcome="dead")] == 1
    assert sample("windlass_attempts_total", **OF, outcome="retry") not in seen


def test_what_is_said_twice_is_counted_once() -> None:
    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t")
        worker = await store.worker()
        lease = await worker.one()
        again = Ask(session=worker.id, seq=worker.seq, queues=("q",), slots=1, limit=1)
        assert (await store.broker.claim(again)).leases[0].fence == lease.fence
        await store.done(lease)
        await store.done(lease)

    seen = counted(story)
    assert seen[sample("windlass_job_wait_seconds_count", **OF)] == 1
    assert seen[sample("windlass_attempts_total", **OF, outcome="done")] == 1


def test_a_crash_is_counted_with_its_cause() -> None:
    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t")
        worker = await store.worker()
        lease = await worker.one()
        await worker.end(CauseKind.CRASH, started=[lease])
        assert (await store.done(lease)).outcome is not Outcome.DONE

    seen = counted(story)
    assert seen[sample("windlass_interrupted_total", **OF, cause="crash")] == 1
    assert seen[sample("windlass_attempts_total", **OF, outcome="retry")] == 1
    assert sample("windlass_attempts_total", **OF, outcome="done") not in seen


def test_a_stale_word_is_counted_as_refused() -> None:
    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t")
        worker = await store.worker()
        lease = await worker.one()
        await worker.end(CauseKind.STOP)
        await (await store.worker()).one()
        await store.done(lease)

    assert counted(story)[sample("windlass_settlements_refused_total", verdict="stale")] == 1


def test_calls_that_fail_are_counted_and_those_that_wait_are_not_timed() -> None:
    async def story(store: Harness, _: Meter) -> None:
        with pytest.raises(ContractError):
            await store.broker.claim(Ask(queues=(), slots=2, limit=1))
        await store.broker.wait(["q"], 0)

    seen = counted(story)
    assert seen[sample("windlass_store_errors_total", verb="claim")] == 1
    assert sample("windlass_store_call_seconds_count", verb="wait") not in seen


def test_the_lag_of_sweeps_grows_by_itself() -> None:
    now = [100.0]
    registry = measures.registry()
    count = Meter(registry, now=lambda: now[0])

    async def main() -> None:
        broker = observe(MemoryBroker(), [count])
        count.refresh()
        assert read(registry) == {}
        await broker.sweep(limit=10)
        now[0] += 7

    asyncio.run(main())
    count.refresh()
    assert read(registry)[sample("windlass_sweep_lag_seconds")] == 7


def test_leases_whose_end_is_never_seen_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "HELD", 3)
    kept: list[int] = []

    async def story(store: Harness, count: Meter) -> None:
        worker = await store.worker()
        for _ in range(9):
            await store.add(task="t")
            await worker.one()
        kept.append(len(count._held))

    counted(story)
    assert kept == [3]


# --- the store ----------------------------------------------------------------------------------------------


def test_what_the_store_holds_is_read_when_somebody_asks() -> None:
    registry, now = measures.registry(), [0.0]
    stock = Stock(registry, version="9", now=lambda: now[0])

    async def story(store: Harness, _: Meter) -> None:
        await store.add(task="t")
        await store.add(task="t", delay=SECOND * 60)
        done = await store.add(task="u")
        worker = await store.worker(slots=4)
        for lease in (await worker.claim("q", slots=2, limit=3)).leases:
            if lease.job == done:
                await store.done(lease)
        await store.add(task="t")
        store.advance(2 * SECOND)
        await store.broker.pause("q")
        await stock.refresh(store.broker)
        first = read(registry)
        assert first[sample("windlass_jobs", **OF, state="scheduled")] == 1
        assert first[sample("windlass_jobs", **OF, state="ready")] == 1
        assert first[sample("windlass_jobs", **OF, state="running")] == 1
        assert first[sample("windlass_jobs_finished_total", queue="q", task="u", state="done")] == 1
        assert first[sample("windlass_queue_oldest_seconds", queue="q")] == 2
        assert first[sample("windlass_queue_paused", queue="q")] == 1
        assert first[sample("windlass_store_up")] == 1
        assert first[sample("windlass_info", version="9", store="memory")] == 1
        hosts = {
            dict(labels)["host"]: value for (name, labels), value in first.items() if name == "windlass_slots"
        }
        assert sum(hosts.values()) == 4
        await store.add(task="t")
        await stock.refresh(store.broker)
        assert read(registry) == first, "it was read a moment ago"
        now[0] += 10
        await stock.refresh(store.broker)
        assert read(registry)[sample("windlass_jobs", **OF, state="ready")] == 2

    counted(story)


def test_a_store_that_is_away_is_a_metric() -> None:
    class Away(MemoryBroker):
        async def counts(self) -> None:  # type: ignore[override]
            raise StoreUnavailable("it is away")

    registry = measures.registry()
    asyncio.run(Stock(registry).refresh(Away()))
    assert read(registry) == {sample("windlass_store_up"): 0}
