"""Publishes to topics: what it has published, all replicas that are in sync have acknowledged."""

from collections.abc import Sequence
from typing import Any, Final

from windlass.bridges.addresses import Address
from windlass.bridges.kafka.admin import Admin
from windlass.bridges.kafka.advice import of_publishing
from windlass.bridges.kafka.delivering import Deliverer
from windlass.bridges.kafka.settings import check, client_settings, delivered_within, topic_of
from windlass.bridges.message import Outgoing
from windlass.errors import BridgeRefused
from windlass.forks import CONNECTING

DEFAULT_LARGEST: Final = 1_048_588
"""`message.max.bytes` of a broker that was told nothing."""
ID_HEADER: Final = "windlass-message-id"
"""Where readers find the id of a message, which is the same for a repeat."""
_BATCH: Final = 61
"""Bytes of a batch of one message, beside the message."""
_RECORD: Final = 40
"""Bytes of a message beside what it carries, at the most."""
_HEADER: Final = 10
_BESIDE: Final = 8_192
"""Bytes that are kept for key and headers when it is said what the largest body is."""


async def opened(address: Address) -> "KafkaSink":
    """`BridgeRefused`: there is no such topic. A URL without a topic is one for messages that name theirs."""
    check(address)
    async with CONNECTING.entered():
        admin = Admin(address)
        try:
            sink = KafkaSink(address, admin)
            if address.path:
                await sink.learn(topic_of(address))
        except BaseException:
            await admin.close()
            raise
    return sink


class KafkaSink:
    """Topics that are published to."""

    def __init__(self, address: Address, admin: Admin) -> None:
        self._shown = address.shown
        self._topic = address.path[0] if address.path else ""
        self._admin = admin
        self._largest: dict[str, int] = {}
        self._deliverer = Deliverer(client_settings(address), self._shown, delivered_within(address))

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """As of every sink. What cannot fit is seen before anything is sent."""
        unfit = await self._unfit(messages)
        if unfit:
            self._largest.clear()  # somebody may have set it higher since
            unfit = await self._unfit(messages)
        if unfit:
            raise self._refusal(messages, unfit)
        if messages:
            records = [_record(message, message.to or self._topic) for message in messages]
            unfit = await self._deliverer.deliver(records)
            if unfit:
                raise self._refusal(messages, unfit)

    @property
    def largest(self) -> int:
        """Of the topic of the URL."""
        return max(0, self._largest.get(self._topic, DEFAULT_LARGEST) - _BATCH - _RECORD - _BESIDE)

    async def warnings(self) -> Sequence[str]:
        """What the settings of its topic do not promise."""
        return await of_publishing(self._admin, self._shown, self._topic) if self._topic else ()

    async def close(self) -> None:
        """Let go of both clients."""
        await self._deliverer.close()
        await self._admin.close()

    async def learn(self, topic: str) -> int:
        """The largest batch that a topic takes. `BridgeRefused`: there is no such topic. A producer that
        nobody asks would make it, where brokers let it.
        """
        if topic not in self._largest:
            await self._admin.topic(topic)
            try:
                said = (await self._admin.settings_of(topic)).get("max.message.bytes", "")
            except BridgeRefused:  # not allowed to read them
                said = ""
            self._largest[topic] = int(said) if said.isdecimal() else DEFAULT_LARGEST
        return self._largest[topic]

    async def _unfit(self, messages: Sequence[Outgoing]) -> list[int]:
        return [number for number, message in enumerate(messages) if not await self._fits(message)]

    async def _fits(self, message: Outgoing) -> bool:
        topic = message.to or self._topic
        if not topic:
            raise BridgeRefused(f"{self._shown} names no topic, and neither does what is published (to=)")
        if not _can_be_a_topic(topic):
            return False
        return _size(message) <= await self.learn(topic)

    def _refusal(self, messages: Sequence[Outgoing], numbers: Sequence[int]) -> BridgeRefused:
        first = messages[numbers[0]]
        topic = first.to or self._topic
        if not _can_be_a_topic(topic):
            why = f'"{topic[:60]}" cannot be the name of a topic'
        else:
            limit = f"max.message.bytes {self._largest.get(topic, DEFAULT_LARGEST):,}"
            why = f"topic {topic} does not take a message of {_size(first):,} bytes ({limit})"
        return BridgeRefused(f"{self._shown}: {why}", tuple(numbers))


def _can_be_a_topic(name: str) -> bool:
    """As Kafka has it: letters, digits, dots, dashes and underscores of ASCII."""
    plain = name.replace(".", "").replace("-", "").replace("_", "")
    return len(name) <= 249 and name not in (".", "..") and name.isascii() and (plain.isalnum() or not plain)


def _size(message: Outgoing) -> int:
    """Bytes of a message in a batch of its own, at the most."""
    carried = len(message.body or b"") + len(message.key.encode(errors="replace"))
    headers = sum(
        _HEADER + len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        for name, value in (*message.headers.items(), (ID_HEADER, message.id))
    )
    return _BATCH + _RECORD + carried + headers


def _record(message: Outgoing, topic: str) -> dict[str, Any]:
    """What librdkafka is given."""
    headers = {**message.headers, ID_HEADER: message.id}
    return {
        "topic": topic,
        "value": message.body,
        "key": message.key.encode(errors="replace") or None,
        "headers": [(name, value.encode(errors="replace")) for name, value in headers.items()],
    }
