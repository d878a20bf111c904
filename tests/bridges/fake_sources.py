"""Sources of messages that tests drive through every failure: what they hold is a list in memory."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence

import msgspec

from windlass.bridges.message import Message, Outgoing
from windlass.errors import BridgeUnavailable, SourceReplaced
from windlass.pace import Pace

POLL = 0.05


class Topic:
    """What a message broker has of a topic: partitions with messages, of which the oldest may be gone."""

    def __init__(self, *partitions: str) -> None:
        self.kept: dict[str, list[Message]] = {name: [] for name in partitions}
        self.first: dict[str, int] = {}
        """The offset of the oldest message that is kept."""
        self.made = 1
        """How often a topic of this name was made."""
        self.away = False
        self.committed: dict[str, str] = {}

    def put(self, body: object, partition: str = "0", **fields: object) -> Message:
        """Append a message; `body` is bytes, None or what is written as JSON."""
        at = len(self.kept[partition])
        raw = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        message = Message(
            body=raw,
            place=f"{partition}/{at}",
            after=str(at + 1),
            **fields,  # type: ignore[arg-type]
        )
        self.kept[partition].append(message)
        return message

    def make_anew(self) -> None:
        """Delete it and make another one of the same name."""
        self.kept = {name: [] for name in self.kept}
        self.made += 1


class Trouble:
    """What goes wrong, and how often."""

    def __init__(self, seed: int | None = None, share: float = 0.1) -> None:
        self._draw = None if seed is None else random.Random(seed)
        self._share = share
        self.happened = 0

    def may_strike(self) -> None:
        """Sometimes the message broker does not answer."""
        if self.strikes():
            raise BridgeUnavailable("the message broker did not answer")

    def strikes(self) -> bool:
        """Whether it does now."""
        struck = self._draw is not None and self._draw.random() < self._share
        self.happened += struck
        return struck


class FakeLog:
    """One partition, as one reader has it open."""

    def __init__(self, topic: Topic, partition: str, pace: Pace, trouble: Trouble) -> None:
        self.partition = partition
        self.identity = f"topic {topic.made}"
        self._topic = topic
        self._pace = pace
        self._trouble = trouble
        self.open = True

    async def begin(self, *, at_end: bool) -> str:
        self._check()
        kept = self._topic.kept[self.partition]
        return str(len(kept) if at_end else self._topic.first.get(self.partition, 0))

    async def read(self, offset: str, limit: int, timeout: float) -> Sequence[Message]:
        until = self._pace.now() + timeout
        while True:
            self._check()
            at = int(offset)
            if f"topic {self._topic.made}" != self.identity or at < self._topic.first.get(self.partition, 0):
                raise SourceReplaced("it is another log, or has lost what comes next")
            found = self._topic.kept[self.partition][at : at + limit]
            if found or self._pace.now() >= until:
                return found
            await self._pace.sleep(POLL)

    async def passed(self, offset: str) -> str:
        self._check()
        return offset

    async def lag(self, offset: str) -> int | None:
        self._check()
        return len(self._topic.kept[self.partition]) - int(offset)

    async def commit(self, offset: str) -> None:
        self._check()
        self._topic.committed[self.partition] = offset

    async def close(self) -> None:
        self.open = False

    def _check(self) -> None:
        assert self.open
        if self._topic.away:
            raise BridgeUnavailable("the message broker is away")
        self._trouble.may_strike()


class FakeLogSource:
    """A topic as one process reads it."""

    def __init__(self, topic: Topic, pace: Pace, trouble: Trouble | None = None) -> None:
        self._topic = topic
        self._pace = pace
        self._trouble = trouble or Trouble()

    async def partitions(self) -> Sequence[str]:
        if self._topic.away:
            raise BridgeUnavailable("the message broker is away")
        self._trouble.may_strike()
        return list(self._topic.kept)

    async def open(self, partition: str) -> FakeLog:
        self._trouble.may_strike()
        return FakeLog(self._topic, partition, self._pace, self._trouble)

    async def warnings(self) -> Sequence[str]:
        return ("it has one replica: set three",)

    async def close(self) -> None: ...


class Queue:
    """What a message broker has of a queue: each message waits, or somebody holds it."""

    def __init__(self) -> None:
        self.waiting: list[Message] = []
        self.held: dict[str, Message] = {}
        self.received: list[str] = []
        """The ids, in the order in which they were handed out; repeats are in it."""
        self._count = 0

    def put(self, body: object, message_id: str | None, **fields: object) -> None:
        """Append a message."""
        self._count += 1
        raw = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        message = Message(body=raw, id=message_id, place=message_id or "", **fields)  # type: ignore[arg-type]
        self.waiting.append(msgspec.structs.replace(message, after=str(self._count)))


class FakeQueueSource:
    """A queue as one process reads it."""

    def __init__(
        self,
        queue: Queue,
        pace: Pace,
        trouble: Trouble | None = None,
        *,
        shuffle: Callable[[list[Message]], None] | None = None,
    ) -> None:
        self._queue = queue
        self._pace = pace
        self._trouble = trouble or Trouble()
        self._shuffle = shuffle
        self._mine: set[str] = set()
        self.names_messages = True

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        until = self._pace.now() + timeout
        while True:
            self._trouble.may_strike()
            if self._shuffle is not None:
                self._shuffle(self._queue.waiting)
            found = self._queue.waiting[:limit]
            if found or self._pace.now() >= until:
                break
            await self._pace.sleep(POLL)
        del self._queue.waiting[: len(found)]
        self._queue.held.update({each.after: each for each in found})
        self._queue.received.extend(each.id or "" for each in found)
        self._mine.update(each.after for each in found)
        return found

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        if self._trouble.strikes():
            await self.give_back(messages)
            raise BridgeUnavailable("the connection broke: they come again")
        for each in messages:
            self._queue.held.pop(each.after, None)

    async def give_back(self, messages: Sequence[Message]) -> None:
        for each in messages:
            if (held := self._queue.held.pop(each.after, None)) is not None:
                self._queue.waiting.append(held)

    async def lag(self) -> int | None:
        return len(self._queue.waiting)

    async def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        await self.give_back([each for key, each in self._queue.held.items() if key in self._mine])
        await asyncio.sleep(0)


class TopicSink:
    """Publishes to a topic, as an idempotent producer does not: what is sent again is there twice."""

    largest = 1_000_000

    def __init__(self, topic: Topic, clock: Callable[[], int] = lambda: time.time_ns() // 1_000) -> None:
        self._topic = topic
        self._clock = clock
        self.closed = False
        self.loses = 0
        """Answers that are lost, although the messages were taken."""
        self.published = 0

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        assert not self.closed
        if self._topic.away:
            raise BridgeUnavailable("the message broker is away")
        names = sorted(self._topic.kept)
        for each in messages:
            partition = names[sum(each.key.encode()) % len(names)]
            self._topic.put(
                each.body, partition, headers=each.headers, key=each.key, id=each.id, at=self._clock()
            )
        self.published += len(messages)
        if self.loses:
            self.loses -= 1
            raise BridgeUnavailable("the line broke")

    async def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        self.closed = True
