"""Where a request ends: what can be read in two ways is refused, so that no proxy in front is fooled."""

import asyncio
from typing import Any

import pytest
from tests.api.door import CHUNKED, POST, door, echo, told

AMBIGUOUS = {
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a length without end": POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\nabc",
    "not quite chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "gzip inside of chunks": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
    "a folded first header": b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
    "a folded length": POST + b"Content-Length:\r\n 3\r\n\r\nabc",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "one bare line feed": b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n",
    "a bare carriage return": b"GET / HTTP/1.1\r\nHost: x\rX: y\r\n\r\n",
    "a null in a header": b"GET / HTTP/1.1\r\nHost: x\0y\r\n\r\n",
    "a chunk with line feeds": CHUNKED + b"3\nabc\n0\n\n",
    "a chunk longer than it says": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\nabc",
    "a chunk of a negative size": CHUNKED + b"-1\r\nabc",
    "a chunk in another base": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "a chunk too large to count": CHUNKED + b"ffffffffffffffffff\r\nabc",
    "a line feed in an extension": CHUNKED + b'3;a="\n"\r\nabc\r\n0\r\n\r\n',
    "an extension that ends early": CHUNKED + b"3;a\nabc\r\n0\r\n\r\n",
    "framing in a trailer": CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
}
BEHIND = b"GET /behind HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("request_", AMBIGUOUS.values(), ids=AMBIGUOUS)
@pytest.mark.parametrize("pieces", [1, 0], ids=["whole", "byte by byte"])
def test_a_request_with_an_unclear_end_is_refused_and_nothing_behind_it_is_read(
    request_: bytes, pieces: int
) -> None:
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await echo(scope, receive, send)

    async def story() -> None:
        async with door(app) as there:
            client = await there.connect()
            for piece in [request_ + BEHIND] if pieces else [bytes([each]) for each in request_ + BEHIND]:
                client.send(piece)
                await asyncio.sleep(0)
            answer = await client.until_closed()
            assert answer.count(b"HTTP/1.1 ") == 1, answer
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            assert await there.ask() == 200
        assert "/behind" not in asked

    told(story)


def test_a_request_that_breaks_off_is_not_begun() -> None:
    """What a route does without a look at the body would be done for what is answered with 400."""
    begun: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])
        await echo(scope, receive, send)

    async def story() -> None:
        async with door(app) as there:
            client = await there.connect(CHUNKED + b"nonsense\r\n\r\n")
            assert (await client.until_closed()).startswith(b"HTTP/1.1 400 ")
        assert begun == []

    told(story)


def test_extensions_of_chunks_are_ignored_within_limits() -> None:
    async def story() -> None:
        async with door(echo) as there:
            client = await there.connect(CHUNKED + b'3;a=b;c="d;e"\r\nabc\r\n0;last\r\n\r\n')
            await client.head()
            assert await client.exactly(13) == b"3\r\nabc\r\n0\r\n\r\n"
            client.send(CHUNKED + b"1;")
            for _ in range(40):
                client.send(b"x" * 4_096)
                await asyncio.sleep(0)
            assert (await client.until_closed()).startswith(b"HTTP/1.1 400 ")

    told(story)


@pytest.mark.parametrize("ending", [b"", b"Connection: close\r\n"])
def test_what_comes_behind_a_request_is_no_second_answer(ending: bytes) -> None:
    async def story() -> None:
        async with door(echo) as there:
            client = await there.connect(b"GET / HTTP/1.1\r\nHost: x\r\n" + ending + b"\r\nnonsense\r\n\r\n")
            answer = await client.until_closed()
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.count(b"HTTP/1.1 ") == 1

    told(story)


def test_an_answer_can_be_read_while_its_client_sends_more_requests() -> None:
    """A connection that is closed with something unread is reset, and the client may lose the answer."""

    async def story() -> None:
        async with door(echo) as there:
            for _ in range(20):
                client = await there.connect(BEHIND * 20_000)
                assert (await client.head()).startswith(b"HTTP/1.1 200 ")
                client.writer.transport.abort()

    told(story)
