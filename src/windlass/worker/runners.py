"""Where tasks run: `async def` in the loop, `def` in threads, tiny functions inline, others in processes.

A ticket enters when its line has a slot, and whoever ends a run lets the next one in: a thread goes on with
the next job of its own, the loop likewise, so that between two short jobs nothing crosses a thread.
"""

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from windlass.core.settlement import Settlement
from windlass.core.units import Fence, JobId
from windlass.observe.traces import active
from windlass.worker.deadlines import Deadlines
from windlass.worker.executor import Arguments, Executor, given_back, unfit
from windlass.worker.hand import Hand, Ticket
from windlass.worker.pace import Pace
from windlass.worker.program import Registered
from windlass.worker.program import Run as Kind
from windlass.worker.run import Run, running
from windlass.worker.twins import watch_loop

_log = logging.getLogger("windlass.worker")


class Ended(msgspec.Struct, eq=False, gc=False):
    """A lease with its outcome."""

    ticket: Ticket | None
    """None: it was never filed."""
    settlement: Settlement
    run: Run | None
    """None: it never started."""

    def __repr__(self) -> str:
        """Without what it was called with and what it gave."""
        return f"<end of {self.settlement.job}: {self.settlement.outcome}>"


class ProcessRunner(Protocol):
    """Runs jobs in processes of their own."""

    async def ready(self) -> Any:
        """A process that takes work. `StoreError` or `OSError`: there is none to be had."""
        ...

    def keep(self, process: Any) -> None:
        """It was not needed."""
        ...

    async def run(self, process: Any, run: Run, task: Registered) -> Settlement:
        """Run one job in it; exactly one settlement comes of it."""
        ...


def kind_of(task: Registered) -> Kind:
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


class Runners:
    """Runs tickets; what becomes of them goes to `ended`, on whichever thread that happens."""

    def __init__(
        self,
        hand: Hand,
        executor: Executor,
        pace: Pace,
        *,
        ended: Callable[[Ended], None],
        processes: ProcessRunner,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._hand = hand
        self._executor = executor
        self._now = pace.now
        self._ended = ended
        self._processes = processes
        self._on_failure = on_failure
        self._spans = active()  # by now the app is imported, and has set up what it wants
        self._loop = asyncio.get_running_loop()
        watch_loop()
        self._soon = self._loop.call_soon_threadsafe
        # Each job starts from this, and never from what the job before it has set.
        self._context = contextvars.copy_context()
        self._kinds: dict[str, Kind] = {}
        self._inbox: deque[Ticket] = deque()
        self._scheduled = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadlines = Deadlines(self._loop, self._context)
        self._threads = Threads(self._work, sum(line.slots for line in hand.lines), on_failure)
        self.runs: dict[int, Run] = {}
        """By their rows in the table: what runs now."""
        self.active_at = pace.now()
        """When the loop was last seen at work."""
        self.draining = False
        """What has not started does not start any more."""

    @property
    def wants_loop(self) -> bool:
        """Whether something runs, or waits for the loop to start it."""
        return bool(self.runs or self._inbox)

    # --- from any thread ------------------------------------------------------------------------------------

    def arrived(self, group: int) -> None:
        """Tickets stand in a line: let in as many as there are slots."""
        line = self._hand.lines[group]
        for_loop = False
        while (ticket := line.enter()) is not None:
            for_loop = not self._to_thread(ticket) or for_loop
        if for_loop:
            self._loop.call_soon_threadsafe(self._run_inbox)

    def is_apart_from(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether jobs run on another thread than that loop's."""
        return self._loop is not loop

    def ping(self, answer: Callable[[], None]) -> None:
        """Ask for a sign of life of the loop."""

        def pong() -> None:
            self.active_at = self._now()
            answer()

        self._loop.call_soon_threadsafe(pong)

    def cancel(self, job: JobId, fence: Fence) -> None:
        """Stop a run because somebody asked for it; a thread only learns of it."""
        for ticket in list(self._hand.unstarted):
            lease = ticket.lease
            if (lease.job, lease.fence) == (job, fence) and self._hand.claim_start(ticket):
                self._ended(Ended(ticket, given_back(lease), None))  # the store makes it `cancelled`
        for run in list(self.runs.values()):
            if (run.lease.job, run.lease.fence) == (job, fence) and not run.cancelled:
                run.cancelled = True
                run.halt()  # once: what it does to clean up may take longer than the next word does

    def release_all(self) -> None:
        """Stop what can be stopped; it does not count as an attempt."""
        for run in list(self.runs.values()):
            run.released = True
            run.halt()

    @property
    def stoppable(self) -> int:
        """How many runs there are that will end when they are told to."""
        return sum(run.stop is not None for run in list(self.runs.values()))

    def _to_thread(self, ticket: Ticket) -> bool:
        """Hand a ticket to a thread, if that is its place; else it waits for the loop."""
        if self._kind(ticket.task) == "thread":
            self._threads.put(ticket)
            return True
        self._inbox.append(ticket)
        return False

    def _kind(self, task: Registered) -> Kind:
        kind = self._kinds.get(task.name)
        if kind is None:
            kind = self._kinds[task.name] = kind_of(task)
        return kind

    # --- on the loop ----------------------------------------------------------------------------------------

    def _run_inbox(self) -> None:
        self._scheduled = False
        self.active_at = self._now()
        try:
            for _ in range(len(self._inbox)):
                self._run_on_loop(self._inbox.popleft())
        except BaseException as error:
            self._on_failure(error)
            raise

    def _run_on_loop(self, ticket: Ticket) -> None:
        kind = self._kind(ticket.task)
        if kind == "loop":
            self._begin_task(ticket)
        elif kind == "inline":
            self._context.copy().run(self._run_inline, ticket)
            self._next_on_loop(ticket)
        else:
            job = self._loop.create_task(self._run_process(ticket), context=self._context.copy())
            self._tasks.add(job)
            job.add_done_callback(self._tasks.discard)

    def _begin_task(self, ticket: Ticket) -> None:
        """Run a job in an asyncio task of its own, which begins with the next turn of the loop.

        Nobody else needs to hold it: the loop does until it has begun, and then its run does (`Run.stop`).
        """
        loop, work, context = self._loop, self._run_async(ticket), self._context.copy()
        if loop.get_task_factory() is None:
            # What `create_task` does, without making a name of its own for each: a third of its time.
            asyncio.Task(work, loop=loop, name=ticket.lease.task, context=context)
        else:
            loop.create_task(work, context=context)

    def _next_on_loop(self, ticket: Ticket) -> None:
        """Let the next one in. Not at once: between two jobs the loop sees to whatever else is ready."""
        following = self._hand.lines[ticket.group].leave()
        if following is None:
            return
        kind = self._kinds.get(following.task.name) or self._kind(following.task)
        if kind == "loop":
            self._begin_task(following)
        elif kind == "thread":
            self._threads.put(following)
        else:
            self._inbox.append(following)
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon(self._run_inbox, context=self._context)

    def _run_inline(self, ticket: Ticket) -> None:
        opened = self._open(ticket)
        if opened is None:
            return
        task, run, (args, kwargs) = opened
        try:
            value = task.function(*args, **kwargs)
            settlement = self._executor.returned(run, task, value)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            settlement = self._executor.raised(run, task, error)
        self._close(ticket, run, settlement)

    async def _run_async(self, ticket: Ticket) -> None:
        try:
            opened = self._open(ticket)
            if opened is not None:
                task, run, (args, kwargs) = opened
                try:
                    me = _this_task(self._loop)
                    run.stop = lambda: self._soon(me.cancel)
                    if run.cancelled or run.released:
                        run.halt()
                    if run.deadline is not None:
                        self._deadlines.watch(run, run.deadline, me)
                    value = await task.function(*args, **kwargs)
                    settlement = self._executor.returned(run, task, value)
                except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
                    settlement = self._executor.raised(run, task, error)
                self._close(ticket, run, settlement)
            self.active_at = self._now()
            self._next_on_loop(ticket)
        except BaseException as error:
            self._on_failure(error)
            raise

    async def _run_process(self, ticket: Ticket) -> None:
        try:
            if self._hand.claim_start(ticket):
                await self._in_process(ticket)
            self._next_on_loop(ticket)
        except BaseException as error:
            self._on_failure(error)
            raise

    async def _in_process(self, ticket: Ticket) -> None:
        """It has not started before there is a process for it: an import is nobody's run."""
        if not self._hand.table.prepare(ticket.slot):
            self._ended(Ended(ticket, given_back(ticket.lease), None))  # as in `_start`
            return
        try:
            process = await self._processes.ready()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job is not at fault
            self._ended(Ended(ticket, unfit(ticket.lease, f"no process for it: {error}"), None))
            return
        run = self._start(ticket)
        if run is None:
            self._processes.keep(process)
            return
        try:
            settlement = await self._processes.run(process, run, ticket.task)
        except BaseException as error:  # noqa: BLE001 - whatever goes wrong here is this job's outcome
            settlement = self._executor.raised(run, ticket.task, error)
        self._close(ticket, run, settlement)

    # --- on a thread ----------------------------------------------------------------------------------------

    def _work(self, ticket: Ticket) -> Ticket | None:
        """Run one job; returns the next one for the same thread."""
        self._context.copy().run(self._run_here, ticket)
        following = self._hand.lines[ticket.group].leave()
        if following is None:
            return None
        if self._kind(following.task) == "thread":
            return following
        self._inbox.append(following)
        self._loop.call_soon_threadsafe(self._run_inbox)
        return None

    def _run_here(self, ticket: Ticket) -> None:
        opened = self._open(ticket)
        if opened is None:
            return
        task, run, (args, kwargs) = opened
        try:
            value = call_blocking(run, task.function, args, kwargs)
            settlement = self._executor.returned(run, task, value)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            settlement = self._executor.raised(run, task, error)
        self._close(ticket, run, settlement)

    # --- the steps around a run -----------------------------------------------------------------------------

    def _start(self, ticket: Ticket) -> Run | None:
        settlement = given_back(ticket.lease) if self.draining else self._executor.refuse(ticket)
        if settlement is not None:
            self._ended(Ended(ticket, settlement, None))
            return None
        run = self._executor.start(ticket)
        if run is None:
            # The supervisor has released it: the store answers ALREADY, and the row is free.
            self._ended(Ended(ticket, given_back(ticket.lease), None))
            return None
        self.runs[ticket.slot] = run
        running.set(run)
        return run

    def _open(self, ticket: Ticket) -> tuple[Registered, Run, Arguments] | None:
        """Start it and read its arguments."""
        if not self._hand.claim_start(ticket) or (run := self._start(ticket)) is None:
            return None  # it has ended already, or is no longer ours
        if self._spans is not None:
            run.span = self._spans.begin(run.lease)
        task = ticket.task
        try:
            read = self._executor.read(ticket)
        except BaseException as error:  # noqa: BLE001 - users' code may raise anything, also while it is read
            read = self._executor.raised(run, task, error)
        if isinstance(read, Settlement):
            self._close(ticket, run, read)
            return None
        return task, run, read

    def _close(self, ticket: Ticket, run: Run, settlement: Settlement) -> None:
        run.stop = None
        if run.span is not None and self._spans is not None:
            self._spans.end(run.span, settlement)
        if run.deadline is not None:
            self._deadlines.forget(run)
        self.runs.pop(ticket.slot, None)
        if ticket.task.options.hard_timeout is not None:
            # Its outcome may wait for the store for long: nobody is to be killed for that.
            self._hand.table.set_deadline(ticket.slot, 0.0)
        self._ended(Ended(ticket, settlement, run))

    async def close(self) -> None:
        """Let idle threads go. Those that run a job are left alone."""
        self._threads.close()
        self._deadlines.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0)


def call_blocking(run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function outside of a loop; what it gives to be awaited gets a loop of its own."""
    value = function(*args, **kwargs)
    if value is None or not inspect.isawaitable(value):
        return value
    with asyncio.Runner() as runner:
        return runner.run(awaited(run, value), context=contextvars.copy_context())


async def awaited(run: Run, work: Awaitable[Any]) -> Any:
    """Wait for a task's code, for no longer than it may take; meanwhile the run can be stopped."""
    loop = asyncio.get_running_loop()
    task = _this_task(loop)
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


def _this_task(loop: asyncio.AbstractEventLoop) -> "asyncio.Task[Any]":
    task = asyncio.current_task(loop)  # to find the loop takes longer than to find the task
    assert task is not None
    return task


class Threads:
    """Threads that take tickets; started when all others are busy, and daemons: a job that never ends must
    not keep its process.

    A ticket is taken by whichever thread is about to run it, not by the one that was woken for it: that one
    may have to wait for the interpreter while a thread that is hot runs dozens of jobs behind it in line.
    """

    def __init__(
        self,
        work: Callable[[Ticket], Ticket | None],
        most: int,
        on_failure: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        self._work = work
        self._most = most
        self._on_failure = on_failure
        self._tickets: deque[Ticket] = deque()
        self._wakes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._count = 0
        self._lock = threading.Lock()

    def put(self, ticket: Ticket) -> None:
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

    def _next(self) -> Ticket | None:
        try:
            return self._tickets.popleft()
        except IndexError:
            return None
