"""The dispatcher: gives each ticket that has a slot to where its task runs, and the free slot to the next.

The thread or loop that ends a run takes the next ticket, if its task runs there, too: so between two short
jobs nothing crosses a thread.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from windlass.pace import Pace
from windlass.worker.conclude import Concluder
from windlass.worker.executor import Executor
from windlass.worker.in_loop import Inline, InlineBetweenWaits, InLoop, TaskLoop
from windlass.worker.in_process import InProcess, Processes
from windlass.worker.in_thread import InThread
from windlass.worker.local_leases import LocalLeases, Ticket
from windlass.worker.observed import performer_for
from windlass.worker.program import Registered, RunsIn


class Runner(Protocol):
    """Runs tickets in one kind of place."""

    def put(self, ticket: Ticket) -> None:
        """Run a ticket; called on any thread."""
        ...


def runs_in(task: Registered) -> RunsIn:
    """Where a task runs."""
    function: Any = getattr(task, "function", None)
    asked = task.options.run
    if is_async(function):
        return "loop" if asked in (None, "loop", "inline") else asked
    return "inline" if asked == "loop" else asked or "thread"


def is_async(function: Any) -> bool:
    """Whether a call gives something to be awaited."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object that is called
    )


class Dispatcher:
    """Gives tickets to invokers, from any thread."""

    def __init__(
        self,
        local_leases: LocalLeases,
        executor: Executor,
        conclude: Concluder,
        pace: Pace,
        *,
        app_name: str,
        with_values: bool = False,
        on_failure: Callable[[BaseException], None],
        on_process: Callable[[], None] = lambda: None,
    ) -> None:
        """Made on the loop that is to run tasks. `on_process` is called when a process of a job has begun
        after others could not.
        """
        self._local_leases = local_leases
        self.loop = TaskLoop(pace, on_failure)
        performer = performer_for(conclude)
        processes = Processes(
            app_name, conclude, pace, table=str(local_leases.table.path), on_begun=on_process
        )
        slots = sum(line.slots for line in local_leases.lines)
        follow = self._follow
        self._in_loop = InLoop(self.loop, executor, performer, pace, follow=follow)
        self._in_thread = InThread(
            executor, performer, self.loop.context, most=slots, follow=follow, on_failure=on_failure
        )
        self._in_process = InProcess(self.loop, executor, processes, local_leases.table, follow=follow)
        self._runners: dict[RunsIn, Runner] = {
            "loop": self._in_loop,
            "inline": InlineBetweenWaits(self.loop, executor, performer, pace, follow=follow)
            if with_values
            else Inline(self.loop, executor, performer, follow=follow),
            "thread": self._in_thread,
            "process": self._in_process,
        }
        self._by_task: dict[str, Runner] = {}

    def arrived(self, group: int) -> None:
        """Tickets wait in a line: give as many of them a slot as there are."""
        line = self._local_leases.lines[group]
        while (ticket := line.enter()) is not None:
            self._runner_of(ticket.task).put(ticket)

    async def close(self) -> None:
        """Let idle threads and processes go. Those that run a job are left alone."""
        self._in_thread.close()
        self._in_loop.close()
        await self._in_process.close()

    def _follow(self, ticket: Ticket, invoker: object) -> Ticket | None:
        """Free the slot of a ticket that has ended. Returns the next one if it is for the same invoker."""
        following = self._local_leases.lines[ticket.group].leave()
        if following is None:
            return None
        other = self._by_task.get(following.task.name) or self._runner_of(following.task)
        if other is invoker:
            return following
        other.put(following)
        return None

    def _runner_of(self, task: Registered) -> Runner:
        found = self._by_task.get(task.name)
        if found is None:
            found = self._by_task[task.name] = self._runners[runs_in(task)]
        return found
