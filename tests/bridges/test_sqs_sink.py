"""Queues of SQS as sinks, on ElasticMQ: the suite of all sinks, standard and FIFO, and what is SQS's own."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from tests.bridges.sqs_server import client, make_queue, reading, url_of, writing

from windlass.bridges.message import Message, Outgoing
from windlass.bridges.sink import Sink
from windlass.bridges.sqs.adapter import open_sink
from windlass.bridges.sqs.messages import entry_of, size_of
from windlass.conformance.bridges.ground import Sent, SinkGround
from windlass.conformance.bridges.sinks import *  # noqa: F403 - its tests
from windlass.errors import BridgeRefused
from windlass.verify.brokers.elasticmq import OwnElasticMQ


class SqsSinks(SinkGround):
    """Two queues for each test."""

    unfit = b"x" * (1 << 20)

    def __init__(self, runner: asyncio.Runner, server: OwnElasticMQ, *, fifo: bool) -> None:
        super().__init__(runner)
        self.has_keys = fifo
        self._server = server
        self._fifo = fifo
        self._found: dict[str, list[Message]] = {}
        self._first, self.other = (runner.run(make_queue(server, fifo=fifo)) for _ in range(2))

    async def outage(self) -> None:
        self._server.kill()

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def sink(self) -> Sink:
        return await open_sink(url_of(self._server, self._first))

    async def sink_nowhere(self) -> Sink:
        return await open_sink(url_of(self._server, "nowhere"))

    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        place = place or self._first
        found = self._found.setdefault(place, [])
        async with reading(self._server, place) as queue:
            for _ in range(20):
                if len(found) >= count:
                    return [Sent(each.body, each.headers, each.key) for each in found[:count]]
                messages = await queue.receive(count - len(found), 2)
                found += messages
                # More of the same group come only then.
                await queue.acknowledge(messages)
        raise AssertionError(f"of {count} messages {len(found)} came")

    def id_of(self, message: Sent) -> str | None:
        ids = {each.body: each.id for found in self._found.values() for each in found}
        return None if self._fifo else ids[message.body]


@pytest.fixture(params=["fifo", pytest.param("standard", marks=pytest.mark.slow)])
def sinks(sqs: OwnElasticMQ, request: pytest.FixtureRequest) -> Iterator[SinkGround]:
    with asyncio.Runner() as runner:
        yield SqsSinks(runner, sqs, fifo=request.param == "fifo")


# --- what is SQS's own --------------------------------------------------------------------------------------

ODD_HEADERS = {
    "plain": "text",
    "two words": "a space in its name",
    "empty": "",
    "aws.reserved": "x",
    "a..b": "dots",
    "control": "\x01",
    "windlass-id": "not ours",
    **{f"many-{number}": str(number) for number in range(12)},
}


MESSAGES = [
    Outgoing(id="1", body=b'{"n": 1}', key="tenant-1"),
    Outgoing(id="2", body=b"\x00\xff\x80"),
    Outgoing(id="3", body=b""),
    Outgoing(id="4", body=None),
    Outgoing(id="5", body=b"a\r\nb\x08c"),
    Outgoing(id="6", body="ü\U0001f600".encode(), headers=ODD_HEADERS),
    Outgoing(id="an id with spaces " * 20, body=b"{}", key="a key with spaces " * 20),
]


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_messages_come_through_whole(sqs: OwnElasticMQ, fifo: bool) -> None:
    async def story() -> None:
        name = await make_queue(sqs, fifo=fifo)
        async with writing(sqs, name) as sink:
            await sink.publish(MESSAGES)
        found: dict[str | None, Message] = {}
        async with reading(sqs, name) as queue:
            for _ in MESSAGES:
                found |= {message.id: message for message in await queue.receive(10, 5)}
                if len(found) == len(MESSAGES):
                    break
        for sent in MESSAGES:
            message = found[sent.id]
            assert (message.body, message.headers) == (sent.body, sent.headers)
            if sent.key or not fifo:
                assert message.key == sent.key

    asyncio.run(story())


def test_others_read_text_as_it_is(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs, fifo=True)
        async with writing(sqs, name) as sink:
            await sink.publish([Outgoing(id="7:1", body=b'{"n": 1}', key="acme", headers={"state": "done"})])
        async with client(sqs.endpoint) as it:
            url = (await it.get_queue_url(QueueName=name))["QueueUrl"]
            told = await it.receive_message(
                QueueUrl=url, MessageAttributeNames=["All"], AttributeNames=["All"], WaitTimeSeconds=5
            )
        (found,) = told["Messages"]
        assert found["Body"] == '{"n": 1}'
        assert found["MessageAttributes"]["state"]["StringValue"] == "done"
        assert found["Attributes"]["MessageGroupId"] == "acme"
        assert found["Attributes"]["MessageDeduplicationId"] == "7:1"

    asyncio.run(story())


def test_a_fifo_queue_keeps_one_of_two_tries(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs, fifo=True)
        async with writing(sqs, name) as sink:
            messages = [Outgoing(id=str(number), body=b"{}", key="g") for number in range(15)]
            await sink.publish(messages)
            await sink.publish(messages)
        async with reading(sqs, name) as queue:
            assert await queue.lag() == 15

    asyncio.run(story())


def test_what_is_too_large_with_its_attributes_is_refused_before_it_is_sent(sqs: OwnElasticMQ) -> None:
    message = Outgoing(id="1", body=b"x" * 262_140, headers={"a": "b" * 100})
    assert size_of(entry_of(message, 0, fifo=False)) > 262_144

    async def story() -> None:
        name = await make_queue(sqs)
        async with writing(sqs, name) as sink:
            with pytest.raises(BridgeRefused, match="is larger than its queue takes") as refusal:
                await sink.publish([Outgoing(id="0", body=b"{}"), message])
            assert refusal.value.numbers == (1,)

    asyncio.run(story())


def test_a_sink_without_a_queue_goes_where_messages_say(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        async with writing(sqs, "") as sink:
            await sink.publish([Outgoing(id="1", body=b"{}", to=name)])
            with pytest.raises(BridgeRefused, match="names no queue"):
                await sink.publish([Outgoing(id="2", body=b"{}")])
            assert await sink.warnings() == ()
        async with reading(sqs, name) as queue:
            assert await queue.lag() == 1

    asyncio.run(story())


def test_a_standard_queue_does_not_tell_repeats(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        async with writing(sqs, await make_queue(sqs)) as sink:
            assert "windlass-id" in "\n".join(await sink.warnings())
        async with writing(sqs, await make_queue(sqs, fifo=True)) as sink:
            assert await sink.warnings() == []

    asyncio.run(story())
