"""Runs `def` tasks in threads. Between two short jobs nothing crosses a thread: each goes on with the next.

Also here: calls that need no event loop, in a thread, inline, or in a job's own process.
"""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from windlass.completed import complete
from windlass.worker.executor import Executor, Performer
from windlass.worker.local_leases import Ticket
from windlass.worker.run import Run

W = TypeVar("W")


class InThread:
    """The invoker of `def` tasks."""

    prepare = None
    blocking = True

    def __init__(
        self,
        executor: Executor,
        performer: Performer,
        context: contextvars.Context,
        *,
        most: int,
        follow: Callable[[Ticket, object], Ticket | None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """At most `most` threads, which is the number of slots."""
        self.perform = partial(performer.perform, call_blocking)
        self._executor = executor
        self._context = context
        self._follow = follow
        self._threads = Threads(self._run, most, on_failure)
        self.put = self._threads.put
        """Run a ticket; called on any thread."""
        self.close = self._threads.close

    def _run(self, ticket: Ticket) -> Ticket | None:
        """Run one job; returns the next one for the same thread."""
        self._context.copy().run(complete, self._executor.execute(ticket, self))
        return self._follow(ticket, self)


class Threads(Generic[W]):
    """Threads that take tickets, or other work. One is started when all others are busy. They are daemons, so
    a job that never ends does not keep its process alive.

    Any thread takes any ticket: the thread that was woken for a ticket may have to wait for the interpreter's
    lock, and a thread that runs already would otherwise pass dozens of jobs before it.
    """

    def __init__(
        self,
        work: Callable[[W], W | None],
        most: int,
        on_failure: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self._work = work
        self._most = most
        self._on_failure = on_failure
        self._tickets: deque[W] = deque()
        self._wakes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._lock = threading.Lock()

    def put(self, ticket: W) -> None:
        """Hand over a ticket."""
        self._tickets.append(ticket)
        if not self._idle.acquire(blocking=False):
            with self._lock:
                if self._count < self._most:
                    self._count += 1
                    name = f"windlass-thread-{self._count}"
                    threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._wakes.put("take")

    def close(self) -> None:
        """End the threads that are idle, and the others when they are."""
        for _ in range(self._count):
            self._wakes.put("end")

    def _serve(self) -> None:
        try:
            self._take_tickets()
        except BaseException as error:
            self._on_failure(error)
            raise

    def _take_tickets(self) -> None:
        while self._wakes.get() == "take":
            while (ticket := self._next()) is not None:
                following = self._work(ticket)
                if following is not None:
                    self._tickets.append(following)
            self._idle.release()

    def _next(self) -> W | None:
        try:
            return self._tickets.popleft()
        except IndexError:
            return None


# --- calls without an event loop ----------------------------------------------------------------------------


class Returned(msgspec.Struct, frozen=True):
    """A value that was returned already, to be awaited.

    Not a coroutine around the call: that would turn a `StopIteration` of the task into a `RuntimeError`.
    """

    value: Any

    def __await__(self) -> Generator[None, None, Any]:
        yield from ()
        return self.value


def call_blocking(run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Returned:
    """Call a function outside of a loop. If it returns an awaitable, that gets a loop of its own."""
    value = function(*args, **kwargs)
    if value is None or not inspect.isawaitable(value):
        return Returned(value)
    with asyncio.Runner() as runner:
        return Returned(runner.run(awaited(run, value), context=contextvars.copy_context()))


async def awaited(run: Run, work: Awaitable[Any]) -> Any:
    """Wait for a task's code until its timeout; meanwhile the run can be stopped."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    assert task is not None
    run.stop_with(lambda: loop.call_soon_threadsafe(task.cancel))
    try:
        if run.deadline is None:
            return await work
        async with asyncio.timeout_at(run.deadline) as limit:
            try:
                return await work
            finally:
                run.timed_out = run.timed_out or limit.expired()
    finally:
        run.stop = None
