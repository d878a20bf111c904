"""A stream of NATS as a sink: the suite of all sinks, and what is NATS's own."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from tests.bridges.nats_server import in_loop, jetstream, make_stream, writing

from windlass.bridges.addresses import address_of
from windlass.bridges.message import Outgoing
from windlass.bridges.nats.adapter import open_sink
from windlass.bridges.sink import Sink
from windlass.conformance.bridges.ground import Sent, SinkGround
from windlass.conformance.bridges.sinks import *  # noqa: F403 - its tests
from windlass.errors import BridgeRefused, BridgeUnavailable
from windlass.verify.brokers.nats import OwnNats


class NatsSinks(SinkGround):
    """A stream with two subjects for each test."""

    has_keys = False
    unfit = b"x" * (1 << 20)
    """As large as the server allows, without headers."""

    def __init__(self, runner: asyncio.Runner, server: OwnNats) -> None:
        super().__init__(runner)
        self._server = server
        self._stream = runner.run(make_stream(server))
        self.other = f"{self._stream}.other"

    async def outage(self) -> None:
        self._server.kill()

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def sink(self) -> Sink:
        return await open_sink(self._address(self._stream))

    async def sink_nowhere(self) -> Sink:
        return await open_sink(address_of(f"{self._server.url()}/nowhere?subject=nowhere"))

    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        async with jetstream(self._server) as js:
            reader = await js.pull_subscribe(place or f"{self._stream}.first", stream=self._stream)
            found: list[Sent] = []
            while len(found) < count:
                messages = await reader.fetch(count - len(found), timeout=10)
                found += [Sent(message.data, message.headers or {}) for message in messages]
            return found

    def id_of(self, message: Sent) -> str | None:
        return None

    def _address(self, stream: str) -> object:
        return address_of(f"{self._server.url()}/{stream}?subject={stream}.first")


@pytest.fixture
def sinks(nats_server: OwnNats) -> Iterator[SinkGround]:
    with asyncio.Runner() as runner:
        yield NatsSinks(runner, nats_server)


# --- what is NATS's own -------------------------------------------------------------------------------------


def one(body: bytes = b"{}", to: str = "", id: str = "1") -> Outgoing:  # noqa: A002 - its name
    return Outgoing(id=id, body=body, to=to)


def test_the_only_subject_of_a_stream_needs_no_name(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, subjects=["only.one"])
        async with writing(nats_server, stream) as sink:
            await sink.publish([one()])
        async with jetstream(nats_server) as js:
            assert (await js.get_msg(stream, 1)).subject == "only.one"
            await js.delete_stream(stream)

    in_loop(story())


def test_several_subjects_need_a_name(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        async with writing(nats_server, stream) as sink:
            with pytest.raises(BridgeRefused, match="name one with subject="):
                await sink.publish([one()])

    in_loop(story())


def test_a_subject_without_a_stream_is_refused_and_one_with_is_taken(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        async with writing(nats_server, "", f"?subject={stream}.a") as sink:
            await sink.publish([one()])
            with pytest.raises(BridgeRefused, match=r"no stream takes the subject 'nobody\.here'") as refusal:
                await sink.publish([one(to="nobody.here", id="2")])
            assert refusal.value.numbers == ()
            assert await sink.warnings()

    in_loop(story())


def test_a_subject_of_another_stream_is_refused(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream, other = await make_stream(nats_server), await make_stream(nats_server)
        async with writing(nats_server, stream) as sink:
            with pytest.raises(BridgeRefused, match="expected stream does not match"):
                await sink.publish([one(to=f"{other}.a")])

    in_loop(story())


@pytest.mark.parametrize("subject", ["jobs.*", "jobs.>", "two words", "a..b", ".a"])
def test_what_is_no_subject_is_refused_by_number(nats_server: OwnNats, subject: str) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server)
        async with writing(nats_server, stream, f"?subject={stream}.a") as sink:
            with pytest.raises(BridgeRefused) as refusal:
                await sink.publish([one(), one(to=subject, id="2")])
            assert refusal.value.numbers == (1,)

    in_loop(story())


def test_a_message_that_is_too_large_for_the_stream_is_refused_by_number(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, max_msg_size=10_000)
        async with writing(nats_server, stream, f"?subject={stream}.a") as sink:
            assert sink.largest < 10_000
            with pytest.raises(BridgeRefused, match="exceeds maximum") as refusal:
                await sink.publish([one(), one(b"x" * 10_001, id="2"), one(id="3")])
            assert refusal.value.numbers == (1,)

    in_loop(story())


def test_a_full_stream_may_have_room_again(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, max_msgs=1, discard="new")
        async with writing(nats_server, stream, f"?subject={stream}.a") as sink:
            await sink.publish([one()])
            with pytest.raises(BridgeUnavailable, match="maximum messages exceeded"):
                await sink.publish([one(id="2")])
            async with jetstream(nats_server) as js:
                await js.purge_stream(stream)
            await sink.publish([one(id="2")])

    in_loop(story())


def test_a_stream_that_acknowledges_nothing_is_refused(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, no_ack=True)
        with pytest.raises(BridgeRefused, match="no_ack"):
            await open_sink(address_of(f"{nats_server.url()}/{stream}"))

    in_loop(story())


def test_a_short_memory_for_repeats_is_said(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, duplicate_window=2)
        async with writing(nats_server, stream) as sink:
            assert "tells repeats for 2 s only" in "\n".join(await sink.warnings())
        stream = await make_stream(nats_server)
        async with writing(nats_server, stream) as sink:
            assert "tells repeats" not in "\n".join(await sink.warnings())

    in_loop(story())
