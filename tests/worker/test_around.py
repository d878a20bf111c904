"""Middleware and dependencies around runs, wherever they happen; around a plain task there is nothing."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import pytest
from tests.worker.virtual import Bench, run

import windlass
from windlass import Depends, GiveUp, Retry, RetryPolicy, RunningJob, Snooze, Windlass, current, injected
from windlass.core.operate import Target
from windlass.core.outcome import Error
from windlass.core.state import State
from windlass.errors import InvalidOption, InvalidPayload

Proceed = Callable[[], Awaitable[Any]]
Benches = Callable[[Windlass], Bench]


def embedded(app: Windlass, *calls: Any) -> list[Any]:
    """What jobs of a worker inside this process return: its threads are real."""

    async def main() -> list[Any]:
        async with app.worker(concurrency=4):
            jobs = await app.aenqueue_many(calls)
            found = [await job.aresult(timeout=30) for job in jobs]
        await app.aclose()
        return found

    return asyncio.run(main())


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
    with pytest.raises(InvalidOption, match=r"async def name\(job, run\)"):

        @app.middleware  # type: ignore[type-var]
        def plain(job: RunningJob, run: Proceed) -> Any: ...

    with pytest.raises(InvalidOption, match=r"takes two arguments.*async def one\(job, run\)"):

        @app.middleware  # type: ignore[type-var]
        async def one(job: RunningJob) -> Any: ...


# --- dependencies -------------------------------------------------------------------------------------------


class Trace:
    """What was called, and on which thread."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.threads: dict[str, bool] = {}

    def __call__(self, word: str) -> str:
        self.words.append(word)
        self.threads[word] = threading.current_thread() is threading.main_thread()
        return word


@pytest.fixture
def trace() -> Trace:
    return Trace()


def program(app: Windlass, trace: Trace, *, plain: bool) -> None:  # noqa: C901 - many functions
    """Tasks with dependencies of every kind."""

    def setting() -> str:
        return trace("setting")

    def session(value: str = Depends(setting)) -> Iterator[str]:
        trace("session")
        try:
            yield f"session of {value}"
        except LookupError:
            trace("rollback")
            raise
        finally:
            trace("session ends")

    async def user() -> str:
        await asyncio.sleep(0)
        return trace("user")

    async def client(name: str = Depends(user)) -> AsyncIterator[str]:
        trace("client")
        try:
            yield f"client of {name}"
        finally:
            await asyncio.sleep(0)
            trace("client ends")

    def asked(one: str = Depends(session), two: str = Depends(setting)) -> str:
        return trace(f"asked by attempt {current.attempt} of {current.job.task}") + f" with {one}, {two}"

    if plain:

        @app.task(name="work")
        def work(
            number: int, db: Annotated[str, Depends(session)] = injected, more: str = Depends(asked)
        ) -> str:
            trace("work")
            if number < 0:
                raise LookupError(number)
            return f"{number}: {db}; {more}"
    else:

        @app.task(name="work", retry=RetryPolicy(max_attempts=1))
        def mixed(number: int, http: str = Depends(client), db: str = Depends(session)) -> str:
            trace("work")
            if number < 0:
                raise LookupError(number)
            return f"{number}: {http}; {db}"

    @app.task(name="awork")
    async def awork(number: int, *, http: str = Depends(client), db: str = Depends(session)) -> str:
        trace("work")
        return f"{number}: {http}; {db}"


def test_plain_dependencies_stay_with_a_def_task_in_its_thread(app: Windlass, trace: Trace) -> None:
    program(app, trace, plain=True)
    assert embedded(app, app.tasks["work"].call(1)) == [
        "1: session of setting; asked by attempt 1 of work with session of setting, setting"
    ]
    assert trace.words == ["setting", "session", "asked by attempt 1 of work", "work", "session ends"]
    assert set(trace.threads.values()) == {False}


def test_async_dependencies_are_called_on_the_loop_the_others_with_the_task(
    app: Windlass, trace: Trace
) -> None:
    program(app, trace, plain=False)
    assert embedded(app, app.tasks["work"].call(2)) == ["2: client of user; session of setting"]
    assert trace.words == ["user", "client", "setting", "session", "work", "session ends", "client ends"]
    assert [word for word, main in trace.threads.items() if not main] == [
        "setting",
        "session",
        "work",
        "session ends",
    ]


def test_an_async_task_has_all_of_them_on_the_loop(app: Windlass, trace: Trace) -> None:
    program(app, trace, plain=False)
    assert embedded(app, app.tasks["awork"].call(3)) == ["3: client of user; session of setting"]
    assert trace.words == ["user", "client", "setting", "session", "work", "session ends", "client ends"]
    assert set(trace.threads.values()) == {True}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_run_raises_is_thrown_into_them_and_none_can_hide_it(  # noqa: C901 - many functions
    app: Windlass, bench: Benches, asynchronous: bool
) -> None:
    seen: list[str] = []

    def commits() -> Iterator[int]:
        try:
            yield 1
            seen.append("committed")
        except LookupError:
            seen.append("rolled back")
            raise

    def swallows(_outer: int = Depends(commits)) -> Iterator[int]:
        try:
            yield 2
        except LookupError:
            seen.append("swallowed")

    async def aswallows(_outer: int = Depends(swallows)) -> AsyncIterator[int]:
        try:
            yield 3
        except LookupError:
            seen.append("swallowed on the loop")

    once = RetryPolicy(max_attempts=1)
    if asynchronous:

        @app.task(name="work", retry=once)
        async def awork(_number: int = Depends(aswallows)) -> None:
            raise LookupError("no such order")
    else:

        @app.task(name="work", retry=once, run="inline")
        def work(_number: int = Depends(swallows)) -> None:
            raise LookupError("no such order")

    async def scenario(bench: Bench) -> Any:
        (job,) = await bench.enqueue(app.tasks["work"].call())
        async with bench.worker():
            return (await bench.ended(job))[0]

    detail = run(scenario(bench(app)))
    assert (detail.state, detail.error.type) == (State.DEAD, "LookupError")
    assert seen == [*(["swallowed on the loop"] if asynchronous else []), "swallowed", "rolled back"]


def test_an_error_in_a_dependency_is_the_jobs_and_middleware_hears_of_it(  # noqa: C901 - many functions
    app: Windlass, bench: Benches
) -> None:
    seen: list[str] = []

    @app.middleware
    async def around(_job: RunningJob, run: Proceed) -> Any:
        try:
            return await run()
        except Exception as error:
            seen.append(str(error))
            raise

    def first() -> Iterator[int]:
        yield 1
        seen.append("not after a failure")

    def broken(_one: int = Depends(first)) -> int:
        raise ConnectionError("no pool")

    def mute() -> Iterator[int]:
        yield from ()

    def twice() -> Iterator[int]:
        yield 1
        yield 2

    once = RetryPolicy(max_attempts=1)

    @app.task(retry=once)
    async def one(_value: int = Depends(broken)) -> None: ...

    @app.task(retry=once)
    async def two(_value: int = Depends(mute)) -> None: ...

    @app.task(retry=once)
    async def three(_value: int = Depends(twice)) -> None: ...

    async def scenario(bench: Bench) -> list[Any]:
        ids = await bench.enqueue(one.call(), two.call(), three.call())
        async with bench.worker():
            return await bench.ended(*ids)

    assert [detail.state for detail in run(scenario(bench(app)))] == [State.DEAD] * 3
    assert sorted(seen) == [
        "dependency mute() has ended without a yield",
        "dependency twice() yields more than once",
        "no pool",
    ]


def test_they_are_no_part_of_the_payload(app: Windlass, trace: Trace) -> None:
    program(app, trace, plain=True)
    work: Any = app.tasks["work"]
    assert work.signature.schema()["properties"] == {"number": {"type": "integer"}}
    assert work.call(1).payload == work.call(number=1).payload
    with pytest.raises(InvalidPayload, match='unexpected argument "db"'):
        work.call(1, db="mine")
    with pytest.raises(InvalidPayload, match="at most 1 arguments by position"):
        work.call(1, "mine")
    assert work(1, db="mine", more="mine, too") == "1: mine; mine, too"


def test_a_plain_call_that_forgets_one_says_what_it_is() -> None:
    marker: Any = Depends(os.getcwd)
    with pytest.raises(AttributeError, match=r"this is Depends\(getcwd\).*gives this argument itself"):
        marker.execute("SELECT 1")
    with pytest.raises(AttributeError, match="this is injected"):
        injected.execute("SELECT 1")


def first(value: "Annotated[int, Depends(second)]") -> int:
    return value


def second(value: "Annotated[int, Depends(first)]") -> int:
    return value


def test_what_cannot_be_given_is_refused_when_the_task_is_registered(app: Windlass) -> None:  # noqa: C901 - many functions
    def wants(url: str) -> str:
        return url

    def number() -> int:
        return 1

    def circle(_value: int = Depends(first)) -> None: ...

    def unknown(_value: str = Depends(wants)) -> None: ...

    def nested(_value: int = Depends(lambda text=Depends(wants): text)) -> None: ...

    def before(_value: int = Depends(number), other: int = 0) -> None: ...

    def only_default(_value: int = injected) -> None: ...

    def two(_value: Annotated[int, Depends(number)] = Depends(second)) -> None: ...

    def by_position(_value: int = Depends(number), /) -> None: ...

    def with_rest(_value: int = Depends(number), *rest: int) -> None: ...

    for function, message in (
        (circle, r'circle\(\): parameter "_value".*need each other: first\(\) → second\(\) → first\(\)'),
        (unknown, r'unknown\(\): parameter "_value": wants\(\): nothing gives its parameter "url"'),
        (nested, r'wants\(\): nothing gives its parameter "url"'),
        (before, r'"_value" is injected, so it stands behind all.*behind "other"'),
        (
            only_default,
            r"its annotation does not say by whom: write _value: Annotated\[\.\.\., Depends\(f\)\]",
        ),
        (two, r'parameter "_value" has two Depends'),
        (by_position, r'"_value" is injected by its name'),
        (with_rest, r'behind "rest", or behind a "\*"'),
    ):
        with pytest.raises(InvalidOption, match=message):
            app.task(function)
    with pytest.raises(InvalidOption, match="Depends takes a function, such as"):
        Depends(dict)
    assert app.tasks == {}
