"""Sending to one URL: to judged addresses alone, whatever a resolver says, and within bounds."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.broker.redis.certificates import certificates
from tests.webhooks.receiver import receiving

from windlass.core.address import NOTHING_MORE, Allowed, allowed
from windlass.core.webhook import check_target
from windlass.worker import posting
from windlass.worker.posting import Answered, Forbidden, Undelivered, post

HERE = allowed(["127.0.0.1"])


class Resolver:
    """Gives one answer after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(30):
            await story()

    asyncio.run(whole())


def send(url: str, more: Allowed = HERE, **options: Any) -> Awaitable[Answered]:
    return post(check_target(url), b"{}", {"webhook-id": "x"}, more=more, **options)


def test_a_message_arrives_whole() -> None:
    async def story() -> None:
        async with receiving() as receiver:
            answer = await send(receiver.url("/a?b=c"))
            assert answer.status == 204
            (got,) = receiver.got
            assert got.line == "POST /a?b=c HTTP/1.1"
            assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
            assert (got.headers["webhook-id"], got.body) == ("x", b"{}")

    run(story)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "0.0.0.0"],  # noqa: S104
)
def test_loopback_is_refused_however_it_is_written(host: str) -> None:
    async def story() -> None:
        async with receiving() as receiver:
            with pytest.raises((Forbidden, Undelivered)):
                await send(receiver.url(host=host, scheme="https"), NOTHING_MORE)
            with pytest.raises((Forbidden, Undelivered)):
                await send(receiver.url(host=host), NOTHING_MORE)
            assert receiver.connections == 0

    run(story)


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["::ffff:127.0.0.1"],
        ["::1"],
        ["fe80::1"],
        ["10.0.0.1"],
        ["0.0.0.0"],  # noqa: S104
        ["8.8.8.8", "127.0.0.1"],
        ["127.0.0.1", "8.8.8.8"],
        ["not an address"],
        [""],
    ],
)
def test_a_name_with_any_address_that_is_not_public_is_refused_and_nothing_is_connected_to(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(posting.asyncio, "open_connection", connect)

    async def story() -> None:
        with pytest.raises(Forbidden, match="webhook_allow") as refusal:
            await send("https://rebind.example/secret", NOTHING_MORE, resolve=Resolver(addresses))
        assert "secret" not in str(refusal.value)

    run(story)


def test_a_resolver_that_changes_its_answer_is_asked_once_and_the_judged_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First public, then loopback: what was judged is what is connected to."""
    asked: list[tuple[Any, ...]] = []

    async def connect(host: str, port: int, **options: Any) -> Any:
        asked.append((host, port, options["server_hostname"]))
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(posting.asyncio, "open_connection", connect)

    async def story() -> None:
        resolver = Resolver(["93.184.216.34"], ["127.0.0.1"])
        with pytest.raises(Undelivered, match="Connection refused"):
            await send("https://rebind.example/", NOTHING_MORE, resolve=resolver)
        assert asked == [("93.184.216.34", 443, "rebind.example")]
        assert resolver.asked == 1
        with pytest.raises(Forbidden):  # the next try is judged anew
            await send("https://rebind.example/", NOTHING_MORE, resolve=resolver)
        assert len(asked) == 1

    run(story)


def test_the_pinned_address_is_connected_to_with_the_name_in_the_host_header() -> None:
    async def story() -> None:
        async with receiving() as receiver:
            url = receiver.url(host="hooks.example")
            assert (await send(url, resolve=Resolver(["127.0.0.1"]))).status == 204
            assert receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"

    run(story)


def test_a_host_that_is_allowed_by_name_may_be_anywhere_and_no_other_host() -> None:
    async def story() -> None:
        async with receiving() as receiver:
            more = allowed(["hooks.internal"])
            url = receiver.url(host="hooks.internal")
            assert (await send(url, more, resolve=Resolver(["127.0.0.1"]))).status == 204
            with pytest.raises(Forbidden):
                await send(receiver.url(host="other.internal"), more, resolve=Resolver(["127.0.0.1"]))
            assert receiver.connections == 1

    run(story)


def test_without_tls_only_what_is_allowed_is_sent_to() -> None:
    async def story() -> None:
        with pytest.raises(Forbidden, match="use https"):
            await send("http://plain.example/", NOTHING_MORE, resolve=Resolver(["93.184.216.34"]))
        with pytest.raises(Forbidden, match="use https"):
            await send("http://plain.example/", HERE, resolve=Resolver(["93.184.216.34"]))

    run(story)


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def story() -> None:
        async with receiving() as inner:
            away = f"HTTP/1.1 302 Found\r\nlocation: {inner.url()}\r\ncontent-length: 0\r\n\r\n".encode()
            async with receiving([away]) as receiver:
                assert (await send(receiver.url())).status == 302
            assert inner.connections == 0

    run(story)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "did not answer in HTTP"),
        (b"HTTP/1.1 200 " + b"x" * 100_000, "did not answer in HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10, "did not answer in HTTP"),
        (b"HTTP/1.1 999999 No\r\n\r\n", "did not answer in HTTP"),
        (b"", "did not answer in HTTP"),
    ],
)
def test_what_is_no_answer_is_told_as_such(answer: bytes, says: str) -> None:
    async def story() -> None:
        async with receiving([answer]) as receiver:
            with pytest.raises(Undelivered, match=says):
                await send(receiver.url())

    run(story)


def test_a_long_body_of_an_answer_is_not_read() -> None:
    async def story() -> None:
        endless = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10_000_000
        async with receiving([endless]) as receiver:
            assert (await send(receiver.url())).status == 200

    run(story)


def test_a_receiver_that_says_nothing_is_left_in_time() -> None:
    async def story() -> None:
        async with receiving([None]) as receiver:
            with pytest.raises(Undelivered, match="did not answer within"):
                await send(receiver.url(), answering=0.2)

    run(story)


def test_a_resolver_that_fails_or_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "CONNECTING", 0.1)

    async def unknown(_: str, __: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    async def hanging(_: str, __: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def story() -> None:
        for resolve in (unknown, hanging, Resolver([])):
            with pytest.raises(Undelivered, match=r"the name of https://x\.example"):
                await send("https://x.example/", resolve=resolve)

    run(story)


def test_retry_after_is_read() -> None:
    async def story() -> None:
        answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\n\r\n"
        async with receiving([answer]) as receiver:
            assert await send(receiver.url()) == Answered(503, 7)

    run(story)


def test_the_certificate_is_checked_against_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificates(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.server, files.server_key)
    client = ssl.create_default_context(cafile=files.authority)
    monkeypatch.setattr(posting, "_context", lambda: client)

    async def story() -> None:
        async with receiving(tls=server) as receiver:
            there = Resolver(["127.0.0.1"])
            good = receiver.url(host="localhost", scheme="https")
            assert (await send(good, resolve=there)).status == 204
            with pytest.raises(Undelivered, match="certificate is not valid"):
                await send(receiver.url(host="other.example", scheme="https"), resolve=there)
            monkeypatch.setattr(posting, "_context", ssl.create_default_context)
            with pytest.raises(Undelivered, match="certificate is not valid"):
                await send(good, resolve=there)
            assert len(receiver.got) == 1

    run(story)
