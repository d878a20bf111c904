"""A stream as a log. An offset is the number of the next message; behind an @ is the time of the one before.

The time tells a stream that has lost messages and given their numbers to others: a server that did not bring
them to the disk, or a copy of yesterday. Messages that were deleted one by one are passed over. What a purge,
or the stream's limits, have removed before it was read is a reason to stop.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from windlass.bridges.addresses import Address
from windlass.bridges.message import Message
from windlass.bridges.nats.advice import of_a_log
from windlass.bridges.nats.link import Link
from windlass.bridges.nats.messages import message_of
from windlass.bridges.nats.pulling import ConsumerGone, Pulling, StreamPosition, place_of
from windlass.bridges.nats.said import (
    NO_MESSAGE,
    ApiError,
    ConsumerInfo,
    KeptMessage,
    StreamInfo,
    nanoseconds,
    refusal,
    stream_of,
)
from windlass.errors import BridgeError, BridgeRefused, InvalidOption, SourceReplaced

_FORGOTTEN_AFTER = 60 * 10**9
"""Nanoseconds without a request after which the server forgets our consumer; another one is made then."""


class StreamSource:
    """The one log of a stream."""

    def __init__(self, link: Link, stream: str, address: Address) -> None:
        self._link = link
        self._stream = stream
        self._address = address

    async def partitions(self) -> Sequence[str]:
        """See `windlass.bridges.source`. There is one, called as the stream."""
        return ((await stream_of(self._link, self._stream)).config.name,)

    async def open(self, partition: str) -> "StreamLog":
        """See `windlass.bridges.source`."""
        if partition != self._stream:
            raise BridgeRefused(f'{self._link.shown}: a stream has no partitions, such as "{partition}"')
        return StreamLog(self._link, await stream_of(self._link, self._stream))

    async def warnings(self) -> Sequence[str]:
        """See `windlass.bridges.source`."""
        return await of_a_log(await stream_of(self._link, self._stream), self._address)

    async def close(self) -> None:
        """See `windlass.bridges.source`."""
        await self._link.close()


class _Offset(NamedTuple):
    sequence: int
    before: int | None
    """When the stream took the message before it; None: not known."""

    def __str__(self) -> str:
        return str(self.sequence) if self.before is None else f"{self.sequence}@{self.before}"


class StreamLog:
    """A stream that is read from an offset on."""

    def __init__(self, link: Link, info: StreamInfo) -> None:
        self._link = link
        self.partition = self._name = info.config.name
        self.identity = info.identity
        self._reader: _Reader | None = None

    async def begin(self, *, at_end: bool) -> str:
        """See `windlass.bridges.source`."""
        info = await self._info()
        return str(info.state.last_seq + 1 if at_end else info.state.first)

    async def read(self, offset: str, limit: int, timeout: float) -> Sequence[Message]:
        """See `windlass.bridges.source`."""
        at = _offset(offset)
        try:
            reader = await self._reader_at(at)
            try:
                arrived = await reader.pulling.pull(limit, timeout)
            except ConsumerGone:
                # It was forgotten while nobody asked, or has died with its server.
                await self._drop()
                reader = await self._reader_at(at)
                arrived = await reader.pulling.pull(limit, timeout)
            messages = await self._checked(reader, at, arrived)
        except BaseException:
            # What was on its way to us would be missing from what comes next.
            if self._reader is not None:
                self._reader.spoiled = True
            raise
        return messages

    async def passed(self, offset: str) -> str:
        """See `windlass.bridges.source`. A reader sees whatever a stream has."""
        return offset

    async def lag(self, offset: str) -> int | None:
        """See `windlass.bridges.source`."""
        return max(0, (await self._info()).state.last_seq + 1 - _offset(offset).sequence)

    async def commit(self, offset: str) -> None:
        """A stream has no place for it: consumers that acknowledge are for queues."""

    async def close(self) -> None:
        """See `windlass.bridges.source`."""
        try:
            await self._drop()
        except BridgeError:
            self._reader = None  # the server forgets it by itself

    async def _info(self) -> StreamInfo:
        info = await stream_of(self._link, self._name)
        if info.identity != self.identity:
            raise self._replaced("it was deleted and made anew")
        return info

    async def _reader_at(self, at: _Offset) -> "_Reader":
        """The reader that stands at an offset; a new one if there is none on this connection."""
        client = await self._link.client()
        reader = self._reader
        if reader is not None and reader.stands_at(at.sequence, client):
            return reader
        await self._drop()
        self._is_there(await self._info(), at.sequence)
        await self._check_before(at)
        asked = {
            "stream_name": self._name,
            "config": {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": at.sequence,
                "ack_policy": "none",
                "replay_policy": "instant",
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": _FORGOTTEN_AFTER,
            },
        }
        made = await self._link.told(f"CONSUMER.CREATE.{self._name}", ConsumerInfo, asked)
        self._reader = reader = _Reader(Pulling(self._link, client, self._name, made.name), made.name, at)
        await reader.pulling.begin()
        return reader

    async def _drop(self) -> None:
        """Leave the consumer that we have."""
        reader, self._reader = self._reader, None
        if reader is not None and not reader.pulling.client.is_closed:
            await reader.pulling.end()
            try:
                await self._link.ask(f"CONSUMER.DELETE.{self._name}.{reader.consumer}", _Deleted)
            except ApiError:
                return  # it is gone already

    async def _check_before(self, at: _Offset) -> None:
        """Whether the message before an offset is still the one that was taken."""
        if at.before is None:
            return
        try:
            kept = await self._link.ask(f"STREAM.MSG.GET.{self._name}", KeptMessage, {"seq": at.sequence - 1})
        except ApiError as error:
            if error.number != NO_MESSAGE:
                raise refusal(self._link.shown, error) from error
            return  # it was deleted meanwhile, which is fine
        if nanoseconds(kept.message.time) != at.before:
            raise self._replaced(f"message {at.sequence - 1} is another one than the one that was taken")

    async def _checked(self, reader: "_Reader", at: _Offset, arrived: Sequence[Msg]) -> Sequence[Message]:
        """What arrived as messages, up to the first place where some are missing that nobody deleted."""
        places = [place_of(each) for each in arrived]
        first = None
        if not arrived or places[-1].sequence - at.sequence >= len(arrived):
            first = self._is_there(await self._info(), at.sequence, stop=not arrived)
        found: list[Message] = []
        for said, place in zip(arrived, places, strict=True):
            goes_on = reader.goes_on(place) and (
                first is None or place.sequence == reader.next or first <= reader.next
            )
            if not goes_on:
                reader.spoiled = True
                if not found and first is not None and first > reader.next:
                    raise self._passed(reader.next, first)
                break
            reader.took(place)
            after = str(_Offset(place.sequence + 1, place.time))
            found.append(message_of(said, place, stream=self._name, after=after))
        return found

    def _is_there(self, info: StreamInfo, sequence: int, *, stop: bool = True) -> int:
        """Whether the stream has an offset: the number of the oldest message that it keeps."""
        state = info.state
        if sequence > state.last_seq + 1:
            raise self._replaced(f"it ends with message {state.last_seq}, and {sequence} was to be the next")
        if stop and sequence < state.first:
            raise self._passed(sequence, state.first)
        return state.first

    def _passed(self, sequence: int, first: int) -> SourceReplaced:
        return self._replaced(
            f"it begins with message {first}, and {sequence} was to be the next: a purge or its limits have "
            "removed what was not taken"
        )

    def _replaced(self, why: str) -> SourceReplaced:
        return SourceReplaced(
            f"{self._link.shown} is not as it was left: {why}; say where to go on: windlass intakes move"
        )


class _Deleted(msgspec.Struct):
    """Nothing of it is needed."""


class _Reader:
    """A consumer of ours, and how far it has delivered."""

    def __init__(self, pulling: Pulling, consumer: str, at: _Offset) -> None:
        self.pulling = pulling
        self.consumer = consumer
        self.next = at.sequence
        self.spoiled = False
        """It may have delivered what nobody has seen."""
        self._number = 0

    def stands_at(self, sequence: int, client: Client) -> bool:
        """Whether it delivers next what was asked for."""
        return not self.spoiled and self.next == sequence and self.pulling.client is client

    def goes_on(self, place: StreamPosition) -> bool:
        """Whether nothing was lost between the consumer and us."""
        return place.number == self._number + 1 and place.sequence >= self.next

    def took(self, place: StreamPosition) -> None:
        """Note what is handed out."""
        self._number, self.next = place.number, place.sequence + 1


def _offset(text: str) -> _Offset:
    sequence, at, before = text.partition("@")
    if not sequence.isdecimal() or int(sequence) < 1 or (at and not before.isdecimal()):
        raise InvalidOption(f"{text!r} is no offset of a stream: it is the number of a message, from 1 on")
    return _Offset(int(sequence), int(before) if at else None)
