"""Calling the code of a task: in the test's own thread, or on its loop."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from windlass.worker.dispatcher import is_async, runs_in
from windlass.worker.executor import Arguments
from windlass.worker.in_thread import awaited, call_blocking
from windlass.worker.program import Registered
from windlass.worker.run import Run, running

__tracebackhide__ = True  # a test that fails is shown without these frames


class Came(NamedTuple):
    """What came of a call."""

    value: object
    error: BaseException | None = None


class Invoke(Protocol):
    """Calls a task's function."""

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it in a context of its own, in which the run is the current one. What this raises itself is
        meant for the test: that it was interrupted.
        """
        ...


class InThread:
    """For plain tests: in the thread that asks. Async code gets one loop for the whole test."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it here; nothing is awaited, so that blocking code can drive this."""
        try:
            return Came(self._call(run, task, arguments))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            return Came(None, error)

    def _call(self, run: Run, task: Registered, arguments: Arguments) -> object:
        context = _context(run)
        if _on_a_loop():
            return _elsewhere(lambda: context.run(_call_blocking, run, task, arguments))
        if is_async(task.function):
            return self._loop().run(_awaited(run, task, arguments), context=context)
        args, kwargs = arguments
        value = context.run(task.function, *args, **kwargs)
        return self._loop().run(awaited(run, value), context=context) if inspect.isawaitable(value) else value

    def close(self) -> None:
        """End the loop."""
        if self._runner is not None:
            self._runner.close()

    def _loop(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner


class OnLoop:
    """For async tests: async code on the loop of the test, other code in a thread."""

    async def __call__(self, run: Run, task: Registered, arguments: Arguments) -> Came:
        """Call it where a worker would."""
        work = asyncio.get_running_loop().create_task(self._call(run, task, arguments), context=_context(run))
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


def _context(run: Run) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(running.set, run)
    return context


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
