"""One request and its answer, as an ASGI application sees them."""

import asyncio
import logging
import time
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Protocol

from litestar.types import ASGIApp

from windlass.api.phrases import phrase

_log = logging.getLogger("windlass.api")

ENOUGH = 64 * 1024
"""Bytes of a body that wait to be read by the application before the server stops reading from the client."""
PIECE = 64 * 1024
"""Bytes that are written at once: of a large answer, a client that does not read keeps no more in memory."""
_NO_BODY = frozenset((204, 304))
_UNDER_WAY: "set[asyncio.Task[None]]" = set()
"""The loop itself holds its tasks by weak references only."""


class ExchangeOwner(Protocol):
    """The connection that an exchange belongs to."""

    def wants_body(self) -> None:
        """The request is not answered before more of its body comes."""
        ...

    def works(self) -> None:
        """The server goes on with the request."""
        ...

    def answered(self, exchange: "Exchange") -> None:
        """The answer is written."""
        ...


class Exchange:
    """Gives an application a request, and writes its answer."""

    def __init__(
        self,
        scope: dict[str, Any],
        transport: asyncio.Transport,
        connection: ExchangeOwner,
        *,
        keep_alive: bool,
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self._transport = transport
        self._connection = connection
        self._body = bytearray()
        self._whole = False
        """Whether the body has ended."""
        self._told_whole = False
        self._gone = False
        """Nobody reads an answer."""
        self._has_left = False
        """The client sends nothing more; it may still read."""
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._asked_for_body = (b"expect", b"100-continue") not in [
            (name, value.lower()) for name, value in scope["headers"]
        ]
        self._started = False
        self._bodiless = False
        self._complete = False
        self._head = b""
        """The head of the answer, if it is not sent yet."""
        self._chunked = False
        self._left = 0
        """Bytes of the answer's body that were announced and not written yet."""

    def begin(self, app: ASGIApp) -> None:
        """Call the application."""
        task = asyncio.get_running_loop().create_task(self._run(app))
        _UNDER_WAY.add(task)
        task.add_done_callback(_UNDER_WAY.discard)

    async def _run(self, app: ASGIApp) -> None:
        if self._gone:
            return  # what came behind the head could not be read: nothing is done for it
        try:
            await app(self.scope, self.receive, self.send)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - the connection goes on, or is closed
            _log.error("unexpected %s", type(error).__name__, exc_info=error)
        if self._is_over:
            return
        self.keep_alive = False
        if not self._started:
            self._start(500, [(b"content-length", b"0")])
            self._transport.write(self._head)
        self._finish()

    # --- what comes -----------------------------------------------------------------------------------------

    def arrived(self, body: bytes) -> None:
        """A part of the body is here."""
        if self._complete:
            return
        self._body += body
        if len(self._body) > ENOUGH:
            self._transport.pause_reading()
        self._news.set()

    def ended(self) -> None:
        """All of the body is here."""
        self._whole = True
        self._news.set()

    def left(self) -> None:
        """The client has sent all that it will send. It may still read, or be gone. A route that waits on
        its behalf stops waiting, and answers.
        """
        self._has_left = True
        self._news.set()

    def lost(self) -> None:
        """Nobody is there any more."""
        self._gone = True
        self._news.set()
        self._writable.set()

    async def receive(self) -> dict[str, Any]:
        """The next part of the body; after its end, the word that the client has left."""
        while not (self._is_over or self._has_news or self._has_left):
            if not self._whole and not self._asked_for_body:
                self._asked_for_body = True
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._news.clear()
            self._transport.resume_reading()
            if not self._whole:
                self._connection.wants_body()
            await self._news.wait()
            if not self._is_over:
                self._connection.works()
        if self._is_over or not self._has_news:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._told_whole = self._whole
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    @property
    def _is_over(self) -> bool:
        return self._gone or self._complete

    @property
    def _has_news(self) -> bool:
        return bool(self._body) or (self._whole and not self._told_whole)

    # --- what goes ------------------------------------------------------------------------------------------

    @property
    def is_being_answered(self) -> bool:
        """Whether a part of the answer was written."""
        return self._started and not self._head

    def pause(self) -> None:
        """The client does not read as fast as the application writes."""
        self._writable.clear()

    def resume(self) -> None:
        """The client has read."""
        self._writable.set()

    async def send(self, message: Any) -> None:
        """Write a part of the answer."""
        await self._writable.wait()
        if self._gone or (self._complete and self._bodiless):
            return
        if message["type"] == "http.response.start" and not self._started:
            self._start(message["status"], list(message.get("headers", ())))
        elif message["type"] == "http.response.body" and self._started and not self._complete:
            await self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} out of turn")

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        said = {name.lower(): value for name, value in headers}
        if said.get(b"connection", b"").lower() == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            headers.append((b"connection", b"close"))
        bodiless = self.scope["method"] == "HEAD" or status in _NO_BODY
        if b"content-length" in said:
            self._left = 0 if bodiless else int(said[b"content-length"])
        elif not bodiless and self.scope["http_version"] == "1.1":
            self._chunked = True
            headers.append((b"transfer-encoding", b"chunked"))
        elif not bodiless:
            self.keep_alive = False  # its end is that of the connection
        self._head = written(status, headers)
        self._bodiless, self._started = bodiless, True

    async def _write(self, body: bytes, *, more: bool) -> None:
        if self._bodiless:
            body, more = b"", False  # a stream, too, ends with its head
        elif not self._chunked and self.keep_alive:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of an answer has another length than was announced")
        # The head goes with the first part of the body: one packet for most answers.
        out, self._head = self._head, b""
        for start in range(0, len(body), PIECE):
            if start:
                self._transport.write(out)
                out = b""
                await self._writable.wait()
                if self._gone:
                    return
            piece = body[start : start + PIECE]
            out += b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece
        if self._chunked and not more:
            out += b"0\r\n\r\n"
        if out:
            self._transport.write(out)
        if not more:
            self._finish()

    def _finish(self) -> None:
        self._complete = True
        self._news.set()
        self._connection.answered(self)


def written(status: int, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head of an answer, as it goes over the wire."""
    lines = [_status_line(status), _date(int(time.time()))]
    for name, value in headers:
        if _UNFIT.intersection(name) or _UNFIT.intersection(value):
            raise RuntimeError("a header of an answer has a line break")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


_UNFIT = frozenset(b"\r\n\0")


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {phrase(status)}\r\n".encode()


@lru_cache(maxsize=2)
def _date(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
