"""Publishes to streams. A message counts as taken when JetStream has acknowledged it."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from windlass.bridges.addresses import Address
from windlass.bridges.message import Outgoing
from windlass.bridges.nats.advice import of_a_sink
from windlass.bridges.nats.link import ANSWERS_WITHIN, Link
from windlass.bridges.nats.messages import ID
from windlass.bridges.nats.said import (
    TOO_LARGE,
    ApiErrorSaid,
    StreamConfig,
    StreamNames,
    refusal,
    stream_of,
)
from windlass.errors import BridgeRefused, BridgeUnavailable

_STREAM: Final = "Nats-Expected-Stream"
_AT_ONCE: Final = 1_000
"""Messages that are on their way at a time: a stream refuses what it has no room for to wait."""
_BYTES_AT_ONCE: Final = 8 << 20
_HEADERS: Final = 4_096
"""Bytes of the largest message that are left for headers."""


class _Answer(msgspec.Struct):
    error: ApiErrorSaid | None = None


_NOBODY: Final = ApiErrorSaid(description="nobody is there")
"""No stream takes the subject, or the one that does has no leader."""
_STRANGE: Final = ApiErrorSaid(description="the answer is none of JetStream's")


class StreamSink:
    """Publishes to one stream, or to whichever takes a subject."""

    def __init__(self, link: Link, stream: str, address: Address) -> None:
        self._link = link
        self._stream = stream
        self._address = address
        self._subject = address.options.get("subject", "")
        self._largest = 0
        self._line: _Line | None = None

    async def begin(self) -> None:
        """Look at the stream."""
        most = (await self._link.client()).max_payload
        if self._stream:
            config = (await stream_of(self._link, self._stream)).config
            if config.no_ack:
                raise BridgeRefused(f"{self._link.shown} acknowledges nothing (no_ack): set it to false")
            self._subject = self._subject or _only(config)
            most = min(most, config.max_msg_size) if config.max_msg_size > 0 else most
        self._largest = max(most - _HEADERS, 1)

    @property
    def largest(self) -> int:
        """See `windlass.bridges.sink`."""
        return self._largest

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        """See `windlass.bridges.sink`."""
        refused: list[int] = []
        why = ""
        for first, some in _pieces(messages):
            for number, problem in await self._piece(some):
                refused.append(first + number)
                why = problem
        if refused:
            raise BridgeRefused(f"{self._link.shown}: {why}", tuple(refused))

    async def warnings(self) -> Sequence[str]:
        """See `windlass.bridges.sink`."""
        stream = self._stream
        if not stream and self._subject:
            names = await self._link.told("STREAM.NAMES", StreamNames, {"subject": self._subject})
            stream = next(iter(names.streams or ()), "")
        return await of_a_sink(await stream_of(self._link, stream), self._address) if stream else ()

    async def close(self) -> None:
        """See `windlass.bridges.sink`."""
        await self._link.close()

    async def _piece(self, messages: Sequence[Outgoing]) -> list[tuple[int, str]]:
        """Send some, and wait for all; those that will never be taken, and why."""
        line = await self._current()
        waits: list[asyncio.Future[ApiErrorSaid | None]] = []
        refused: list[tuple[int, str]] = []
        try:
            async with self._link.troubles():
                for number, message in enumerate(messages):
                    try:
                        waits.append(await self._send(line, message))
                    except _Unfit as unfit:
                        refused.append((number, str(unfit)))
                        waits.append(_nothing())
                async with asyncio.timeout(ANSWERS_WITHIN):
                    await self._link.unless_lost(asyncio.wait(waits))
        finally:
            line.forget(waits)
        for number, wait in enumerate(waits):
            answer = wait.result()
            if answer is _NOBODY:
                await self._explain(self._to(messages[number]))
            elif answer is not None and answer.err_code in TOO_LARGE:
                refused.append((number, answer.description))
            elif answer is not None:
                raise refusal(self._link.shown, answer.raised())
        return refused

    async def _send(self, line: "_Line", message: Outgoing) -> "asyncio.Future[ApiErrorSaid | None]":
        headers = {**message.headers, ID: message.id, **({_STREAM: self._stream} if self._stream else {})}
        body = message.body or b""
        size = len(body) + sum(len(name) + len(value) + 4 for name, value in headers.items()) + 16
        if size > line.client.max_payload:
            raise _Unfit(f"a message of {size:,} bytes is larger than max_payload of its server")
        try:
            return await line.send(self._to(message), body, headers)
        except (nats.errors.BadSubjectError, nats.errors.BadHeaderError, nats.errors.MaxPayloadError) as bad:
            raise _Unfit(str(bad).removeprefix("nats: ")) from None

    def _to(self, message: Outgoing) -> str:
        subject = message.to or self._subject
        if not subject:
            raise BridgeRefused(
                f"{self._link.shown} has no subject that is its only one: name one with subject="
            )
        if not {"*", ">", ""}.isdisjoint(subject.split(".")):
            raise _Unfit(f"{subject!r} is no subject: it has an empty word, or one that stands for others")
        return subject

    async def _explain(self, subject: str) -> None:
        """Why nobody took a message: no stream is for its subject, or that one cannot at the moment."""
        names = await self._link.told("STREAM.NAMES", StreamNames, {"subject": subject})
        if not names.streams:
            raise BridgeRefused(f"{self._link.shown}: no stream takes the subject {subject!r}")
        raise BridgeUnavailable(f"{self._link.shown}: the stream {names.streams[0]} has no leader")

    async def _current(self) -> "_Line":
        """Where acknowledgements come to, on the connection of this moment."""
        client = await self._link.client()
        if self._line is None or self._line.client is not client:
            line = _Line(client)
            await line.begin(self._link)
            self._line = line
        return self._line


class _Unfit(Exception):
    """A message that will never be taken."""


class _Line:
    """The acknowledgements of one connection."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._inbox = client.new_inbox()
        self._waits: dict[str, asyncio.Future[ApiErrorSaid | None]] = {}
        self._sent = 0

    async def begin(self, link: Link) -> None:
        """Listen."""
        await link.listen(self.client, f"{self._inbox}.*", self._come)

    async def send(
        self, subject: str, body: bytes, headers: dict[str, str]
    ) -> "asyncio.Future[ApiErrorSaid | None]":
        """Publish a message; its answer is still to come."""
        self._sent += 1
        reply = f"{self._inbox}.{self._sent}"
        answer = asyncio.get_running_loop().create_future()
        self._waits[reply] = answer
        try:
            await self.client.publish(subject, body, reply=reply, headers=headers)
        except BaseException:
            del self._waits[reply]
            raise
        return answer

    def forget(self, waits: "Sequence[asyncio.Future[ApiErrorSaid | None]]") -> None:
        """Wait no more for those that were not answered."""
        gone = set(waits)
        self._waits = {reply: wait for reply, wait in self._waits.items() if wait not in gone}

    async def _come(self, message: Msg) -> None:
        answer = self._waits.pop(message.subject, None)
        if answer is None or answer.done():
            return
        if (message.headers or {}).get("Status") is not None:
            answer.set_result(_NOBODY)
            return
        try:
            answer.set_result(msgspec.json.decode(message.data, type=_Answer).error)
        except msgspec.MsgspecError:
            answer.set_result(_STRANGE)


def _nothing() -> "asyncio.Future[ApiErrorSaid | None]":
    done = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def _only(config: StreamConfig) -> str:
    """The subject of a stream that has one."""
    subject = config.subjects[0] if len(config.subjects) == 1 else ""
    return "" if "*" in subject or ">" in subject else subject


def _pieces(messages: Sequence[Outgoing]) -> Iterator[tuple[int, Sequence[Outgoing]]]:
    """So many as may be on their way at a time, and the place of the first."""
    first = size = 0
    for number, message in enumerate(messages):
        more = len(message.body or b"")
        if number > first and (number - first == _AT_ONCE or size + more > _BYTES_AT_ONCE):
            yield first, messages[first:number]
            first, size = number, 0
        size += more
    if first < len(messages):
        yield first, messages[first:]
