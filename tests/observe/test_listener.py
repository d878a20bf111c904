"""The page of a worker: who may read it, and how little HTTP it speaks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from windlass.errors import InvalidOption
from windlass.observe import listener
from windlass.observe.listener import Answer, Listener, address_of

Ask = Callable[[str], Awaitable[str]]
Story = Callable[[Ask, int], Awaitable[None]]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is refused


async def page() -> Answer:
    return Answer("windlass_store_up 1\n")


PAGES = {"/metrics": page}


def served(story: Story, token: str | None = None) -> None:
    async def main() -> None:
        serving = Listener("127.0.0.1", 0, PAGES, token=token)
        await serving.open()
        port = int(serving.url.split(":")[2].partition("/")[0])

        async def ask(request: str) -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request.replace("\n", "\r\n").encode())
            try:
                return (await reader.read()).decode()
            except ConnectionError:
                return ""  # it hung up with our words unread
            finally:
                writer.close()

        try:
            async with asyncio.timeout(20):
                await story(ask, port)
        finally:
            await serving.close()

    asyncio.run(main())


def test_it_serves_one_page_to_local_readers() -> None:
    async def story(ask: Ask, port: int) -> None:
        for host in (f"127.0.0.1:{port}", "localhost", f"localhost:{port}", f"[::1]:{port}"):
            answer = await ask(f"GET /metrics HTTP/1.1\nHost: {host}\n\n")
            assert answer.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), host
            assert answer.endswith("\r\n\r\nwindlass_store_up 1\n")
        assert (await ask("HEAD /metrics HTTP/1.1\nHost: localhost\n\n")).endswith("\r\n\r\n")
        assert " 404 " in await ask("GET / HTTP/1.1\nHost: localhost\n\n")
        assert " 405 " in await ask("POST /metrics HTTP/1.1\nHost: localhost\n\n")

    served(story)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:1"])
def test_a_name_of_another_does_not_reach_it(host: str) -> None:
    """A web page whose name points to this machine."""

    async def story(ask: Ask, _: int) -> None:
        answer = await ask(f"GET /metrics HTTP/1.1\nHost: {host}\n\n")
        assert " 421 " in answer
        assert "windlass_" not in answer

    served(story)


def test_with_a_token_it_wants_the_token() -> None:
    async def story(ask: Ask, _: int) -> None:
        head = "GET /metrics HTTP/1.1\nHost: worker-7.internal:9464\n"
        assert " 401 " in await ask(head + "\n")
        assert " 401 " in await ask(head + "Authorization: Bearer wrong\n\n")
        assert " 401 " in await ask(head + "Authorization: Basic secret\n\n")
        assert " 200 " in await ask(head + "Authorization: Bearer secret\n\n")

    served(story, token="secret")


def test_what_is_no_request_is_refused() -> None:
    async def story(ask: Ask, _: int) -> None:
        assert " 431 " in await ask("GET /metrics HTTP/1.1\nX: " + "a" * 20_000 + "\n\n")

    served(story)


def test_who_says_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PATIENCE", 0.05)

    async def story(ask: Ask, _: int) -> None:
        assert await ask("GET /metrics HTTP/1.1\n") == ""

    served(story)


def test_silent_callers_do_not_shut_others_out() -> None:
    async def story(ask: Ask, port: int) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * listener.CALLERS)]
        assert " 200 " in await ask("GET /metrics HTTP/1.1\nHost: localhost\n\n")
        for _, writer in silent:
            writer.close()

    served(story)


def test_of_too_many_silent_callers_the_first_of_the_commonest_address_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "CALLERS", 3)

    async def story(_: Ask, port: int) -> None:
        async def call(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))

        other, (first, cut), *rest = [await call(f"127.0.0.{last}") for last in (2, *[1] * listener.CALLERS)]
        with contextlib.suppress(ConnectionError):
            assert await first.read() == b""
        cut.close()
        for reader, writer in (other, *rest):
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
            writer.close()

    served(story)


@pytest.mark.parametrize(
    "text", ["9464", "localhost", ":9464", "127.0.0.1:", "[::1]:http", "127.0.0.1:70000"]
)
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InvalidOption, match="HOST:PORT"):
        address_of(text, token=None)


@pytest.mark.parametrize("host", [EVERYWHERE, "10.1.2.3", "worker.example", "[::]"])
def test_another_address_than_a_loopback_one_needs_a_token(host: str) -> None:
    with pytest.raises(InvalidOption, match="WINDLASS_METRICS_TOKEN"):
        address_of(f"{host}:9464", token=None)
    assert address_of(f"{host}:9464", token="secret") == (host.strip("[]"), 9464)


def test_a_taken_address_is_told_in_a_line() -> None:
    async def story(_: Ask, port: int) -> None:
        with pytest.raises(InvalidOption, match=f"cannot be served at 127.0.0.1:{port}"):
            await Listener("127.0.0.1", port, PAGES).open()

    served(story)
