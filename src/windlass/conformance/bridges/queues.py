"""What every queue source must do. A test's name is that of an obligation in `windlass.bridges.source`."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from windlass.bridges.message import Message
from windlass.bridges.source import QueueSource
from windlass.conformance.bridges.ground import QueueGround, Sent
from windlass.errors import BridgeRefused, BridgeUnavailable

PATIENCE = 30.0
"""Seconds after which what was sent ought to have come."""
WAIT = 0.5


@asynccontextmanager
async def opened(queues: QueueGround) -> AsyncGenerator[QueueSource]:
    """One reader of the queue."""
    source = await queues.source()
    try:
        yield source
    finally:
        await source.close()


@asynccontextmanager
async def patience(what: Callable[[], str]) -> AsyncGenerator[None]:
    """Wait for what has to come, and no longer than that takes; `what` says what did not."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise AssertionError(what()) from None


def numbered(*numbers: int) -> list[Sent]:
    """Messages whose ids and bodies are these."""
    return [Sent(b"%d" % number, id=f"id-{number}") for number in numbers]


def numbers_of(messages: Sequence[Message]) -> list[int]:
    """Those of `numbered`."""
    return [int(message.body or b"-1") for message in messages]


async def receive_all(source: QueueSource, count: int, *, limit: int = 100) -> list[Message]:
    """Receive until so many messages have come; nothing is acknowledged."""
    found: list[Message] = []
    async with patience(lambda: f"of {count} messages {len(found)} came"):
        while len(found) < count:
            found += await source.receive(min(limit, count - len(found)), WAIT)
    return found


async def drain(source: QueueSource, wanted: set[int]) -> list[int]:
    """Receive and acknowledge until all of these have come; what came, in order. Trouble passes."""
    found: list[int] = []
    async with patience(lambda: f"{wanted - set(found)} did not come"):
        while not wanted <= set(found):
            try:
                messages = await source.receive(100, WAIT)
            except BridgeUnavailable:
                await asyncio.sleep(0.2)
                continue
            await source.acknowledge(messages)
            found += numbers_of(messages)
    return found


async def nothing_waits(source: QueueSource) -> None:
    """Require that no message comes."""
    assert list(await source.receive(10, WAIT)) == []


async def test_receive_is_bounded(queues: QueueGround) -> None:
    async with opened(queues) as source:
        await nothing_waits(source)
        await queues.send(numbered(*range(10)))
        await receive_all(source, 3, limit=3)
        for _ in range(5):
            assert len(await source.receive(2, WAIT)) <= 2


async def test_received_message_is_whole(queues: QueueGround) -> None:
    body, headers = bytes(range(1, 256)), {"tenant": "müller", "longer-name": "a value of several words"}
    await queues.send([Sent(body, headers, id="one"), Sent(b"", id="empty")])
    async with opened(queues) as source:
        found = {message.id: message for message in await receive_all(source, 2)}
        assert found["one"].body == body
        assert {name: found["one"].headers.get(name) for name in headers} == headers
        assert (found["empty"].body or b"") == b""


async def test_message_keeps_its_id(queues: QueueGround) -> None:
    await queues.send(numbered(1, 2))
    async with opened(queues) as source:
        assert {message.id for message in await receive_all(source, 2)} == {"id-1", "id-2"}
        assert source.names_messages
    async with opened(queues) as source:
        assert {message.id for message in await receive_all(source, 2)} == {"id-1", "id-2"}


async def test_receive_keeps_the_order(queues: QueueGround) -> None:
    queues.needs("keeps_order")
    await queues.send(numbered(*range(300)))
    async with opened(queues) as source:
        assert numbers_of(await receive_all(source, 300, limit=70)) == list(range(300))


async def test_readers_share_a_queue(queues: QueueGround) -> None:
    async with opened(queues) as one, opened(queues) as other:
        await asyncio.gather(one.receive(1, 0.1), other.receive(1, 0.1))
        await queues.send(numbered(*range(200)))
        found: list[int] = []
        async with patience(lambda: f"of 200 messages {len(found)} came"):
            while len(found) < 200:
                parts = await asyncio.gather(one.receive(10, WAIT), other.receive(10, WAIT))
                found += [number for part in parts for number in numbers_of(part)]
        assert sorted(found) == list(range(200))


async def test_cancelled_receive_loses_nothing(queues: QueueGround) -> None:
    async with opened(queues) as source:
        for number in range(20):
            receiving = asyncio.create_task(source.receive(10, 5.0))
            if number % 2:
                await queues.send(numbered(number))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                messages = await receiving
            except asyncio.CancelledError:
                continue
            # It was done before it could be cancelled.
            await source.give_back(messages)
        assert set(await drain(source, set(range(1, 20, 2)))) == set(range(1, 20, 2))


async def test_acknowledged_never_comes_again(queues: QueueGround) -> None:
    await queues.send(numbered(*range(150)))
    async with opened(queues) as source:
        await source.acknowledge(await receive_all(source, 150))
        await nothing_waits(source)
    async with opened(queues) as source:
        await nothing_waits(source)
        await queues.send(numbered(150))
        await source.acknowledge(await receive_all(source, 1))
        await nothing_waits(source)  # so that it has arrived: what was not comes again
        await queues.outage()
        await queues.recovery()
        await queues.send(numbered(151))
        assert await drain(source, {151}) == [151]


async def test_acknowledged_in_parts(queues: QueueGround) -> None:
    await queues.send(numbered(*range(12)))
    async with opened(queues) as source:
        found = {numbers_of([message])[0]: message for message in await receive_all(source, 12)}
        in_order = [found[number] for number in sorted(found)]
        await source.acknowledge(in_order[5:7])
        await source.acknowledge(in_order[:2])
        await source.acknowledge(in_order[11:])
        await source.give_back(in_order[2:4])
        assert sorted(numbers_of(await receive_all(source, 2))) == [2, 3]
        await source.acknowledge(in_order[8:10])
    async with opened(queues) as source:
        assert sorted(await drain(source, {2, 3, 4, 7, 10})) == [2, 3, 4, 7, 10]
        await nothing_waits(source)


async def test_late_acknowledge_is_passed_over(queues: QueueGround) -> None:
    await queues.send(numbered(1, 2))
    async with opened(queues) as source:
        lost = await receive_all(source, 2)
        await queues.outage()
        await queues.recovery()
        assert set(await drain(source, {1, 2})) == {1, 2}
        await source.acknowledge(lost)
        await source.give_back(lost)
        await queues.send(numbered(3))
        assert set(await drain(source, {3})) <= {1, 2, 3}


async def test_given_back_comes_again(queues: QueueGround) -> None:
    await queues.send(numbered(*range(30)))
    async with opened(queues) as source:
        for _ in range(25):  # as while a store is away: more often than any message broker counts
            messages = await receive_all(source, 30)
            assert sorted(numbers_of(messages)) == list(range(30))
            await source.give_back(messages)
        await source.give_back((await receive_all(source, 30))[10:])
    async with opened(queues) as source:
        assert sorted(await drain(source, set(range(30)))) == list(range(30))


async def test_close_gives_back(queues: QueueGround) -> None:
    await queues.send(numbered(*range(20)))
    async with opened(queues) as source:
        await receive_all(source, 7, limit=7)
    async with opened(queues) as source:
        assert sorted(numbers_of(await receive_all(source, 20))) == list(range(20))


async def test_lag_is_what_waits(queues: QueueGround) -> None:
    async with opened(queues) as source:
        if await source.lag() is None:
            return
        queues.needs("counts")
        await queues.send(numbered(*range(20)))
        await _until_lag(source, 20)
        await source.acknowledge(await receive_all(source, 8, limit=8))
        await _until_lag(source, 12)


async def _until_lag(source: QueueSource, wanted: int) -> None:
    async with patience(lambda: f"the lag is never {wanted}"):
        while await source.lag() != wanted:  # noqa: ASYNC110 - only the message broker knows
            await asyncio.sleep(0.1)


async def test_outage_of_a_queue_is_unavailable(queues: QueueGround) -> None:
    async with opened(queues) as source:
        await queues.send(numbered(1, 2))
        await receive_all(source, 2)
        await queues.outage()
        with pytest.raises(BridgeUnavailable):
            await _receive_on(source)
        with pytest.raises(BridgeUnavailable):
            await source.receive(10, WAIT)
        await queues.recovery()
        await queues.send(numbered(3))
        assert set(await drain(source, {1, 2, 3})) == {1, 2, 3}


async def _receive_on(source: QueueSource) -> None:
    async with patience(lambda: "nobody notices the outage"):
        while True:
            await source.receive(10, WAIT)


async def test_unknown_queue_is_refused(queues: QueueGround) -> None:
    queues.needs("refuses_unknown")
    with pytest.raises(BridgeRefused, match="nowhere"):
        await _received_from_nowhere(queues)


async def _received_from_nowhere(queues: QueueGround) -> None:
    source = await queues.unknown()
    try:
        await source.receive(1, WAIT)
    finally:
        await source.close()


async def test_warnings_of_a_queue_are_sentences(queues: QueueGround) -> None:
    async with opened(queues) as source:
        warnings = await source.warnings()
    assert not isinstance(warnings, str)
    assert all(warning.strip() == warning and len(warning) > 20 for warning in warnings)


async def test_warnings_take_no_message(queues: QueueGround) -> None:
    await queues.send(numbered(*range(10)))
    async with opened(queues) as onlooker:
        await onlooker.warnings()
        await onlooker.lag()
        async with opened(queues) as source:
            assert sorted(numbers_of(await receive_all(source, 10))) == list(range(10))
