"""How a worker runs jobs: slots, prefetch, cancellation, stopping, and what jobs say meanwhile."""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass, current
from windlass.core.operate import Effect, Target
from windlass.core.outcome import Outcome
from windlass.core.state import State
from windlass.errors import Unsupported
from windlass.worker.options import Group


class Gauge:
    """How many are inside, and were at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


def test_slots_bound_what_runs_at_once(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    gauge = Gauge()

    @app.task
    async def work() -> None:
        with gauge:
            await asyncio.sleep(1)

    async def scenario(bench: Bench) -> float:
        ids = await bench.enqueue(*(work.call() for _ in range(10)))
        async with bench.worker(slots=3):
            start = bench.pace.now()
            await bench.ended(*ids)
            return bench.pace.now() - start

    took = run(scenario(bench(app)))
    assert gauge.most == 3
    assert 4 <= took < 4.5


def test_groups_keep_their_slots(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    gauges = {"low": Gauge(), "high": Gauge()}
    app.queue("low")
    app.queue("high")

    @app.task
    async def work(queue: str) -> None:
        with gauges[queue]:
            await asyncio.sleep(1)

    async def scenario(bench: Bench) -> None:
        low = [work.using(queue="low").call("low") for _ in range(8)]
        high = [work.using(queue="high").call("high") for _ in range(8)]
        ids = await bench.enqueue(*low, *high)
        groups = [Group(slots=3, queues=("high",)), Group(slots=1, queues=("low",))]
        async with bench.worker(groups=groups):
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert {name: gauge.most for name, gauge in gauges.items()} == {"high": 3, "low": 1}


def test_slow_jobs_are_not_held_in_reserve(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """What waits here could run elsewhere."""

    @app.task
    async def work() -> None:
        await asyncio.sleep(1)

    async def scenario(bench: Bench) -> int:
        ids = await bench.enqueue(*(work.call() for _ in range(20)))
        async with bench.worker(slots=2):
            await bench.ended(*ids[:10])
            states = [(await bench.job(job)).state for job in ids]
            await bench.ended(*ids)
            return states.count(State.RUNNING)

    assert run(scenario(bench(app))) <= 2


def test_quick_jobs_are_held_in_reserve(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    asked: list[int] = []

    @app.task
    async def work() -> None:
        await asyncio.sleep(0.001)

    async def scenario(bench: Bench) -> None:
        claim, settle = bench.broker.claim, bench.broker.settle

        async def counted_claim(ask: Any) -> Any:
            asked.append(ask.limit - ask.slots)
            return await claim(ask)

        async def counted_settle(items: Any, ask: Any = None) -> Any:
            asked.append(0 if ask is None else ask.limit - ask.slots)
            return await settle(items, ask)

        bench.broker.claim, bench.broker.settle = counted_claim, counted_settle  # type: ignore[method-assign]
        ids = await bench.enqueue(*(work.call() for _ in range(500)))
        async with bench.worker(slots=2):
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert asked[0] == 0, "nothing is known of the jobs"
    assert 20 <= max(asked) <= 110, "about 50 ms of them"


def test_what_one_job_sets_another_does_not_see(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
    seen: list[str] = []

    @app.task
    async def in_loop(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    @app.task(run="inline")
    def inline(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    async def scenario(bench: Bench) -> None:
        calls = [call for n in range(5) for call in (in_loop.call(str(n)), inline.call(str(n)))]
        ids = await bench.enqueue(*calls)
        async with bench.worker(slots=1):
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert seen == ["nobody"] * 10


def test_cancelling_stops_the_code(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    seen: list[str] = []

    @app.task
    async def work() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            seen.append(f"cancelled: {current.cancelled}")

    @app.task
    async def stubborn() -> str:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    async def scenario(bench: Bench) -> list[State]:
        ids = await bench.enqueue(work.call(), stubborn.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: len(worker.table.started()) == 2)
            asked = await bench.broker.cancel([Target(job) for job in ids])
            assert [answer.effect for answer in asked] == [Effect.FLAGGED] * 2
            for job in ids:
                worker.cancel(job, (await bench.job(job)).fence)
            return [detail.state for detail in await bench.ended(*ids)]

    assert run(scenario(bench(app))) == [State.CANCELLED, State.DONE]
    assert seen == ["cancelled: True"]


def test_draining_lets_jobs_end(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(5)

    async def scenario(bench: Bench) -> list[tuple[State, int]]:
        ids = await bench.enqueue(*(work.call() for _ in range(4)))
        async with bench.worker(slots=2, grace=30) as worker:
            await bench.seen(lambda: len(worker.table.started()) == 2)
        return [((await bench.job(job)).state, (await bench.job(job)).attempt) for job in ids]

    assert run(scenario(bench(app))) == [(State.DONE, 1)] * 2 + [(State.READY, 0)] * 2


def test_after_the_grace_jobs_are_released_without_an_attempt(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(500)

    async def scenario(bench: Bench) -> tuple[Any, float]:
        (job,) = await bench.enqueue(work.call())
        async with bench.worker(grace=3) as worker:
            await bench.seen(lambda: len(worker.table.started()) == 1)
            start = bench.pace.now()
        return await bench.job(job), bench.pace.now() - start

    detail, took = run(scenario(bench(app)))
    assert (detail.state, detail.attempt) == (State.READY, 0)
    assert detail.deliveries[-1].outcome is Outcome.RELEASE
    assert 3 <= took < 3.2


def test_a_fenced_worker_starts_nothing(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """Its last answered beat is too long ago: somebody else may have its jobs."""
    seen: list[bool] = []

    @app.task
    async def first() -> None:
        await asyncio.sleep(10)
        seen.append(current.lease_lost)

    @app.task
    async def second() -> None:
        seen.append(False)

    async def scenario(bench: Bench) -> tuple[State, int]:
        (one,) = await bench.enqueue(first.call())
        async with bench.worker(alive_for=5):
            await asyncio.sleep(7)
            (two,) = await bench.enqueue(second.call())
            await bench.ended(one)
            await asyncio.sleep(1)
            return (await bench.job(two)).state, len((await bench.job(two)).deliveries)

    assert run(scenario(bench(app))) == (State.READY, 0)
    assert seen == [True]


def test_jobs_speak_while_they_run(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task
    async def work() -> None:
        for step in range(10):
            current.log(f"line {step}")
            current.progress(step / 10, f"step {step}")
        await asyncio.sleep(5)
        current.progress(1, "last word")

    async def scenario(bench: Bench) -> tuple[Any, Any]:
        (job,) = await bench.enqueue(work.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: len(worker.table.started()) == 1)
            await asyncio.sleep(1)
            meanwhile = await bench.job(job)
            return meanwhile, (await bench.ended(job))[0]

    meanwhile, end = run(scenario(bench(app)))
    assert list(meanwhile.logs) == [f"line {step}" for step in range(10)]
    assert (meanwhile.progress.permille, meanwhile.progress.message) == (900, "step 9")
    assert (end.progress.permille, end.progress.message) == (1000, "last word")


def test_a_step_is_done_once(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    charged: list[str] = []

    async def charge() -> int:
        charged.append(current.idempotency_key)
        return 99

    @app.task
    async def order() -> int:
        amount = await current.astep("charge", charge)
        again = await current.astep("charge", charge)
        await current.astep("nothing", lambda: None)
        if current.attempt == 1:
            raise ValueError
        return amount + again

    async def scenario(bench: Bench) -> tuple[str, Any]:
        (job,) = await bench.enqueue(order.call())
        async with bench.worker():
            return job, (await bench.ended(job))[0]

    job, detail = run(scenario(bench(app)))
    assert order.signature.decode_result(detail.result) == 198
    assert charged == [job]


def test_current_belongs_to_runs_alone(app: Windlass) -> None:
    assert not current
    with pytest.raises(LookupError, match="no job here"):
        _ = current.job
    assert repr(current) == "<current: no job>"


def test_current_knows_its_job(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    seen: list[Any] = []

    @app.task
    async def work() -> None:
        seen.append((current.job, current.attempt, current.fence, current.deadline, current.cancelled))
        with pytest.raises(Unsupported, match="PostgreSQL can"):
            async with current.transaction():
                pass
        with pytest.raises(Exception, match="0 to 1"):
            current.progress(2)
        with pytest.raises(Exception, match=r"await current\.astep"):
            current.step("a", lambda: 1)

    async def scenario(bench: Bench) -> Any:
        sender = work.using(lane="acme", tags=["a"], headers={"trace": "1"}, priority=3, max_attempts=1)
        (job,) = await bench.enqueue(sender.call())
        async with bench.worker():
            return (await bench.ended(job))[0]

    detail = run(scenario(bench(app)))
    assert detail.state is State.DONE, detail.error
    job, attempt, fence, deadline, cancelled = seen[0]
    assert (job.id, job.task, job.queue, job.lane) == (detail.id, "work", "default", "acme")
    assert (job.priority, job.max_attempts, job.tags, job.headers) == (3, 1, ("a",), {"trace": "1"})
    assert (attempt, fence, deadline, cancelled) == (1, detail.fence, None, False)
