"""The fetcher and the store: lost replies, outages, wakes, suspects, lost sessions."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.virtual import Bench, run

from windlass import Windlass
from windlass.core.lease import Ask
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, SessionInfo
from windlass.core.state import State
from windlass.errors import ContractError, StoreUnavailable


class Faulty:
    """A store that does what it is asked, and whose replies get lost; or that is away."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.lose = 0
        self.away = False
        self.calls: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._broker, verb)
        if verb not in ("claim", "settle", "annotate"):
            return real

        async def called(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(verb)
            if self.away:
                raise StoreUnavailable("nobody there")
            answer = await real(*args, **kwargs)
            if self.lose:
                self.lose -= 1
                raise StoreUnavailable("the reply got lost")
            return answer

        return called


def test_lost_replies_cost_nothing(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.01)

    async def scenario(bench: Bench) -> list[Any]:
        faulty = Faulty(bench.broker)
        ids = await bench.enqueue(*(work.call(n) for n in range(200)))
        async with bench.worker(broker=faulty):  # type: ignore[arg-type]
            for _ in range(30):
                faulty.lose = 1
                await asyncio.sleep(0.03)
            return await bench.ended(*ids)

    details = run(scenario(bench(app)))
    assert sorted(ran) == list(range(200)), "each once"
    assert {(detail.state, detail.attempt, len(detail.deliveries)) for detail in details} == {
        (State.DONE, 1, 1)
    }


def test_short_jobs_that_run_side_by_side_are_settled_together(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """Jobs under a limit come for free slots only: settled one by one they would also come one by one."""
    app.queue("default", concurrency=1_000)

    @app.task
    async def work(n: int) -> None:
        for _ in range(n % 16):  # turns of the loop, so that they do not end all at once
            await asyncio.sleep(0)

    async def scenario(bench: Bench) -> list[int]:
        sizes: list[int] = []
        real = bench.broker.settle

        async def settle(items: Any, ask: Any = None) -> Any:
            sizes.append(len(items))
            return await real(items, ask)

        bench.broker.settle = settle  # type: ignore[method-assign]
        ids = await bench.enqueue(*(work.call(n) for n in range(160)))
        async with bench.worker(slots=16):
            await bench.ended(*ids)
        return sizes

    sizes = run(scenario(bench(app)))
    assert sum(sizes) == 160
    # The run time is known after the first few.
    assert len(sizes) <= 20, sizes


def test_a_short_job_does_not_wait_for_a_long_one(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    app.queue("default", concurrency=1_000)

    @app.task
    async def short() -> None: ...

    @app.task
    async def long() -> None:
        await asyncio.sleep(60)

    async def scenario(bench: Bench) -> float:
        ids = await bench.enqueue(*(short.call() for _ in range(50)))
        async with bench.worker(slots=4):
            await bench.ended(*ids)
            await bench.enqueue(*(long.call() for _ in range(3)))
            await asyncio.sleep(1)
            (last,) = await bench.enqueue(short.call())
            await bench.ended(last, within=10)
            detail = await bench.job(last)
        assert detail.deliveries[0].claimed_at is not None
        return (detail.deliveries[0].ended_at - detail.deliveries[0].claimed_at) / 1e6

    assert run(scenario(bench(app))) < 0.005


def test_an_outage_is_waited_out(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []

    @app.task
    async def work(n: int) -> None:
        await asyncio.sleep(1)
        ran.append(n)

    async def scenario(bench: Bench) -> tuple[int, int]:
        faulty = Faulty(bench.broker)
        ids = await bench.enqueue(*(work.call(n) for n in range(8)))
        async with bench.worker(broker=faulty) as worker:  # type: ignore[arg-type]
            await bench.seen(lambda: len(worker.table.started()) == 4)
            faulty.away = True
            before = len(faulty.calls)
            await asyncio.sleep(120)
            tries = len(faulty.calls) - before
            done_meanwhile = len(ran)
            faulty.away = False
            await bench.ended(*ids)
            return tries, done_meanwhile

    tries, done_meanwhile = run(scenario(bench(app)))
    assert sorted(ran) == list(range(8))
    assert done_meanwhile == 4, "what had been claimed ran on"
    assert 80 < tries < 300, "about once a second"


def test_a_batch_that_the_store_refuses_is_settled_one_by_one(
    app: Windlass, bench: Callable[[Windlass], Bench], caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def work(n: int) -> int:
        return n

    async def scenario(bench: Bench) -> list[Any]:
        real = bench.broker.settle

        async def picky(items: Any, ask: Ask | None = None) -> Any:
            if any(item.result == b'{"v":1,"r":3}' for item in items):
                raise ContractError("not this one")
            return await real(items, ask)

        bench.broker.settle = picky  # type: ignore[method-assign]
        ids = await bench.enqueue(*(work.call(n) for n in range(6)))
        async with bench.worker():
            return await bench.ended(*ids)

    details = run(scenario(bench(app)))
    assert [detail.state for detail in details].count(State.DONE) == 5
    assert details[3].state is State.DEAD
    assert details[3].error is not None
    assert details[3].error.message == "not this one"


def test_a_new_job_is_started_at_once(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    starts: list[float] = []

    @app.task
    async def work() -> None:
        starts.append(asyncio.get_running_loop().time())

    async def scenario(bench: Bench) -> float:
        async with bench.worker():
            await asyncio.sleep(30.3)
            now = bench.pace.now()
            (job,) = await bench.enqueue(work.call())
            await bench.ended(job)
            return now

    assert run(scenario(bench(app))) == pytest.approx(starts[0], abs=0.005)


def test_a_rate_is_used_up_without_waiting_for_the_floor(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    starts: list[float] = []
    app.queue("slow", rate="5/s")

    @app.task(queue="slow")
    async def work() -> None:
        starts.append(asyncio.get_running_loop().time())

    async def scenario(bench: Bench) -> None:
        ids = await bench.enqueue(*(work.call() for _ in range(51)))
        async with bench.worker():
            await bench.ended(*ids)

    run(scenario(bench(app)))
    assert starts[-1] - starts[0] == pytest.approx(10, abs=0.2)


def test_idle_workers_ask_rarely(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    async def scenario(bench: Bench) -> int:
        faulty = Faulty(bench.broker)
        async with bench.worker(broker=faulty):  # type: ignore[arg-type]
            await asyncio.sleep(100)
        return len(faulty.calls)

    assert run(scenario(bench(app))) <= 110


def test_a_job_that_does_not_get_its_turn_is_given_back(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """Quick so far, then one that is not: what was held in reserve for after it goes to others."""

    @app.task
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> tuple[int, int]:
        quick = await bench.enqueue(*(work.call(0.001) for _ in range(100)))
        long = await bench.enqueue(work.call(60))
        more = await bench.enqueue(*(work.call(0.001) for _ in range(50)))
        async with bench.worker(slots=1):
            await bench.ended(*quick)
            await asyncio.sleep(1)
            meanwhile = [(await bench.job(job)).state for job in more]
            attempts = [(await bench.job(job)).attempt for job in more]
            await bench.ended(*long, *more)
            return meanwhile.count(State.READY), sum(attempts)

    assert run(scenario(bench(app))) == (50, 0)


def test_a_lost_session_stops_claiming(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    told: list[str] = []

    @app.task
    async def work() -> str:
        await asyncio.sleep(5)
        return "late"

    async def scenario(bench: Bench) -> tuple[Any, Any]:
        (job,) = await bench.enqueue(work.call())
        async with bench.worker() as worker:
            worker.on_lost = lambda: told.append("lost")
            await bench.seen(lambda: len(worker.table.started()) == 1)
            await bench.broker.end_session(worker.session, Cause(CauseKind.LOST))
            await asyncio.sleep(3)
            assert worker.is_lost
            taken = await bench.job(job)
            await asyncio.sleep(10)
            return taken, await bench.job(job)

    taken, after = run(scenario(bench(app)))
    assert told == ["lost"]
    assert taken.state is State.READY
    assert after.state is State.READY, "its late word is refused"
    assert after.result is None


def test_suspects_are_reported_and_run_alone(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    told: list[int] = []
    ran: list[str] = []

    @app.task
    async def poison() -> None:
        ran.append("poison")

    async def crash_twice(bench: Bench) -> None:
        for n in range(2):
            session = f"crashing-{n}"
            await bench.broker.beat([Beat(session=session, open=SessionInfo())])
            claimed = await bench.broker.claim(
                Ask(queues=("default",), slots=1, limit=1, session=session, seq=1)
            )
            (lease,) = claimed.leases
            await bench.broker.end_session(session, Cause(CauseKind.CRASH), [(lease.job, lease.fence)])
            await asyncio.sleep(2)

    async def scenario(bench: Bench) -> State:
        (job,) = await bench.enqueue(poison.call())
        await crash_twice(bench)
        async with bench.worker() as worker:
            worker.on_suspects = told.append
            await asyncio.sleep(3)
            assert ran == []
        async with bench.worker(alone=True, slots=1):
            (detail,) = await bench.ended(job)
        return detail.state

    assert run(scenario(bench(app))) is State.DONE
    assert set(told) == {1}


def test_outcomes_that_no_ask_goes_with_are_counted_by_one_for_nothing(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """A store that forgets them in a failover is found out by the number of the next ask."""

    @app.task
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> list[Any]:
        asks: list[Any] = []
        real = bench.broker.settle

        async def settle(items: Any, ask: Any = None) -> Any:
            asks.append(ask)
            return await real(items, ask)

        bench.broker.settle = settle  # type: ignore[method-assign]
        calls = (work.call(30.0 if n % 3 else 0.001) for n in range(60))
        ids = await bench.enqueue(*calls)
        async with bench.worker(slots=4):
            await bench.ended(*ids)
            return asks

    asks = run(scenario(bench(app)))
    assert None not in asks
    assert any(ask.limit == 0 for ask in asks), "there was room for more each time"
    numbers = [ask.seq for ask in asks]
    assert numbers == sorted(set(numbers))
