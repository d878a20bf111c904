"""Asks a consumer for messages: first for those that are there, then for the next one.

The client's own `fetch` waits its whole time out when there are fewer messages than were asked for. So this
asks as the protocol of JetStream has it: a request names an inbox of its own, to which come the messages and,
if there are fewer, a word that says so.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from windlass.bridges.nats.link import ANSWERS_WITHIN, Link
from windlass.errors import BridgeRefused, BridgeUnavailable

_MOST_BYTES = 16 << 20
"""Of what is asked for at once."""
_HEARTBEAT = "100"
_NO_CONSUMER = "503"
_NEVER = ("Exceeded Max", "push based")
"""A consumer of an operator's own lets nobody ask for so much, or ask at all."""


class StreamPosition(NamedTuple):
    """Where a message stands, as its reply subject says."""

    sequence: int
    """In the stream."""
    number: int
    """Among those that the consumer has delivered."""
    time: int
    """Nanoseconds since 1970, when the stream took it."""
    behind: int
    """How many messages are there for the consumer behind it."""


class ConsumerGone(BridgeUnavailable):
    """There is no such consumer any more."""


class Pulling:
    """One connection's requests to one consumer. One task asks at a time."""

    def __init__(self, link: Link, client: Client, stream: str, consumer: str) -> None:
        self._link = link
        self.client = client
        self._consumer = consumer
        self._asks_at = f"{link.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._subscription: Subscription | None = None
        self._arrived: list[Msg] = []
        self._requests = 0
        self._wanted = 0
        self._answered: asyncio.Future[str] | None = None

    async def begin(self) -> None:
        """Listen for what will come."""
        self._subscription = await self._link.listen(self.client, f"{self._inbox}.*", self._come)

    async def pull(self, limit: int, timeout: float) -> Sequence[Msg]:
        """Up to `limit` messages: those that are there, else the next one within `timeout` seconds and what
        has come with it. What had come when it was cancelled comes first.
        """
        if len(self._arrived) < limit:
            await self._ask(limit - len(self._arrived), None)
        if not self._arrived and timeout > 0:
            await self._ask(1, timeout)
            if self._arrived and limit > 1 and place_of(self._arrived[0]).behind:
                await self._ask(limit - 1, None)
        found, self._arrived = self._arrived[:limit], self._arrived[limit:]
        return found

    async def end(self) -> Sequence[Msg]:
        """Listen no more; what has come and was not handed out."""
        if self._subscription is not None and not self.client.is_closed:
            async with self._link.troubles():
                await self._subscription.unsubscribe()
        left, self._arrived = self._arrived, []
        return left

    async def _ask(self, batch: int, timeout: float | None) -> None:
        """One request, until it is answered in full."""
        self._requests += 1
        self._wanted = batch
        self._answered = answered = asyncio.get_running_loop().create_future()
        asked: dict[str, object] = {"batch": batch, "max_bytes": self._bytes}
        asked.update({"no_wait": True} if timeout is None else {"expires": int(timeout * 1e9)})
        async with self._link.troubles():
            body, reply = msgspec.json.encode(asked), f"{self._inbox}.{self._requests}"
            await self.client.publish(self._asks_at, body, reply=reply)
            async with asyncio.timeout((timeout or 0) + ANSWERS_WITHIN):
                status = await self._link.unless_lost(answered)
        if status.startswith(_NO_CONSUMER):
            raise ConsumerGone(f"{self._link.shown}: nobody answers for the consumer {self._consumer}")
        if any(why in status for why in _NEVER):
            # An empty answer would look as if nothing waited.
            raise BridgeRefused(f'{self._link.shown}: the consumer "{self._consumer}": {status}')

    @property
    def _bytes(self) -> int:
        """At least one message of any size has to fit: else nothing would ever come."""
        return max(_MOST_BYTES, 2 * self.client.max_payload)

    async def _come(self, message: Msg) -> None:
        """A message, or the word that there are no more for a request."""
        answered = self._answered
        if message.reply.startswith("$JS.ACK."):
            self._arrived.append(message)
            self._wanted -= 1
            if self._wanted == 0 and answered is not None and not answered.done():
                answered.set_result("")
        elif (
            message.subject == f"{self._inbox}.{self._requests}"
            and answered is not None
            and not answered.done()
        ):
            headers = message.headers or {}
            status = headers.get("Status", "")
            if status != _HEARTBEAT:
                answered.set_result(f"{status} {headers.get('Description', '')}")


def place_of(message: Msg) -> StreamPosition:
    """Take its reply subject apart, in its shorter or its longer form:
    `$JS.ACK.<stream>.<consumer>.<tries>.<sequence>.<number>.<time>.<behind>`,
    `$JS.ACK.<domain>.<account>.<stream>.<consumer>.…`.
    """
    parts = message.reply.split(".")
    at = 5 if len(parts) == 9 else 7
    sequence, number, time, behind = (int(part) for part in parts[at : at + 4])
    return StreamPosition(sequence, number, time, behind)
