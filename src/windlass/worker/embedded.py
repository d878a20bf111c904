"""A worker inside an application's own process: `async with app.worker():`.

It is weaker than `windlass worker` in one promise: its heartbeat comes from the process that runs the tasks.
The heart has a thread of its own, so a task that blocks the loop does no harm. But C code that holds the
interpreter for longer than the session's TTL loses its leases, a crash ends the application, and a thread
that runs past its hard timeout cannot be killed. Jobs still run at least once.
"""

import asyncio
import contextvars
import logging
import os
import platform
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from windlass.broker.contract import Broker
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import SessionInfo
from windlass.core.units import SECOND, Fence, JobId, SessionId
from windlass.errors import StoreError, StoreReplaced
from windlass.loading import in_namespace
from windlass.pace import MachinePace, Pace
from windlass.patience import insist, never_answers
from windlass.version import __version__
from windlass.worker.alerting import look_and_tell
from windlass.worker.beside import beside
from windlass.worker.documents import check_queues
from windlass.worker.firing import Firing
from windlass.worker.handing import OnThreads
from windlass.worker.heart import Heart
from windlass.worker.holds import Holds, own_tasks
from windlass.worker.host import Machine
from windlass.worker.janitor import Janitor
from windlass.worker.lifespan import Held
from windlass.worker.options import WorkerOptions, groups_of
from windlass.worker.program import Program, Registered
from windlass.worker.pruning import Pruning
from windlass.worker.registration import declare_all
from windlass.worker.table import Table, table_path
from windlass.worker.worker import Worker, rows_for

_log = logging.getLogger("windlass.worker")
_T = TypeVar("_T")


class EmbeddedWorker:
    """Runs jobs on the loop it is entered on, until it is left."""

    def __init__(
        self,
        program: Program,
        options: WorkerOptions,
        *,
        open_broker: Callable[[], Awaitable[Broker]],
        close_broker: Callable[[], Awaitable[None]],
        pace: Pace | None = None,
    ) -> None:
        self._program = program
        self._groups = groups_of(options, program.weights)
        self._names_queues = bool(options.queues or options.groups)
        config = program.config
        self._intakes = options.intakes
        self._grace = (config.grace if options.grace is None else options.grace) / SECOND
        self._counts_for = (config.session_ttl - config.beat) / SECOND
        self._open_broker = open_broker
        self._close_broker = close_broker
        self._pace = pace or MachinePace()
        self._machine = Machine()
        self._leaving = False
        self._runs = False
        self._settings: int | None = None
        self.context: contextvars.Context | None = None
        """Of a lifespan that somebody else holds for this process; None: this worker enters it."""
        self._open()

    def _open(self) -> None:
        """A new session: an id is never used again."""
        self.session: SessionId = uuid.uuid4().hex
        self.opened = False
        self._is_lost = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._started = asyncio.Event()
        self._serving = asyncio.create_task(self._surrounded(), context=self.context)
        begun = asyncio.create_task(self._started.wait())
        try:
            await asyncio.wait({begun, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._leave(0)  # otherwise nothing would ever stop it
            raise
        finally:
            begun.cancel()
        if self._serving.done():
            self._serving.result()  # it could not begin: say why
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._leave(self._grace)

    async def _leave(self, grace: float) -> None:
        self._leaving = True
        if self._runs:
            self._worker.drain(grace)
            await self._serving
        else:
            self._serving.cancel()  # its lifespan has not been entered
            await asyncio.wait({self._serving})

    def end(self) -> None:
        """Claim no more, and end when what runs has ended, or the grace."""
        self._leaving = True
        if self._runs:
            self._worker.drain(self._grace)

    async def ended(self) -> None:
        """Wait until it has ended, however it did."""
        if self._runs:
            await asyncio.wait({self._serving})

    async def _surrounded(self) -> None:
        if self.context is not None:
            return await self._serve()
        lifespan = Held(self._program, OnThreads(), on_end=self.end)
        context = await lifespan.enter()
        try:
            await asyncio.create_task(self._serve(), context=context)
        finally:
            await lifespan.leave()

    async def _serve(self) -> None:
        while not self._leaving:
            self._table = Table.create(table_path(self.session), rows_for(self._groups))
            self._worker = Worker(
                self._program,
                self.session,
                self._groups,
                self._table,
                self._pace,
                open_broker=self._opened_broker,
                beside=self._beside,
                at_end=self._end,
                app_name=_importable(self._program),
            )
            self._runs = True
            try:
                await self._worker.run()
            except StoreReplaced as error:
                _log.error("the worker inside this process runs no more jobs: %s", error)
                raise
            except StoreError as error:
                if not self._leaving or not self._started.is_set():
                    raise
                _log.warning("left while the store does not answer: %s", error)
            except Exception:
                if self._started.is_set():  # at the start the caller hears of it
                    _log.exception("the worker inside this process has failed, and runs no more jobs")
                raise
            finally:
                self._table.remove()
            if self._is_lost:
                _log.warning("session %s was lost; the worker goes on under a new one", self.session)
            self._open()

    # --- on the fetcher's thread ----------------------------------------------------------------------------

    async def _beside(self, worker: Worker, broker: Broker) -> None:
        await self._declare(broker)
        heart = Heart(broker, self._pace, self._program.config, lambda: [self])
        while not self.opened:
            if not await heart.beat():
                await self._pace.sleep(self._pace.jitter())
        worker.go.set()
        self._loop.call_soon_threadsafe(self._started.set)
        firing = Firing(broker, self._program.new_id)
        janitor = Janitor(
            broker,
            self._pace,
            self._program.config,
            fire=firing.due,
            look=lambda: look_and_tell(broker, namespace=self._program.config.namespace),
            pruning=Pruning(broker, self._program, self._pace),
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(heart.run())
                group.create_task(janitor.run())
                group.create_task(Holds(broker, self._pace, self._tasks()).run())
                services = beside(self._program, broker, self._pace, intakes=self._intakes)
                for service in services.values():
                    group.create_task(_run(service))
        except ExceptionGroup as several:
            for error in several.exceptions:
                if isinstance(error, StoreReplaced):
                    raise error from None
            raise

    def _tasks(self) -> list[Registered]:
        """What can run here: there are no processes for `run="process"`."""
        return [task for task in own_tasks(self._program) if task.options.run != "process"]

    async def _opened_broker(self) -> Broker:
        if not self._started.is_set():
            return await self._open_broker()
        return await self._insist(self._open_broker)

    async def _insist(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Ask until the store answers, or the worker is left."""
        return await insist(
            self._pace,
            "opening the store",
            call,
            gives_up=lambda error: self._leaving or never_answers(error),
        )

    async def _declare(self, broker: Broker) -> None:
        """At the start an error is the caller's to see; later the store is waited for."""
        if self._started.is_set():
            await self._insist(lambda: declare_all(broker, self._program))
        else:
            await declare_all(broker, self._program)
            if self._names_queues:
                await check_queues(broker, [queue for group in self._groups for queue in group.queues])

    async def _end(self, broker: Broker) -> None:
        """End the session: jobs that are left go back, and no attempt is charged."""
        try:
            while (await broker.end_session(self.session, Cause(CauseKind.STOP, "stopped"))).more:
                pass
        except StoreError as error:
            _log.warning("the store could not be told that the worker stopped: %s", error)
        await self._close_broker()

    # --- what the heart asks and tells ----------------------------------------------------------------------

    @property
    def info(self) -> SessionInfo:
        """Who this is."""
        pid, config = os.getpid(), self._program.config
        return SessionInfo(
            host=platform.node(),
            boot=self._machine.boot,
            pid_namespace=self._machine.pid_namespace,
            pid=pid,
            process_started=self._machine.process_started(pid) or 0,
            app=self._program.name,
            version=__version__,
            queues=tuple(dict.fromkeys(queue for group in self._groups for queue in group.queues)),
            slots=sum(group.slots for group in self._groups),
            ttl=config.session_ttl,
        )

    def is_stopped(self) -> bool:
        """A process that asks this runs."""
        return False

    def memory(self) -> int:
        """Resident bytes."""
        return self._machine.memory(os.getpid())

    def heartbeat_answered(self, sent: float) -> None:
        """The session is alive."""
        self.opened = True
        self._table.heartbeat_answered(sent, self._counts_for)

    def cancel(self, leases: Sequence[tuple[JobId, Fence]]) -> None:
        """These are to be cancelled."""
        for job, fence in leases:
            self._worker.cancel(job, fence)

    def settings(self, version: int) -> None:
        """They have changed if this is another one than before."""
        if version != self._settings:
            self._settings = version
            self._worker.reread()

    def lost(self) -> None:
        """The session is over: what runs may end, and the next one begins."""
        self._is_lost = True
        self._worker.lost()
        self._worker.drain(self._grace)


async def _run(service: Callable[[], Awaitable[None]]) -> None:
    await service()


def _importable(program: Program) -> str:
    """The name under which a process can import the app; empty if it has none."""
    home = getattr(program, "home", program)
    if home is not program:
        found = _importable(home)
        return in_namespace(found, program.config.namespace) if found else ""
    for name, module in list(sys.modules.items()):
        if name == "__main__" or module is None:  # pyright: ignore[reportUnnecessaryComparison]
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is program:
                return f"{name}:{attribute}"
    return ""
