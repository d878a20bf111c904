"""One HTTP/1.1 connection: bytes in, ASGI calls, bytes out. `httptools`, the parser of Node.js, reads them.

The server reads one request at a time. It neither reads ahead nor queues requests: a client that sends its
next request before it has the answer to the last one gets that answer, and the connection is closed.
"""

import asyncio
from typing import Any, cast

import httptools
import msgspec
from litestar.types import ASGIApp

from windlass.api.connections import Connections
from windlass.api.exchange import Exchange, written
from windlass.api.head import Headers, scope_of
from windlass.api.problems import CALLER, PROBLEM_JSON, Refusal, encoded

LONGEST_HEAD = 64 * 1024
"""Bytes of a request line and its headers."""


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the server waits for a client."""

    head: float = 10.0
    """For the head of a request: from the start of the connection, or from the first byte of a later
    request.
    """
    body: float = 3_600.0
    """For more of a body. The gate has a shorter limit of its own, and answers with 408."""
    idle: float = 75.0
    """Between two requests. Proxies give up an idle connection after 60."""
    read: float = 30.0
    """For the client to read what was written."""
    linger: float = 2.0
    """For the client to read the last answer, while what it still sends is thrown away."""


class Connection(asyncio.Protocol):
    """A connection with one client."""

    def __init__(self, app: ASGIApp, connections: Connections, deadlines: Deadlines) -> None:
        self.address = ""
        self._deadlines = deadlines
        self.is_known = False
        self._app = app
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("Any", None)
        self._ends: dict[str, Any] = {}
        self._head_bytes = 0
        """Bytes of a head that has begun to arrive."""
        self._target = b""
        self._headers: Headers = []
        self._exchange: Exchange | None = None
        """The request that the server has not answered yet."""
        self._in_body = False
        self._frame_bytes = self._body_bytes = 0
        """Bytes that came for a body, and those of them that belong to it."""
        self._is_read = True
        """Whether the client reads what is written."""
        self._is_last = False
        """The connection is closed once the request that has begun to arrive is answered."""
        self._is_deaf = False
        """What still comes is thrown away."""
        self._sends = True
        """The client may still send something."""

    # --- asyncio --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request, if there is a place."""
        self._transport = cast("asyncio.Transport", transport)
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self._ends = {"client": client and client[:2], "server": server and server[:2]}
        self.address = client[0] if client else ""
        if self._connections.admit(self):
            self._connections.waits(self, self._deadlines.head)
        else:
            self._is_deaf = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """The client, or the server, has closed it."""
        self._is_deaf = True
        self._connections.forget(self)
        if self._exchange is not None:
            self._exchange.lost()

    def data_received(self, data: bytes) -> None:
        """Read what has come."""
        if self._is_deaf:
            return
        self._count(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._read_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            if self._exchange is not None and not self._in_body:
                # The request under way is whole, and is answered. What came behind it is not read.
                self._is_last = self._is_deaf = True
            else:
                self._refuse(_reason(error))
        else:
            self._refuse_long_ones()

    def _count(self, data: bytes) -> None:
        if self._in_body:
            self._frame_bytes += len(data)
        elif self._exchange is None:
            if not self._head_bytes:
                self._connections.waits(self, self._deadlines.head)
            self._head_bytes += len(data)

    def _refuse_long_ones(self) -> None:
        if self._exchange is None and self._head_bytes > LONGEST_HEAD:
            self._refuse(_too_long())
        elif self._in_body and self._frame_bytes > self._body_bytes + LONGEST_HEAD:
            # What is not body is the frame of its chunks and its trailers.
            self._refuse(Refusal(400, "invalid", "the chunks of the body are more frame than body"))

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a head again, and what came behind it, without its wish for another protocol (`h2c`). The
        parser would leave the body to that protocol.
        """
        version = self._parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._target, version)]
        lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def eof_received(self) -> bool:
        """The client sends nothing more. It may still read the answer to a request that is whole: keep the
        connection open for that.
        """
        self._sends = False
        if self._exchange is not None and not self._in_body:
            self._is_last = True
            self._exchange.keep_alive = False
            self._exchange.left()
            return True
        if not self._is_deaf and (self._exchange is not None or self._head_bytes):
            self._refuse(Refusal(400, "invalid", "the request did not come to its end"))
        return False

    def pause_writing(self) -> None:
        """The client does not read as fast as the server writes."""
        self._is_read = False
        self._connections.waits(self, self._deadlines.read)
        if self._exchange is not None:
            self._exchange.pause()

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_read = True
        if self._exchange is not None:
            self._connections.works(self)
            self._exchange.resume()

    # --- the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._exchange is not None:
            raise _Pipelined
        self._target, self._headers = b"", []

    def on_url(self, url: bytes) -> None:
        """A part of what is asked for."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. What comes behind a body (a trailer) is none: a proxy in front has not looked at it."""
        if not self._in_body:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head of a request is here: answer it while its body arrives."""
        if len(self._target) + sum(len(name) + len(value) for name, value in self._headers) > LONGEST_HEAD:
            raise _too_long()  # it came in one piece
        method, version = self._parser.get_method().decode("latin-1"), self._parser.get_http_version()
        scope = scope_of(method, version, self._target, self._headers)
        if self._parser.should_upgrade():
            return  # `_read_without_upgrade` comes next
        scope.update(self._ends)
        self._head_bytes, self._frame_bytes, self._body_bytes, self._in_body = 0, 0, 0, True
        keep = version == "1.1" and self._parser.should_keep_alive() and not self._is_last
        self._exchange = Exchange(scope, self._transport, self, keep_alive=keep)
        self._connections.works(self)
        if not self._is_read:
            self.pause_writing()
        self._exchange.begin(self._app)

    def on_body(self, body: bytes) -> None:
        """A part of a body. What comes after the answer is thrown away."""
        self._body_bytes += len(body)
        if self._exchange is not None:
            self._exchange.arrived(body)

    def on_message_complete(self) -> None:
        """The body has ended."""
        self._in_body = False
        if self._exchange is not None:
            self._exchange.ended()

    # --- what an exchange tells -----------------------------------------------------------------------------

    def wants_body(self) -> None:
        """The request is not answered before more of its body comes."""
        self._connections.waits(self, self._deadlines.body)

    def works(self) -> None:
        """The server goes on with the request, once the client has read what was written."""
        if self._is_read:
            self._connections.works(self)

    def answered(self, exchange: Exchange) -> None:
        """The answer is written: wait for the next request, or close."""
        self._exchange = None
        self.is_known = self.is_known or exchange.scope["state"].get(CALLER) is not None
        if self._is_last or not exchange.keep_alive or self._transport.is_closing():
            self.close()
            return
        # The rest of a body that nobody wanted is thrown away as it comes, within the time of a head.
        self._connections.waits(self, self._deadlines.head if self._in_body else self._deadlines.idle)
        self._transport.resume_reading()

    # --- its end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close it once what was written is sent. A request that has begun to arrive is answered first."""
        self._is_last = True
        if self._exchange is not None:
            self._exchange.keep_alive = False
        elif not self._head_bytes or self._is_deaf:
            self._hang_up()

    def _hang_up(self) -> None:
        self._connections.waits(self, self._deadlines.linger)
        if self._sends and (self._in_body or self._is_deaf) and not self._transport.is_closing():
            # The client still sends. Were the connection closed now, the system would tell it so before it
            # has read the answer.
            self._is_deaf = True
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()

    def cut(self) -> None:
        """Close it now."""
        self._is_deaf = True
        if self._transport.get_write_buffer_size() or self._transport.is_closing():
            self._transport.abort()
        else:
            self._transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer what cannot be read, unless an answer was begun, and close."""
        exchange, self._exchange = self._exchange, None
        self._is_deaf = True
        is_answered = self._in_body if exchange is None else exchange.is_being_answered
        if exchange is not None:
            exchange.lost()
        if not is_answered:
            body = encoded(refusal)
            headers = [
                (b"content-type", PROBLEM_JSON.encode()),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            ]
            self._transport.write(written(refusal.status, headers) + body)
        self.close()


def _reason(error: httptools.HttpParserError) -> Refusal:
    """Why a request is not read: what `scope_of` says of it, or else the parser."""
    cause = error.__context__
    return cause if isinstance(cause, Refusal) else Refusal(400, "invalid", f"this is not HTTP/1.1: {error}")


def _too_long() -> Refusal:
    return Refusal(431, "invalid", f"the headers have more than {LONGEST_HEAD:,} bytes")


class _Pipelined(Exception):
    """A request came before the one before it was answered."""
