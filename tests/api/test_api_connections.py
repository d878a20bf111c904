"""Connections, through real sockets: silent, slow and greedy ones, and who is answered meanwhile."""

import asyncio
import contextlib
import itertools
import resource
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.door import BEGINNINGS, HASTY, WITHIN, Client, door, echo, endless, told
from tests.api.house import TOKEN, House
from tests.api.served import AS_LOCAL, Served

from windlass.api.connection import Deadlines

# --- deadlines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_a_client_that_keeps_the_server_waiting_is_cut_off(memory_house: House, beginning: str) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server(body_timeout=0.1)
        async with server.lifespan(), door(server, deadlines=HASTY) as there:
            client = await there.connect(BEGINNINGS[beginning])
            await client.until_closed()
            await there.count(0)

    house.run(story)


def test_a_client_that_trickles_a_head_is_cut_off(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server, deadlines=HASTY) as there:
            client = await there.connect(b"GET /healthz HTTP/1.1\r\n")
            closed = asyncio.create_task(client.until_closed())
            for number in itertools.count():
                if closed.done():
                    break
                client.send(b"X-%d: y\r\n" % number)
                await asyncio.sleep(0.02)
            assert await closed == b""

    house.run(story)


def test_a_kept_connection_has_the_same_deadlines_again() -> None:
    async def story() -> None:
        deadlines = Deadlines(head=0.1, idle=600, read=600, linger=600)
        async with door(echo, deadlines=deadlines) as there:
            client = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.head()
            assert await client.exactly(5) == b"0\r\n\r\n"
            client.send(b"G")
            assert await client.until_closed() == b""

    told(story)


def test_a_body_that_stops_coming_is_answered_with_408_and_the_connection_closed(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server(body_timeout=0.1)
        async with server.lifespan(), door(server) as there:
            head = f"POST /enqueue HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            client = await there.connect(
                head.encode() + b"Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
            )
            answer = await client.head()
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in answer.lower()
            await client.until_closed()

    house.run(story)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await endless(scope, receive, send)
            ended.set()

        async with door(app, deadlines=HASTY) as there:
            client = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await ended.wait()
            await there.count(0)

    told(story)


def test_requests_of_a_client_that_does_not_read_are_not_answered_without_end() -> None:
    async def story() -> None:
        written = 0

        async def app(scope: Any, receive: Any, send: Any) -> None:
            nonlocal written
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 1_000_000})
            written += 1

        async with door(app) as there:
            client = await there.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            before = -1
            while before != written:
                before = written
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.sleep(0.05)
            assert written < 50, "the rest waits for the client, not in memory"

    told(story)


def test_answers_that_nobody_reads_are_not_kept_in_memory() -> None:
    size, clients = 20_000_000, 20
    body = b"x" * size

    async def story() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            headers = [(b"content-length", b"%d" % size)] if scope["path"] == "/whole" else []
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        async with door(app) as there:
            tracemalloc.start()
            try:
                for number in range(clients):
                    path = b"/whole" if number % 2 else b"/chunked"
                    client = await there.connect(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
                    await client.head()
                    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                assert tracemalloc.get_traced_memory()[1] < size
            finally:
                tracemalloc.stop()
            reader = await there.connect(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.head()
            assert await reader.exactly(size) == body

    told(story)


# --- places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_others_are_answered_while_connections_keep_the_server_waiting(
    memory_house: House, beginning: str
) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server(body_timeout=600)
        async with server.lifespan(), door(server, most=20) as there:
            clients = [await there.connect(BEGINNINGS[beginning]) for _ in range(60)]
            for _ in range(5):
                assert await there.ask("/v1/session") == 200
            assert len(there.connections) <= 20
            await clients[0].until_closed()

    house.run(story)


def test_the_address_with_the_most_connections_gives_up_its_own_first() -> None:
    async def story() -> None:
        async with door(echo, most=20) as there:
            quiet = [await there.connect(b"G", address="127.0.0.2") for _ in range(5)]
            await there.count(5)
            for _ in range(100):
                await there.connect(b"G", address="127.0.0.3")
            assert await there.ask() == 200
            for client in quiet:
                client.send(b"ET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await client.head()).startswith(b"HTTP/1.1 200")

    told(story)


def test_connections_of_valid_keys_are_kept_when_strangers_come(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server, most=20) as there:
            asked = b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n"
            asked += f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            known = await there.connect(asked)
            await known.head()
            for _ in range(60):
                await there.connect()
            known.send(asked)
            assert b"HTTP/1.1 200" in await _until(known, b"HTTP/1.1 200")

    house.run(story)


async def _until(client: Client, text: bytes) -> bytes:
    async with asyncio.timeout(WITHIN):
        return await client.reader.readuntil(text)


def test_a_connection_without_a_place_is_closed_while_requests_are_under_way() -> None:
    async def story() -> None:
        go = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            await echo(scope, receive, send)

        async with door(app, most=3) as there:
            busy = [await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(3)]
            await there.count(3)
            await asyncio.sleep(0)
            fourth = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await fourth.until_closed() == b""
            go.set()
            for client in busy:
                assert (await client.head()).startswith(b"HTTP/1.1 200")
            assert await there.ask() == 200

    told(story)


# --- many ---------------------------------------------------------------------------------------------------

MANY = 2_500


@contextmanager
def files(count: int) -> Iterator[None]:
    """Room for so many open files, where the system allows them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this system allows {hard} open files: ulimit -Hn {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousands_of_silent_connections_shut_nobody_out(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.start()
    kept: list[socket.socket] = []
    try:
        with files(2 * MANY), httpx.Client(base_url=served.url, headers=AS_LOCAL, timeout=WITHIN) as regular:
            assert regular.get("/v1/session").status_code == 200
            for _, data in zip(range(MANY), itertools.cycle(BEGINNINGS.values()), strict=False):
                kept.append(socket.create_connection(("127.0.0.1", served.port), timeout=WITHIN))
                with contextlib.suppress(ConnectionError):
                    kept[-1].sendall(data)
            assert served.post("/enqueue", type="add", payload={"a": 1}).status_code == 201
            assert served.get("/v1/jobs").status_code == 200
            assert regular.get("/v1/session").status_code == 200
            assert "all 2000 connections" in served.log.read_text()
    finally:
        for each in kept:
            each.close()
        served.stop()
