"""The fetcher in the wrong moment: outcomes, drains and cancels that come while it waits for the store."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.worker.virtual import Bench, Stalled, VirtualPace, run

from windlass import Retry, Windlass, current
from windlass.core.state import State
from windlass.errors import StoreError, StoreUnavailable
from windlass.worker.fetcher import STOPPING
from windlass.worker.options import Group


class Slow:
    """A store that takes its time with some verbs, or is away."""

    def __init__(self, broker: Any, **seconds: float) -> None:
        self._broker = broker
        self.seconds = seconds
        self.away = False
        self.asked: list[str] = []

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._broker, verb)
        if verb not in ("claim", "settle", "annotate"):
            return real

        async def called(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(verb)
            await asyncio.sleep(self.seconds.get(verb, 0.0))
            if self.away:
                raise StoreUnavailable("nobody there")
            return await real(*args, **kwargs)

        return called


class AnyThreadPace(VirtualPace):
    """The loop's time, for threads too."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> float:
        return self._loop.time()


class CountingPace(VirtualPace):
    """Counts how often the worker looks at the clock, which it does whenever it looks for something to do."""

    looks = 0

    def now(self) -> float:
        self.looks += 1
        return super().now()


def test_an_outcome_that_comes_while_notes_are_sent_goes_out_at_once(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    @app.task
    async def work() -> None:
        current.progress(0.5)
        await asyncio.sleep(0.001)

    async def scenario(bench: Bench) -> float:
        slow = Slow(bench.broker, annotate=0.05)
        async with bench.worker(broker=slow):  # type: ignore[arg-type]
            await asyncio.sleep(10)
            start = bench.pace.now()
            (job,) = await bench.enqueue(work.call())
            await bench.broker.watch([job], 10)
            return bench.pace.now() - start

    assert run(scenario(bench(app))) < 0.1


@pytest.mark.parametrize("blocked", [False, True])
def test_a_worker_that_may_not_ask_does_not_look_all_the_time(
    app: Windlass, bench: Callable[[Windlass], Bench], blocked: bool
) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(60)

    async def scenario(bench: Bench) -> int:
        pace = bench.pace = CountingPace()
        (job,) = await bench.enqueue(work.call())
        async with bench.worker(alive_for=1e9 if blocked else 2) as worker:
            await bench.seen(lambda: len(worker.table.started()) == 1)
            stalled = Stalled(worker) if blocked else None
            await asyncio.sleep(50)
            if stalled is not None:
                stalled.go_on()
            looks = pace.looks
            await bench.ended(job)
        return looks

    assert run(scenario(bench(app))) < 5_000, "it looks once in 10 ms or less often"


def test_what_is_claimed_while_a_drain_begins_is_given_back(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    ran: list[int] = []

    @app.task
    async def work() -> None:
        ran.append(1)
        await asyncio.sleep(1)

    async def scenario(bench: Bench) -> tuple[State, int]:
        slow = Slow(bench.broker, claim=5)
        async with bench.worker(broker=slow, grace=3):  # type: ignore[arg-type]
            (job,) = await bench.enqueue(work.call())
            await bench.seen(lambda: slow.asked == ["claim"])
        detail = await bench.job(job)
        return detail.state, detail.attempt

    assert run(scenario(bench(app))) == (State.READY, 0)
    assert ran == []


def test_without_a_grace_nothing_more_starts(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    """A thread cannot be stopped; what stands in line behind it is given back all the same."""
    entered, leave = threading.Event(), threading.Event()
    ran: list[int] = []

    @app.task
    def work(n: int) -> None:
        ran.append(n)
        if n >= 0:
            entered.set()
            assert leave.wait(10)

    async def scenario(bench: Bench) -> list[State]:
        bench.pace = AnyThreadPace()
        await bench.enqueue(*(work.call(-1) for _ in range(30)))
        ids: list[str] = []
        async with bench.worker(slots=1, grace=0) as worker:
            await bench.seen(lambda: len(ran) == 30 and not worker.table.started())
            ids = await bench.enqueue(*(work.call(n) for n in range(5)))
            await bench.seen(lambda: bool(worker.table.started()))
            assert entered.wait(10)
            await bench.seen(lambda: bool(worker.table.waiting()))
        states = [(await bench.job(job)).state for job in ids[1:]]
        leave.set()
        return states

    assert run(scenario(bench(app))) == [State.READY] * 4


def test_a_cancel_that_comes_while_arguments_are_read_stops_the_code(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """The word comes before there is anything to stop."""
    reading: list[Callable[[], None]] = []
    seen: list[bool] = []

    class Argument(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            for word in reading:
                word()

    @app.task
    async def work(arg: Argument) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            seen.append(current.cancelled)

    async def scenario(bench: Bench) -> float:
        call = work.call(Argument(1))
        async with bench.worker() as worker:

            def cancel_all() -> None:
                for entry in worker.table.started():
                    worker.cancel(entry.job, entry.fence)

            reading.append(cancel_all)
            start = bench.pace.now()
            (job,) = await bench.enqueue(call)
            await bench.ended(job)
            return bench.pace.now() - start

    assert run(scenario(bench(app))) < 10
    assert seen in ([True], []), "at its first await, or before its first line"


def test_a_cancel_that_is_said_again_leaves_the_code_its_time_to_end(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    ended: list[str] = []

    @app.task
    async def work() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(12)
            ended.append("cleaned up")

    async def scenario(bench: Bench) -> State:
        (job,) = await bench.enqueue(work.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: len(worker.table.started()) == 1)
            (entry,) = worker.table.started()
            for _ in range(4):  # with every beat
                worker.cancel(entry.job, entry.fence)
                await asyncio.sleep(5)
            return (await bench.ended(job))[0].state

    assert run(scenario(bench(app))) is State.CANCELLED
    assert ended == ["cleaned up"]


def test_an_error_that_cannot_be_understood_is_an_outcome_all_the_same(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    class Later(Retry):
        def __init__(self) -> None:
            pass  # and so it has no `after`

    class Silent(BaseException):
        def __str__(self) -> str:
            raise ValueError

    @app.task
    async def later() -> None:
        raise Later

    @app.task
    async def silent() -> None:
        raise Silent

    async def scenario(bench: Bench) -> list[State]:
        ids = await bench.enqueue(later.using(max_attempts=1).call(), silent.using(max_attempts=1).call())
        async with bench.worker(grace=1):
            return [detail.state for detail in await bench.ended(*ids, within=60)]

    assert run(scenario(bench(app))) == [State.DEAD, State.DEAD]


def test_a_stop_without_a_store_ends_in_time(app: Windlass, bench: Callable[[Windlass], Bench]) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(1)

    async def scenario(bench: Bench) -> float:
        slow = Slow(bench.broker)
        await bench.enqueue(work.call())
        start = 0.0
        with contextlib.suppress(StoreError):
            async with bench.worker(broker=slow, grace=3) as worker:  # type: ignore[arg-type]
                await bench.seen(lambda: len(worker.table.started()) == 1)
                slow.away = True
                start = bench.pace.now()
        return bench.pace.now() - start

    assert 3 <= run(scenario(bench(app))) <= 3 + STOPPING + 2


def test_a_group_that_has_room_again_hears_of_new_jobs(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    starts: list[float] = []
    app.queue("a")
    app.queue("b")

    @app.task(queue="a")
    async def work(seconds: float) -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> list[float]:
        waits: list[float] = []
        groups = [Group(slots=1, queues=("a",)), Group(slots=1, queues=("b",))]
        async with bench.worker(groups=groups):
            for n in range(5):
                (long,) = await bench.enqueue(work.call(5.1 + n / 7))
                await bench.ended(long)
                sent = bench.pace.now()
                await bench.ended(*await bench.enqueue(work.call(0)))
                waits.append(starts[-1] - sent)
        return waits

    assert max(run(scenario(bench(app)))) < 0.1


def test_a_group_that_is_full_leaves_wakes_to_others(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """Both wait for wakes of queue a; the first has room in its other group only."""
    starts: list[float] = []
    app.queue("a")
    app.queue("b")

    @app.task(queue="a")
    async def work(seconds: float) -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> float:
        groups = [Group(slots=1, queues=("a",)), Group(slots=1, queues=("b",))]
        waits: list[float] = []
        async with bench.worker(groups=groups) as first:
            await bench.enqueue(work.call(1_000))
            await bench.seen(lambda: bool(first.table.started()))
            async with bench.worker(groups=[Group(slots=1, queues=("a",))]):
                for n in range(10):
                    await asyncio.sleep(1.5 + n / 11)
                    sent = bench.pace.now()
                    (job,) = await bench.enqueue(work.call(0.1))
                    await bench.ended(job)
                    waits.append(starts[-1] - sent)
            first.drain(0)
        return max(waits)

    assert run(scenario(bench(app))) < 0.1


def test_a_loop_that_does_not_come_to_its_jobs_is_not_given_them_again_and_again(
    app: Windlass, bench: Callable[[Windlass], Bench]
) -> None:
    """Inside an application it may be anything that keeps the loop, not only a job."""

    @app.task
    async def work() -> None: ...

    async def scenario(bench: Bench) -> int:
        async with bench.worker() as worker:
            stalled = Stalled(worker)
            (job,) = await bench.enqueue(work.call())
            await asyncio.sleep(10)
            deliveries = len((await bench.job(job)).deliveries)
            stalled.go_on()
            await bench.ended(job, within=2)
        return deliveries

    assert run(scenario(bench(app))) <= 1


@pytest.mark.parametrize("why", ["fenced", "blocked"])
def test_a_worker_that_may_not_ask_leaves_wakes_to_others(
    app: Windlass, bench: Callable[[Windlass], Bench], why: str
) -> None:
    starts: list[float] = []

    @app.task
    async def work(seconds: float) -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(seconds)

    async def scenario(bench: Bench) -> float:
        waits: list[float] = []
        async with bench.worker(alive_for=2 if why == "fenced" else 1e9) as first:
            await bench.enqueue(work.call(100))
            await bench.seen(lambda: bool(first.table.started()))
            stalled = Stalled(first) if why == "blocked" else None
            await asyncio.sleep(5)
            async with bench.worker():
                for n in range(10):
                    await asyncio.sleep(1.5 + n / 11)
                    sent = bench.pace.now()
                    (job,) = await bench.enqueue(work.call(0))
                    await bench.ended(job)
                    waits.append(starts[-1] - sent)
            if stalled is not None:
                stalled.go_on()
            first.drain(0)
        return max(waits)

    assert run(scenario(bench(app))) < 0.1
