"""Open connections: what is large, lost, late, cancelled or interrupted."""

import asyncio
import functools
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
from tests.broker.redis.servers import Server, redis_binary, running

from windlass.broker.redis.blocking import BlockingWire
from windlass.broker.redis.conversation import Send, Talk
from windlass.broker.redis.url import Location, read_url
from windlass.broker.redis.wire import Wire
from windlass.errors import StoreUnavailable


def said(*command: bytes | int) -> Talk[Any]:
    """A conversation of one question."""
    return (yield Send((command,)))


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine, on a loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        async def main() -> None:
            await test(**given)

        asyncio.run(main())

    return run


NEVER = (b"BLPOP", b"nothing", 0)
"""A question that nobody answers."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(redis_binary()) as one:
        yield one


@pytest.fixture
def location(server: Server) -> Location:
    return read_url(f"{server.url}{'&' if '?' in server.url else '?'}timeout=0.3")


@pytest.mark.parametrize("size", [0, 1, 100_000, 3_000_000])
@on_a_loop
async def test_an_answer_of_any_size_comes_whole(location: Location, size: int) -> None:
    text = bytes(range(256)) * (size // 256 + 1)
    wire, blocking = Wire(location, b"key"), BlockingWire(location, b"key")
    try:
        for _ in range(2):  # the second on a link that is open
            assert await wire.hold(said(b"ECHO", text[:size])) == text[:size]
            assert await asyncio.to_thread(lambda: blocking.hold(said(b"ECHO", text[:size]))) == text[:size]
    finally:
        await wire.close()
        blocking.close()


@on_a_loop
async def test_a_link_that_the_server_has_closed_is_made_anew_before_a_call(
    location: Location, server: Server
) -> None:
    """Nothing was sent on it, so no call need be repeated."""
    wire = Wire(location, b"key")
    try:
        number = await wire.hold(said(b"CLIENT", b"ID"))
        opened = await wire.connected()
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.client_kill_filter(_id=str(number))
        async with asyncio.timeout(10):
            while not await opened.can_read():  # noqa: ASYNC110 - the driver has no event for it
                await asyncio.sleep(0)
        assert await wire.hold(said(b"ECHO", b"again")) == b"again"
        assert await wire.connected() is not opened
    finally:
        await wire.close()


@on_a_loop
async def test_who_is_cancelled_leaves_no_answer_to_the_next(location: Location) -> None:
    wire = Wire(location, b"key")
    try:
        assert await wire.hold(said(b"ECHO", b"first")) == b"first"
        asking = asyncio.create_task(wire.hold(said(*NEVER)))
        await asyncio.sleep(0)  # it has sent its question
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await wire.hold(said(b"ECHO", b"next")) == b"next"
    finally:
        await wire.close()


@pytest.mark.parametrize("first", [True, False])
@on_a_loop
async def test_a_server_that_does_not_answer_is_given_up(location: Location, first: bool) -> None:
    """On a link that is being opened, and on one that is open; alone, and for who is next in line."""
    wire = Wire(location, b"key")
    try:
        if not first:
            assert await wire.hold(said(b"ECHO", b"open")) == b"open"
        both = await asyncio.gather(wire.hold(said(*NEVER)), wire.hold(said(*NEVER)), return_exceptions=True)
        assert [type(each) for each in both] == [StoreUnavailable] * 2
        assert all("did not answer within 0.3 s" in str(each) for each in both)
        assert await wire.hold(said(b"ECHO", b"next")) == b"next"
    finally:
        await wire.close()


def test_a_thread_gives_up_a_server_that_does_not_answer(location: Location) -> None:
    wire = BlockingWire(location, b"key")
    try:
        with pytest.raises(StoreUnavailable, match="did not answer within"):
            wire.hold(said(*NEVER))
        assert wire.hold(said(b"ECHO", b"next")) == b"next"
    finally:
        wire.close()


class Interrupted(BaseException):
    """As of a key that is pressed."""


def test_a_thread_that_is_interrupted_leaves_no_answer_to_the_next(server: Server) -> None:
    wire = BlockingWire(read_url(server.url), b"key")

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert wire.hold(said(b"ECHO", b"first")) == b"first"
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            wire.hold(said(*NEVER))
        assert wire.hold(said(b"ECHO", b"next")) == b"next"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        wire.close()
