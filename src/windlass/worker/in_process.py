"""Runs tasks with `run="process"`: what neither ends nor can be stopped is killed there.

A process runs one job at a time and is kept for the next. It ends with its worker. The steps of a run that
concern its code (`Performer.perform`) happen in the process: see `process_main.py`.
"""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.conclude import Concluder, given_back, held
from windlass.worker.executor import Executor
from windlass.worker.failure import said
from windlass.worker.holds import process_key
from windlass.worker.in_loop import TaskLoop
from windlass.worker.local_leases import Ticket
from windlass.worker.process import (
    Begun,
    Concluded,
    Prepare,
    Prepared,
    ProcessHandle,
    Ruled,
    Said,
    Unfit,
    Work,
)
from windlass.worker.program import Registered
from windlass.worker.run import Run
from windlass.worker.table import Table

LONGEST_IMPORT = 120.0
"""Seconds that a process may take to import its app and to enter its lifespan. A job that waits for one is
not given to others.
"""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two tries to have a process, when one could not begin."""


class InProcess:
    """The invoker of tasks that run in a process of their own; it waits for them in the loop."""

    def __init__(
        self,
        task_loop: TaskLoop,
        executor: Executor,
        processes: "Processes",
        table: Table,
        *,
        follow: Callable[[Ticket, object], Ticket | None],
    ) -> None:
        self._task_loop = task_loop
        self._executor = executor
        self._processes = processes
        self._table = table
        self._follow = follow
        self._serving: set[asyncio.Task[None]] = set()

    def put(self, ticket: Ticket) -> None:
        """Run a ticket; called on any thread."""
        self._task_loop.put(self._begin, ticket)

    async def close(self) -> None:
        """End the processes that are idle."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=0)
        await self._processes.close()

    def _begin(self, ticket: Ticket) -> None:
        job = self._task_loop.loop.create_task(self._serve(ticket), context=self._task_loop.context.copy())
        self._serving.add(job)
        job.add_done_callback(self._serving.discard)

    async def _serve(self, ticket: Ticket) -> None:
        try:
            invocation = Invocation(self._processes, self._table)
            await self._executor.execute(ticket, invocation)
            invocation.close()
            following = self._follow(ticket, self)
            if following is not None:
                self._begin(following)
        except BaseException as error:
            self._task_loop.on_failure(error)
            raise


class Invocation:
    """One job, and the process that was prepared for it."""

    blocking = False

    def __init__(self, processes: "Processes", table: Table) -> None:
        self._processes = processes
        self._table = table
        self._process: ProcessHandle | None = None

    async def prepare(self, ticket: Ticket) -> Settlement | None:
        """Have a process ready. The job has not started before that: an import is no part of a run."""
        if not self._table.prepare(ticket.slot):
            return given_back(ticket.lease)  # the supervisor has taken it back
        try:
            self._process = await self._processes.ready()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the job is not at fault
            key = process_key(ticket.lease.task) if self._processes.may_begin_later else ""
            return held(ticket.lease, said("NoProcess", f"no process for it: {error}"), key=key)
        return None

    async def perform(self, run: Run, task: Registered) -> Settlement:
        """Run the job in its process."""
        process, self._process = self._process, None
        assert process is not None
        return await self._processes.run(process, run, task)

    def close(self) -> None:
        """Keep the process for another job, if the job that it was prepared for did not start."""
        if self._process is not None:
            self._processes.keep(self._process)


class Processes:
    """The processes of a worker.

    When one could not begin, no job starts another: each would import the app and fail. The worker tries by
    itself, ever more seldom, and meanwhile has the same answer for all jobs that find no idle process.
    """

    def __init__(
        self,
        app_name: str,
        conclude: Concluder,
        pace: Pace,
        *,
        table: str = "",
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_begun` is called when a process has begun after others could not."""
        self._prepare = Prepare(app_name, table)
        self._conclude = conclude
        self._folder = _current_folder()
        """From which the app is found; a task may go elsewhere."""
        self._idle: list[ProcessHandle] = []
        self._pace = pace
        self._on_begun = on_begun
        self._why = ""
        """Why the last one could not begin; it is tried again."""
        self._trying: asyncio.Task[None] | None = None

    @property
    def may_begin_later(self) -> bool:
        """Whether there may be one later, if there is none now."""
        return bool(self._prepare.app)

    async def ready(self) -> ProcessHandle:
        """A process that takes work. `StoreError`, `OSError`: there is none to be had."""
        if not self._prepare.app:
            raise StoreError("a worker inside a program has none: start `windlass worker` for such tasks")
        process = await self._take_idle()
        if process is not None:
            return process
        if self._why:
            raise StoreError(self._why)
        try:
            return await self._begun()
        except Exception as error:
            self._why = str(error)
            if self._trying is None:
                self._trying = asyncio.create_task(self._try_again(error))
            raise

    async def _try_again(self, error: Exception) -> None:
        """Until a process begins."""
        backoff = Backoff(self._pace, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        while True:
            backoff.tell('no process for tasks of run="process": %s; trying until one begins', error)
            await self._pace.sleep(backoff.failed())
            try:
                process = await self._begun()
                break
            except Exception as again:  # noqa: BLE001 - whatever it is, it may pass
                error, self._why = again, str(again)
        self._why, self._trying = "", None
        self.keep(process)
        self._on_begun()

    async def _begun(self) -> ProcessHandle:
        """A new process that takes work."""
        process = await ProcessHandle.start(self._prepare, _if_there(self._folder))
        try:
            async with asyncio.timeout(LONGEST_IMPORT):
                prepared = await process.prepared()
        except TimeoutError:
            await process.close()
            raise StoreError(
                f"it was not ready within {LONGEST_IMPORT:g} s: does an import or the lifespan hang?"
            ) from None
        except BaseException:
            await process.close()
            raise
        if not prepared:
            cause = await process.ended()
            raise StoreError(process.unfit or f"it died while it began: {cause}")
        return process

    def keep(self, process: ProcessHandle) -> None:
        """For another job."""
        self._idle.append(process)

    async def run(self, process: ProcessHandle, run: Run, task: Registered) -> Settlement:
        """Run one job, whatever becomes of its process."""
        try:
            return await self._run(process, run, task)
        except BaseException as error:  # noqa: BLE001 - whatever goes wrong here is this job's outcome
            return self._conclude.raised(run, task, error)

    async def _run(self, process: ProcessHandle, run: Run, task: Registered) -> Settlement:
        """It is stopped by killing its process."""
        loop = asyncio.get_running_loop()
        process.serves, process.has_begun = run, False
        run.stop_with(lambda: loop.call_soon_threadsafe(process.kill_if_serving, run))
        try:
            settlement = await self._served(process, run, task)
        except BaseException:
            await process.close()  # it may still run the job
            raise
        finally:
            run.stop = process.serves = None
        if settlement is None:
            cause = await process.ended()
            if run.timed_out:
                return self._conclude.raised(run, task, TimeoutError())
            if not (process.has_begun or run.cancelled or run.released):
                return given_back(run.lease)  # it had died while it was idle: the job is not at fault
            return self._conclude.died(run, cause)
        self.keep(process)
        return settlement

    async def _served(self, process: ProcessHandle, run: Run, task: Registered) -> Settlement | None:
        """None: the process has died."""
        if run.cancelled or run.released:
            process.signal(signal.SIGKILL)
            return None
        timers = _timers(asyncio.get_running_loop(), process, run, task)
        try:
            process.say(Work(lease=run.lease, started=run.started, deadline=run.deadline))
            return await self._settlement(process, run)
        finally:
            for timer in timers:
                timer.cancel()

    async def _settlement(self, process: ProcessHandle, run: Run) -> Settlement | None:
        while (message := await process.hear()) is not None:
            match message:
                case Concluded():
                    return message.settlement
                case Said(asks=False):
                    run.reporter.note(message.note)
                case Begun():
                    process.has_begun = True
                case Prepared() | Unfit():
                    pass
                case Said():
                    process.say(await _ruled(run, message.note))
        return None

    async def _take_idle(self) -> ProcessHandle | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.close()
        return None

    async def close(self) -> None:
        """End those that are idle."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.wait({self._trying})
        await asyncio.gather(*(process.end() for process in self._idle))


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None


def _if_there(folder: Path | None) -> Path | None:
    return folder if folder is not None and folder.is_dir() else None


async def _ruled(run: Run, note: Note) -> Ruled:
    try:
        return Ruled(await asyncio.wrap_future(run.reporter.confirm(note)))
    except Exception as error:  # noqa: BLE001 - told to the task that asked
        return Ruled(None, str(error))


def _timers(
    loop: asyncio.AbstractEventLoop, process: ProcessHandle, run: Run, task: Registered
) -> list[asyncio.TimerHandle]:
    hard = task.options.hard_timeout
    timers = [] if run.deadline is None else [loop.call_at(run.deadline, _time_out, process, run)]
    if hard is not None:
        timers.append(loop.call_at(run.started + hard / SECOND, process.signal, signal.SIGKILL))
    return timers


def _time_out(process: ProcessHandle, run: Run) -> None:
    run.timed_out = True
    process.signal(signal.SIGUSR1)
