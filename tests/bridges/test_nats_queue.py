"""A stream of NATS as a queue: the suite of all queues, and what is NATS's own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.bridges.nats_server import in_loop, jetstream, make_stream, put, reading

from windlass.bridges.addresses import address_of
from windlass.bridges.message import Message
from windlass.bridges.nats.adapter import open_source
from windlass.bridges.nats.link import Link
from windlass.bridges.nats.said import ConsumerInfo
from windlass.bridges.source import QueueSource, is_queue
from windlass.conformance.bridges.ground import QueueGround, Sent
from windlass.conformance.bridges.queues import *  # noqa: F403 - its tests
from windlass.errors import BridgeRefused, BridgeUnavailable
from windlass.verify.brokers.nats import OwnNats


class NatsQueues(QueueGround):
    """A stream for each test."""

    def __init__(self, runner: asyncio.Runner, server: OwnNats) -> None:
        super().__init__(runner)
        self._server = server
        self._stream = runner.run(work_queue(server))

    async def outage(self) -> None:
        self._server.kill()

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def source(self) -> QueueSource:
        return await self._opened(self._stream)

    async def unknown(self) -> QueueSource:
        return await self._opened("nowhere")

    async def send(self, messages: Sequence[Sent], priority: int | None = None) -> None:
        async with jetstream(self._server) as js:
            for message in messages:
                headers = {**message.headers, **({"Nats-Msg-Id": message.id} if message.id else {})}
                await js.publish(f"{self._stream}.a", message.body or b"", headers=headers)

    async def _opened(self, stream: str) -> QueueSource:
        source = await open_source(address_of(f"{self._server.url()}/{stream}"))
        assert is_queue(source)
        return source


@pytest.fixture
def queues(nats_server: OwnNats) -> Iterator[QueueGround]:
    with asyncio.Runner() as runner:
        yield NatsQueues(runner, nats_server)


# --- what is NATS's own -------------------------------------------------------------------------------------


def bodies(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.body for message in messages]


async def work_queue(server: OwnNats, **settings: object) -> str:
    return await make_stream(server, **{"retention": "workqueue"} | settings)


def test_what_is_acknowledged_is_forgotten(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.acme", [b"1", b"2", b"3"])
        async with reading(nats_server, stream) as queue:
            assert queue.names_messages
            assert await queue.lag() == 3
            found = await queue.receive(10, 1)
            assert bodies(found) == [b"1", b"2", b"3"]
            await queue.acknowledge(found[:2])
        async with reading(nats_server, stream) as queue:
            assert bodies(await queue.receive(10, 1)) == [b"3"]
        async with jetstream(nats_server) as js:
            assert (await js.stream_info(stream)).state.messages == 1

    in_loop(story())


def test_what_is_given_back_comes_again_with_its_id(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.acme", [b"1", b"2"])
        await put(nats_server, f"{stream}.acme", [b"3"], {"Nats-Msg-Id": "three"})
        async with reading(nats_server, stream) as queue:
            first = await queue.receive(10, 1)
            await queue.give_back(first)
            again = await queue.receive(10, 1)
            assert {each.id: (each.body, each.at) for each in again} == {
                each.id: (each.body, each.at) for each in first
            }
            assert len({each.id for each in first}) == 3
            assert first[2].id == "three"
            await queue.acknowledge(again)
            assert await queue.receive(10, 0.05) == []
            await until_empty(queue)

    in_loop(story())


def test_the_first_message_is_not_waited_for_longer_than_it_takes(nats_server: OwnNats) -> None:
    """A reader that has asked for many gets the one that has come, and not later what others send."""

    async def story() -> None:
        stream = await work_queue(nats_server)
        async with reading(nats_server, stream) as queue:
            waiting = asyncio.create_task(queue.receive(500, 60))
            await queue_has_a_reader(nats_server, stream)
            await put(nats_server, f"{stream}.a", [b"1"])
            assert bodies(await waiting) == [b"1"]

    in_loop(story())


async def queue_has_a_reader(server: OwnNats, stream: str) -> None:
    async with jetstream(server) as js:

        async def has_one() -> bool:
            return bool((await js.consumer_info(stream, "windlass")).num_waiting)

        await until(has_one)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that the server brings about."""
    for _ in range(1_000):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def until_empty(queue: Any) -> None:
    """The server works acknowledgements off after it has read them."""

    async def is_empty() -> bool:
        return await queue.lag() == 0

    await until(is_empty)


def test_a_cancelled_receive_loses_nothing(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        async with reading(nats_server, stream) as queue:
            waiting = asyncio.create_task(queue.receive(500, 60))
            await queue_has_a_reader(nats_server, stream)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            # The request is still there: what it brings is for who asks next.
            await put(nats_server, f"{stream}.a", [b"1", b"2"])
            found: list[Message] = []
            while len(found) < 2:
                found += await queue.receive(500, 1)
            assert sorted(body or b"" for body in bodies(found)) == [b"1", b"2"]
            await queue.acknowledge(found)
            await until_empty(queue)

    in_loop(story())


def test_two_readers_share_a_queue(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.a", [str(number).encode() for number in range(40)])
        async with reading(nats_server, stream) as one, reading(nats_server, stream) as other:
            first, second = await one.receive(25, 1), await other.receive(500, 1)
            assert sorted(int(body or b"") for body in bodies([*first, *second])) == list(range(40))
            await one.acknowledge(second)  # by whoever has them: a connection may be another by now
            await other.acknowledge(first)
            await until_empty(one)

    in_loop(story())


def test_a_part_of_a_stream_is_a_queue_of_its_own(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.a", [b"1"])
        await put(nats_server, f"{stream}.b", [b"2"])
        async with reading(nats_server, stream, f"?consumer=b&subject={stream}.b") as queue:
            assert bodies(await queue.receive(10, 1)) == [b"2"]
            assert await queue.receive(10, 0.05) == []

    in_loop(story())


def test_interest_retention_is_a_queue_too(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, retention="interest")
        async with reading(nats_server, stream) as queue:
            await put(nats_server, f"{stream}.a", [b"1"])
            found = await queue.receive(10, 1)
            await queue.acknowledge(found)
        async with jetstream(nats_server) as js:
            assert (await js.stream_info(stream)).state.messages == 0

    in_loop(story())


def test_an_outage_is_unavailable_and_passes(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.a", [b"1", b"2"])
        async with reading(nats_server, stream) as queue:
            (held,) = await queue.receive(1, 1)
            nats_server.kill()
            for call in (queue.receive(10, 1), queue.lag(), queue.acknowledge([held])):
                with pytest.raises(BridgeUnavailable):
                    await call
            await asyncio.to_thread(nats_server.start)
            # On another connection than the one that it has come by. A server that was killed may have
            # forgotten that it has handed the message out, and then it comes again.
            await queue.acknowledge([held])
            assert bodies(await queue.receive(10, 1))[-1:] == [b"2"]

    in_loop(story())


def test_a_consumer_that_was_deleted_is_made_again(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        async with reading(nats_server, stream) as queue:
            assert await queue.receive(10, 0.05) == []
            async with jetstream(nats_server) as js:
                await js.delete_consumer(stream, "windlass")
            await put(nats_server, f"{stream}.a", [b"1"])
            assert bodies(await queue.receive(10, 1)) == [b"1"]

    in_loop(story())


def test_messages_of_a_stream_that_was_made_anew_are_others(nats_server: OwnNats) -> None:
    """They have the numbers of those of before, and must not be taken for these."""

    async def story() -> None:
        stream = await work_queue(nats_server)
        async with reading(nats_server, stream) as queue:
            await put(nats_server, f"{stream}.a", [b"1"])
            (before,) = await queue.receive(10, 1)
            async with jetstream(nats_server) as js:
                await js.delete_stream(stream)
                await js.add_stream(name=stream, subjects=[f"{stream}.>"], retention="workqueue")
            await put(nats_server, f"{stream}.a", [b"2"])
            (after,) = await queue.receive(10, 1)
            assert (before.place, after.body) == (after.place, b"2")
            assert before.id != after.id

    in_loop(story())


def test_a_consumer_that_cannot_be_used_is_refused(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await make_stream(nats_server, retention="interest")
        async with jetstream(nats_server) as js:
            await js.add_consumer(stream, durable_name="pushed", deliver_subject="there")
        with pytest.raises(BridgeRefused, match='the consumer "pushed" must be one to pull from'):
            async with reading(nats_server, stream, "?consumer=pushed"):
                pass

    in_loop(story())


def test_a_consumer_that_gives_less_than_is_asked_for_is_refused(nats_server: OwnNats) -> None:
    """Else it would look as if nothing waited."""

    async def story() -> None:
        stream = await work_queue(nats_server)
        await put(nats_server, f"{stream}.a", [b"1"])
        link = Link(address_of(nats_server.url()))
        config = {"durable_name": "windlass", "ack_policy": "explicit", "max_batch": 10}
        asked = {"stream_name": stream, "config": config}
        await link.told(f"CONSUMER.DURABLE.CREATE.{stream}.windlass", ConsumerInfo, asked)
        await link.close()
        async with reading(nats_server, stream) as queue:
            with pytest.raises(BridgeRefused, match="Exceeded MaxRequestBatch of 10"):
                await queue.receive(500, 0.1)

    in_loop(story())


def test_a_consumer_that_gives_up_is_told_of(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        async with jetstream(nats_server) as js:
            await js.add_consumer(stream, durable_name="windlass", ack_policy="explicit", max_deliver=3)
        async with reading(nats_server, stream) as queue:
            assert "delivers a message 3 times at the most" in "\n".join(await queue.warnings())

    in_loop(story())


def test_a_missing_stream_is_refused(nats_server: OwnNats) -> None:
    async def story() -> None:
        stream = await work_queue(nats_server)
        async with reading(nats_server, stream) as queue:
            async with jetstream(nats_server) as js:
                await js.delete_stream(stream)
            with pytest.raises(BridgeRefused, match="stream"):
                await queue.receive(10, 0.05)
        with pytest.raises(BridgeRefused, match=f'there is no stream "{stream}"'):
            async with reading(nats_server, stream):
                pass

    in_loop(story())
