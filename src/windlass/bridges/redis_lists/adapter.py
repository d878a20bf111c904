"""What a URL of a list of Redis's opens: `redis://host:6379/0?list=celery`."""

from windlass.bridges.addresses import Address
from windlass.bridges.redis_lists.link import Link
from windlass.bridges.redis_lists.place import place_of
from windlass.bridges.redis_lists.sink import RedisSink
from windlass.bridges.redis_lists.source import RedisQueue


async def open_source(address: Address) -> RedisQueue:
    """A list to receive from. It connects when asked."""
    place = place_of(address)
    return RedisQueue(Link(address, place), place)


async def open_sink(address: Address) -> RedisSink:
    """A list to put messages into. It connects when asked."""
    place = place_of(address)
    return RedisSink(Link(address, place), place)
