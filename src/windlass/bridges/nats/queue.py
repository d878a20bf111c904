"""A stream that forgets what was acknowledged (retention workqueue or interest), by a durable consumer."""

from collections.abc import Sequence

from nats.aio.msg import Msg

from windlass.bridges.addresses import Address
from windlass.bridges.message import Message
from windlass.bridges.nats.advice import of_a_queue
from windlass.bridges.nats.link import Link
from windlass.bridges.nats.messages import message_of
from windlass.bridges.nats.pulling import ConsumerGone, Pulling, place_of
from windlass.bridges.nats.said import (
    NO_CONSUMER,
    ApiError,
    ConsumerInfo,
    refusal,
    stream_of,
)
from windlass.errors import BridgeError, BridgeRefused

_CONSUMER = "windlass"
_ACK_WAIT = 30 * 10**9
"""Nanoseconds. A message is held for as long as a take lasts, which is milliseconds."""
_IN_FLIGHT = 20_000
"""Messages that all processes together may hold; the server's default of 1,000 would let two of them wait."""
_BACK = b"-NAK"


class WorkQueue:
    """A durable consumer, shared by all who read the queue."""

    names_messages = True
    """Number and time in the stream are the same for every delivery."""

    def __init__(self, link: Link, stream: str, address: Address) -> None:
        self._link = link
        self._address = address
        self._stream = stream
        self._consumer = address.options.get("consumer", _CONSUMER)
        self._filter = address.options.get("subject", "")
        self._pulling: Pulling | None = None
        self._held: set[str] = set()

    async def begin(self) -> None:
        """See whether the consumer can be used; make it if there is none."""
        await self._consumer_there()

    async def receive(self, limit: int, timeout: float) -> Sequence[Message]:
        """See `windlass.bridges.source`."""
        pulling = await self._asking()
        try:
            arrived = await pulling.pull(limit, timeout)
        except ConsumerGone:
            await self._consumer_there()
            arrived = await pulling.pull(limit, timeout)
        self._held.update(each.reply for each in arrived)
        return [self._message(each) for each in arrived]

    def _message(self, said: Msg) -> Message:
        place = place_of(said)
        # With its time: a stream that was made anew, or has lost its end, gives the same numbers to others.
        number = f"{self._stream} {place.sequence} {place.time}"
        return message_of(said, place, stream=self._stream, after=said.reply, otherwise=number)

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """See `windlass.bridges.source`."""
        await self._tell([message.after for message in messages], b"")

    async def give_back(self, messages: Sequence[Message]) -> None:
        """See `windlass.bridges.source`."""
        await self._tell([message.after for message in messages], _BACK)

    async def lag(self) -> int | None:
        """See `windlass.bridges.source`. What somebody holds counts as waiting."""
        info = await self._consumer_there()
        return info.num_pending + info.num_ack_pending

    async def warnings(self) -> Sequence[str]:
        """See `windlass.bridges.source`."""
        stream = await stream_of(self._link, self._stream)
        return await of_a_queue(stream, await self._consumer_there(), self._address)

    async def close(self) -> None:
        """See `windlass.bridges.source`. What is held goes back at once, if the server hears it."""
        try:
            if self._pulling is not None:
                self._held.update(each.reply for each in await self._pulling.end())
            if self._held:
                await self._tell(list(self._held), _BACK)
        except BridgeError:
            self._held.clear()  # it comes again after the consumer's ack_wait
        finally:
            await self._link.close()

    async def _asking(self) -> Pulling:
        client = await self._link.client()
        if self._pulling is None or self._pulling.client is not client:
            await self._consumer_there()
            pulling = Pulling(self._link, client, self._stream, self._consumer)
            await pulling.begin()
            self._pulling = pulling
            # What the connection before has brought would come again after the consumer's ack_wait only.
            await self._tell(list(self._held), _BACK)
        return self._pulling

    async def _tell(self, replies: Sequence[str], word: bytes) -> None:
        """Say a word about messages, and wait until the server has read it."""
        client = await self._link.client()
        async with self._link.troubles():
            for reply in replies:
                await client.publish(reply, word)
        await self._link.flush()
        self._held.difference_update(replies)

    async def _consumer_there(self) -> ConsumerInfo:
        """The consumer; made if there is none. An operator's own is used as it is."""
        try:
            info = await self._link.ask(f"CONSUMER.INFO.{self._stream}.{self._consumer}", ConsumerInfo)
        except ApiError as error:
            if error.number != NO_CONSUMER:
                raise refusal(self._link.shown, error) from error
            return await self._made()
        if info.config.ack_policy != "explicit" or info.config.deliver_subject:
            raise BridgeRefused(
                f'{self._link.shown}: the consumer "{self._consumer}" must be one to pull from, with '
                "explicit acknowledgements; name another with consumer="
            )
        return info

    async def _made(self) -> ConsumerInfo:
        config = {
            "durable_name": self._consumer,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": _ACK_WAIT,
            "max_deliver": -1,
            "max_ack_pending": _IN_FLIGHT,
            "replay_policy": "instant",
            **({"filter_subject": self._filter} if self._filter else {}),
        }
        return await self._link.told(
            f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._consumer}",
            ConsumerInfo,
            {"stream_name": self._stream, "config": config},
        )
