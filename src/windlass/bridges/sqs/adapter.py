"""Opens queues for intakes, and for relays and front doors."""

from windlass.bridges.addresses import Address
from windlass.bridges.sqs.link import LINK_OPTIONS, Link
from windlass.bridges.sqs.queue import Queue
from windlass.bridges.sqs.sink import QueueSink
from windlass.core.option import shown
from windlass.errors import InvalidOption

_LONGEST_VISIBILITY = 43_200


async def open_source(address: Address) -> Queue:
    """A queue."""
    address.refuse_unknown(*LINK_OPTIONS, "visibility")
    name = _queue(address)
    if not name:
        raise InvalidOption(f"{address.shown} names no queue: sqs://region/queue")
    visibility = _visibility(address)
    link = Link(address)
    try:
        return Queue(link, name, await link.url_of(name), visibility)
    except BaseException:
        await link.close()
        raise


async def open_sink(address: Address) -> QueueSink:
    """What sends to a queue, or to those that messages name."""
    # "key" is where a relay has its queue from; "visibility" is of the source of a front door.
    address.refuse_unknown(*LINK_OPTIONS, "key", "visibility")
    link = Link(address)
    sink = QueueSink(link, _queue(address))
    try:
        await sink.begin()
    except BaseException:
        await link.close()
        raise
    return sink


def _queue(address: Address) -> str:
    if len(address.path) > 1:
        raise InvalidOption(f"{address.shown} names more than a queue: sqs://region/queue")
    return address.path[0] if address.path else ""


def _visibility(address: Address) -> int | None:
    said = address.options.get("visibility")
    if said is None:
        return None
    if not said.isdecimal() or not 1 <= int(said) <= _LONGEST_VISIBILITY:
        raise InvalidOption(
            f"visibility={shown(said)} must be whole seconds, from 1 to {_LONGEST_VISIBILITY:,}"
        )
    return int(said)
