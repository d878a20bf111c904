"""A stream of NATS as a log: the suite of all logs, and what is NATS's own."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.bridges.nats_server import in_loop, jetstream, make_stream, put, reading

from windlass.bridges.addresses import address_of
from windlass.bridges.nats.adapter import open_source
from windlass.bridges.source import LogSource
from windlass.conformance.bridges.ground import LogGround, Sent
from windlass.conformance.bridges.logs import *  # noqa: F403 - its tests
from windlass.errors import BridgeRefused, InvalidOption, SourceReplaced
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.processes import Starter


class NatsLogs(LogGround):
    """A stream for each test."""

    has_keys = False
    grows = False

    def __init__(self, runner: asyncio.Runner, server: OwnNats) -> None:
        super().__init__(runner)
        self._server = server
        self.first = runner.run(make_stream(server))

    async def outage(self) -> None:
        self._server.kill()

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def source(self) -> LogSource:
        return await _log_of(self._server, self.first)

    async def unknown(self) -> LogSource:
        return await _log_of(self._server, "nowhere")

    async def send(self, messages: Sequence[Sent], partition: str | None = None) -> None:
        async with jetstream(self._server) as js:
            for message in messages:
                headers = dict(message.headers) or None
                await js.publish(f"{self.first}.a", message.body or b"", headers=headers)

    async def drop(self, messages: int) -> None:
        async with jetstream(self._server) as js:
            state = (await js.stream_info(self.first)).state
            await js.purge_stream(self.first, seq=state.first_seq + messages)

    async def recreate(self) -> None:
        async with jetstream(self._server) as js:
            await js.delete_stream(self.first)
        await make_stream(self._server, self.first)

    async def grow(self) -> str:
        raise AssertionError("a stream has one log")


async def _log_of(server: OwnNats, stream: str) -> LogSource:
    source = await open_source(address_of(f"{server.url()}/{stream}"))
    assert not hasattr(source, "receive")
    return source  # type: ignore[return-value]


@pytest.fixture
def logs(nats_server: OwnNats) -> Iterator[LogGround]:
    with asyncio.Runner() as runner:
        yield NatsLogs(runner, nats_server)


# --- what is NATS's own -------------------------------------------------------------------------------------


def test_messages_that_were_deleted_one_by_one_are_passed_over(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [b"1", b"2", b"3", b"4", b"5"])
        async with jetstream(nats_server) as js:
            for number in (2, 4):
                await js.delete_msg(stream, number)
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            found = await log.read("1", 10, 1)
            assert [message.body for message in found] == [b"1", b"3", b"5"]
            # The message before this offset is deleted: nothing tells whether it was the one that was taken.
            async with jetstream(nats_server) as js:
                await js.delete_msg(stream, 3)
            assert [message.body for message in await log.read(found[1].after, 10, 1)] == [b"5"]

    in_loop(story())


def test_a_purge_while_it_is_read_is_not_skipped(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [str(number).encode() for number in range(10)])
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            found = await log.read("1", 3, 1)
            async with jetstream(nats_server) as js:
                await js.purge_stream(stream, seq=6)
            with pytest.raises(SourceReplaced, match="begins with message 6, and 4 was to be the next"):
                await log.read(found[-1].after, 10, 1)
            # An operator says where to go on.
            assert [message.body for message in await log.read("6", 10, 1)] == [b"5", b"6", b"7", b"8", b"9"]

    in_loop(story())


def test_a_purge_of_what_was_taken_changes_nothing(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [b"1", b"2"])
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            found = await log.read("1", 10, 1)
            async with jetstream(nats_server) as js:
                await js.purge_stream(stream)
            assert await log.read(found[-1].after, 10, 0.05) == []
            await put(nats_server, f"{stream}.a", [b"3"])
            assert [message.body for message in await log.read(found[-1].after, 10, 1)] == [b"3"]

    in_loop(story())


def test_a_stream_that_has_lost_messages_is_seen(nats_server: OwnNats) -> None:
    """Its numbers go on where they were, so only the times of messages tell."""

    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [b"1", b"2", b"3"])
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            found = await log.read("1", 10, 1)
        before = int(found[-1].after.partition("@")[2])
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            with pytest.raises(SourceReplaced, match="message 3 is another one"):
                await log.read(f"4@{before - 1}", 10, 0.05)
            with pytest.raises(SourceReplaced, match="ends with message 3, and 9 was to be the next"):
                await log.read("9", 10, 0.05)
            assert await log.read(found[-1].after, 10, 0.05) == []

    in_loop(story())


def test_tokens_of_the_subject_and_the_id_of_the_producer_are_there(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.acme.new", [b"{}"], {"Nats-Msg-Id": "order-1"})
        await put(nats_server, f"{stream}.acme.new", [b"{}"])
        async with reading(nats_server, stream) as source:
            named, unnamed = await (await source.open(stream)).read("1", 10, 1)
        assert named.subject.split(".")[1:] == ["acme", "new"]
        assert (named.id, unnamed.id) == ("order-1", None)
        assert named.place == f"{stream}/1"

    in_loop(story())


def test_a_reader_goes_on_after_the_server_has_forgotten_its_consumer(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        await put(nats_server, f"{stream}.a", [b"1", b"2"])
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            found = await log.read("1", 1, 1)
            async with jetstream(nats_server) as js:
                (consumer,) = await js.consumers_info(stream)
                await js.delete_consumer(stream, consumer.name)
            assert [message.body for message in await log.read(found[0].after, 10, 1)] == [b"2"]
            await log.close()
        async with jetstream(nats_server) as js:
            assert await js.consumers_info(stream) == []

    in_loop(story())


@pytest.mark.parametrize("offset", ["", "0", "-1", "1.5", "first", "3@", "3@soon"])
def test_what_is_no_offset_is_refused(nats_server: OwnNats, offset: str) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        async with reading(nats_server, stream) as source:
            log = await source.open(stream)
            with pytest.raises(InvalidOption, match="is no offset of a stream"):
                await log.read(offset, 10, 1)

    in_loop(story())


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "names no stream"),
        ("/a/b", "names more than a stream"),
        ("/S?consumer=mine", "is a log, which is read whole, without consumer="),
        ("/S?subject=S.a", "is a log, which is read whole, without subject="),
        ("/x.y", "cannot be the name of a stream"),
        ("/a%20b", "cannot be the name of a stream"),
        ("/S?consumer=a.b", "cannot be the name of a consumer"),
        ("/S?monitor=127.0.0.1", "no address such as http"),
        ("/S?sync=always", 'has no option "sync"'),
        ("/S?token=a&creds=b", "say one of user, token= and creds="),
        ("/S?creds=/nowhere", "creds=/nowhere cannot be read"),
        ("/S?ssl_ca_certs=/nowhere", "the certificates cannot be read"),
    ],
)
def test_what_a_url_cannot_say(nats_server: OwnNats, path: str, problem: str) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        with pytest.raises(InvalidOption, match=problem):
            await open_source(address_of(f"{nats_server.url()}{path.replace('/S', f'/{stream}')}"))

    in_loop(story())


def test_a_url_without_a_host_is_refused() -> None:
    with pytest.raises(InvalidOption, match="names no host"):
        in_loop(open_source(address_of("nats:///S")))


def test_what_a_stream_does_not_promise_is_said(nats_server: OwnNats) -> None:
    async def told(**settings: object) -> str:
        stream = await make_stream(nats_server, **settings)
        async with reading(nats_server, stream) as source:
            return "\n".join(await source.warnings())

    async def story() -> None:
        assert "has one replica" in await told()
        assert "max_msgs=5 is reached" in await told(max_msgs=5)
        assert "is reached" not in await told(max_msgs=5, discard="new")
        assert "max_bytes=5000 is reached" in await told(max_bytes=5_000)
        assert "dropped after 60 s" in await told(max_age=60)
        assert "of a subject it keeps 2 messages" in await told(max_msgs_per_subject=2)
        assert "in memory" in await told(storage="memory")

    in_loop(story())


def test_the_monitoring_page_says_when_the_server_syncs(nats_server: OwnNats) -> None:
    async def told(options: str) -> str:
        stream = await make_stream(nats_server)
        async with reading(nats_server, stream, options) as source:
            return "\n".join(await source.warnings())

    page = f"?monitor=http://127.0.0.1:{nats_server.monitor}"
    assert "to the disk" not in in_loop(told(page))
    # It is for advice alone: a stream is read without it, too.
    assert "cannot be read" in in_loop(told("?monitor=http://127.0.0.1:1"))


def test_a_server_that_syncs_now_and_then_is_told_of(starter: Starter, tmp_path: Path) -> None:
    async def story() -> None:
        stream = await make_stream(server)
        async with reading(server, stream, f"?monitor=http://127.0.0.1:{server.monitor}") as source:
            assert "to the disk every 120 s" in "\n".join(await source.warnings())

    server = OwnNats(starter, tmp_path / "nats", sync="2m")
    server.start()
    try:
        in_loop(story())
    finally:
        server.close()


def test_a_partition_that_is_none_is_refused(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        async with reading(nats_server, stream) as source:
            with pytest.raises(BridgeRefused, match="no partitions"):
                await source.open("3")

    in_loop(story())
