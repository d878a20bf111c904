"""The lifespan of an app in one process: entered before the first job, left when the process stops."""

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from contextvars import Context, copy_context
from typing import Any

from windlass.core.secret import without_credentials
from windlass.errors import LifespanFailed
from windlass.loading import raised_in
from windlass.worker.current import NO_LIFESPAN, resources
from windlass.worker.failure import clipped, formatted, leaves, shortened, type_name
from windlass.worker.handing import HandOver, hand_over
from windlass.worker.program import Program
from windlass.worker.surroundings import Hook, Manager, Surroundings

_log = logging.getLogger("windlass.worker")

LONGEST_LEAVING = 10.0
"""Seconds for leaving it, with `on_stop`. A worker that has used up its grace kills its processes after 5."""
MESSAGE = 500


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
    """An error without the passwords of URLs, and the line of the program that raised it. If it is a group of
    one error, as task groups raise, that one.
    """
    inner = leaves(error)
    error = inner[0] if len(inner) == 1 else error
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    module, _, name = type_name(error).rpartition(".")
    text = text.removeprefix(f"{module}.") if module and text.startswith(f"{module}.{name}") else text
    return f"{clipped(without_credentials(text), MESSAGE)}{raised_in(error)}"


def in_full(error: BaseException) -> str:
    """An error without the passwords of URLs, and its traceback."""
    return f"{in_a_line(error)}\n{shortened(without_credentials(formatted(error)))}"


class Held:
    """A lifespan in a task of its own, which enters and leaves it. What it sets in context variables stays
    set there.

    That task can be cancelled from inside: a task group does so when one of its tasks fails. Then the
    lifespan has ended early. `on_end` is called, so that no more jobs begin, and the lifespan is left when it
    is let go.
    """

    def __init__(self, program: Program, over: HandOver, *, on_end: Callable[[], None] | None = None) -> None:
        """Without `on_end` nobody lets go of it because it has ended early: it is left at once."""
        self._around: Surroundings = program.surroundings
        self._hand_over = over
        self._on_end = on_end
        self._context: Context | None = None
        self._failure: BaseException | None = None
        self.has_ended = False
        """Whether it has ended early."""

    async def enter(self) -> Context:
        """Enter it. Jobs start from copies of the context that it returns. `LifespanFailed`: it cannot be
        entered.
        """
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        self._task = asyncio.create_task(self._hold())
        begun = asyncio.create_task(self._begun.wait())
        try:
            await asyncio.wait({begun, self._task}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            begun.cancel()
        if self._context is None:
            if self._task.cancelled():
                raise LifespanFailed("the lifespan cannot be entered: it was cancelled from inside")
            self._task.result()
        assert self._context is not None
        return self._context

    async def leave(self) -> None:
        """Leave it. `LifespanFailed`: it had ended early, and why. Any other error in it is logged, since the
        jobs have ended by now.
        """
        self.let_go()
        await asyncio.wait({self._task})
        if self._failure is not None:
            why = in_a_line(self._failure)
            raise LifespanFailed(f"the lifespan has ended before its process: {why}") from self._failure

    def let_go(self) -> None:
        """Let it be left when its loop runs next."""
        self._over.set()

    async def _hold(self) -> None:
        hand_over.set(self._hand_over)
        resources.set(NO_LIFESPAN)  # an application may have one worker inside another's context
        stack = AsyncExitStack()
        try:
            await _enter(self._around, stack)
            self._context = copy_context()
            self._begun.set()
            await self._until_over()
            await self._leave(stack)
        finally:
            self._hand_over.end()

    async def _until_over(self) -> None:
        """Wait until it is let go. If it ends early, that is when the jobs have ended, so that they keep what
        it has opened. If it is cancelled again, as scopes of `anyio` do, it does not wait for them.
        """
        try:
            await self._over.wait()
        except asyncio.CancelledError as error:
            self._failure, self.has_ended = error, True
            # Not at once: a job that cancels all tasks of the loop cancels the worker's, too: a crash.
            asyncio.get_running_loop().call_soon(self._tell_end)
            if self._on_end is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._over.wait()

    def _tell_end(self) -> None:
        _log.error(
            "the lifespan was cancelled from inside: did a background task fail? No more jobs begin here"
        )
        if self._on_end is not None:
            self._on_end()

    async def _leave(self, stack: AsyncExitStack) -> None:
        if not self._around.in_a_process:
            return
        limit = asyncio.timeout(LONGEST_LEAVING)
        try:
            async with limit:
                try:
                    await _stop(self._around.stops)
                except asyncio.CancelledError:
                    if limit.expired():
                        raise
                await stack.aclose()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the process ends all the same
            if limit.expired():
                _log.error("the lifespan was not left within %g s, and is given up", LONGEST_LEAVING)
            elif self._failure is not None:
                self._failure = error
                _log.error("the lifespan has ended before its process: %s", in_full(error))
            else:
                _log.error("the lifespan cannot be left: %s", in_a_line(error))
