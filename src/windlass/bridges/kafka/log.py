"""A partition."""

from collections.abc import Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaError

from windlass.bridges.kafka.admin import Admin
from windlass.bridges.kafka.failures import UNKNOWN, as_bridge_error
from windlass.bridges.kafka.inbox import Inbox
from windlass.bridges.kafka.offsets import Position, position_of
from windlass.bridges.kafka.pump import Pump
from windlass.bridges.message import Message
from windlass.errors import BridgeError, BridgeRefused, SourceReplaced

_NOT_THERE: Final = frozenset(
    (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION)  # noqa: SLF001
)


class Topics(Protocol):
    """What a partition needs of its source."""

    shown: str
    topic: str
    admin: Admin

    def pump(self) -> Pump:
        """The one that runs."""
        ...

    async def confirm(self, identity: str) -> None:
        """`SourceReplaced`: the topic is another one than was opened."""
        ...

    def is_in_doubt(self) -> bool:
        """Whether it is time to ask whether the topic and its brokers are there."""
        ...

    def commit(self, partition: int, offset: int) -> None:
        """Tell the broker now and then how far a partition was taken."""
        ...


class KafkaLog:
    """A partition of a topic."""

    def __init__(self, source: Topics, partition: int, identity: str) -> None:
        self._source = source
        self._number = partition
        self._identity = identity
        self._pump: Pump | None = None
        self._inbox: Inbox | None = None
        self._at = ""
        """The offset of the first message in the inbox."""
        self._stalls = 0

    @property
    def partition(self) -> str:
        """Its number."""
        return str(self._number)

    @property
    def identity(self) -> str:
        """The id of its topic."""
        return self._identity

    async def begin(self, *, at_end: bool) -> str:
        """As of every log."""
        ends = await self._source.admin.ends(self._source.topic, self._number)
        return str(Position(ends.newest if at_end else ends.oldest))

    async def read(self, offset: str, limit: int, timeout: float) -> Sequence[Message]:
        """As of every log. Messages stay in the inbox until it is known that they are of this topic: who is
        cancelled meanwhile reads them again.
        """
        inbox = self._inbox_at(offset)
        await inbox.filled(timeout)
        messages, error = inbox.first(limit)
        if error is not None:
            self._inbox = None
            raise await self._explained(position_of(offset), error)
        if messages or self._source.is_in_doubt():
            # librdkafka goes over to a topic that was made anew, at the same offset, and says nothing.
            await self._source.confirm(self._identity)
        if messages:
            inbox.drop(len(messages))
            self._at = messages[-1].after
        return messages

    async def passed(self, offset: str) -> str:
        """Behind aborted transactions and control records, once the end of the partition was seen."""
        if self._inbox is None or self._at != offset:
            return offset
        here = position_of(offset).offset
        then = self._inbox.passed(here)
        if then == here:
            return offset
        self._at = str(Position(then))
        return self._at

    async def lag(self, offset: str) -> int | None:
        """Messages, and what nobody must see between them."""
        newest = (await self._source.admin.newest(self._source.topic, [self._number]))[self._number]
        at = position_of(offset).offset
        if self._inbox is not None and self._at == offset:
            at = self._inbox.passed(at)
            self._look_for_a_stall(self._inbox, newest - at)
        return max(0, newest - at)

    async def commit(self, offset: str) -> None:
        """For monitors of consumer groups; about once a second."""
        self._source.commit(self._number, position_of(offset).offset)

    async def close(self) -> None:
        """Fetch it no more."""
        self._inbox = None
        if self._pump is not None and self._pump.is_running:
            self._pump.end(self._number)

    def _look_for_a_stall(self, inbox: Inbox, lag: int) -> None:
        """If twice in a row there are messages and none has come, let fetching begin anew: a client that has
        got stuck looks exactly as a partition without messages.
        """
        if lag <= 0 or not inbox.awaits_its_first:
            self._stalls = 0
            return
        self._stalls += 1
        if self._stalls > 1:
            self._stalls, self._inbox = 0, None

    def _inbox_at(self, offset: str) -> Inbox:
        """What is fetched from an offset on. If that is elsewhere than before, fetching begins anew."""
        pump = self._source.pump()
        if self._inbox is None or self._at != offset or self._pump is not pump:
            self._inbox = pump.begin(self._number, position_of(offset))
            self._pump, self._at = pump, offset
        return self._inbox

    async def _explained(self, position: Position, error: KafkaError) -> BridgeError:
        """Why it cannot be read on from there."""
        source = self._source
        shown = f"{source.shown}, partition {self._number}"
        if error.code() in UNKNOWN or error.code() in _NOT_THERE:
            try:
                await source.confirm(self._identity)
            except BridgeRefused as refusal:
                return refusal
            except SourceReplaced as replaced:
                return replaced
        if error.code() not in _NOT_THERE:
            return as_bridge_error(error, shown)
        ends = await source.admin.ends(source.topic, self._number, uncommitted=True)
        if position.offset < ends.oldest:
            return SourceReplaced(
                f"{shown}: the messages {position.offset} to {ends.oldest - 1} were deleted before they were "
                "taken (retention, or by hand); say where to go on: windlass intakes move"
            )
        # If the client has seen it by itself, it says so in words alone.
        truncated = error.code() == KafkaError._LOG_TRUNCATION or "truncation" in error.str()  # noqa: SLF001
        if position.offset > ends.newest or truncated:
            return SourceReplaced(
                f"{shown}: it has lost messages that were taken, up to {position.offset} (it was truncated); "
                "say where to go on: windlass intakes move"
            )
        return as_bridge_error(error, shown)
