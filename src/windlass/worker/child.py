"""A child of a supervisor: `python -m windlass.worker.child FD`."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import msgspec

from windlass.broker.contract import Broker
from windlass.broker.observed import observe
from windlass.broker.registry import open_broker
from windlass.core.outcome import Cause, CauseKind
from windlass.core.units import SECOND
from windlass.errors import DescriptorClosed, LifespanFailed, StoreError, StoreReplaced, WindlassError
from windlass.loading import load_app
from windlass.observe.failures import flush_listeners
from windlass.observe.logs import begin_logging
from windlass.observe.measures import registry
from windlass.observe.meter import Meter
from windlass.pace import MachinePace
from windlass.patience import Backoff
from windlass.worker import messages
from windlass.worker.handing import OnThreads
from windlass.worker.leaving import BROKEN, CLOSED, end_broken, leave_soon
from windlass.worker.lifelines import Lifelines
from windlass.worker.lifespan import Held
from windlass.worker.messages import (
    Begin,
    Cancel,
    Drain,
    Failed,
    Go,
    Lost,
    Measured,
    Ready,
    Reread,
    Suspects,
    Tally,
)
from windlass.worker.program import Program
from windlass.worker.starting import give_forks_their_signals, let_signals_through
from windlass.worker.table import Table
from windlass.worker.worker import Worker

_log = logging.getLogger("windlass.worker")

FAILED = 3
"""Exit code: it could not begin, and has said why."""
ORPHANED = 4
"""Exit code: its supervisor died."""
LAST_WORDS = 5.0
"""Seconds that a child takes at the most to end its session when its supervisor is dead."""
TALLY_EVERY = 1.0
LOOK_EVERY = 1.0
LONG_ENTERING = 30.0
"""Seconds after which a lifespan that is still being entered is told of."""


def main(argument: str) -> None:
    """Run until the supervisor says otherwise, or is gone."""
    control = socket.socket(fileno=int(argument))
    control.set_inheritable(False)
    control.settimeout(None)  # its other end may have been made under a default timeout of the program
    early = _hold_signals()
    begin = _first_word(control)
    if begin is None:
        return
    try:
        program = load_app(begin.app)
        begin_logging()  # by now the app has set up what it wants
        table = Table.open(Path(begin.table))
    except (WindlassError, OSError) as error:
        control.sendall(messages.framed(Failed(str(error))))
        leave_soon(FAILED)
        sys.exit(FAILED)
    lifelines = Lifelines()
    lifelines.hold("the socket to its supervisor", control.fileno())
    lifelines.hold("the table of leases", table.descriptor)
    runner = asyncio.Runner(loop_factory=lambda: lifelines.new_loop("the loop that runs tasks"))
    child = Child(begin, program, table, control, lifelines)
    _heed_signals(child)
    give_forks_their_signals()
    if early:
        child.worker.drain(0)
    code = 0
    try:
        code = runner.run(child.run())
    except BaseException as error:  # noqa: BLE001 - whatever it is, no thread may keep this process
        traceback.print_exception(error)
        end_broken(1, f"{type(error).__name__}, see above")
    flush_listeners()
    # From here on nothing that a task has left behind keeps the process: threads, a full executor.
    leave_soon(code)
    runner.close()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread.name.startswith("windlass-thread") for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)


class Child:
    """The worker of this process, and what it hears from its supervisor."""

    def __init__(
        self, begin: Begin, program: Program, table: Table, control: socket.socket, lifelines: Lifelines
    ) -> None:
        self._begin = begin
        self._program = program
        self._table = table
        self._control = control
        self._lifelines = lifelines
        self._pace = MachinePace()
        self._writer: asyncio.StreamWriter | None = None
        self._meter = Meter(registry()) if begin.measures else None
        self._measured_at = 0.0
        self.worker = Worker(
            program,
            begin.session,
            begin.groups,
            table,
            self._pace,
            open_broker=self._open,
            beside=self._obey,
            at_end=self._at_end,
            app_name=begin.app,
            alone=begin.alone,
            on_cancel=_stopped_from_inside,
            on_failure=self._failed,
            check=self._check,
            new_loop=lambda: lifelines.new_loop("the loop that asks the store"),
        )
        self.worker.on_lost = lambda: self._say(Lost())
        self.worker.on_suspects = self._suspects
        self.worker.on_jobs = self._jobs
        self._told_jobs = 0
        self._told_at = 0.0
        self._suspects_told = 0.0
        self.grace = program.config.grace / SECOND

    async def run(self) -> int:
        """Enter the lifespan and serve, on this loop; ends cleanly. Returns the exit code."""
        waiting = asyncio.create_task(self._wait_for_lifespan())
        lifespan = Held(self._program, OnThreads(), on_end=lambda: self.worker.drain(self.grace))
        try:
            context = await lifespan.enter()
            waiting.cancel()
            try:
                await asyncio.create_task(self._serve(), context=context)
            finally:
                await lifespan.leave()
        except LifespanFailed as error:
            self._control.sendall(messages.framed(Failed(str(error), passes=True)))
            return FAILED
        finally:
            waiting.cancel()
        return 0

    async def _wait_for_lifespan(self) -> None:
        """Nobody listens to the supervisor before the worker runs, so its end is looked for here."""
        parent, started, told = os.getppid(), self._pace.now(), False
        while True:
            await self._pace.sleep(LOOK_EVERY)
            if os.getppid() != parent:
                os._exit(ORPHANED)
            if not told and self._pace.now() - started > LONG_ENTERING:
                told = True
                _log.warning(
                    "the lifespan has not been entered after %g s; no job runs before", LONG_ENTERING
                )

    async def _serve(self) -> None:
        try:
            await self.worker.run()
        except StoreError as error:
            if not self.worker.draining:
                raise
            # The jobs that are left were told to stop: no attempt is charged.
            _log.warning("the store does not answer (%s); the supervisor tells it the rest", error)
        self._table.end_cleanly()

    def _check(self) -> None:
        if (why := self._lifelines.broken()) is not None:
            end_broken(CLOSED, f"a task has harmed it: {why}")

    def _failed(self, error: BaseException) -> None:
        """A part of the worker has failed, on any thread: nothing would be claimed or settled any more."""
        if isinstance(error, DescriptorClosed):
            end_broken(CLOSED, f"a task has harmed it: {error}")
        if not self.worker.draining:  # one that ends does so by its grace
            end_broken(BROKEN, "a part of the worker failed", error)

    async def _open(self) -> Broker:
        config = self._program.config
        backoff = Backoff(self._pace, first=0.5)
        while True:
            try:
                broker = await open_broker(config.url, options=config.broker_options())
                if backoff.tries:
                    _log.info("the store answers")
                # What is imported by now stays: the garbage collector need not look at it again.
                gc.collect()
                gc.freeze()
                return broker if self._meter is None else observe(broker, [self._meter])
            except StoreReplaced as error:
                self._control.sendall(messages.framed(Failed(str(error))))
                raise
            except StoreError as error:
                # Also for a missing right or a full disk: the supervisor has just opened the same store.
                backoff.tell("the store does not answer (%s); trying until it does", error)
                await self._pace.sleep(backoff.failed())

    async def _at_end(self, broker: Broker) -> None:
        self._say_measured()
        await broker.close()

    async def _obey(self, worker: Worker, broker: Broker) -> None:
        """Runs beside the fetcher: do what the supervisor says."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._control)
        self._say(Ready())
        while (message := await messages.read_to_child(reader)) is not None:
            self._heed(worker, message)
        await self._orphaned(worker, broker)

    def _heed(self, worker: Worker, message: messages.ToChild) -> None:
        match message:
            case Go():
                worker.go.set()
            case Cancel():
                for job, fence in message.leases:
                    worker.cancel(job, fence)
            case Reread():
                worker.reread()
            case Drain():
                worker.go.set()
                worker.drain(message.grace)
            case Begin():
                pass

    def _jobs(self, jobs: int) -> None:
        """Tell the supervisor the count now and then, and at once when it has reached `max_jobs`."""
        now, most = self._pace.now(), self._begin.max_jobs
        enough = most is not None and self._told_jobs < most <= jobs
        if jobs != self._told_jobs and (enough or now - self._told_at >= TALLY_EVERY):
            self._told_jobs, self._told_at = jobs, now
            self._say(Tally(jobs=jobs))
        if self._meter is not None and now - self._measured_at >= TALLY_EVERY:
            self._measured_at = now
            self._say_measured()

    def _say_measured(self) -> None:
        if self._meter is not None and (taken := self._meter.registry.take()):
            self._say(Measured(taken))

    async def _orphaned(self, worker: Worker, broker: Broker) -> None:
        """The supervisor is dead, and with it the heart: say what had started, while that is known, and end.

        A job that keeps killing its supervisor is charged for it, as it is for killing its own process.
        """
        worker.lost()  # it starts nothing from here on
        await worker.settled(LAST_WORDS / 2)
        started = [(entry.job, entry.fence) for entry in self._table.started()]
        cause = Cause(CauseKind.CRASH, "the supervisor died")
        try:
            async with asyncio.timeout(LAST_WORDS):
                while (await broker.end_session(self._begin.session, cause, started)).more:
                    pass
                self._table.path.unlink(missing_ok=True)
        except (StoreError, TimeoutError):
            pass  # then it is found to be gone, or silent
        os._exit(ORPHANED)

    def _suspects(self, waiting: int) -> None:
        now = self._pace.now()
        if now - self._suspects_told > TALLY_EVERY:
            self._suspects_told = now
            self._say(Suspects(waiting))

    def _say(self, message: messages.ToSupervisor) -> None:
        """Send a message, on the fetcher's loop. They are few and short, so it waits for no reader."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(messages.framed(message))


def _stopped_from_inside() -> None:
    """A task has stopped the loop, or cancelled all that runs on it: charged, like any other crash."""
    end_broken(1, "its loop was stopped from inside")


def _first_word(control: socket.socket) -> Begin | None:
    with control.makefile("rb", buffering=0) as stream:
        head = stream.read(4)
        if not head:
            return None
        size, body = int.from_bytes(head, "big"), b""
        while len(body) < size:
            piece = stream.read(size - len(body))
            if not piece:
                return None
            body += piece
    return msgspec.msgpack.decode(body, type=Begin)


def _hold_signals() -> list[int]:
    """Note signals until the app is imported; returns those that came."""
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    # A terminal sends it to the whole group: the supervisor decides. Not SIG_IGN, which programs that a task
    # starts would inherit.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    let_signals_through()
    return came


def _heed_signals(child: Child) -> None:
    def drain(_number: int, _frame: Any) -> None:
        child.worker.drain(child.grace)

    signal.signal(signal.SIGTERM, drain)


if __name__ == "__main__":
    main(sys.argv[1])
