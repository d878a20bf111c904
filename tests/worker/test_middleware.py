"""Middleware around runs, wherever they happen; around a plain task there is nothing."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from tests.worker.inside import embedded
from tests.worker.virtual import Bench, run

import windlass
from windlass import Depends, GiveUp, Retry, RetryPolicy, RunningJob, Snooze, Windlass, current
from windlass.core.operate import Target
from windlass.core.outcome import Error
from windlass.core.state import State
from windlass.errors import InvalidOption, JobFailed
from windlass.testing import testing

Proceed = Callable[[], Awaitable[Any]]
Benches = Callable[[Windlass], Bench]


# --- nothing around a task ----------------------------------------------------------------------------------


def test_a_task_with_nothing_around_it_is_itself(app: Windlass, bench: Benches) -> None:
    """The executor calls no function more, and imports none."""
    callers: list[str] = []
    called: set[str] = set()

    @app.task
    async def work() -> None:
        callers.append(sys._getframe(1).f_code.co_name)

    @app.task(run="inline")
    def inline() -> None:
        callers.append(sys._getframe(1).f_code.co_name)

    def profile(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename)

    async def scenario(bench: Bench) -> None:
        ids = await bench.enqueue(work.call(), inline.call())
        sys.setprofile(profile)
        try:
            async with bench.worker():
                await bench.ended(*ids)
        finally:
            sys.setprofile(None)

    assert app.runnable == {"work": app.tasks["work"], "inline": app.tasks["inline"]}
    run(scenario(bench(app)))
    assert sorted(callers) == ["_call_inline", "perform"]
    folder = Path(windlass.__file__).parent / "worker"
    ours = {Path(name).name for name in called if Path(name).parent == folder}
    assert "executor.py" in ours
    assert ours & {"around.py", "injection.py", "handing.py", "lifespan.py", "surroundings.py"} == set()


# --- middleware ---------------------------------------------------------------------------------------------


def test_middleware_is_around_every_run_the_first_one_outermost(app: Windlass, bench: Benches) -> None:
    seen: list[Any] = []

    def adds(name: str) -> None:
        @app.middleware
        async def around(job: RunningJob, run: Proceed) -> Any:
            seen.append(f"{name} before {job.task} {job.lane}")
            value = await run()
            seen.append(f"{name} after")
            return value + 1

    adds("outer")
    adds("inner")

    @app.task
    async def work(number: int) -> int:
        seen.append("work")
        return number

    async def scenario(bench: Bench) -> Any:
        (job,) = await bench.enqueue(work.using(lane="acme").call(40))
        async with bench.worker():
            (detail,) = await bench.ended(job)
            return work.signature.decode_result(detail.result or b"")

    assert run(scenario(bench(app))) == 42
    assert seen == ["outer before work acme", "inner before work acme", "work", "inner after", "outer after"]


@pytest.mark.parametrize("where", ["loop", "thread", "inline"])
def test_it_runs_on_the_loop_and_a_def_task_in_its_thread(app: Windlass, where: Any) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    threads: list[str] = []

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        threads.append(threading.current_thread().name)
        tenant.set("acme")
        return await run()

    def looked() -> str:
        threads.append(threading.current_thread().name)
        return tenant.get()

    async def alooked() -> str:
        return looked()

    task = app.task(name="task", run=where)(alooked if where == "loop" else looked)
    assert embedded(app, task.call()) == ["acme"]
    assert threads[0] == "MainThread"
    assert (threads[1] == "MainThread") is (where != "thread")


def test_as_many_def_tasks_run_at_once_as_there_are_slots(app: Windlass) -> None:
    meeting = threading.Barrier(4)

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        return await run()

    @app.task
    def work() -> int:
        meeting.wait(20)
        return 1

    assert embedded(app, *(work.call() for _ in range(8))) == [1] * 8


def test_what_it_raises_or_returns_is_the_outcome(app: Windlass, bench: Benches) -> None:  # noqa: C901 - many functions
    seen: list[str] = []

    @app.middleware
    async def around(job: RunningJob, run: Proceed) -> Any:
        try:
            return await run()
        except BaseException as error:
            seen.append(f"{job.task}: {type(error).__name__}")
            if job.task == "saved":
                return "instead"
            if job.task == "changed":
                raise GiveUp("not in this weather") from error
            raise

    once = RetryPolicy(max_attempts=1)

    def fails(error: Exception) -> Callable[[], str]:
        def raises() -> str:
            raise error

        return raises

    for name, error in (
        ("saved", LookupError("x")),
        ("changed", LookupError("x")),
        ("failed", LookupError("x")),
        ("stops", StopIteration("x")),
        ("retried", Retry("later")),
        ("given", GiveUp("why")),
    ):
        app.task(name=name, run="inline", retry=once)(fails(error))

    @app.task(run="inline")
    def snoozed() -> str:
        if seen.count("snoozed: Snooze"):
            return "rested"
        raise Snooze(60)

    async def scenario(bench: Bench) -> dict[str, Any]:
        ids = await bench.enqueue(*(task.call() for task in app.tasks.values()))
        async with bench.worker():
            return {detail.task: detail for detail in await bench.ended(*ids)}

    ended = run(scenario(bench(app)))
    assert {name: detail.state for name, detail in ended.items()} == {
        **dict.fromkeys(("saved", "snoozed"), State.DONE),
        **dict.fromkeys(("changed", "failed", "stops", "retried", "given"), State.DEAD),
    }
    assert app.tasks["saved"].signature.decode_result(ended["saved"].result) == "instead"
    errors: dict[str, Error] = {name: detail.error for name, detail in ended.items() if detail.error}
    assert errors["changed"].message == "not in this weather"
    assert errors["failed"].type == "LookupError"
    assert "x" in errors["stops"].message or "StopIteration" in errors["stops"].message
    assert ended["snoozed"].attempt == 1
    assert "retried: Retry" in seen


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_one_that_forgets_await_fails_the_run(app: Windlass, kind: str, returns: bool) -> None:
    reached: list[str] = []

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        work = run()
        return work if returns else None

    def plain() -> None:
        reached.append("the task")

    async def coroutine() -> None:
        reached.append("the task")

    work = app.task(name="work", retry=RetryPolicy(max_attempts=1))(plain if kind == "plain" else coroutine)
    with testing(app, raises=False) as t:
        job = work.enqueue()
        t.drain()
        with pytest.raises(
            JobFailed, match=r"middleware around\(\) does not await run\(\): write return await"
        ):
            job.result()
    assert not reached


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_it_may_run_what_is_further_in_again(app: Windlass, kind: str) -> None:
    calls: list[str] = []

    def connection() -> Iterator[int]:
        calls.append("opened")
        yield len(calls)
        calls.append("closed")

    @app.middleware
    async def again(_job: RunningJob, run: Proceed) -> Any:
        try:
            return await run()
        except ConnectionError:
            return await run()

    def plain(number: int = Depends(connection)) -> int:
        calls.append("task")
        if number == 1:
            raise ConnectionError("serialization failure")
        return number

    async def coroutine(number: int = Depends(connection)) -> int:
        return plain(number)

    work = app.task(name="work", retry=RetryPolicy(max_attempts=1))(plain if kind == "plain" else coroutine)
    with testing(app) as t:
        job = work.enqueue()
        t.drain()
        assert job.result() == 3
    assert calls == ["opened", "task", "opened", "task", "closed"]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_it_hears_that_async_code_is_to_stop(app: Windlass, bench: Benches, how: str) -> None:
    seen: list[str] = []

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        try:
            return await run()
        except asyncio.CancelledError:
            seen.append("cancelled" if current.cancelled else "late")
            raise

    @app.task(timeout=5, retry=RetryPolicy(max_attempts=1))
    async def work() -> None:
        seen.append("began")
        await asyncio.sleep(3_600)

    async def scenario(bench: Bench) -> Any:
        (job,) = await bench.enqueue(work.call())
        async with bench.worker() as worker:
            await bench.seen(lambda: bool(seen))
            if how == "cancel":
                await bench.broker.cancel([Target(job)])
                worker.cancel(job, (await bench.job(job)).fence)
            return (await bench.ended(job))[0]

    detail = run(scenario(bench(app)))
    assert detail.state is (State.CANCELLED if how == "cancel" else State.DEAD)
    assert seen == ["began", "cancelled" if how == "cancel" else "late"]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_thread_is_waited_for_whatever_asks_it_to_stop(how: str) -> None:
    """As without middleware: the code can look, and may go on; a job that has ended does not run on."""
    app = Windlass("memory://", beat=0.05, session_ttl=5)
    told, events = threading.Event(), list[str]()
    limits: Any = {"timeout": 0.1, "hard_timeout": 60} if how == "timeout" else {}

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        asyncio.get_running_loop().call_later(0.3, told.set)  # behind the timeout
        value = await run()
        await asyncio.sleep(0)
        events.append("after")
        return value

    @app.task(**limits)
    def work() -> str:
        events.append("begins")
        while how == "cancel" and not current.cancelled:
            time.sleep(0.001)
        assert told.wait(20)
        events.append("ends")
        return "whole"

    async def main() -> None:
        async with app.worker(concurrency=1):
            job = await work.aenqueue()
            if how == "cancel":
                while not events:  # noqa: ASYNC110 - a thread brings it about
                    await asyncio.sleep(0.001)
                assert await job.acancel()
            assert await job.aresult(timeout=30) == "whole"
        await app.aclose()

    asyncio.run(main())
    assert events == ["begins", "ends", "after"]


def test_an_application_ends_though_a_thread_does_not() -> None:
    """As without middleware: the job goes back when the grace is over."""
    app = Windlass("memory://", beat=0.05, session_ttl=5, grace=0)
    began, over = threading.Event(), threading.Event()

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        return await run()

    @app.task
    def work() -> None:
        began.set()
        over.wait(60)

    async def main() -> State:
        async with app.worker(concurrency=1):
            job = await work.aenqueue()
            await asyncio.to_thread(began.wait, 20)
        state = await job.astate()
        await app.aclose()
        return state

    assert asyncio.run(main()) is State.READY
    over.set()


@pytest.mark.parametrize("where", ["thread", "loop"])
def test_an_exit_of_a_task_ends_its_run_alone(app: Windlass, where: Any) -> None:
    seen: list[str] = []

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        try:
            return await run()
        except SystemExit:
            seen.append("exit")
            raise

    def leaves() -> None:
        sys.exit(3)

    async def aleaves() -> None:
        sys.exit(3)

    once = RetryPolicy(max_attempts=1)
    task = app.task(name="leaves", retry=once)(aleaves if where == "loop" else leaves)
    with testing(app, raises=False) as t:
        for _ in range(2):
            job = task.enqueue()
            t.drain()
            assert job.state() == "dead"

    async def main() -> None:
        async with app.worker(concurrency=1):
            for _ in range(2):
                with pytest.raises(JobFailed, match="SystemExit: 3"):
                    await (await task.aenqueue()).aresult(timeout=30)
        await app.aclose()

    asyncio.run(main())
    assert seen == ["exit"] * 4


def test_a_task_of_two_halves_is_waited_for_in_its_thread(app: Windlass) -> None:
    """A plain function that returns a coroutine, as some decorators make of an `async def`."""

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        return await run()

    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    @app.task
    def work() -> Any:
        return answer()

    assert embedded(app, work.call()) == [7]


def test_middleware_that_is_none_is_refused(app: Windlass) -> None:
    with pytest.raises(InvalidOption, match=r"plain\(\) is no coroutine function: write async def plain\("):

        @app.middleware  # type: ignore[type-var]
        def plain(job: RunningJob, run: Proceed) -> Any: ...

    with pytest.raises(InvalidOption, match=r"takes two arguments.*async def one\(job, run\)"):

        @app.middleware  # type: ignore[type-var]
        async def one(job: RunningJob) -> Any: ...
