"""A receiver of webhooks on loopback, which answers as it is told."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec


class Got:
    """One request, as it came."""

    def __init__(self, line: str, headers: dict[str, str], body: bytes) -> None:
        self.line = line
        self.headers = headers
        self.body = body

    @property
    def said(self) -> Any:
        return msgspec.json.decode(self.body)

    def is_signed_with(self, secret: str) -> bool:
        """What a receiver does, written out: nothing of the code under test is used."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = b".".join(
            (self.headers["webhook-id"].encode(), self.headers["webhook-timestamp"].encode(), self.body)
        )
        good = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return good in self.headers["webhook-signature"].split(" ")


class Receiver:
    """Answers 204, or what `answers` holds, one after the other; the last one stays."""

    def __init__(self, answers: list[bytes | int | None] | None = None) -> None:
        self.answers: list[bytes | int | None] = answers or [204]
        self.got: list[Got] = []
        self.connections = 0
        self._news = asyncio.Event()
        self.port = 0

    def url(self, path: str = "/hook", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def wait_for(self, count: int) -> list[Got]:
        async with asyncio.timeout(20):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()
        return self.got

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await reader.readexactly(int(headers["content-length"]))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self.got.append(Got(head[0], headers, body))
            self._news.set()
            if answer is None:
                await reader.read()  # says nothing until the other leaves
            elif isinstance(answer, int):
                writer.write(f"HTTP/1.1 {answer} Said\r\ncontent-length: 0\r\n\r\n".encode())
            else:
                writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    answers: list[bytes | int | None] | None = None, *, tls: Any = None
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answers)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
