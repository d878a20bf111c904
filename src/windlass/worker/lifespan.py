"""The lifespan of an app in one process: entered before the first job, left when the process stops."""

import asyncio
import inspect
import logging
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from contextvars import Context, copy_context
from typing import Any

from windlass.core.secret import without_credentials
from windlass.errors import LifespanFailed
from windlass.loading import raised_in
from windlass.worker.current import NO_LIFESPAN, resources
from windlass.worker.failure import clipped, type_name
from windlass.worker.handing import HandOver, hand_over
from windlass.worker.program import Program
from windlass.worker.surroundings import Hook, Manager, Surroundings

_log = logging.getLogger("windlass.worker")

LONGEST_LEAVING = 10.0
"""Seconds for leaving it, with `on_stop`. A worker that has used up its grace kills its processes after 5."""
MESSAGE = 500


@asynccontextmanager
async def entered(program: Program, over: HandOver) -> AsyncGenerator[None]:
    """The lifespan of a program, in the calling task: what it sets in context variables stays set there.

    `LifespanFailed`: it cannot be entered. That it cannot be left is logged: the jobs have ended by then.
    """
    around: Surroundings = program.surroundings
    hand_over.set(over)
    resources.set(NO_LIFESPAN)  # an application may have one worker inside another's context
    stack = AsyncExitStack()
    try:
        await _enter(around, stack)
        try:
            yield
        finally:
            await _leave(around, stack)
    finally:
        over.end()


async def _enter(around: Surroundings, stack: AsyncExitStack) -> None:
    failure: BaseException | None = None
    try:
        async with AsyncExitStack() as entering:
            if around.open is not None:
                resources.set(await _entered(around.open(), entering))
            try:
                for start in around.starts:
                    await _call(start)
            except (Exception, SystemExit) as error:
                failure = error  # the lifespan is left with it, and may swallow it
                raise
            stack.push_async_exit(entering.pop_all())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised below
        failure = failure or error
    if failure is not None:
        raise LifespanFailed(f"the lifespan cannot be entered: {in_a_line(failure)}") from failure


async def _entered(manager: Manager, stack: AsyncExitStack) -> Any:
    if isinstance(manager, AbstractAsyncContextManager):
        return await stack.enter_async_context(manager)
    if isinstance(manager, AbstractContextManager):  # pyright: ignore[reportUnnecessaryIsInstance]
        return stack.enter_context(manager)
    raise TypeError(f"lifespan gave {manager!r}, which is no context manager")


async def _leave(around: Surroundings, stack: AsyncExitStack) -> None:
    if not around.in_a_process:
        return
    limit = asyncio.timeout(LONGEST_LEAVING)
    try:
        async with limit:
            await _stop(around.stops)
            await stack.aclose()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the process ends all the same
        if limit.expired():
            _log.error("the lifespan was not left within %g s, and is given up", LONGEST_LEAVING)
        else:
            _log.error("the lifespan cannot be left: %s", in_a_line(error))


async def _stop(stops: Sequence[Hook]) -> None:
    for stop in stops:
        try:
            await _call(stop)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the others follow
            _log.error("on_stop %s failed: %s", getattr(stop, "__name__", stop), in_a_line(error))


async def _call(hook: Hook) -> None:
    value = hook()
    if inspect.isawaitable(value):
        await value


def in_a_line(error: BaseException) -> str:
    """An error without the passwords of URLs, and the line of the program that raised it."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    module, _, name = type_name(error).rpartition(".")
    text = text.removeprefix(f"{module}.") if module and text.startswith(f"{module}.{name}") else text
    return f"{clipped(without_credentials(text), MESSAGE)}{raised_in(error)}"


class Held:
    """A lifespan in a task of its own, which enters and leaves it: for who has no task that lives as long."""

    def __init__(self, program: Program, over: HandOver) -> None:
        self._program = program
        self._hand_over = over
        self._context: Context | None = None

    async def enter(self) -> Context:
        """Enter it. Jobs start from copies of the context that it returns."""
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._hold())
        begun = asyncio.create_task(self._begun.wait())
        try:
            await asyncio.wait({begun, self._task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            begun.cancel()
        if self._context is None:
            self._task.result()
        assert self._context is not None
        return self._context

    async def leave(self) -> None:
        """Leave it."""
        self.let_go()
        await asyncio.wait({self._task})

    def let_go(self) -> None:
        """Let it be left when its loop runs next."""
        self._over.set()

    async def _hold(self) -> None:
        async with entered(self._program, self._hand_over):
            self._context = copy_context()
            self._begun.set()
            await self._over.wait()
