"""What every sink must do. A test's name is that of an obligation in `windlass.bridges.sink`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from windlass.bridges.message import Outgoing
from windlass.bridges.sink import Sink
from windlass.conformance.bridges.ground import SinkGround
from windlass.errors import BridgeRefused, BridgeUnavailable

TRIES = 100


@asynccontextmanager
async def opened(sinks: SinkGround) -> AsyncGenerator[Sink]:
    """The sink."""
    sink = await sinks.sink()
    try:
        yield sink
    finally:
        await sink.close()


def outgoing(*texts: str, key: str = "", to: str = "") -> list[Outgoing]:
    """Messages with these bodies, which are their ids as well."""
    return [Outgoing(id=f"id-{text}", body=text.encode(), key=key, to=to) for text in texts]


async def published(sink: Sink, messages: list[Outgoing]) -> None:
    """Publish after an outage: as soon as the message broker takes it."""
    for _ in range(TRIES):
        try:
            await sink.publish(messages)
        except BridgeUnavailable:
            await asyncio.sleep(0.2)
        else:
            return
    raise AssertionError("the message broker is back, and the sink does not notice")


async def test_published_is_there(sinks: SinkGround) -> None:
    body, headers = bytes(range(256)), {"tenant": "müller", "empty": ""}
    key = "a key" if sinks.has_keys else ""
    async with opened(sinks) as sink:
        await sink.publish([Outgoing(id="one", body=body, headers=headers, key=key)])
        await sink.publish(outgoing(*map(str, range(250))))
    found = await sinks.found(251)
    (whole,) = [message for message in found if message.body == body]
    assert whole.key == key
    assert {name: whole.headers.get(name) for name in headers} == headers
    assert {message.body for message in found} == {body, *(str(number).encode() for number in range(250))}


async def test_message_has_its_id(sinks: SinkGround) -> None:
    """Whether it is known to those who read, or the message broker keeps one of both."""
    async with opened(sinks) as sink:
        await sink.publish(outgoing("1"))
        await sink.publish(outgoing("1"))
        await sink.publish(outgoing("2"))
    (first,) = await sinks.found(1)
    if sinks.id_of(first) is None:
        assert {message.body for message in await sinks.found(2)} == {b"1", b"2"}
    else:
        ids = [sinks.id_of(message) or "" for message in await sinks.found(3)]
        assert sorted(ids) == ["id-1", "id-1", "id-2"]


async def test_publishes_where_it_is_told(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        await sink.publish([*outgoing("there", to=sinks.other), *outgoing("here")])
    assert [message.body for message in await sinks.found(1)] == [b"here"]
    assert [message.body for message in await sinks.found(1, sinks.other)] == [b"there"]


async def test_keys_keep_their_order(sinks: SinkGround) -> None:
    sinks.needs("has_keys")
    async with opened(sinks) as sink:
        for first in range(0, 60, 20):
            await sink.publish(
                [
                    message
                    for number in range(first, first + 20)
                    for key in "abc"
                    for message in outgoing(f"{key}{number}", key=key)
                ]
            )
    found = await sinks.found(180)
    for key in "abc":
        of_key = [message.body for message in found if message.key == key]
        assert of_key == [f"{key}{number}".encode() for number in range(60)]


async def test_calls_side_by_side(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        await asyncio.gather(*(sink.publish(outgoing(f"{call}-1", f"{call}-2")) for call in range(20)))
    found = [message.body or b"" for message in await sinks.found(40)]
    assert sorted(found) == sorted(f"{call}-{number}".encode() for call in range(20) for number in (1, 2))


async def test_nothing_is_published_of_nothing(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        await sink.publish([])
        await sink.publish(outgoing("1"))
    assert [message.body for message in await sinks.found(1)] == [b"1"]


async def test_unfit_message_is_refused_by_number(sinks: SinkGround) -> None:
    unfit = Outgoing(id="unfit", body=sinks.unfit)
    async with opened(sinks) as sink:
        with pytest.raises(BridgeRefused) as refusal:
            await sink.publish([*outgoing("1", "2"), unfit, *outgoing("3"), unfit])
        assert refusal.value.numbers == (2, 4)
        await sink.publish(outgoing("4", to=sinks.other))
    assert [message.body for message in await sinks.found(1, sinks.other)] == [b"4"]


async def test_missing_place_is_refused(sinks: SinkGround) -> None:
    sinks.needs("refuses_unknown")
    with pytest.raises(BridgeRefused, match="nowhere") as refusal:
        await _published_nowhere(sinks)
    assert refusal.value.numbers == ()


async def _published_nowhere(sinks: SinkGround) -> None:
    sink = await sinks.sink_nowhere()
    try:
        await sink.publish(outgoing("1"))
    finally:
        await sink.close()


async def test_outage_of_the_sink_is_unavailable(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        await sink.publish(outgoing("1"))
        await sinks.outage()
        with pytest.raises(BridgeUnavailable):
            await sink.publish(outgoing("lost"))
        await sinks.recovery()
        await published(sink, outgoing("2", "3"))
        # What was unavailable may have been taken.
        assert len({b"1", b"2", b"3"} & {message.body for message in await sinks.found(3)}) >= 2


async def test_cancelled_publish_leaves_it_usable(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        for number in range(5):
            sending = asyncio.create_task(sink.publish(outgoing(f"cancelled {number}")))
            await asyncio.sleep(0)  # it has begun
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
        await sink.publish(outgoing("1", to=sinks.other))
    assert [message.body for message in await sinks.found(1, sinks.other)] == [b"1"]


async def test_largest_is_taken(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        assert sink.largest > 0
        body = b"x" * min(sink.largest, 16_000_000)
        whole = Outgoing(id="large", body=body, key="a key" * 20, headers={"name": "v" * 500})
        await sink.publish([whole])
    assert [message.body for message in await sinks.found(1)] == [body]


async def test_warnings_of_a_sink_are_sentences(sinks: SinkGround) -> None:
    async with opened(sinks) as sink:
        warnings = await sink.warnings()
    assert not isinstance(warnings, str)
    assert all(warning.strip() == warning and len(warning) > 20 for warning in warnings)
