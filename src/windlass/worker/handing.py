"""Blocking code that async code waits for: the function of a `def` task with something async around it.

A worker calls it on a thread. A job's own process, and a test, call it on the thread that everything else
runs on, between two turns of its loop: there it is on no loop, and hears the signal of its timeout.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, NamedTuple, Protocol, TypeVar

from windlass.worker.in_thread import Threads
from windlass.worker.run import Run

T = TypeVar("T")
MANY = 1_000_000
"""There are never more than a worker has slots."""


class Came(NamedTuple):
    """What came of a call. A future cannot carry every exception: not `StopIteration`."""

    value: Any
    error: BaseException | None = None


class HandOver(Protocol):
    """Where blocking code is called, for one event loop."""

    @property
    def ended(self) -> bool:
        """Whether the lifespan was left: nobody waits for what is still under way."""
        ...

    def begin(self, call: Callable[[], Any], /) -> "asyncio.Future[Came]":
        """Call it where it may block, in a copy of the caller's context."""
        ...

    def end(self) -> None:
        """The lifespan was left: nothing is begun any more."""
        ...


hand_over: ContextVar[HandOver] = ContextVar("windlass_hand_over")
"""That of the process. It is set when its lifespan is entered, so every job has it."""


async def called_beside(run: Run, call: Callable[[], T]) -> T:
    """Call blocking code and wait for its end, whatever asks this to stop: a thread cannot be interrupted,
    and a job that has ended must not run on. The code can look at `current`.
    """
    over = hand_over.get()
    stop, run.stop = run.stop, None  # the worker does not wait for what it cannot stop
    try:
        came = await _whatever_happens(over, over.begin(call))
    finally:
        run.stop = stop
    if came.error is not None:
        raise came.error
    return came.value


async def _whatever_happens(over: HandOver, answer: "asyncio.Future[Came]") -> Came:
    task = asyncio.current_task()
    while not answer.done():
        try:
            await asyncio.wait({answer})
        except asyncio.CancelledError:
            if over.ended or task is None:
                raise  # the loop is about to close
            task.uncancel()
    return answer.result()


def _called(context: Context, call: Callable[[], Any]) -> Came:
    try:
        return Came(context.run(call))
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is waited for
        return Came(None, error)


class OnThreads:
    """Threads of a worker for such calls: one for each that is under way."""

    def __init__(self) -> None:
        self.ended = False
        self._threads: Threads[Callable[[], None]] = Threads(_do, MANY)

    def begin(self, call: Callable[[], Any], /) -> "asyncio.Future[Came]":
        """Call it on a thread."""
        loop, context = asyncio.get_running_loop(), copy_context()
        answer: asyncio.Future[Came] = loop.create_future()

        def work() -> None:
            came = _called(context, call)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the worker has ended
                loop.call_soon_threadsafe(_answered, answer, came)

        self._threads.put(work)
        return answer

    def end(self) -> None:
        """Let the threads go, when they are idle."""
        self.ended = True
        self._threads.close()


def _do(work: Callable[[], None]) -> None:
    work()


def _answered(answer: "asyncio.Future[Came]", came: Came) -> None:
    if not answer.done():
        answer.set_result(came)


class Stage:
    """One thread for async and for blocking code: its loop runs while async code is waited for, and stands
    still while blocking code is called.
    """

    ended = False

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._asked: deque[tuple[Context, Callable[[], Any], asyncio.Future[Came]]] = deque()
        self._turn: asyncio.Future[None] | None = None
        self._runs = False
        self._calls = False
        """Whether blocking code is being called. A signal may come between any two lines of this class."""
        self._interrupted: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """Stop blocking code, said by the handler of a signal: it is raised where the code is. Code that has
        not begun is not called.
        """
        if self._calls or not self._runs:
            raise error
        self._interrupted = error  # raised here, it would be raised in the loop, which may swallow it

    def run(self, work: Coroutine[Any, Any, T], *, context: Context | None = None) -> T:
        """Run a coroutine, and what it hands over."""
        task = self._runner.get_loop().create_task(work, context=context)
        task.add_done_callback(self._end_turn)
        self._interrupted, self._runs = None, True
        try:
            while not task.done():
                self._runner.run(self._next_turn(task))
                self._serve()
        except BaseException as error:  # interrupted, by Ctrl-C: the code may tidy up
            self._calls = False
            heard = error if isinstance(error, Exception) else asyncio.CancelledError()
            while self._asked:  # nobody else would answer those who wait for blocking code
                _answered(self._asked.popleft()[2], Came(None, heard))
            task.cancel()
            self._runner.run(_ended(task))
            raise
        finally:
            self._runs = False
        return task.result()

    async def _next_turn(self, task: "asyncio.Task[Any]") -> None:
        if not (task.done() or self._asked):
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def _end_turn(self, _task: object = None) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _serve(self) -> None:
        while self._asked:
            context, call, answer = self._asked[0]  # it stays until it is answered
            self._calls = True
            stop = self._interrupted
            _answered(answer, _called(context, call) if stop is None else Came(None, stop))
            self._calls = False
            self._asked.popleft()

    def begin(self, call: Callable[[], Any], /) -> "asyncio.Future[Came]":
        """Call it between this turn and the next."""
        answer: asyncio.Future[Came] = asyncio.get_running_loop().create_future()
        self._asked.append((copy_context(), call, answer))
        self._end_turn()
        return answer

    def end(self) -> None:
        """It is still needed: who made it closes it."""

    def close(self) -> None:
        """End the loop."""
        self._runner.close()


async def _ended(task: "asyncio.Task[Any]") -> None:
    await asyncio.wait({task})
