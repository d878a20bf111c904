"""Lifespans and dependencies inside of tests: entered for a block, replaced by an override."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from windlass import Depends, RunningJob, Windlass, current
from windlass.errors import InvalidOption, LifespanFailed
from windlass.testing import inline, override, testing
from windlass.testing.blocks import async_bench

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
lives: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    lives.clear()


def get_db() -> str:
    return "the real one"


def get_session(db: str = Depends(get_db)) -> Iterator[str]:
    lives.append("session")
    yield f"session of {db}"
    lives.append("session ends")


@contextlib.asynccontextmanager
async def lifespan() -> AsyncIterator[Any]:
    lives.append("enter")
    tenant.set("acme")
    yield asyncio.get_running_loop()
    lives.append("leave")


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory://", lifespan=lifespan)

    @app.middleware
    async def around(_job: RunningJob, run: Callable[[], Awaitable[Any]]) -> Any:
        return await run()

    @app.task
    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    @app.task
    async def awhere() -> list[Any]:
        return [asyncio.get_running_loop() is current.resources, tenant.get()]

    @app.task
    def ask(session: str = Depends(get_session)) -> str:
        return session

    @app.task
    async def aask(session: str = Depends(get_session)) -> str:
        return session

    return app


def test_a_block_enters_the_lifespan_before_its_first_job(app: Windlass) -> None:
    with testing(app) as t:
        assert lives == []
        assert t.run(app.tasks["awhere"]) == [True, "acme"]
        assert t.run(app.tasks["awhere"]) == [True, "acme"], "all of the block have one loop"
        assert t.run(app.tasks["where"]), "blocking code stays in the thread of the test"
        assert lives == ["enter"]
    assert lives == ["enter", "leave"]
    with testing(app):
        pass
    assert lives == ["enter", "leave"], "a block without jobs needs none"


def test_jobs_see_what_the_test_has_set_and_what_the_lifespan_has_set(app: Windlass) -> None:
    other: ContextVar[str] = ContextVar("other")

    @app.task
    async def both() -> list[str]:
        return [tenant.get(), other.get()]

    with testing(app) as t:
        for value in ("one", "two"):
            other.set(value)
            assert t.run(both) == ["acme", value]
    assert tenant.get() == "nobody"


def test_an_async_block_enters_it_on_its_own_loop(app: Windlass) -> None:
    async def main() -> None:
        async with testing(app) as t:
            assert await t.run(app.tasks["awhere"]) == [True, "acme"]
            assert await t.run(app.tasks["where"]) is False
            assert lives == ["enter"]
        assert lives == ["enter", "leave"]

    asyncio.run(main())


def test_the_fixture_of_async_tests_leaves_it_when_their_loop_stands_still(app: Windlass) -> None:
    with asyncio.Runner() as runner, async_bench(app) as t:
        assert runner.run(t.run(app.tasks["awhere"])) == [True, "acme"]
    assert lives == ["enter", "leave"]
    lives.clear()
    with async_bench(app) as t:
        assert asyncio.run(t.run(app.tasks["awhere"])) == [True, "acme"]
    assert lives == ["enter", "leave"], "its loop was closed before, and has left what was open"


@pytest.mark.filterwarnings("ignore::windlass.errors.BlockingCall")
def test_inline_jobs_have_it_too(app: Windlass) -> None:
    with inline(app):
        assert app.tasks["awhere"].enqueue().result() == [True, "acme"]
    assert lives == ["enter", "leave"]

    async def main() -> None:
        with inline(app):
            assert app.tasks["awhere"].enqueue().result() == [True, "acme"]

    asyncio.run(main())
    assert lives == ["enter", "leave"] * 2


def test_a_lifespan_that_fails_is_the_tests_to_see() -> None:
    @contextlib.contextmanager
    def broken() -> Iterator[None]:
        raise ConnectionError("no database")
        yield

    app = Windlass("memory://", lifespan=broken)

    @app.task
    def work() -> None: ...

    with testing(app) as t, pytest.raises(LifespanFailed, match="no database"):
        t.run(work)


@contextlib.contextmanager
def fake_lifespan() -> Iterator[str]:
    lives.append("fake")
    yield "a fake pool"
    lives.append("fake ends")


def test_a_block_enters_another_lifespan_in_place_of_the_apps(app: Windlass) -> None:
    @app.task
    def resources() -> str:
        return str(current.resources)

    with testing(app, lifespan=fake_lifespan) as t:
        assert t.run(resources) == "a fake pool"
    assert lives == ["fake", "fake ends"]
    with inline(app, lifespan=lambda _app: fake_lifespan()):
        assert resources.enqueue().result() == "a fake pool"
    lives.clear()
    with testing(app) as t:
        assert t.run(app.tasks["awhere"]) == [True, "acme"], "after the block the app has its own again"
    assert lives == ["enter", "leave"]


def test_a_lifespan_that_is_none_is_refused_and_the_app_keeps_its_own(app: Windlass) -> None:
    wrong: Any = "a pool"
    with pytest.raises(InvalidOption, match="lifespan is a function"), testing(app, lifespan=wrong):
        pass
    with testing(app) as t:
        assert t.run(app.tasks["awhere"]) == [True, "acme"]


# --- overrides ----------------------------------------------------------------------------------------------


async def fake_async(name: str = Depends(lambda: "a fake")) -> str:
    await asyncio.sleep(0)
    return name


def fake_generator() -> Iterator[str]:
    lives.append("fake")
    yield "a fake"
    lives.append("fake ends")


@pytest.mark.parametrize("task", ["ask", "aask"])
@pytest.mark.parametrize("fake", [lambda: "a fake", fake_async, fake_generator])
def test_an_override_takes_the_place_of_a_dependency(
    app: Windlass, task: str, fake: Callable[..., Any]
) -> None:
    with testing(app) as t:
        assert t.run(app.tasks[task]) == "session of the real one"
        with override(get_db, fake):
            assert t.run(app.tasks[task]) == "session of a fake"
            with override(get_db, lambda: "another"):
                assert t.run(app.tasks[task]) == "session of another"
            assert t.run(app.tasks[task]) == "session of a fake"
        assert t.run(app.tasks[task]) == "session of the real one"


def test_what_is_replaced_is_not_called(app: Windlass) -> None:
    with testing(app) as t, override(get_session, lambda: "none at all"):
        assert t.run(app.tasks["ask"]) == "none at all"
    assert lives == ["enter", "leave"]


def test_an_override_that_cannot_be_called_is_refused_and_leaves_nothing_behind(app: Windlass) -> None:
    wrong: Any = 3
    with pytest.raises(InvalidOption, match="for a value write lambda: value"), override(get_db, wrong):
        pass
    with pytest.raises(InvalidOption, match="the function that is in Depends"), override(wrong, get_db):
        pass
    with (
        pytest.raises(InvalidOption, match='nothing gives its parameter "url"'),
        override(get_db, lambda url: url),
    ):
        pass
    with pytest.raises(InvalidOption, match="need each other"), override(get_db, get_session):
        pass
    with testing(app) as t:
        assert t.run(app.tasks["ask"]) == "session of the real one"
