"""What operators are told of a stream's settings, and of its server's if they say where that is looked at."""

import asyncio
import http.client
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from windlass.bridges.addresses import Address
from windlass.bridges.nats.said import ConsumerInfo, StreamInfo
from windlass.errors import InvalidOption

SECOND: Final = 10**9
"""In nanoseconds, as JetStream writes durations."""
_SHORTEST_WINDOW: Final = 10
"""Seconds for which who publishes sends the same message again: `resend_window`, unless set otherwise."""
_FEW: Final = 3
"""Replicas that outlive the loss of one."""
_LOOKS_FOR: Final = 3.0


async def of_a_log(stream: StreamInfo, address: Address) -> Sequence[str]:
    """Of a stream that is read as a log."""
    return [*_dropped(stream), *_kept(stream), *await _server(stream, address)]


async def of_a_queue(stream: StreamInfo, consumer: ConsumerInfo, address: Address) -> Sequence[str]:
    """Of a stream that is read as a queue, and of its consumer."""
    return [*_dropped(stream), *_consumer(consumer), *_kept(stream), *await _server(stream, address)]


async def of_a_sink(stream: StreamInfo, address: Address) -> Sequence[str]:
    """Of a stream that is published to."""
    window = stream.config.duplicate_window
    short = f"it tells repeats for {window / SECOND:g} s only: what is sent again later is there twice"
    advice = [f"{short}; set duplicate_window to {_SHORTEST_WINDOW} s or more"]
    return [
        *(advice if window < _SHORTEST_WINDOW * SECOND else ()),
        *_kept(stream),
        *await _server(stream, address),
    ]


def _dropped(stream: StreamInfo) -> Iterator[str]:
    """Messages may go before they are read."""
    config = stream.config
    limits = [
        f"{name}={limit}"
        for name, limit in (("max_msgs", config.max_msgs), ("max_bytes", config.max_bytes))
        if limit > 0
    ]
    if config.discard == "old" and limits:
        yield (
            f"when {' or '.join(limits)} is reached, its oldest messages are dropped, read or not: set "
            "discard=new, so that producers are refused instead"
        )
    if config.max_age > 0:
        yield (
            f"messages are dropped after {config.max_age / SECOND:g} s, read or not: max_age has to be "
            "longer than any outage"
        )
    if config.max_msgs_per_subject > 0:
        yield (
            f"of a subject it keeps {config.max_msgs_per_subject} messages: earlier ones are dropped, read "
            "or not, and nothing tells so; set max_msgs_per_subject to -1"
        )
    if config.allow_msg_ttl:
        yield "producers may limit how long a message is kept: it is dropped then, read or not"


def _kept(stream: StreamInfo) -> Iterator[str]:
    """Messages may go with a machine."""
    config = stream.config
    if config.storage != "file":
        yield "it keeps messages in memory: they go with its servers; set storage=file"
    if config.num_replicas < _FEW:
        one = "one replica" if config.num_replicas == 1 else f"{config.num_replicas} replicas"
        yield (
            f"it has {one}: while a server is away nothing is read or published, and messages go with a lost "
            f"disk; set num_replicas={_FEW}"
        )


def _consumer(consumer: ConsumerInfo) -> Iterator[str]:
    config = consumer.config
    if config.max_deliver > 0:
        yield (
            f'its consumer "{consumer.name}" delivers a message {config.max_deliver} times at the most, and '
            "each try while the store is away counts: set max_deliver to -1"
        )
    if config.ack_wait < SECOND:
        yield (
            f'its consumer "{consumer.name}" gives a message to others after {config.ack_wait / SECOND:g} s: '
            "set ack_wait to 30 s"
        )


class _JetStream(msgspec.Struct):
    sync_interval: int = 0
    sync_always: bool = False


class _Monitored(msgspec.Struct):
    config: _JetStream | None = None


async def _server(stream: StreamInfo, address: Address) -> Sequence[str]:
    """When the server brings messages to the disk. Its clients are not told: its monitoring page is asked."""
    page = address.options.get("monitor")
    if page is None or stream.config.storage != "file":
        return ()
    try:
        said = await asyncio.to_thread(_look, page)
    except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
        return [f"its monitoring page {page} cannot be read: {error}; set monitor= to the address of one"]
    if said is None or said.sync_always:
        return ()
    told = (
        f"its server brings what it has acknowledged to the disk every {said.sync_interval / SECOND:g} s: a "
        "power cut takes the rest; set jetstream { sync_interval: always }"
    )
    return [told]


def check_page(address: Address) -> None:
    """Refuse what cannot be the address of a monitoring page."""
    page = address.options.get("monitor")
    parts = urlsplit(page or "http://host")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidOption(f"{address.shown}: monitor={page} is no address such as http://host:8222")


def _look(page: str) -> _JetStream | None:
    """The settings of the server whose monitoring is there."""
    parts = urlsplit(page)
    assert parts.hostname is not None, "checked when it was opened"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    link = kind(parts.hostname, parts.port, timeout=_LOOKS_FOR)
    try:
        link.request("GET", f"{parts.path.rstrip('/')}/jsz?config=true")
        return msgspec.json.decode(link.getresponse().read(), type=_Monitored).config
    finally:
        link.close()
