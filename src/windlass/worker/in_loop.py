"""Runs tasks in the event loop of the worker: `async def` as asyncio tasks, inline `def` one by one."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from windlass.completed import complete
from windlass.pace import Pace
from windlass.worker.deadlines import Deadlines
from windlass.worker.executor import Executor, Performer
from windlass.worker.in_thread import Returned
from windlass.worker.local_leases import Ticket
from windlass.worker.run import Run
from windlass.worker.twins import watch_loop


class TaskLoop:
    """The loop that runs tasks. Any thread may give it tickets, and ask whether it is blocked."""

    def __init__(self, pace: Pace, on_failure: Callable[[BaseException], None]) -> None:
        self.loop = asyncio.get_running_loop()
        watch_loop()
        self.context = contextvars.copy_context()
        """Each job starts from a copy of this, and never from what the job before it has set."""
        self.active_at = pace.now()
        """When the loop was last seen at work."""
        self.on_failure = on_failure
        self._now = pace.now
        self._inbox: deque[tuple[Callable[[Ticket], None], Ticket]] = deque()
        self._woken = False

    @property
    def has_waiting(self) -> bool:
        """Whether tickets wait for the loop to begin them."""
        return bool(self._inbox)

    def put(self, begin: Callable[[Ticket], None], ticket: Ticket) -> None:
        """Begin a ticket on the loop; called on any thread. One wake-up takes in all that came before it."""
        self._inbox.append((begin, ticket))
        if not self._woken:
            self._woken = True
            self.loop.call_soon_threadsafe(self._take_in, context=self.context)

    def ping(self, answer: Callable[[], None]) -> None:
        """Ask the loop for a sign of life; called on any thread."""

        def pong() -> None:
            self.active_at = self._now()
            answer()

        self.loop.call_soon_threadsafe(pong)

    def _take_in(self) -> None:
        self._woken = False  # before the inbox is read: a ticket that comes now wakes the loop again
        self.active_at = self._now()
        try:
            for _ in range(len(self._inbox)):
                begin, ticket = self._inbox.popleft()
                begin(ticket)
        except BaseException as error:
            self.on_failure(error)
            raise


class InLoop:
    """The invoker of `async def` tasks."""

    prepare = None
    blocking = False

    def __init__(
        self,
        task_loop: TaskLoop,
        executor: Executor,
        performer: Performer,
        pace: Pace,
        *,
        follow: Callable[[Ticket, object], Ticket | None],
    ) -> None:
        self.perform = partial(performer.perform, self._call)
        self._task_loop = task_loop
        self._loop = task_loop.loop
        self._soon = task_loop.loop.call_soon_threadsafe
        self._context = task_loop.context
        self._executor = executor
        self._now = pace.now
        self._follow = follow
        self._deadlines = Deadlines(task_loop.loop, task_loop.context)

    def put(self, ticket: Ticket) -> None:
        """Run a ticket; called on any thread."""
        self._task_loop.put(self._begin, ticket)

    def close(self) -> None:
        """Watch no deadline any more."""
        self._deadlines.close()

    def _begin(self, ticket: Ticket) -> None:
        """Run a job in an asyncio task of its own, which begins with the next turn of the loop.

        Nothing else needs to hold it: the loop does until it has begun, and then its run does (`Run.stop`).
        """
        loop, work, context = self._loop, self._serve(ticket), self._context.copy()
        if loop.get_task_factory() is None:
            # What `create_task` does, without making a name of its own for each: a third of its time.
            asyncio.Task(work, loop=loop, name=ticket.lease.task, context=context)
        else:
            loop.create_task(work, context=context)

    async def _serve(self, ticket: Ticket) -> None:
        """Run a job, and begin the next. Between two jobs the loop runs what else is ready."""
        try:
            await self._executor.execute(ticket, self)
            self._task_loop.active_at = self._now()
            following = self._follow(ticket, self)
            if following is not None:
                self._begin(following)
        except BaseException as error:
            self._task_loop.on_failure(error)
            raise

    def _call(self, run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Awaitable[Any]:
        """From here on the code can be stopped: at once, if that was asked for before."""
        task = asyncio.current_task(self._loop)  # to find the loop takes longer than to find the task
        assert task is not None
        run.stop = lambda: self._soon(task.cancel)
        if run.cancelled or run.released:
            run.halt()
        work = function(*args, **kwargs)
        return work if run.deadline is None else self._in_time(run, run.deadline, work, task)

    async def _in_time(
        self, run: Run, deadline: float, work: Awaitable[Any], task: "asyncio.Task[Any]"
    ) -> Any:
        self._deadlines.watch(run, deadline, task)
        try:
            return await work
        finally:
            self._deadlines.forget(run)


class Inline:
    """The invoker of `def` tasks that are so short that they run in the loop itself (`run="inline"`)."""

    prepare = None
    blocking = False

    def __init__(
        self,
        task_loop: TaskLoop,
        executor: Executor,
        performer: Performer,
        *,
        follow: Callable[[Ticket, object], Ticket | None],
    ) -> None:
        self.perform = partial(performer.perform, _call_inline)
        self._task_loop = task_loop
        self._context = task_loop.context
        self._executor = executor
        self._follow = follow

    def put(self, ticket: Ticket) -> None:
        """Run a ticket; called on any thread."""
        self._task_loop.put(self._run, ticket)

    def _run(self, ticket: Ticket) -> None:
        self._context.copy().run(complete, self._executor.execute(ticket, self))
        following = self._follow(ticket, self)
        if following is not None:
            self.put(following)


class InlineBetweenWaits(InLoop):
    """The same for an app with object storage: the loop goes on while a value is read or put."""

    def _call(self, run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Returned:
        return _call_inline(run, function, args, kwargs)


def _call_inline(_run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Returned:
    return Returned(function(*args, **kwargs))
