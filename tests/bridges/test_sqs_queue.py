"""A queue of SQS as a source, on ElasticMQ: the suite of all queues, and what is SQS's own."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from tests.bridges.sqs_server import client, make_queue, put, reading, url_of, writing

from windlass.bridges.addresses import address_of
from windlass.bridges.message import Message, Outgoing
from windlass.bridges.source import QueueSource
from windlass.bridges.sqs.adapter import open_source
from windlass.bridges.sqs.queue import Queue
from windlass.conformance.bridges.ground import QueueGround, Sent
from windlass.conformance.bridges.queues import *  # noqa: F403 - its tests
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.verify.brokers.elasticmq import OwnElasticMQ


class SqsQueues(QueueGround):
    """A queue for each test. Its messages are written as our own sink writes them: they have ids and may be
    binary.
    """

    keeps_order = False

    def __init__(self, runner: asyncio.Runner, server: OwnElasticMQ) -> None:
        super().__init__(runner)
        self._server = server
        self._name = runner.run(make_queue(server))

    async def outage(self) -> None:
        self._server.kill()

    async def recovery(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def source(self) -> QueueSource:
        return await open_source(url_of(self._server, self._name, "&visibility=5"))

    async def unknown(self) -> QueueSource:
        return await open_source(url_of(self._server, "nowhere"))

    async def send(self, messages: Sequence[Sent], priority: int | None = None) -> None:
        async with writing(self._server, self._name) as sink:
            await sink.publish(
                [
                    Outgoing(id=message.id or "?", body=message.body, headers=message.headers)
                    for message in messages
                ]
            )


@pytest.fixture
def queues(sqs: OwnElasticMQ) -> Iterator[QueueGround]:
    with asyncio.Runner() as runner:
        yield SqsQueues(runner, sqs)


# --- what is SQS's own --------------------------------------------------------------------------------------


def bodies(messages: Sequence[Message]) -> list[str]:
    return [(message.body or b"").decode() for message in messages]


async def receive(queue: Queue, count: int) -> list[Message]:
    """So many messages, in as many receives as it takes."""
    found: list[Message] = []
    for _ in range(20):
        if len(found) == count:
            return found
        found += await queue.receive(count - len(found), 5)
    raise AssertionError(f"of {count} messages {len(found)} came")


def test_what_is_acknowledged_is_forgotten(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        ids = await put(sqs, name, ["1", "2", "3"])
        async with reading(sqs, name) as queue:
            assert queue.names_messages
            assert await queue.lag() == 3
            found = await receive(queue, 3)
            assert sorted(bodies(found)) == ["1", "2", "3"]
            assert sorted(message.id or "" for message in found) == sorted(ids)
            await queue.acknowledge(found)
            await queue.acknowledge(found)  # forgotten already
            assert await queue.lag() == 0
            assert await queue.receive(10, 0) == []

    asyncio.run(story())


def test_what_is_given_back_comes_again_at_once_with_its_id(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        await put(sqs, name, [str(number) for number in range(25)])
        async with reading(sqs, name) as queue:
            first = await receive(queue, 25)
            await queue.give_back(first)
            again = await receive(queue, 25)
            assert {each.id: (each.body, each.at) for each in again} == {
                each.id: (each.body, each.at) for each in first
            }
            assert len({each.id for each in first}) == 25

    asyncio.run(story())


def test_what_was_held_is_visible_at_once_after_the_reader_has_gone(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        await put(sqs, name, ["1"])
        async with reading(sqs, name) as queue:
            assert bodies(await receive(queue, 1)) == ["1"]
        async with reading(sqs, name) as queue:
            assert bodies(await queue.receive(10, 0)) == ["1"]

    asyncio.run(story())


def test_many_are_received_by_several_calls(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        async with client(sqs.endpoint) as it:
            url = (await it.get_queue_url(QueueName=name))["QueueUrl"]
            for first in range(0, 200, 10):
                entries = [
                    {"Id": str(number), "MessageBody": str(number)} for number in range(first, first + 10)
                ]
                await it.send_message_batch(QueueUrl=url, Entries=entries)
        async with reading(sqs, name) as queue:
            found = await queue.receive(150, 5)
            assert len(found) == 150
            rest = await receive(queue, 50)
            assert sorted(map(int, bodies([*found, *rest]))) == list(range(200))
            await queue.acknowledge([*found, *rest])
            assert await queue.receive(10, 0) == []

    asyncio.run(story())


def test_a_cancelled_receive_loses_nothing(sqs: OwnElasticMQ) -> None:
    """What SQS hands out to the call that was under way is for who asks next."""

    async def story() -> None:
        name = await make_queue(sqs)
        async with reading(sqs, name) as queue:
            waiting = asyncio.create_task(queue.receive(10, 20))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await put(sqs, name, ["1", "2"])
            assert sorted(bodies(await receive(queue, 2))) == ["1", "2"]

    asyncio.run(story())


def test_a_message_is_read_whole(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        attributes = {
            "tenant": {"DataType": "String", "StringValue": "müller"},
            "weight": {"DataType": "Number", "StringValue": "12"},
            "picture": {"DataType": "Binary", "BinaryValue": b"\x00"},
        }
        ids = await put(sqs, name, ['{"n": "ü"}'], MessageAttributes=attributes)
        async with reading(sqs, name) as queue:
            (message,) = await receive(queue, 1)
        assert message.body == '{"n": "ü"}'.encode()
        assert message.headers == {"tenant": "müller", "weight": "12"}
        assert (message.subject, message.key) == (name, "")
        assert (message.id, message.place) == (ids[0], f"{name}/{ids[0]}")
        assert message.at is not None

    asyncio.run(story())


def test_a_group_of_a_fifo_queue_is_the_key_and_keeps_its_order(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs, fifo=True)
        for group in range(3):
            await put(sqs, name, [str(n) for n in range(group, 30, 3)], group=f"group-{group}")
        async with reading(sqs, name) as one, reading(sqs, name) as other:
            found: dict[str, list[int]] = {}
            while sum(map(len, found.values())) < 30:
                for queue in (one, other):
                    messages = await queue.receive(7, 0)
                    for message in messages:
                        found.setdefault(message.key, []).append(int(message.body or b""))
                    await queue.acknowledge(messages)
        assert found == {f"group-{group}": list(range(group, 30, 3)) for group in range(3)}

    asyncio.run(story())


def test_what_is_given_back_of_a_group_comes_before_the_rest(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs, fifo=True)
        await put(sqs, name, ["1", "2", "3"], group="g")
        async with reading(sqs, name) as queue:
            found = await queue.receive(2, 5)
            assert bodies(found) == ["1", "2"]
            await queue.acknowledge(found[:1])
            await queue.give_back(found[1:])
            assert bodies(await receive(queue, 2)) == ["2", "3"]

    asyncio.run(story())


def test_visibility_is_that_of_the_url(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs, VisibilityTimeout="3600")
        await put(sqs, name, ["1"])
        async with reading(sqs, name, "&visibility=1") as queue:
            (first,) = await receive(queue, 1)
            (again,) = await receive(queue, 1)
            assert first.id == again.id
            await queue.acknowledge([first])  # its receipt is of an earlier delivery
            await queue.acknowledge([again])

    asyncio.run(story())


def test_an_outage_is_unavailable_and_passes(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        name = await make_queue(sqs)
        await put(sqs, name, ["1", "2"])
        async with reading(sqs, name) as queue:
            (held,) = await queue.receive(1, 5)
            sqs.kill()
            for call in (queue.receive(10, 1), queue.acknowledge([held])):
                with pytest.raises(BridgeUnavailable):
                    await call
            with pytest.raises(BridgeUnavailable):
                await queue.lag()
            await asyncio.to_thread(sqs.start)
            await queue.acknowledge([held])
            (other,) = await receive(queue, 1)
            assert other.id != held.id

    asyncio.run(story())


def test_a_missing_queue_is_refused(sqs: OwnElasticMQ) -> None:
    async def story() -> None:
        with pytest.raises(BridgeRefused, match='there is no queue "nowhere"'):
            async with reading(sqs, "nowhere"):
                pass
        name = await make_queue(sqs)
        async with reading(sqs, name) as queue:
            async with client(sqs.endpoint) as it:
                await it.delete_queue(QueueUrl=(await it.get_queue_url(QueueName=name))["QueueUrl"])
            with pytest.raises(BridgeRefused):
                await queue.receive(10, 0)

    asyncio.run(story())


def test_what_a_queue_does_not_promise_is_said(sqs: OwnElasticMQ) -> None:
    async def told(more: str = "", **attributes: str) -> str:
        name = await make_queue(sqs, **attributes)
        async with reading(sqs, name, more) as queue:
            return "\n".join(await queue.warnings())

    async def story() -> None:
        letters = await make_queue(sqs)
        async with client(sqs.endpoint) as it:
            url = (await it.get_queue_url(QueueName=letters))["QueueUrl"]
            told_of = await it.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        target = f'"deadLetterTargetArn":"{told_of["Attributes"]["QueueArn"]}"'
        assert await told(VisibilityTimeout="30") == ""
        assert "visible again after 5 s" in await told(VisibilityTimeout="5")
        assert await told("&visibility=60", VisibilityTimeout="5") == ""
        few = f'{{{target},"maxReceiveCount":"3"}}'
        assert "when it was received 3 times" in await told(VisibilityTimeout="30", RedrivePolicy=few)
        many = f'{{{target},"maxReceiveCount":"1000"}}'
        assert await told(VisibilityTimeout="30", RedrivePolicy=many) == ""

    asyncio.run(story())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqs:///orders", "names no region"),
        ("sqs://a,b/orders", "names no region"),
        ("sqs://eu-central-1", "names no queue"),
        ("sqs://eu-central-1/a/b", "names more than a queue"),
        ("sqs://KEY@eu-central-1/orders", "a key has a secret"),
        ("sqs://eu-central-1/orders?timeout=1", 'has no option "timeout"'),
        ("sqs://eu-central-1/orders?visibility=0", "must be whole seconds, from 1 to 43,200"),
        ("sqs://eu-central-1/orders?visibility=soon", "must be whole seconds"),
        ("sqs://k:s@eu-central-1/orders?endpoint=nowhere", "nowhere"),
    ],
)
def test_what_a_url_cannot_say(url: str, problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        asyncio.run(open_source(address_of(url)))


def test_without_a_key_it_says_how_to_log_in(sqs: OwnElasticMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    address = address_of(f"sqs://elasticmq/orders?endpoint={sqs.endpoint}")
    with pytest.raises(BridgeRefused, match="there is no key to log in with"):
        asyncio.run(open_source(address))


def test_secrets_are_not_shown(sqs: OwnElasticMQ) -> None:
    assert "password" not in repr(url_of(sqs, "orders"))
