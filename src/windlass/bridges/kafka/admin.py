"""Asks a Kafka about topics: which they are, how far they go, and what is set of them."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)

from windlass.bridges.addresses import Address
from windlass.bridges.kafka.failures import LOGIN, as_bridge_error, error_in
from windlass.bridges.kafka.settings import ANSWERS_WITHIN, client_settings
from windlass.errors import BridgeRefused, BridgeUnavailable

_library: Any = import_module("confluent_kafka.admin")
"""Without its types: they name other modules than its documentation does."""
_Call: TypeAlias = Callable[[Any], Mapping[Any, "Future[Any]"]]
_TICK: Final = 0.05
"""Seconds between two looks at what the client complains of, while an answer is awaited."""
_GRACE: Final = 2.0
"""Seconds that an answer may still come after no broker could be reached: a name may have other addresses."""


class Topic(NamedTuple):
    """A topic as it is now."""

    id: str
    """Another one after it was deleted and made anew."""
    partitions: tuple[int, ...]
    replicas: int
    """The smallest number of copies of a partition."""


class Ends(NamedTuple):
    """The offset of the oldest message of a partition, and the offset behind its newest message."""

    oldest: int
    newest: int


class Admin:
    """A client for questions. Several tasks may ask at a time."""

    def __init__(self, address: Address) -> None:
        self._shown = address.shown
        self._login: KafkaError | None = None
        self._is_down = False
        self._last = ""
        """What the client has complained of last."""
        try:
            self._client: Any = _library.AdminClient({**client_settings(address), "error_cb": self._complain})
        except KafkaException as error:  # a file that is not there, say
            raise BridgeRefused(f"{self._shown}: {error_in(error).str()}") from error

    async def topic(self, name: str) -> Topic:
        """`BridgeRefused`: there is none."""
        wanted = TopicCollection([name])
        found = await self._ask(
            lambda client: client.describe_topics(wanted, request_timeout=ANSWERS_WITHIN), name
        )
        replicas = [len(partition.replicas) for partition in found.partitions]
        partitions = tuple(sorted(partition.id for partition in found.partitions))
        return Topic(str(found.topic_id), partitions, min(replicas, default=0))

    async def ends(self, name: str, partition: int, *, uncommitted: bool = False) -> Ends:
        """Without what open transactions have written so far; `uncommitted`: with it."""
        oldest = await self._offsets(
            name, [partition], _library.OffsetSpec.earliest(), uncommitted=uncommitted
        )
        newest = await self._offsets(name, [partition], _library.OffsetSpec.latest(), uncommitted=uncommitted)
        return Ends(oldest[partition], newest[partition])

    async def newest(self, name: str, partitions: Collection[int]) -> dict[int, int]:
        """The offsets behind the newest messages that a reader may see, by partition."""
        return await self._offsets(name, partitions, _library.OffsetSpec.latest())

    async def first_since(self, name: str, partitions: Collection[int], milliseconds: int) -> dict[int, int]:
        """The offsets of the first messages that are not older than a time; -1: all are older."""
        return await self._offsets(name, partitions, _library.OffsetSpec.for_timestamp(milliseconds))

    async def committed(self, group: str, name: str, partitions: Iterable[int]) -> dict[int, int]:
        """How far a group says that it is, by partition; only where it has said so."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(name, each) for each in partitions])
        found = await self._ask(
            lambda client: client.list_consumer_group_offsets([wanted], request_timeout=ANSWERS_WITHIN), name
        )
        return {each.partition: each.offset for each in found.topic_partitions if each.offset >= 0}

    async def settings_of(self, name: str) -> dict[str, str]:
        """The settings of a topic, also those that it has from its brokers."""
        wanted = _library.ConfigResource(_library.ResourceType.TOPIC, name)
        found: Mapping[str, Any] = await self._ask(
            lambda client: client.describe_configs([wanted], request_timeout=ANSWERS_WITHIN), name
        )
        return {entry.name: entry.value for entry in found.values() if entry.value is not None}

    async def close(self) -> None:
        """Let go of the client. It must not be left to the garbage collector: that may run in a thread of
        librdkafka's, which ends the process if a client is taken down from there.
        """
        client, self._client = self._client, None
        if client is not None:
            await asyncio.to_thread(_closed, client)

    async def _offsets(
        self, name: str, partitions: Collection[int], which: Any, *, uncommitted: bool = False
    ) -> dict[int, int]:
        if not partitions:
            return {}
        seen = IsolationLevel.READ_UNCOMMITTED if uncommitted else IsolationLevel.READ_COMMITTED
        wanted = {TopicPartition(name, partition): which for partition in partitions}
        found = await self._ask_all(
            lambda client: client.list_offsets(wanted, isolation_level=seen, request_timeout=ANSWERS_WITHIN),
            name,
        )
        return {place.partition: answer.offset for place, answer in found.items()}

    async def _ask(self, call: "_Call", topic: str) -> Any:
        """The one answer."""
        return next(iter((await self._ask_all(call, topic)).values()))

    async def _ask_all(self, call: "_Call", topic: str) -> dict[Any, Any]:
        """The answers to all that is asked at once."""
        client = self._client
        if client is None:
            raise BridgeUnavailable(f"{self._shown} is closed")
        client.poll(0)
        self._login = None  # it is said again with each try
        answered = {key: _on_this_loop(future) for key, future in call(client).items()}
        await self._answered(answered.values())
        try:
            answers = {key: each.result().result() for key, each in answered.items()}
        except KafkaException as raised:
            shown = self._shown if self._shown.endswith(f"/{topic}") else f"{self._shown}, topic {topic}"
            raise as_bridge_error(error_in(raised), shown, self._last) from None
        self._is_down = False
        return answers

    async def _answered(self, all_of_them: "Iterable[asyncio.Future[Future[Any]]]") -> None:
        """Wait for answers, unless it is known that none will come for as long as it may take."""
        loop = asyncio.get_running_loop()
        down_since = loop.time() if self._is_down else None
        waiting = set(all_of_them)
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_TICK)
            if self._client is None:
                raise BridgeUnavailable(f"{self._shown} is closed")
            self._client.poll(0)
            if self._login is not None:
                raise as_bridge_error(self._login, self._shown)
            if self._is_down and down_since is None:
                down_since = loop.time()
            if down_since is not None and loop.time() - down_since > _GRACE and waiting:
                raise BridgeUnavailable(f"{self._shown}: no broker can be reached ({self._last})")

    def _complain(self, error: KafkaError) -> None:
        """As long as no broker can be reached, this is said once, not for each question."""
        if error.code() in LOGIN:
            self._login = error
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._is_down = True
        else:
            self._last = error.str()


def _closed(client: Any) -> None:
    with client:
        pass


def _on_this_loop(future: "Future[Any]") -> "asyncio.Future[Future[Any]]":
    """A future of the running loop that ends with the given one. Cancelling the caller does not cancel the
    given one, since librdkafka would still answer it.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Future[Any]] = loop.create_future()

    def tell() -> None:
        if not told.done():
            told.set_result(future)

    def done(_: "Future[Any]") -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell)

    future.add_done_callback(done)
    return told
