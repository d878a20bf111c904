"""Dependencies of tasks: given before a run, taken back after it."""

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import fastapi
import pytest
from tests.worker.inside import embedded
from tests.worker.virtual import Bench, run
from typing_extensions import TypeAliasType

from windlass import Depends, RetryPolicy, RunningJob, Windlass, current, injected
from windlass.core.state import State
from windlass.errors import InvalidOption, InvalidPayload, JobFailed
from windlass.testing import testing

Proceed = Callable[[], Awaitable[Any]]
Benches = Callable[[Windlass], Bench]


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
    with pytest.raises(InvalidPayload, match="at most 1 argument by position"):
        work.call(1, "mine")
    assert work(1, db="mine", more="mine, too") == "1: mine; mine, too"


def test_a_plain_call_that_forgets_one_says_what_it_is() -> None:
    marker: Any = Depends(os.getcwd)
    with pytest.raises(AttributeError, match=r"this is Depends\(getcwd\).*gives this argument itself"):
        marker.execute("SELECT 1")
    with pytest.raises(AttributeError, match="this is injected"):
        injected.execute("SELECT 1")


def values() -> Iterator[int]:
    yield 1


async def avalues() -> AsyncIterator[int]:
    yield 1


Alias = TypeAliasType("Alias", Annotated[int, Depends(values)])


def test_an_alias_of_a_type_may_have_the_mark(app: Windlass) -> None:
    @app.task
    def work(given: Alias = injected, also: Annotated[Alias, "a remark"] = injected) -> int:
        return given + also

    with testing(app) as t:
        job = work.enqueue()
        t.drain()
        assert job.result() == 2


class Empty:
    """A dependency without a name of its own, which ends before it gives a value."""

    def __call__(self, *_more: int) -> Iterator[int]:
        yield from ()


@pytest.mark.parametrize(("source", "name"), [(Empty(), "Empty"), (functools.partial(Empty(), 1), "Empty")])
def test_one_that_ends_without_a_value_is_named(app: Windlass, source: Any, name: str) -> None:
    @app.task(retry=RetryPolicy(max_attempts=1))
    def work(_value: int = Depends(source)) -> None: ...

    with testing(app, raises=False) as t:
        job = work.enqueue()
        t.drain()
        with pytest.raises(JobFailed, match=rf"dependency {name}\(\) has ended without a yield"):
            job.result()


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

    def a_part(_value: Annotated[int, Depends(number)] | None = None) -> None: ...

    def deeper(_value: list[dict[str, Annotated[int, Depends(number)]]]) -> None: ...

    def no_type(_value: Depends(number)) -> None: ...  # type: ignore[valid-type]

    def not_called(_value: Annotated[int, Depends]) -> None: ...

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
        (
            a_part,
            r"has Depends\(number\) on a part of its type: write _value: Annotated\[\.\.\., Depends\(f\)\]",
        ),
        (deeper, r"has Depends\(number\) on a part of its type"),
        (no_type, r"Depends\(number\) in place of a type: write _value: TYPE = Depends\(number\)"),
        (not_called, r'"_value" has Depends without a function: write Depends\(f\)'),
    ):
        with pytest.raises(InvalidOption, match=message):
            app.task(function)
    with pytest.raises(InvalidOption, match="Depends takes a function, such as"):
        Depends(dict)
    for decorated in (contextlib.contextmanager(values), contextlib.asynccontextmanager(avalues)):
        with pytest.raises(InvalidOption, match=r"leave the decorator of contextlib off a?values\(\)"):
            Depends(decorated)
    assert app.tasks == {}


def test_the_depends_of_another_framework_is_refused(app: Windlass) -> None:
    """It has the same name, and a task would get the mark itself."""

    def get_value() -> int:
        return 1

    def as_default(_value: int = fastapi.Depends(get_value)) -> None: ...
    def in_annotation(_value: Annotated[int, fastapi.Security(get_value)]) -> None: ...
    def deeper(_value: Annotated[None, Depends(as_default)] = injected) -> None: ...

    for function in (as_default, in_annotation, deeper):
        with pytest.raises(InvalidOption, match='"_value" has the Depends of fastapi, which workers do not'):
            app.task(function)
