"""Opens streams for intakes, and for relays and front doors."""

from windlass.bridges.addresses import Address
from windlass.bridges.nats.advice import check_page
from windlass.bridges.nats.link import LINK_OPTIONS, Link
from windlass.bridges.nats.log import StreamSource
from windlass.bridges.nats.queue import WorkQueue
from windlass.bridges.nats.said import stream_of
from windlass.bridges.nats.sink import StreamSink
from windlass.bridges.source import LogSource, QueueSource
from windlass.core.option import shown
from windlass.errors import InvalidOption

_OF_A_QUEUE = ("consumer", "subject")
_SPECIAL = ".*>/\\"
"""Letters with a meaning of their own in the subjects by which JetStream is asked."""


async def open_source(address: Address) -> LogSource | QueueSource:
    """A stream: a queue, if it forgets what was acknowledged, else a log."""
    address.refuse_unknown(*LINK_OPTIONS, *_OF_A_QUEUE)
    stream = _stream(address)
    if not stream:
        raise InvalidOption(f"{address.shown} names no stream: nats://host:4222/STREAM")
    check_page(address)
    link = Link(address)
    try:
        info = await stream_of(link, stream)
        if info.config.retention == "limits":
            return _log(link, stream, address)
        queue = WorkQueue(link, stream, address)
        await queue.begin()
    except BaseException:
        await link.close()
        raise
    return queue


def _log(link: Link, stream: str, address: Address) -> StreamSource:
    if strange := [name for name in _OF_A_QUEUE if name in address.options]:
        raise InvalidOption(
            f"{address.shown} is a log, which is read whole, without {strange[0]}=; make a stream that "
            "sources a part of it"
        )
    return StreamSource(link, stream, address)


async def open_sink(address: Address) -> StreamSink:
    """What publishes to a stream, or to whichever stream takes a subject."""
    # "key" is where a relay has its subject from.
    address.refuse_unknown(*LINK_OPTIONS, "subject", "key")
    check_page(address)
    link = Link(address)
    sink = StreamSink(link, _stream(address), address)
    try:
        await sink.begin()
    except BaseException:
        await link.close()
        raise
    return sink


def _stream(address: Address) -> str:
    if len(address.path) > 1:
        raise InvalidOption(f"{address.shown} names more than a stream: nats://host:4222/STREAM")
    stream = address.path[0] if address.path else ""
    for what, name in (("stream", stream), ("consumer", address.options.get("consumer", ""))):
        if any(letter in _SPECIAL or letter.isspace() for letter in name):
            raise InvalidOption(f"{address.shown}: {shown(name)} cannot be the name of a {what}")
    return stream
