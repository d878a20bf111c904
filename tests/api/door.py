"""A server at a socket of its own in the test's process, and clients that write bytes as they are given."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tests.api.house import TOKEN, until

from windlass.api.connection import Deadlines
from windlass.api.connections import Connections
from windlass.api.socket_server import serve_socket

PATIENT = Deadlines(head=600, idle=600, read=600, linger=600)
HASTY = Deadlines(head=0.1, idle=0.1, read=0.1, linger=0.1)
BEGINNINGS = {
    "nothing": b"",
    "a byte": b"G",
    "half a header": b"GET /v1/jobs HTTP/1.1\r\nHost: loc",
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "half a preface": b"PRI * HTT",
    "half a body": b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"key',
    "a body that nobody wants": b"POST /enqueue HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
}
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
WITHIN = 30.0


class Client:
    """A connection that writes bytes as they are given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def until_closed(self) -> bytes:
        """All that comes before the server closes the connection."""
        async with asyncio.timeout(WITHIN):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    async def head(self) -> bytes:
        async with asyncio.timeout(WITHIN):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def exactly(self, count: int) -> bytes:
        async with asyncio.timeout(WITHIN):
            return await self.reader.readexactly(count)


class Door:
    """A server at a socket of its own."""

    def __init__(self, port: int, connections: Connections) -> None:
        self.port, self.connections = port, connections
        self._open: list[Client] = []
        self.stays = False
        """Whether clients stay when the server stops."""

    async def connect(self, data: bytes = b"", *, address: str = "127.0.0.1") -> Client:
        made = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(address, 0))
        client = Client(*made)
        self._open.append(client)
        client.send(data)
        return client

    async def ask(self, path: str = "/healthz") -> int:
        """The status for somebody who asks as everybody does."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=WITHIN) as client:
            return (await client.get(path, headers={"authorization": f"Bearer {TOKEN}"})).status_code

    async def count(self, wanted: int) -> None:
        async def is_so() -> bool:
            return len(self.connections) == wanted

        await until(is_so)

    def leave(self) -> None:
        for client in self._open:
            client.writer.transport.abort()


@asynccontextmanager
async def door(app: Any, *, most: int = 100, deadlines: Deadlines = PATIENT) -> AsyncIterator[Door]:
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    async with serve_socket(app, listening, most=most, deadlines=deadlines) as connections:
        made = Door(port, connections)
        try:
            yield made
        finally:
            if not made.stays:
                made.leave()


def told(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body of the request."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"x-method", scope["method"].encode())]}
    )
    await send({"type": "http.response.body", "body": body})


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """Writes until nobody is there."""
    leaving = asyncio.ensure_future(receive())
    await leaving  # the request
    leaving = asyncio.ensure_future(receive())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while not leaving.done():
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await asyncio.sleep(0)
