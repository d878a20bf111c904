"""What RabbitMQ alone has: nodes, virtual hosts, cancelled consumers, alarms, queues of several kinds; and a
front door by way of it.
"""

import asyncio
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pamqp import encode
from pamqp.commands import Basic
from tests.bridges.rabbits import QUORUM, Client, new_name

from windlass import Windlass
from windlass.bridges.addresses import address_of, open_sink, open_source
from windlass.bridges.message import Message, Outgoing
from windlass.bridges.rabbitmq import source as source_module
from windlass.bridges.rabbitmq.place import place_of
from windlass.conformance.bridges.ground import Sent
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.verify.brokers.rabbitmq import Rabbit

PATIENCE = 20


def run(story: Any) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story

    asyncio.run(whole())


@asynccontextmanager
async def opened(url: str, *, sink: bool = False) -> AsyncGenerator[Any]:
    one: Any = await (open_sink if sink else open_source)(address_of(url))
    try:
        yield one
    finally:
        await one.close()


@asynccontextmanager
async def queue(rabbit: Rabbit, **more: Any) -> AsyncGenerator[tuple[Client, str]]:
    """A queue, by a plain client; `more` is how it is declared."""
    client, name = Client(rabbit), new_name("own")
    channel = await client.channel()
    await channel.queue_declare(name, **{"durable": True, **more})
    try:
        yield client, name
    finally:
        await client.close()


async def received(source: Any, count: int) -> list[Message]:
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await source.receive(count - len(found), 1)
    return found


def test_properties_headers_and_priority_come_and_go(rabbit: Rabbit) -> None:
    async def story() -> None:
        async with (
            queue(rabbit) as (_, name),
            opened(rabbit.url(name), sink=True) as sink,
            opened(rabbit.url(name)) as source,
        ):
            said = {
                "content_type": "application/json",
                "content_encoding": "utf-8",
                "correlation_id": "c",
                "reply_to": "r",
            }
            table = {"number": 7, "list": [1, None], "nested": {"a": True}}
            await sink.publish(
                [
                    Outgoing(
                        id="one",
                        body=b"{}",
                        headers={"tenant": "acme"},
                        table=table,
                        properties=said,
                        priority=9,
                    )
                ]
            )
            (message,) = await received(source, 1)
            assert (message.id, message.priority, message.subject) == ("one", 9, name)
            assert message.headers == {"tenant": "acme"}
            assert {key: message.table[key] for key in table} == table
            assert message.properties == said
            assert message.at is not None
            await source.acknowledge([message])

    run(story())


def test_what_the_client_cannot_decode_holds_up_nothing(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is no UTF-8, a time in nanoseconds, a header whose name is no text."""
    strange = struct.pack(">I", 9) + b"\x03\xff\xfe\xfdS" + struct.pack(">I", 0)

    def written(value: Any) -> bytes:
        return bytes([len(value)]) + value if isinstance(value, bytes) else encode.short_string(value)

    async def story() -> None:
        async with queue(rabbit) as (client, name), opened(rabbit.url(name)) as source:
            channel = await client.channel()
            with monkeypatch.context() as patch:
                patch.setitem(encode.METHODS, "shortstr", written)
                patch.setitem(encode.METHODS, "timestamp", lambda value: struct.pack(">Q", value))
                patch.setitem(encode.METHODS, "table", lambda value: value or b"\0\0\0\0")
                for said in ({"message_id": b"\xff\xfe"}, {"timestamp": 10**18}, {"headers": strange}):
                    properties = Basic.Properties(message_id="named")
                    for key, value in said.items():
                        setattr(properties, key, value)
                    await channel.basic_publish(b"{}", routing_key=name, properties=properties)
            await client.send(name, [Sent(b"{}", id="last")])
            found = await received(source, 4)
            assert [message.id for message in found] == ["\\xff\\xfe", "named", "named", "last"]
            await source.acknowledge(found)

    run(story())


def test_a_cancelled_consumer_begins_anew(rabbit: Rabbit) -> None:
    async def story() -> None:
        async with queue(rabbit, arguments=QUORUM) as (client, name), opened(rabbit.url(name)) as source:
            assert await source.receive(1, 0.01) == ()
            channel = await client.channel()
            await channel.queue_delete(name)
            with pytest.raises(BridgeUnavailable, match="stopped sending"):
                await received(source, 1)
            with pytest.raises(BridgeRefused, match=name):
                await source.receive(1, 1)
            await client.queue(name)
            await client.send(name, [Sent(b"1", id="1")])
            assert [message.body for message in await received(source, 1)] == [b"1"]

    run(story())


def test_others_have_what_nobody_asks_for(rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while an operator has paused the intake, or the store is away."""
    monkeypatch.setattr(source_module, "IDLE", 0.05)

    async def story() -> None:
        async with (
            queue(rabbit, arguments=QUORUM) as (client, name),
            opened(rabbit.url(name)) as idle,
            opened(rabbit.url(name)) as busy,
        ):
            await client.send(name, [Sent(b"%d" % number, id=str(number)) for number in range(5)])
            await idle.give_back(await received(idle, 5))
            found = sorted(message.body for message in await received(busy, 5))
            assert found == [b"0", b"1", b"2", b"3", b"4"]
            await busy.acknowledge([])
            assert await idle.lag() == 0

    run(story())


def test_what_is_given_back_again_and_again_goes_to_rabbitmq_after_a_while(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "HELD", 0.0)

    async def story() -> None:
        async with queue(rabbit, arguments=QUORUM) as (client, name), opened(rabbit.url(name)) as source:
            await client.send(name, [Sent(b"1", id="1")])
            for deliveries in range(3):
                (message,) = await received(source, 1)
                assert message.table.get("x-delivery-count", 0) == deliveries
                await source.give_back([message])

    run(story())


def test_giving_back_is_no_delivery(rabbit: Rabbit) -> None:
    async def story() -> None:
        async with queue(rabbit, arguments=QUORUM) as (client, name), opened(rabbit.url(name)) as source:
            await client.send(name, [Sent(b"1", id="1")])
            for _ in range(30):
                (message,) = await received(source, 1)
                assert message.table.get("x-delivery-count", 0) == 0
                await source.give_back([message])

    run(story())


def test_messages_without_an_id_are_told_of(rabbit: Rabbit) -> None:
    async def story() -> None:
        async with queue(rabbit) as (client, name), opened(rabbit.url(name)) as source:
            await client.send(name, [Sent(b"{}", id="1")])
            await received(source, 1)
            assert source.names_messages
            await client.send_without_id(name, b"{}")
            (message,) = await received(source, 1)
            assert message.id is None
            assert not source.names_messages
            assert any("message_id" in warning for warning in await source.warnings())

    run(story())


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"durable": False}, ["not durable"]),
        ({"auto_delete": True}, ["classic queue", "auto_delete"]),
        ({"arguments": QUORUM}, []),
        (
            {"arguments": {"x-message-ttl": 60_000, "x-max-priority": 9}},
            ["classic queue", "x-message-ttl"],
        ),
        ({"arguments": {**QUORUM, "x-max-length": 5, "x-dead-letter-exchange": "d"}}, ["drops its oldest"]),
        ({"arguments": {**QUORUM, "x-max-length": 5, "x-overflow": "reject-publish"}}, []),
    ],
)
def test_an_operator_is_told_of_what_a_queue_may_lose(
    rabbit: Rabbit, declared: dict[str, Any], words: Sequence[str]
) -> None:
    async def story() -> None:
        async with queue(rabbit, **declared) as (_, name), opened(rabbit.url(name)) as source:
            warnings = await source.warnings()
            assert len(warnings) == len(words)
            assert all(word in warning for word, warning in zip(words, warnings, strict=True))

    run(story())


def test_an_exchange_that_leads_nowhere_is_refused_and_one_that_may_vanish_is_told_of(
    rabbit: Rabbit,
) -> None:
    async def story() -> None:
        client, name = Client(rabbit), new_name("exchange")
        await (await client.channel()).exchange_declare(name, exchange_type="fanout")
        async with opened(rabbit.url(name), sink=True) as sink:
            assert any("not durable" in warning for warning in await sink.warnings())
            with pytest.raises(BridgeRefused, match="bind one") as refusal:
                await sink.publish([Outgoing(id="1", body=b"{}", to="jobs.dead")])
            assert refusal.value.numbers == ()
        await client.close()

    run(story())


def test_a_full_queue_is_for_now(rabbit: Rabbit) -> None:
    async def story() -> None:
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        async with (
            queue(rabbit, arguments=limits) as (client, name),
            opened(rabbit.url(name), sink=True) as sink,
        ):
            with pytest.raises(BridgeUnavailable, match="full"):
                await sink.publish([Outgoing(id=str(number), body=b"{}") for number in range(10)])
            assert len(await client.found(name, 1)) == 1

    run(story())


def test_wrong_logins_and_virtual_hosts_are_refused_without_the_password(rabbit: Rabbit) -> None:
    async def story() -> None:
        urls = {
            rabbit.url("orders").replace("guest:guest", "guest:hunter22"): "ACCESS_REFUSED",
            rabbit.url("nowhere/orders"): 'no virtual host "nowhere"',
        }
        for url, words in urls.items():
            async with opened(url) as source:
                with pytest.raises(BridgeRefused, match=words) as refusal:
                    await source.warnings()
                assert "hunter22" not in str(refusal.value)

    run(story())


def test_another_node_of_the_url_is_asked(rabbit: Rabbit) -> None:
    async def story() -> None:
        async with queue(rabbit) as (client, name):
            await client.send(name, [Sent(b"1", id="1")])
            url = rabbit.url(name).replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:")
            async with opened(url) as source:
                assert len(await received(source, 1)) == 1

    run(story())


@pytest.mark.parametrize(
    "url",
    [
        "amqp://host/a/b/c",
        "amqp:///orders",
        "amqp://host/orders?misspelled=1",
        "amqp://host/orders?prefetch=many",
        "amqp://host/orders?prefetch=0",
        "amqp://host/orders?prefetch=100000",
    ],
)
def test_urls_that_cannot_be_are_refused(url: str) -> None:
    with pytest.raises(InvalidOption):
        place_of(address_of(url))


def test_a_virtual_host_may_be_named(rabbit: Rabbit) -> None:
    assert (place_of(address_of("amqp://host/%2F/orders")).vhost, rabbit.ports != []) == ("/", True)
    assert place_of(address_of("amqp://host/shop/orders")).vhost == "shop"


def test_a_front_door(rabbit: Rabbit, tmp_path: Path) -> None:
    async def story() -> None:
        async with queue(rabbit, arguments=QUORUM) as (_, name):
            app = Windlass(f"sqlite:///{tmp_path / 'windlass.db'}", front=rabbit.url(name))

            @app.task
            def double(n: int) -> int:
                return 2 * n

            jobs = [await double.aenqueue(number) for number in range(3)]
            assert [await job.astate() for job in jobs] == ["accepted"] * 3
            async with app.worker():
                assert [await job.aresult(timeout=PATIENCE) for job in jobs] == [0, 2, 4]
            await app.aclose()

    run(story())


@pytest.mark.slow
def test_a_server_that_is_short_of_memory_is_waited_for() -> None:
    own = Rabbit()

    async def story() -> None:
        async with (
            queue(own) as (client, name),
            opened(own.url(name), sink=True) as sink,
            opened(own.url(name)) as source,
        ):
            await client.send(name, [Sent(b"1", id="1")])
            await sink.warnings()
            own.control("set_vm_memory_high_watermark", "0.0000001")
            with pytest.raises(BridgeUnavailable, match="low on memory"):
                await sink.publish([Outgoing(id="2", body=b"{}")])
            (message,) = await received(source, 1)
            await source.acknowledge([message])
            own.control("set_vm_memory_high_watermark", "0.9")
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await sink.publish([Outgoing(id="3", body=b"{}")])
                    except BridgeUnavailable:
                        await asyncio.sleep(0.1)
                    else:
                        break
            assert "3" in {message.id for message in await received(source, 2)}

    try:
        own.start()
        run(story())
    finally:
        own.close()
