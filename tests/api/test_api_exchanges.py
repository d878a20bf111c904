"""Requests and answers, byte by byte: what a connection carries, and what it refuses to read."""

import asyncio
import re
from typing import Any

import httpx
import pytest
from tests.api.door import BEGINNINGS, CHUNKED, POST, WITHIN, door, echo, told
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
        (b"GET / HTTP/1.1\r\nX: " + b"y" * LONGEST_HEAD + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * LONGEST_HEAD + b"\r\n", 431),
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


def test_a_connection_is_used_again_after_errors(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            client = await there.connect()
            bearer = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
            json = bearer + b"Content-Type: application/json\r\n"
            for _ in range(3):
                for request, status in (
                    (b"GET /v1/nothing HTTP/1.1\r\n" + bearer + b"\r\n", 404),
                    (b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
                    (b"GET /v1/jobs HTTP/1.1\r\nHost: evil.com\r\n\r\n", 421),
                    (b"PUT /v1/jobs HTTP/1.1\r\n" + bearer + b"Content-Length: 3\r\n\r\nabc", 405),
                    (b"POST /v1/jobs HTTP/1.1\r\n" + json + b"Content-Length: 3\r\n\r\nabc", 400),
                    (b"POST /v1/jobs HTTP/1.1\r\n" + bearer + b"Content-Length: 2\r\n\r\n{}", 415),
                    (b"HEAD /v1/jobs HTTP/1.1\r\n" + bearer + b"\r\n", 200),
                    (b"GET /v1/session HTTP/1.1\r\n" + bearer + b"\r\n", 200),
                ):
                    client.send(request)
                    head = (await client.head()).lower()
                    assert head.startswith(b"http/1.1 %d " % status), (request, head)
                    length = re.search(rb"content-length: ([0-9]+)", head)
                    assert length is not None
                    if not request.startswith(b"HEAD"):
                        await client.exactly(int(length[1]))

    house.run(story)


# --- other protocols, other targets, other methods ----------------------------------------------------------


@pytest.mark.parametrize("sent_later", [False, True])
@pytest.mark.parametrize(
    "framing", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
def test_a_wish_for_another_protocol_is_ignored(framing: bytes, sent_later: bool) -> None:
    async def story() -> None:
        seen: list[bytes] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.extend(name for name, _ in scope["headers"])
            await echo(scope, receive, send)

        async with door(app) as there:
            head, body = framing.split(b"\r\n\r\n", 1)
            client = await there.connect()
            for _ in range(2):
                client.send(POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n")
                client.send(b"HTTP2-Settings: AAMAAABk\r\n" + head + b"\r\n\r\n")
                if sent_later:
                    await asyncio.sleep(0.02)
                client.send(body)
                assert b"x-method: POST" in await client.head()
                assert await client.exactly(13) == b"3\r\nabc\r\n0\r\n\r\n"
            assert b"host" in seen
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 200 ")

    told(story)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/v1/session", 200),
        ("HTTP://LOCALHOST/v1/session", 200),
        ("https://localhost/v1/session", 200),
        ("http://localhost:8080/v1/session", 200),
        ("http://localhost:/v1/session", 200),
        ("http://127.0.0.1:80/v1/session?", 200),
        ("http://[::1]:80/v1/session", 200),
        ("http://my_host/v1/session", 200),
        ("http://localhost?token=x", 303),
        ("http://evil.com/v1/session", 421),
        ("http://localhost@evil.com/v1/session", 400),
        ("http://localhost:99999999/v1/session", 400),
        ("http:///v1/session", 400),
        ("ftp://localhost/v1/session", 400),
    ],
)
def test_a_target_may_name_its_host(memory_house: House, target: str, status: int) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server(hosts=("my_host",))
        async with server.lifespan(), door(server) as there:
            bearer = f"Authorization: Bearer {TOKEN}\r\n\r\n"
            client = await there.connect(f"GET {target} HTTP/1.1\r\nHost: x\r\n{bearer}".encode())
            assert (await client.head()).startswith(b"HTTP/1.1 %d " % status)

    house.run(story)


def test_head_is_answered_as_get_without_a_body(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            headers = {"authorization": f"Bearer {TOKEN}"}
            url = f"http://127.0.0.1:{there.port}"
            async with httpx.AsyncClient(base_url=url, timeout=WITHIN, headers=headers) as client:
                for path in (
                    "/healthz",
                    "/v1/session",
                    "/v1/jobs",
                    "/metrics",
                    "/v1/nothing",
                    "/openapi.json",
                ):
                    get, head = await client.get(path), await client.head(path)
                    assert head.status_code == get.status_code
                    assert head.content == b""
                    if path != "/metrics":  # it counts the requests
                        assert head.headers.get("content-length") == str(len(get.content)), path
                assert (await client.head("/v1/jobs/batch")).status_code == 405
                # A stream ends with its head.
                assert (await client.head("/v1/events")).status_code == 200
                assert (await client.head("/v1/session")).status_code == 200

    house.run(story)


# --- clients that have said all -----------------------------------------------------------------------------


def test_a_client_that_sends_nothing_more_is_answered() -> None:
    async def story() -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(0.05)
            await echo(scope, receive, send)

        async with door(app) as there:
            for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"):
                client = await there.connect(request)
                client.writer.write_eof()
                answer = await client.until_closed()
                assert answer.startswith(b"HTTP/1.1 200 ")
                assert answer.endswith(b"0\r\n\r\n")
            await there.count(0)

    told(story)


@pytest.mark.parametrize("part", [b"GET / HTT", POST + b"Content-Length: 3\r\n\r\na", CHUNKED + b"3\r\na"])
def test_a_client_that_stops_in_the_middle_of_a_request_is_told(part: bytes) -> None:
    async def story() -> None:
        async with door(echo) as there:
            client = await there.connect(part)
            client.writer.write_eof()
            assert (await client.until_closed()).startswith(b"HTTP/1.1 400 ")
            await there.count(0)

    told(story)


@pytest.mark.parametrize("head", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"])
def test_a_client_that_leaves_after_it_was_refused_is_no_fault_of_the_server(head: bytes) -> None:
    faults: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context["message"]))
        async with door(echo) as there:
            client = await there.connect(head)
            assert (await client.until_closed()).startswith(b"HTTP/1.1 400 ")
            client.writer.write_eof()
            await there.count(0)

    told(story)
    assert faults == []


def test_a_request_that_waits_ends_when_its_client_sends_nothing_more(memory_house: House) -> None:
    """It may have left: nobody would get the jobs."""
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with server.lifespan(), door(server) as there:
            body = b'{"queues": ["images"], "wait": 30}'
            head = f"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            client = await there.connect(head.encode() + body)
            client.writer.write_eof()
            async with asyncio.timeout(10):
                answer = await client.until_closed()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b'"leases":[]' in answer

    house.run(story)


def test_requests_that_arrive_are_answered_when_the_server_stops() -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            begun.set()
            await echo(scope, receive, send)

        parts = [(POST + b"Content-Le", b"ngth: 3\r\n\r\nabc"), (POST + b"Content-Length: 3\r\n\r\na", b"bc")]
        async with door(app) as there:
            there.stays = True
            idle = await there.connect()
            clients = [await there.connect(first) for first, _ in parts]
            await there.count(3)
            await begun.wait()

            async def finish() -> None:
                assert await idle.until_closed() == b""
                for client, (_, rest) in zip(clients, parts, strict=True):
                    client.send(rest)
                    answer = await client.until_closed()
                    assert answer.startswith(b"HTTP/1.1 200 ")
                    assert b"connection: close" in answer
                    assert answer.endswith(b"3\r\nabc\r\n0\r\n\r\n")

            finishing = asyncio.create_task(finish())
        await finishing
        there.leave()

    told(story)
