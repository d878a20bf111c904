"""Child processes: how a supervisor starts one, talks to it, and learns of its end.

A child is a fresh interpreter. Nothing of the supervisor goes with it but one end of a pair of sockets; the
other end is the supervisor's alone, so the child reads the end of the stream exactly when its supervisor is
dead, however it died.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

from windlass.worker.messages import ToChild, ToSupervisor, framed, read_to_supervisor
from windlass.worker.starting import end_of, signals_held

CHILD = ("-m", "windlass.worker.child")


class Child(Protocol):
    """A child, as its supervisor sees it."""

    @property
    def pid(self) -> int: ...

    def send(self, message: ToChild) -> None:
        """Send a message; never waits. Does nothing if the child is dead."""
        ...

    async def receive(self) -> ToSupervisor | None:
        """The next message of the child; None: there will be no more."""
        ...

    async def ended(self) -> int:
        """Wait for its end: its exit code, or, below zero, the signal that killed it. Can be asked again."""
        ...

    def kill(self) -> None:
        """Kill it, stopped or not. Does nothing if it is dead."""
        ...

    def close(self) -> None:
        """Close what belongs to it, after its end."""
        ...


class Spawner(Protocol):
    """Starts children."""

    async def spawn(self) -> Child:
        """Start a child. `OSError`: the machine has no room for it."""
        ...


class ProcessSpawner:
    """Starts real processes: `python -m windlass.worker.child FD`."""

    def __init__(self, command: Sequence[str] = CHILD) -> None:
        self._command = [sys.executable, *command]

    async def spawn(self) -> Child:
        """Start a process. Both ends of its socket are closed in every other child by `close_fds`."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, signals_held():
                process = subprocess.Popen(  # noqa: S603, ASYNC220 - returns after the exec: a millisecond or two
                    [*self._command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                )
            return await ProcessChild.adopt(process, ours)
        except BaseException:
            ours.close()
            raise


class ProcessChild:
    """A real process."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._end = end_of(process)

    @classmethod
    async def adopt(cls, process: "subprocess.Popen[bytes]", ours: socket.socket) -> "ProcessChild":
        """Take over a process that was just started."""
        try:
            return cls(process, *await asyncio.open_unix_connection(sock=ours))
        except BaseException:
            process.kill()
            process.wait()
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def send(self, message: ToChild) -> None:
        """Write a message to the socket, or behind those that wait for it."""
        if not self._writer.is_closing():
            self._writer.write(framed(message))

    async def receive(self) -> ToSupervisor | None:
        """The next message."""
        return await read_to_supervisor(self._reader)

    async def ended(self) -> int:
        """The code of `waitpid`."""
        return await asyncio.shield(self._end)

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()
