"""Jobs in processes of their own (`run="process"`): what neither ends nor can be stopped is killed there.

A process runs one job at a time and is kept for the next. It ends with its worker.
"""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import msgspec

from windlass.core.lease import Lease
from windlass.core.outcome import Verdict
from windlass.core.session import Note
from windlass.core.settlement import Settlement
from windlass.core.units import SECOND
from windlass.errors import StoreError
from windlass.worker.executor import Executor, given_back
from windlass.worker.pace import Pace
from windlass.worker.program import Registered
from windlass.worker.run import Run
from windlass.worker.starting import end_of, signals_held


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """The first word to a process."""

    app: str
    table: str


class Work(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run this."""

    lease: Lease
    started: float
    deadline: float | None


class Ruled(msgspec.Struct, frozen=True, tag=True):
    """The store's word on a note that was asked for."""

    verdict: Verdict | None
    """None: it could not be asked."""
    why: str = ""


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The app is imported: the process takes work."""


class Unfit(msgspec.Struct, frozen=True, tag=True):
    """The process cannot work, and why."""

    why: str


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The job has arrived, and is charged for what becomes of the process from here on."""


class Said(msgspec.Struct, frozen=True, tag=True):
    """A note of the job."""

    note: Note
    asks: bool = False


class Concluded(msgspec.Struct, frozen=True, tag=True):
    """The job has ended."""

    settlement: Settlement


ToProcess: TypeAlias = Prepare | Work | Ruled
FromProcess: TypeAlias = Prepared | Unfit | Begun | Said | Concluded

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder[FromProcess](FromProcess).decode


def framed(message: ToProcess | FromProcess) -> bytes:
    """The bytes of a message."""
    body = _encode(message)
    return len(body).to_bytes(4, "big") + body


class _Process:
    """One process."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._prepared = False
        self._end = end_of(process)
        self._end.add_done_callback(self._has_ended)
        self.serves: Run | None = None
        self.has_begun = False
        """Whether the job that it serves has arrived there."""
        self.unfit = ""

    @classmethod
    async def start(cls, prepare: Prepare, folder: Path | None = None) -> "_Process":
        ours, theirs = socket.socketpair()
        try:
            with theirs, signals_held():
                process = subprocess.Popen(  # noqa: S603, ASYNC220 - returns after the exec: a millisecond or two
                    [sys.executable, "-m", "windlass.worker.process_main", str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    cwd=folder,
                )
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        writer.write(framed(prepare))
        return cls(process, reader, writer)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None and not self._reader.at_eof()

    async def prepared(self) -> bool:
        """Wait until it takes work; False: it cannot, or is dead."""
        if not self._prepared:
            word = await self.hear()
            self._prepared = isinstance(word, Prepared)
            if isinstance(word, Unfit):
                self.unfit = word.why
        return self._prepared

    def kill_if_serving(self, run: Run) -> None:
        """Not the next job's process: a word to stop may come late."""
        if self.serves is run:
            self.signal(signal.SIGKILL)

    def say(self, message: ToProcess) -> None:
        self._writer.write(framed(message))

    async def hear(self) -> FromProcess | None:
        """The next word; None: it is dead."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return _decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _has_ended(self, _end: "asyncio.Future[int]") -> None:
        """What it has said is heard; a fork that holds its socket says nothing for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            asyncio.get_running_loop().call_later(LAST_WORDS, self._writer.close)

    async def ended(self) -> str:
        """How it died, in words. One that has closed its socket is not waited for: nobody hears it."""
        await asyncio.wait({self._end}, timeout=SILENCE)
        if not self._end.done():
            await self.close()
            return "it closed its socket to its worker, and was killed"
        code = await self._gone()
        return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"

    async def close(self) -> None:
        self.signal(signal.SIGKILL)
        await self._gone()

    async def _gone(self) -> int:
        """It is on its way out: wait for that."""
        self._writer.close()
        return await asyncio.shield(self._end)


LAST_WORDS = 0.1
"""Seconds to read what a dead process has said."""
SILENCE = 2.0
"""Seconds that a process is given to end when its socket is closed."""
LONGEST_IMPORT = 120.0
"""Seconds that a process may take to import its app; a job that waits for one is not given to others."""


class Processes:
    """The processes of a worker."""

    executor: Executor

    def __init__(self, app_name: str, pace: Pace, *, table: str = "") -> None:
        self._prepare = Prepare(app_name, table)
        self._pace = pace
        self._folder = _current_folder()
        """From which the app is found; a task may go elsewhere."""
        self._idle: list[_Process] = []

    async def ready(self) -> _Process:
        """A process that takes work. `StoreError`, `OSError`: there is none to be had."""
        if not self._prepare.app:
            raise StoreError("this worker was not told how its app is imported")
        process = await self._take_idle() or await _Process.start(self._prepare, _if_there(self._folder))
        try:
            async with asyncio.timeout(LONGEST_IMPORT):
                prepared = await process.prepared()
        except TimeoutError:
            await process.close()
            raise StoreError(f"it was not ready within {LONGEST_IMPORT:g} s: does an import hang?") from None
        if not prepared:
            cause = await process.ended()
            raise StoreError(process.unfit or f"it died while it began: {cause}")
        return process

    def keep(self, process: _Process) -> None:
        """For another job."""
        self._idle.append(process)

    async def run(self, process: _Process, run: Run, task: Registered) -> Settlement:
        """Run one job; it is stopped by killing its process."""
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
                return self.executor.raised(run, task, TimeoutError())
            if not (process.has_begun or run.cancelled or run.released):
                return given_back(run.lease)  # it had died while it was idle: the job is not at fault
            return self.executor.died(run, cause)
        self.keep(process)
        return settlement

    async def _served(self, process: _Process, run: Run, task: Registered) -> Settlement | None:
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

    async def _settlement(self, process: _Process, run: Run) -> Settlement | None:
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

    async def _take_idle(self) -> _Process | None:
        while self._idle:
            process = self._idle.pop()
            if process.is_alive:
                return process
            await process.close()
        return None

    async def close(self) -> None:
        """End those that are idle."""
        for process in self._idle:
            await process.close()


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
    except Exception as error:  # noqa: BLE001 - told to whoever asked
        return Ruled(None, str(error))


def _timers(
    loop: asyncio.AbstractEventLoop, process: _Process, run: Run, task: Registered
) -> list[asyncio.TimerHandle]:
    hard = task.options.hard_timeout
    timers = [] if run.deadline is None else [loop.call_at(run.deadline, _time_out, process, run)]
    if hard is not None:
        timers.append(loop.call_at(run.started + hard / SECOND, process.signal, signal.SIGKILL))
    return timers


def _time_out(process: _Process, run: Run) -> None:
    run.timed_out = True
    process.signal(signal.SIGUSR1)
