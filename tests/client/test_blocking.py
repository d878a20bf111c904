"""Blocking calls on the thread of an event loop warn, with the name of the async twin."""

import asyncio
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from windlass import Windlass, chain
from windlass.errors import BlockingCall
from windlass.testing import testing


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory://")

    @app.task
    def send(to: str) -> str:
        return to

    return app


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda app, job: app.tasks["send"].enqueue("a"), "write await send.aenqueue(...)"),
        (lambda app, job: app.tasks["send"].using(lane="x").enqueue("a"), "write await send.aenqueue(...)"),
        (lambda app, job: app.tasks["send"].enqueue_many([]), None),
        (
            lambda app, job: app.enqueue_many([app.tasks["send"].call("a")]),
            "write await app.aenqueue_many(...)",
        ),
        (
            lambda app, job: chain(app.tasks["send"].call("a")).enqueue(),
            "write await chain(...).aenqueue(...)",
        ),
        (lambda app, job: job.state(), "write await job.astate(...)"),
        (lambda app, job: job.progress(), "write await job.aprogress(...)"),
        (lambda app, job: job.cancel(), "write await job.acancel(...)"),
        (lambda app, job: app.flow("f").cancel(), "write await flow.acancel(...)"),
        (lambda app, job: app.run(asyncio.sleep(0)), "write await the coroutine itself"),
    ],
)
def test_each_says_what_to_write_instead(
    app: Windlass, call: Callable[[Windlass, Any], Any], instead: str | None
) -> None:
    with testing(app):
        job = app.tasks["send"].enqueue("a")

        async def main() -> None:
            call(app, job)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(main())
    assert [str(each.message).partition("loop; ")[2] for each in caught] == (
        [] if instead is None else [instead]
    )
    assert all((each.category, each.filename) == (BlockingCall, __file__) for each in caught)


def test_it_is_shown_once_for_each_line(app: Windlass) -> None:
    with testing(app):

        async def main() -> None:
            for _ in range(3):
                app.tasks["send"].enqueue("a")
            app.tasks["send"].enqueue("b")

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            asyncio.run(main())
    assert len(caught) == 2


def test_where_it_is_an_error_nothing_was_sent(app: Windlass) -> None:
    async def main() -> None:
        app.tasks["send"].enqueue("a")

    with testing(app) as t:
        with pytest.raises(BlockingCall, match=r"send\.enqueue\(\) waits for the store"):
            asyncio.run(main())
        assert t.enqueued() == []


def test_blocking_code_may_block(app: Windlass) -> None:
    """In threads beside a loop, also those of tasks; with nothing running; and typed into a shell."""
    seen: list[str] = []

    @app.task
    def nested() -> str:
        seen.append(threading.current_thread().name)
        return app.tasks["send"].enqueue("from a task").id

    @app.middleware
    async def around(_job: object, run: Callable[[], Any]) -> Any:
        return await run()

    async def main() -> None:
        async with app.worker(concurrency=2):
            job = await nested.aenqueue()
            await job.aresult(timeout=30)
            await asyncio.to_thread(app.tasks["send"].enqueue, "from a thread")
            exec(compile("send.enqueue('typed')", "<shell>", "exec"), {"send": app.tasks["send"]})  # noqa: S102
        await app.aclose()

    asyncio.run(main())
    assert seen
    assert seen != ["MainThread"]
    with testing(app) as t:  # a plain test has its jobs in its own thread, on no loop
        t.run(nested)
    assert seen[-1] == "MainThread"
