"""Requests and answers, byte by byte: what a connection carries, and what it refuses to read."""

import asyncio
from typing import Any

import httpx
import pytest
from tests.api.door import BEGINNINGS, WITHIN, door, echo, told
from tests.api.house import TOKEN, House

from windlass.api.connection import LONGEST_HEAD


def test_a_connection_is_kept_and_carries_bodies_of_every_kind() -> None:
    async def story() -> None:
        async with door(echo) as there:
            client = await there.connect(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            assert b"x-method: POST" in await client.head()
            assert await client.exactly(13) == b"3\r\nabc\r\n0\r\n\r\n"
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
            client.send(b"1\r\nc\r\n0\r\n\r\n")
            await client.head()
            assert await client.exactly(13) == b"3\r\nabc\r\n0\r\n\r\n"
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"ok")
            await client.head()
            assert await client.exactly(12) == b"2\r\nok\r\n0\r\n\r\n"
            client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"x-method: HEAD" in await client.head()
            large = b"x" * 1_000_000
            client.send(b"POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + large)
            assert b"connection: close" in await client.head()
            assert await client.until_closed() == large

    told(story)


def test_trailers_are_no_headers() -> None:
    """A proxy in front has looked at the headers alone."""
    chunked = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    trailer = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"

    names: list[set[bytes]] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        await echo(scope, receive, send)
        names.append({name for name, _ in scope["headers"]})

    async def story() -> None:
        async with door(noting) as there:
            client = await there.connect(b"POST / HTTP/1.1\r\nHost: x\r\n" + chunked + trailer)
            await client.head()
            assert await client.exactly(11) == b"1\r\nx\r\n0\r\n\r\n"
            assert names == [{b"host", b"transfer-encoding"}]
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\n" + chunked)
            for _ in range(4):
                client.send(b"X: " + b"x" * LONGEST_HEAD + b"\r\n")
                await asyncio.sleep(0)
            await client.until_closed()

    told(story)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (BEGINNINGS["a preface of HTTP/2"], 400),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http:// HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * LONGEST_HEAD + b"z" * 100, 431),
        (b"GET /" + b"y" * LONGEST_HEAD + b"z" * 100, 431),
    ],
)
def test_what_is_not_http_is_refused_in_words(request_: bytes, status: int) -> None:
    async def story() -> None:
        async with door(echo) as there:
            client = await there.connect(request_)
            answer = await client.until_closed()
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"application/problem+json" in answer

    told(story)


def test_a_request_sent_before_the_answer_to_the_last_is_not_read_ahead() -> None:
    async def story() -> None:
        asked = 0

        async def app(scope: Any, receive: Any, send: Any) -> None:
            nonlocal asked
            asked += 1
            await echo(scope, receive, send)

        async with door(app) as there:
            client = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000)
            assert (await client.until_closed()).count(b"HTTP/1.1 200") == 1
            assert asked == 1

    told(story)


def test_the_host_of_an_absolute_target_is_the_one_that_counts(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            bearer = f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            client = await there.connect(
                b"GET http://evil.com/v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + bearer
            )
            assert (await client.head()).startswith(b"HTTP/1.1 421")
            client = await there.connect(
                b"GET http://localhost:80/v1/jobs HTTP/1.1\r\nHost: evil.com\r\n" + bearer
            )
            assert (await client.head()).startswith(b"HTTP/1.1 200")

    house.run(story)


@pytest.mark.parametrize(
    "hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n", b"Host: localhost\r\nhost: evil.com\r\n"]
)
def test_a_request_has_one_host(memory_house: House, hosts: bytes) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            client = await there.connect(b"GET /v1/jobs HTTP/1.1\r\n" + hosts + b"\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 400")

    house.run(story)


def test_an_early_answer_to_a_large_body_can_be_read(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            url = f"http://127.0.0.1:{there.port}"
            async with httpx.AsyncClient(base_url=url, timeout=WITHIN) as client:
                for _ in range(5):
                    stranger = await client.post("/v1/jobs", content=b"x" * 8_000_000)
                    assert stranger.status_code == 413
                    stranger = await client.post("/v1/jobs", content=b"x" * 1_000_000)
                    assert stranger.status_code == 401

    house.run(story)


def test_an_application_that_fails_is_answered_for() -> None:
    async def story() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/late":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"abc", "more_body": True})
            raise ValueError(scope["path"])

        async with door(app) as there:
            client = await there.connect(b"GET /soon HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.until_closed()).startswith(b"HTTP/1.1 500")
            client = await there.connect(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.until_closed()).endswith(b"3\r\nabc\r\n"), "it does not look whole"

    told(story)


def test_requests_under_way_are_answered_when_the_server_stops() -> None:
    async def story() -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await go.wait()
            await echo(scope, receive, send)

        answers: list[bytes] = []
        async with door(app) as there:
            idle = await there.connect()
            busy = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await begun.wait()
            there.stays = True

            async def read() -> None:
                assert await idle.until_closed() == b""
                go.set()
                answers.append(await busy.until_closed())

            reading = asyncio.create_task(read())
        await reading
        there.leave()
        assert answers[0].startswith(b"HTTP/1.1 200")

    told(story)
