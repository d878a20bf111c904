"""Jobs that run when they are enqueued, and async tests."""

import asyncio
import threading

import pytest

from windlass import RetryPolicy, Windlass, current
from windlass.errors import JobFailed
from windlass.testing import AsyncBench, inline, testing
from windlass.testing.blocks import async_bench


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


# --- inline ---


def test_enqueue_returns_a_finished_job(app: Windlass) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    @app.task
    async def triple(number: int) -> int:
        await asyncio.sleep(0)
        return 3 * number

    with inline(app) as t:
        assert double.enqueue(21).result() == 42
        assert triple.using(delay="1h").enqueue(2).result() == 6
        assert [job.result() for job in app.enqueue_many(double.call(number) for number in range(3))] == [
            0,
            2,
            4,
        ]
        t.assert_enqueued(double, 21)


def test_what_an_inline_task_raises_is_raised_where_it_was_enqueued(app: Windlass) -> None:
    @app.task
    def fail() -> None:
        raise LookupError("no")

    with inline(app), pytest.raises(LookupError, match="no"):
        fail.enqueue()
    with inline(app, raises=False) as t:
        job = fail.enqueue()
        assert job.state() == "dead"
        assert len(t.runs(job)) == 5
        with pytest.raises(JobFailed):
            job.result()


def test_retries_are_gone_through_on_the_spot(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(max_attempts=3, base="1h"))
    def third_time() -> int:
        if current.attempt < 3:
            raise LookupError
        return current.attempt

    with inline(app, raises=False):
        assert third_time.enqueue().result() == 3


def test_what_a_task_enqueues_runs_when_it_has_ended(app: Windlass) -> None:
    @app.task
    def inner() -> None:
        order.append("inner")

    @app.task
    def outer() -> None:
        job = inner.enqueue()
        order.append(job.state())

    order: list[str] = []
    with inline(app):
        outer.enqueue()
    assert order == ["ready", "inner"]


def test_threads_may_enqueue_inline(app: Windlass) -> None:
    @app.task
    def work(number: int) -> int:
        return number

    results: list[int] = []

    def enqueue(number: int) -> None:
        job = work.enqueue(number)
        results.append(job.id.count("-"))

    with inline(app) as t:
        threads = [threading.Thread(target=enqueue, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        t.finish()
        assert sorted(run.result for run in t.runs(work)) == list(range(8))
    assert len(results) == 8


# --- async ---


def test_async_tasks_run_on_the_loop_of_the_test(app: Windlass) -> None:
    @app.task
    async def on_loop() -> bool:
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is loops[0]

    @app.task
    def in_thread() -> list[bool]:
        return [threading.current_thread() is threading.main_thread(), current.step("s", lambda: True)]

    @app.task(run="inline")
    def inline_task() -> bool:
        return threading.current_thread() is threading.main_thread()

    loops: list[asyncio.AbstractEventLoop] = []

    async def scenario() -> None:
        loops.append(asyncio.get_running_loop())
        async with testing(app) as t:
            job = await on_loop.aenqueue()
            await t.drain()
            assert await job.aresult() is True
            assert await t.run(in_thread) == [False, True]
            assert await t.run(inline_task) is True

    asyncio.run(scenario())


def test_async_tests_see_what_tasks_raise_and_move_the_clock(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(base=30))
    async def flaky() -> int:
        if current.attempt == 1:
            raise LookupError
        return current.attempt

    async def scenario() -> None:
        async with testing(app) as t:
            job = await flaky.aenqueue()
            with pytest.raises(LookupError):
                await t.drain()
            await t.advance(30)
            assert await job.aresult() == 2
            await flaky.using(delay="1d").aenqueue()
            await t.finish(raises=False)
            await t.advance_to(t.now)
            assert [run.outcome for run in t.runs()] == ["retry", "done", "retry", "done"]

    asyncio.run(scenario())


def test_a_cancelled_test_is_not_an_outcome(app: Windlass) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with testing(app) as t:
            job = await endless.aenqueue()
            draining = asyncio.create_task(t.drain())
            await started.wait()
            draining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining
            assert await job.astate() == "running"

    asyncio.run(scenario())


def test_a_timeout_is_seen_as_one(app: Windlass) -> None:
    @app.task(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    with testing(app) as t:
        slow.enqueue()
        with pytest.raises(TimeoutError, match=r"longer than its timeout of 0\.01 s"):
            t.drain()


@pytest.mark.filterwarnings("ignore::windlass.errors.BlockingCall")
def test_inline_in_async_code(app: Windlass) -> None:
    @app.task
    async def inner() -> bool:
        return asyncio.get_running_loop() is loops[0]

    @app.task
    async def outer() -> bool:
        await inner.aenqueue()
        return True

    @app.task
    async def fail(number: int) -> None:
        if number == 1:
            raise LookupError(str(number))

    loops: list[asyncio.AbstractEventLoop] = []

    async def scenario() -> None:
        loops.append(asyncio.get_running_loop())
        async with inline(app) as t:
            assert await (await outer.aenqueue()).aresult() is True
            assert [run.result for run in t.runs()] == [True, True]
            assert inner.enqueue().result() is False  # a blocking call has a loop of its own
            answers = await asyncio.gather(
                *(fail.aenqueue(number) for number in range(3)), return_exceptions=True
            )
            assert [type(answer).__name__ for answer in answers] == ["Job", "LookupError", "Job"]

    asyncio.run(scenario())


def test_a_plain_block_works_in_async_tests(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def scenario() -> None:
        with testing(app) as t:
            job = await work.aenqueue()
            t.drain()
            assert await job.aresult() == 7

    asyncio.run(scenario())


def test_plain_tests_give_async_tasks_one_loop(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return id(asyncio.get_running_loop())

    with testing(app) as t:
        assert t.run(work) == t.run(work)


def test_a_fixture_that_is_not_async_can_open_an_async_bench(app: Windlass) -> None:
    @app.task
    async def work() -> int:
        return 7

    async def scenario(t: AsyncBench) -> None:
        assert await t.run(work) == 7

    with async_bench(app) as bench:
        asyncio.run(scenario(bench))
