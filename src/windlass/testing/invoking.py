"""Calling the code of a task: in the test's own thread, or on its loop."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from windlass.client.app import Windlass
from windlass.worker.dispatcher import is_async, runs_in
from windlass.worker.executor import Arguments
from windlass.worker.handing import Came, HandOver, OnThreads, Stage
from windlass.worker.in_thread import awaited, call_blocking
from windlass.worker.lifespan import Held
from windlass.worker.program import Registered
from windlass.worker.run import Run, running

__tracebackhide__ = True  # a test that fails is shown without these frames


class Invoke(Protocol):
    """Calls a task's function."""

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it in a context of its own, in which the run is the current one. What this raises itself is
        meant for the test: that it was interrupted.
        """
        ...


class Around:
    """The lifespan of the app, for one loop of a test: entered before the first job, left with the block.

    Jobs see what the test has set in context variables, and over that what the lifespan has set.
    """

    def __init__(self, app: Windlass, over: HandOver) -> None:
        self._held = Held(app, over)
        self._set: dict[contextvars.ContextVar[Any], Any] | None = None

    @property
    def is_entered(self) -> bool:
        """Whether there is something to leave."""
        return self._set is not None

    async def enter(self) -> None:
        """Enter it, unless that was done; `LifespanFailed` is the test's to see."""
        if self._set is None:
            before = contextvars.copy_context()
            inside = await self._held.enter()
            self._set = {var: value for var, value in inside.items() if before.get(var, self) is not value}

    async def leave(self) -> None:
        """Leave it."""
        if self._set is not None:
            self._set = None
            await self._held.leave()

    def let_go(self) -> None:
        """Let it be left when its loop runs next."""
        self._set = None
        self._held.let_go()

    def context(self, run: Run) -> contextvars.Context:
        """That of one run."""
        context = contextvars.copy_context()
        for var, value in (self._set or {}).items():
            context.run(var.set, value)
        context.run(running.set, run)
        return context


class InThread:
    """For plain tests: in the thread that asks. Async code gets one loop for the whole test."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._opened: tuple[Stage, Around] | None = None

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it here; nothing is awaited, so that blocking code can drive this."""
        stage, around = self._open()
        # Where the caller has a loop, which async code cannot use, it is another thread that is waited for.
        here = _elsewhere if _on_a_loop() else _here
        if not around.is_entered:
            here(lambda: stage.run(around.enter()))
        context = around.context(run)
        try:
            return Came(here(lambda: context.run(_call_on, stage, run, task, arguments)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            return Came(None, error)

    def close(self) -> None:
        """Leave the lifespan, and end the loop."""
        if self._opened is not None:
            stage, around = self._opened
            here = _elsewhere if _on_a_loop() else _here
            self._opened = None
            here(partial(_end, stage, around))

    def _open(self) -> tuple[Stage, Around]:
        if self._opened is None:
            stage = Stage()
            self._opened = (stage, Around(self._app, stage))
        return self._opened


class OnLoop:
    """For async tests: async code on the loop of the test, other code in a thread."""

    def __init__(self, app: Windlass) -> None:
        self._around = Around(app, OnThreads())
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it where a worker would."""
        self._loop = asyncio.get_running_loop()
        await self._around.enter()
        work = self._loop.create_task(self._call(run, task, arguments), context=self._around.context(run))
        try:
            # Not awaited itself: if the test is cancelled that is not what came of the call.
            await asyncio.wait({work})
        except asyncio.CancelledError:
            work.cancel()
            raise
        if work.cancelled():
            return Came(None, asyncio.CancelledError())
        return Came(None, error) if (error := work.exception()) else Came(work.result())

    async def _call(self, run: Run, task: Registered, arguments: Arguments) -> object:
        kind = runs_in(task)
        if kind == "inline":
            args, kwargs = arguments
            return task.function(*args, **kwargs)
        if kind == "thread" or not is_async(task.function):
            return await asyncio.to_thread(_call_blocking, run, task, arguments)
        return await _awaited(run, task, arguments)

    async def leave(self) -> None:
        """Leave the lifespan."""
        await self._around.leave()

    def close(self) -> None:
        """The same, for a fixture that is not async: the loop of the test stands still, or has ended and has
        cancelled what it had left.
        """
        loop, self._loop = self._loop, None
        if loop is None or loop.is_closed() or not self._around.is_entered:
            return
        if loop.is_running():
            self._around.let_go()
        else:
            loop.run_until_complete(self._around.leave())


def _end(stage: Stage, around: Around) -> None:
    stage.run(around.leave())
    stage.close()


def _here(work: Callable[[], Any]) -> Any:
    return work()


def _call_on(stage: Stage, run: Run, task: Registered, arguments: Arguments) -> object:
    args, kwargs = arguments
    value = task.function(*args, **kwargs)
    return stage.run(awaited(run, value)) if inspect.isawaitable(value) else value


async def _awaited(run: Run, task: Registered, arguments: Arguments) -> object:
    args, kwargs = arguments
    return await awaited(run, task.function(*args, **kwargs))


def _call_blocking(run: Run, task: Registered, arguments: Arguments) -> object:
    args, kwargs = arguments
    return call_blocking(run, task.function, args, kwargs).value


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _elsewhere(work: Callable[[], Any]) -> Any:
    """Blocking code on a thread of its own, waited for: this one has a loop, which async code cannot use."""
    answer: list[Any] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            answer.append(work())
        except BaseException as error:  # noqa: BLE001 - it belongs to the thread that waits
            failure.append(error)

    thread = threading.Thread(target=call, name="windlass-testing", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return answer[0]
