"""A lifespan, where no process has to be started to see it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from windlass import RetryPolicy, Windlass, current
from windlass.core.secret import without_credentials
from windlass.core.state import State
from windlass.errors import InvalidOption, JobFailed, LifespanFailed
from windlass.worker import lifespan as module
from windlass.worker.process_place import ProcessPlace

Lives = list[str]


def made(lives: Lives, *, kind: str = "async", fails: str = "", yields: object = "pool") -> Windlass:
    """An app whose lifespan notes what happens to it."""

    def step(name: str) -> None:
        lives.append(name)
        if fails == name:
            raise ConnectionError(f"no way to redis://:hunter22@cache ({name})")

    @contextlib.asynccontextmanager
    async def awaited(app: Windlass) -> AsyncIterator[object]:
        assert app.is_windlass_app
        step("enter")
        try:
            yield yields
        finally:
            step("leave")

    @contextlib.contextmanager
    def plain() -> Iterator[object]:
        step("enter")
        yield yields
        step("leave")

    lifespans: dict[str, Callable[..., Any]] = {"async": awaited, "plain": plain}
    app = Windlass("memory://", beat=0.2, session_ttl=5, grace=1, lifespan=lifespans[kind])

    @app.on_start
    async def start() -> None:
        step(f"start with {current.resources}")

    @app.on_stop
    def stop() -> None:
        step("stop")

    @app.task(retry=RetryPolicy(max_attempts=1))
    async def work() -> Any:
        step("work")
        return current.resources

    return app


def worked(app: Windlass) -> Any:
    async def main() -> Any:
        try:
            async with app.worker(concurrency=1):
                return await (await app.tasks["work"].aenqueue()).aresult(timeout=30)
        finally:
            await app.aclose()

    return asyncio.run(main())


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_worker_inside_an_application_enters_it_and_leaves_it(kind: str) -> None:
    lives: Lives = []
    assert worked(made(lives, kind=kind)) == "pool"
    assert lives == ["enter", "start with pool", "work", "stop", "leave"]


def test_it_is_entered_once_for_all_namespaces() -> None:
    lives: Lives = []
    app = made(lives)

    @app.task(queue="far", namespace="elsewhere")
    def distant() -> Any:
        lives.append("far")
        return current.resources

    async def main() -> None:
        async with app.worker(concurrency=1):
            assert await (await distant.aenqueue()).aresult(timeout=30) == "pool"
            assert await (await app.tasks["work"].aenqueue()).aresult(timeout=30) == "pool"
        await app.aclose()

    asyncio.run(main())
    assert lives == ["enter", "start with pool", "far", "work", "stop", "leave"]


@pytest.mark.parametrize("fails", ["enter", "start with pool"])
def test_a_lifespan_that_cannot_be_entered_is_the_applications_to_see(fails: str) -> None:
    lives: Lives = []
    with pytest.raises(LifespanFailed, match=r"cannot be entered: ConnectionError: no way") as raised:
        worked(made(lives, fails=fails))
    assert isinstance(raised.value.__cause__, ConnectionError)
    assert "hunter22" not in str(raised.value)
    assert "test_lifespan.py, line" in str(raised.value)
    assert lives == (["enter"] if fails == "enter" else ["enter", fails, "leave"])


@pytest.mark.parametrize("fails", ["stop", "leave"])
def test_what_goes_wrong_at_the_end_is_logged_and_the_rest_goes_on(
    fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    lives: Lives = []
    assert worked(made(lives, fails=fails)) == "pool"
    assert lives[-2:] == ["stop", "leave"]
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert "ConnectionError: no way to redis://[secret]@cache" in line


def test_leaving_it_is_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LONGEST_LEAVING", 0.01)
    lives: Lives = []
    app = made(lives)

    @app.on_stop
    async def hang() -> None:
        await asyncio.Event().wait()

    assert worked(app) == "pool"
    assert "the lifespan was not left within 0.01 s, and is given up" in caplog.text


class Consumed:
    """An app whose lifespan has a background task, which fails when a job says so."""

    def __init__(self) -> None:
        self.lives: Lives = []
        self.fail, self.left = asyncio.Event(), asyncio.Event()

        @contextlib.asynccontextmanager
        async def lifespan() -> AsyncIterator[str]:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.consume())
                yield "pool"
                self.lives.append("left")
                self.left.set()

        self.app = Windlass("memory://", beat=0.2, session_ttl=5, grace=10, lifespan=lifespan)

        @self.app.task
        async def harm() -> Any:
            self.fail.set()
            for _ in range(50):  # the lifespan has ended by now, and is left when this job has ended
                await asyncio.sleep(0)
            self.lives.append("harmed")
            return current.resources

    async def consume(self) -> None:
        await self.fail.wait()
        raise ConnectionError("no way to redis://:hunter22@cache")


@pytest.mark.parametrize("several", [False, True])
def test_one_whose_background_task_fails_ends_the_worker(
    caplog: pytest.LogCaptureFixture, *, several: bool
) -> None:
    made = Consumed()
    app = made.app
    if several:
        app.task(queue="far", namespace="elsewhere", name="far")(_coroutine)

    async def main() -> None:
        try:
            with pytest.raises(  # noqa: PT012
                LifespanFailed, match=r"has ended before its process: ConnectionError: no way"
            ) as raised:
                async with app.worker(concurrency=1):
                    job = await app.tasks["harm"].aenqueue()
                    assert await job.aresult(timeout=30) == "pool"
                    await made.left.wait()
                    later = await app.tasks["harm"].aenqueue()
                    made.lives.append("still in the block")
            assert "hunter22" not in str(raised.value)
            assert await later.astate() is State.READY
        finally:
            await app.aclose()

    asyncio.run(main())
    assert made.lives == ["harmed", "left", "still in the block"]
    assert "was cancelled from inside" in caplog.text
    assert "in consume" in caplog.text, "the traceback"
    assert "hunter22" not in caplog.text


def test_a_lifespan_that_fails_after_an_hour_is_tried_again_soon() -> None:
    place: Any = ProcessPlace()
    supervised: Any = _SupervisedChild(3_600.0)
    for going, pause in ((False, 0.5), (False, 1.0), (True, 0.5), (True, 0.5)):
        supervised.going = going
        place.take(supervised)
        place.leave(supervised, "ended as told")
        assert place.pause() == pause


def test_resources_that_are_not_there_say_why() -> None:
    with pytest.raises(LookupError, match=r"Windlass\(lifespan=\.\.\.\)"):
        current.resources  # noqa: B018
    lives: Lives = []
    app = made(lives, yields=None)
    app.surroundings.starts.clear()
    with pytest.raises(JobFailed, match="the lifespan of this app yields nothing"):
        worked(app)


async def _coroutine() -> None: ...


async def _generator() -> AsyncIterator[None]:
    yield


def _two(_one: object, _other: object) -> Any: ...


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (3, "not 3"),
        (_coroutine, "coroutine function, and ends before the first job"),
        (_generator, "decorate it with @contextlib.asynccontextmanager"),
        (_two, r"with the app or without arguments: write its parameters as \(app\) or \(\)"),
    ],
)
def test_what_is_no_lifespan_is_refused_at_once(wrong: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        Windlass("memory://", lifespan=wrong)


def test_a_lifespan_that_gives_no_context_manager_says_so() -> None:
    app = Windlass("memory://", lifespan=lambda: 3)  # type: ignore[arg-type,return-value]
    app.task(name="work")(_coroutine)
    with pytest.raises(LifespanFailed, match="lifespan gave 3, which is no context manager"):
        worked(app)


def test_hooks_that_cannot_be_called_are_refused() -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidOption, match="on_start takes a function"):
        app.on_start(3)  # type: ignore[type-var]
    with pytest.raises(InvalidOption, match=r"on_stop calls .*_two.* with no argument: write def _two\(\)"):
        app.on_stop(_two)  # type: ignore[type-var]


class _SupervisedChild:
    """As much of one as a place looks at."""

    draining, charged, born, going = False, 0, 0.0, False

    def __init__(self, died: float) -> None:
        self.died = died
        self.failed, self.fails_for_now = "no database", True


def test_a_seat_tries_again_ever_more_seldom_and_never_gives_up() -> None:
    place, pauses = ProcessPlace(), list[float]()
    for died in (0.1, 60.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1):  # also one that took its time to fail
        supervised: Any = _SupervisedChild(died)
        place.take(supervised)
        place.leave(supervised, "exit code 3")
        assert place.hopeless is None
        pauses.append(place.pause())
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (
            "at postgresql://shop:p@ss/w@db.internal/shop, twice",
            "at postgresql://[secret]@db.internal/shop, twice",
        ),
        ("redis://:hunter22@cache:6379/0", "redis://[secret]@cache:6379/0"),
        ("'amqp://a:b@host'", "'amqp://[secret]@host'"),
        ("host=db user=me password=hunter22 dbname=x", "host=db user=me password=[secret] dbname=x"),
        ("https://host/?api_key=abc&x=1", "https://host/?api_key=[secret]&x=1"),
        ("nobody@example.com and http://host/", "nobody@example.com and http://host/"),
    ],
)
def test_credentials_are_kept_out_of_texts(text: str, clean: str) -> None:
    assert without_credentials(text) == clean
