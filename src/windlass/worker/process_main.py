"""The other side of `process.py`: `python -m windlass.worker.process_main FD`. Runs jobs, one at a time."""

import contextlib
import ctypes
import inspect
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from windlass.completed import complete
from windlass.core.outcome import Verdict
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.errors import LifespanFailed, StoreError
from windlass.loading import load_app
from windlass.observe.failures import flush_listeners, must_flush
from windlass.observe.logs import begin_logging
from windlass.pace import MachinePace
from windlass.worker.conclude import Concluder, given_back, unknown
from windlass.worker.failure import RunTimedOut
from windlass.worker.handing import Stage
from windlass.worker.in_thread import Returned, awaited
from windlass.worker.leaving import BROKEN, CLOSED, end_broken, leave_soon
from windlass.worker.lifelines import Lifelines
from windlass.worker.lifespan import Held
from windlass.worker.observed import performer_for
from windlass.worker.process import (
    Begun,
    Concluded,
    FromProcess,
    Prepare,
    Prepared,
    Ruled,
    Said,
    ToProcess,
    Unfit,
    Work,
    framed,
)
from windlass.worker.run import Run, running
from windlass.worker.starting import give_forks_their_signals, let_signals_through
from windlass.worker.table import Table

_decode = msgspec.msgpack.Decoder[ToProcess](ToProcess).decode
_PR_SET_PDEATHSIG = 1


class Door:
    """The socket to the worker. One thread reads it: the one that runs the job."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lifelines = Lifelines()
        self._lifelines.hold("the socket to its worker", control.fileno())
        self._stream = control.makefile("rb")
        self._lock = threading.Lock()

    def hear(self) -> ToProcess | None:
        """The next word; None: the worker is gone."""
        head = self._stream.read(4)
        if len(head) < 4:
            return None
        return _decode(self._stream.read(int.from_bytes(head, "big")))

    def say(self, message: FromProcess) -> None:
        """Say something, on any thread."""
        with self._lock:
            if (why := self._lifelines.broken()) is not None:
                end_broken(CLOSED, f"a task has harmed it: {why}")
            self._control.sendall(framed(message))

    # --- a reporter for runs --------------------------------------------------------------------------------

    def note(self, note: Note) -> None:
        """Pass a note on."""
        self.say(Said(note))

    def confirm(self, note: Note) -> Future[Verdict]:
        """Pass a note on and wait for the store's word on it."""
        future: Future[Verdict] = Future()
        self.say(Said(note, asks=True))
        answer = self.hear()
        if isinstance(answer, Ruled) and answer.verdict is not None:
            future.set_result(answer.verdict)
        else:
            why = answer.why if isinstance(answer, Ruled) else "the worker is gone"
            future.set_exception(StoreError(why))
        return future


class JobProcess:
    """Runs what it is told to."""

    def __init__(self, door: Door, prepare: Prepare) -> None:
        self._door = door
        self._program = load_app(prepare.app)
        begin_logging()  # by now the app has set up what it wants
        # Before the lifespan: the table of a worker that is gone is gone, too.
        self._table = Table.open(Path(prepare.table)) if prepare.table else None
        self._tasks = self._program.runnable
        self._performer = performer_for(Concluder(MachinePace()))
        self._stage = Stage()
        self._held = Held(self._program, self._stage, on_end=_told)
        self._context = self._stage.run(self._held.enter())
        self._run: Run | None = None

    def serve(self) -> None:
        """Until the worker is gone, or the lifespan has ended: then another process takes the next job."""
        while not self._held.has_ended and isinstance(work := self._door.hear(), Work):
            self._heed_signals()
            self._door.say(Begun())
            settlement = self._context.copy().run(self._execute, work)
            self._door.say(Concluded(settlement))

    @property
    def leaves(self) -> bool:
        """Whether it leaves a lifespan, or has to send what listeners still have, before it ends."""
        return self._program.surroundings.in_a_process or must_flush()

    def leave(self) -> None:
        """Leave the lifespan: the last job has ended."""
        with contextlib.suppress(LifespanFailed):  # it has logged why
            self._stage.run(self._held.leave())
        self._stage.close()

    def _heed_signals(self) -> None:
        """Before each job: the one before may have taken the signal by which a timeout is told."""
        signal.signal(signal.SIGUSR1, self._time_out)
        let_signals_through()

    def _time_out(self, _number: int, _frame: Any) -> None:
        """The task's timeout is over: its code is told so, where it is.

        Once: a coroutine is cancelled by its loop, which can stop it, and is not torn out of its tidying up.
        """
        run = self._run
        if run is not None and run.stop is None and not run.timed_out:
            run.timed_out = True
            self._stage.interrupt(RunTimedOut())

    def _execute(self, work: Work) -> Settlement:
        """The worker has marked the job as started; the other steps are taken here."""
        task = self._tasks.get(work.lease.task)
        if task is None:
            return unknown(work.lease)
        run = Run(
            lease=work.lease,
            memos=dict(work.lease.memos),
            started=work.started,
            deadline=work.deadline,
            reporter=self._door,
            is_lost=lambda: self._table is not None and time.monotonic() > self._table.alive_until(),
            program=self._program,
        )
        running.set(run)
        if run.is_lost():
            return given_back(work.lease)
        return complete(self._performer.perform(self._call, run, task))

    def _call(self, run: Run, function: Any, args: Any, kwargs: Any) -> Returned:
        self._run = run
        try:
            value = function(*args, **kwargs)
            return Returned(self._stage.run(awaited(run, value)) if inspect.isawaitable(value) else value)
        finally:
            self._run = None


def _told() -> None:
    """The lifespan has ended, which is looked at between jobs."""


def main(argument: str) -> None:
    """Serve the worker at the other end."""
    control = socket.socket(fileno=int(argument))
    control.set_inheritable(False)
    control.settimeout(None)  # a task may have set a default timeout where its other end was made
    _end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The worker decides when a job is to stop. Not SIG_IGN, which programs that a task starts inherit.
        signal.signal(number, lambda _number, _frame: None)
    let_signals_through()
    door = Door(control)
    prepare = door.hear()
    if not isinstance(prepare, Prepare):
        return
    try:
        process = JobProcess(door, prepare)
    except Exception as error:  # noqa: BLE001 - told to the worker, which holds the job with this reason
        with contextlib.suppress(OSError):  # the worker is gone
            door.say(Unfit(f"it cannot begin: {error}"))
        return
    give_forks_their_signals()
    try:
        with contextlib.suppress(BrokenPipeError):  # the worker has died since this process was started
            door.say(Prepared(leaves=process.leaves))
            process.serve()
        process.leave()
    except BaseException as error:  # noqa: BLE001 - no thread of a task may keep this process
        end_broken(BROKEN, "it can neither hear its worker nor be heard", error)
    flush_listeners()
    leave_soon(0)


def _end_with_parent() -> None:
    """A job must not go on when its worker, which held its lease, is dead."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="windlass-parent", daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
