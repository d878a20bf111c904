"""A process that runs jobs of `run="process"`, one at a time: its handle in the worker, and what the two say.

The other side is `process_main.py`.
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
    """The app is imported, and its lifespan entered: the process takes work."""

    leaves: bool = False
    """It has something to do before it ends: it is told to end, and not just killed."""


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


LAST_WORDS = 0.1
"""Seconds to read what a dead process has said."""
LEAVING = 11.0
"""Seconds that an idle process is given to end by itself; to leave its lifespan it takes a second less."""
SILENCE = 2.0
"""Seconds that a process is given to end when its socket is closed."""


class ProcessHandle:
    """A process as its worker holds it."""

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
        self._leaves = False

    @classmethod
    async def start(cls, prepare: Prepare, folder: Path | None = None) -> "ProcessHandle":
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
            self._leaves = isinstance(word, Prepared) and word.leaves
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
        """How it died, in words. One that has closed its socket is killed: it cannot be heard any more."""
        await asyncio.wait({self._end}, timeout=SILENCE)
        if not self._end.done():
            await self.close()
            return "it closed its socket to its worker, and was killed"
        code = await self._gone()
        return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"

    async def end(self) -> None:
        """Let it end while it is idle: it may leave its lifespan, and send what it still has."""
        if self._leaves:
            self._writer.close()
            await asyncio.wait({self._end}, timeout=LEAVING)
        await self.close()

    async def close(self) -> None:
        self.signal(signal.SIGKILL)
        await self._gone()

    async def _gone(self) -> int:
        """It is on its way out: wait for that."""
        self._writer.close()
        return await asyncio.shield(self._end)
