"""What a URL of RabbitMQ's opens."""

from windlass.bridges.addresses import Address
from windlass.bridges.rabbitmq.link import Link
from windlass.bridges.rabbitmq.place import place_of
from windlass.bridges.rabbitmq.sink import RabbitSink
from windlass.bridges.rabbitmq.source import RabbitQueue
from windlass.errors import InvalidOption


async def open_source(address: Address) -> RabbitQueue:
    """A queue to receive from: `amqp://host/queue`, `amqp://host/vhost/queue`. It connects when asked."""
    place = place_of(address)
    if not place.name:
        raise InvalidOption(f"{address.shown} names no queue, as amqp://host/orders does")
    return RabbitQueue(Link(address, place.vhost), place)


async def open_sink(address: Address) -> RabbitSink:
    """An exchange to publish to, or a queue if there is no exchange of that name. It connects when asked."""
    place = place_of(address)
    if not place.name and not place.key:
        raise InvalidOption(f"{address.shown} names no exchange, as amqp://host/events?key=jobs.dead does")
    return RabbitSink(Link(address, place.vhost), place)
