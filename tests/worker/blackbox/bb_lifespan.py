"""An app with a lifespan, for real workers. What happens to it is written to the file of `BB_TOLD`."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from windlass import Depends, RetryPolicy, RunningJob, Windlass, current

TOLD = "BB_TOLD"
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
QUICKLY = RetryPolicy(max_attempts=3, base=0.05, cap=0.1)


def tell(what: str, **more: Any) -> None:
    with Path(os.environ[TOLD]).open("a") as file:
        file.write(json.dumps({"what": what, "pid": os.getpid(), **more}) + "\n")


def told(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextlib.asynccontextmanager
async def lifespan(_app: Windlass) -> AsyncIterator[dict[str, Any]]:
    if os.path.exists(os.environ["BB_DOOR"]):  # noqa: ASYNC240, PTH110 - the test makes it
        if "BB_APART" in os.environ and "process_main" not in sys.argv[0]:
            yield {"loop": 0, "pid": os.getpid()}  # only the processes of jobs are refused
            return
        tell("refused")
        raise ConnectionRefusedError("no database at postgresql://shop:hunter22@db.internal/shop")
    loop = asyncio.get_running_loop()
    tenant.set("acme")
    tell("entered")
    async with asyncio.TaskGroup() as group:
        consuming = group.create_task(consume()) if "BB_CONSUMES" in os.environ else None
        yield {"loop": id(loop), "pid": os.getpid()}
        if consuming is not None:
            consuming.cancel()
    tell("left", same=asyncio.get_running_loop() is loop)
    if "BB_HANGS" in os.environ:
        await asyncio.sleep(3_600)


async def consume() -> None:
    """A background task, which fails once."""
    failed = Path(os.environ[TOLD] + ".failed")
    if failed.exists():  # noqa: ASYNC240
        return
    fail.set_loop(asyncio.get_running_loop())
    await fail.event.wait()
    failed.touch()  # noqa: ASYNC240
    raise ConnectionResetError("no broker at amqp://shop:hunter22@mq")


class Fail:
    """Lets the background task fail, said on any thread."""

    def set_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.event = loop, asyncio.Event()

    def now(self) -> None:
        self.loop.call_soon_threadsafe(self.event.set)


fail = Fail()


def seen() -> dict[str, Any]:
    found = current.resources
    try:
        loop = id(asyncio.get_running_loop())
    except RuntimeError:
        loop = None
    return {
        "ours": found["pid"] == os.getpid(),
        "loop": loop is not None and found["loop"] == loop,
        "tenant": tenant.get(),
        "main": threading.current_thread() is threading.main_thread(),
    }


async def on_loop() -> dict[str, Any]:
    await asyncio.sleep(0)
    return seen()


def build(url: str | None = None) -> Windlass:  # noqa: C901 - many tasks
    app = Windlass(url, name="lives", lifespan=lifespan)

    @app.on_start
    async def begin() -> None:
        tell("started", pool=current.resources["pid"] == os.getpid())

    @app.on_stop
    def end() -> None:
        tell("stopped")

    if "BB_MIDDLEWARE" in os.environ:

        @app.middleware
        async def around(job: RunningJob, run: Callable[[], Awaitable[Any]]) -> Any:
            try:
                value = await run()
                tell("ran", task=job.task)
                return {"value": value, "around": seen()}
            except TimeoutError:
                tell("late", task=job.task)
                raise

    app.task(name="in_loop", run="loop")(on_loop)
    app.task(name="in_process_loop", run="process")(on_loop)

    @app.task(name="harm")
    def harm() -> int:
        if current.attempt > 1:
            return -1
        if not Path(os.environ[TOLD] + ".failed").exists():
            fail.now()
            while not current.cancelled:
                threading.Event().wait(0.02)
        return os.getpid()

    @app.task(name="harm_apart", run="process")
    async def harm_apart() -> int:
        fail.now()
        for _ in range(50):
            await asyncio.sleep(0)
        return os.getpid()

    @app.task(name="in_thread")
    def in_thread() -> dict[str, Any]:
        return seen()

    @app.task(name="in_process", run="process")
    def in_process(given: dict[str, Any] = Depends(on_loop)) -> dict[str, Any]:
        return {**seen(), "given": given}

    @app.task(name="inline", run="inline")
    def inline() -> dict[str, Any]:
        return seen()

    @app.task(name="hangs", run="process", timeout=0.5, retry=RetryPolicy(max_attempts=1))
    def hangs() -> None:
        while True:
            threading.Event().wait(0.05)

    def given() -> Iterator[int]:
        yield 1
        tell("given back")

    @app.task(name="forks")
    def forks(number: int = Depends(given)) -> Any:
        return -1 if os.fork() == 0 else number

    async def aforked(number: int = Depends(given)) -> Any:
        return -1 if os.fork() == 0 else number

    app.task(name="aforks")(aforked)
    app.task(name="forks_apart", run="process")(forks.function)

    @app.task(name="poison", retry=QUICKLY)
    def poison() -> None:
        tell("poison")
        os._exit(7)

    return app


app = build()
