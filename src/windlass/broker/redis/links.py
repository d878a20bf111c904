"""Open connections. The driver makes them (address, TLS, user, database); from then on what is written and
read goes past it. After a pause every layer is code that no cache has; those of the driver took as long as a
script.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

import hiredis
from redis import exceptions

_GOODBYE: Final = 1.0
"""Seconds."""
_READ: Final = 1 << 17
"""Bytes that are read at once, at the most."""
_NOTHING: Final = object()


class Opened(Protocol):
    """What is used of a connection of the driver's that is open."""

    def pack_command(self, *parts: Any) -> list[bytes]: ...


def _reader(opened: Opened) -> hiredis.Reader:
    """Gives replies as they are; one that is an error is of the driver's kinds."""
    kinds: Any = getattr(opened, "_parser")  # noqa: B009 - the driver's own table of them
    return hiredis.Reader(
        protocolError=exceptions.InvalidResponse, replyError=kinds.parse_error, notEnoughData=_NOTHING
    )


class LoopLink(asyncio.BufferedProtocol):
    """A connection of one event loop: asks one question at a time, or only listens."""

    def __init__(self, opened: Any, timeout: float) -> None:
        self._opened: Opened = opened
        self._timeout = timeout
        # The writer is kept: it closes what it wrote to when nobody has it any more.
        reader, self._writer = opened._reader, opened._writer  # noqa: SLF001 - it has no other way to them
        opened._reader = opened._writer = None  # noqa: SLF001 - it would warn that it was not closed
        self._transport: asyncio.Transport = self._writer.transport
        self._loop = asyncio.get_running_loop()
        self._replies = _reader(opened)
        self._buffer = bytearray(_READ)
        self._waiter: asyncio.Future[Any] | None = None
        self._left = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = self._loop.create_future()
        self._error: Exception | None = None
        self.on_reply: Callable[[Any], None] = self._answered
        self.on_end: Callable[[], None] | None = None
        self._transport.set_protocol(self)
        if reader.at_eof() or reader.exception() is not None:
            self.connection_lost(reader.exception())

    def pack(self, *command: bytes | str | int) -> bytes:
        """A command as it goes over the wire."""
        return b"".join(self._opened.pack_command(*command))

    # --- asking ---------------------------------------------------------------------------------------------

    @property
    def is_lost(self) -> bool:
        """Whether the other side has closed it, as far as is known."""
        return self._error is not None

    async def ask(self, said: bytes, replies: int = 1) -> Any:
        """Send commands and give back the reply to the last, be it an error. Who is cancelled meanwhile must
        not use it again.
        """
        if self._error is not None:
            raise self._error
        loop = self._loop
        self._waiter = waiter = loop.create_future()
        self._left = replies
        self._due = loop.time() + self._timeout
        if self._timer is None:  # one for many questions: it looks again when its time has come
            self._timer = loop.call_at(self._due, self._look)
        self._transport.write(said)
        try:
            return await waiter
        finally:
            self._waiter = None

    def say(self, said: bytes) -> None:
        """Send commands; what is answered goes to `on_reply`."""
        self._transport.write(said)

    def _answered(self, reply: Any) -> None:
        self._left -= 1
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if isinstance(reply, exceptions.ConnectionError) and not isinstance(
            reply, exceptions.BusyLoadingError
        ):
            waiter.set_exception(reply)  # it says why it is about to close the connection
        elif not self._left:
            waiter.set_result(reply)

    def _look(self) -> None:
        self._timer = None
        waiter = self._waiter
        if waiter is None or waiter.done():
            return
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        else:
            waiter.set_exception(TimeoutError())

    # --- what the loop calls --------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - as asyncio has it
        """Where to read to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes were read."""
        replies = self._replies
        replies.feed(self._buffer, 0, nbytes)  # pyright: ignore[reportArgumentType] - takes any buffer
        try:
            while (reply := replies.gets()) is not _NOTHING:
                self.on_reply(reply)
        except exceptions.InvalidResponse as error:  # this is no Redis server, or no longer
            self._fail(error)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        error = exceptions.ConnectionError("the server has closed the connection")
        error.__cause__ = exc
        self._fail(error)
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        if self.on_end is not None:
            self.on_end()

    # --- closing --------------------------------------------------------------------------------------------

    async def hang_up(self, *, in_order: bool) -> None:
        """Close it. In order: with TLS both sides say goodbye, and a loop that ends before would leave the
        socket open; a link that is broken is not waited for, but cut.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if in_order:
                self._transport.close()
                await asyncio.wait([self._ended], timeout=_GOODBYE)
        finally:  # also for who is cancelled meanwhile
            if not self._ended.done():
                self._transport.abort()
        if not self._ended.done():
            await asyncio.sleep(0)  # the socket is closed in the loop's next turn

    def cut(self) -> None:
        """Close it without a goodbye; the socket is closed in the loop's next turn."""
        self._transport.abort()


class ThreadLink:
    """A connection that threads share, one at a time."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._socket: socket.socket = opened._sock  # noqa: SLF001 - as above
        self._replies = _reader(opened)
        self._buffer = bytearray(_READ)

    def pack(self, *command: bytes | str | int) -> bytes:
        """A command as it goes over the wire."""
        return b"".join(self._opened.pack_command(*command))

    def ask(self, said: bytes, replies: int = 1) -> Any:
        """Send commands and give back the reply to the last, be it an error."""
        self._socket.sendall(said)
        reply: Any = None
        for _ in range(replies):
            reply = self._read()
            if isinstance(reply, exceptions.ConnectionError) and not isinstance(
                reply, exceptions.BusyLoadingError
            ):
                raise reply
        return reply

    def _read(self) -> Any:
        replies, buffer = self._replies, self._buffer
        while (reply := replies.gets()) is _NOTHING:
            count = self._socket.recv_into(buffer)
            if not count:
                raise exceptions.ConnectionError("the server has closed the connection")
            replies.feed(buffer, 0, count)  # pyright: ignore[reportArgumentType] - takes any buffer
        return reply

    def hang_up(self) -> None:
        """Close it."""
        self._opened.disconnect()
