"""The fast store: Redis 6.2 or later, and Valkey (`redis://`, `rediss://`, `unix://`, Sentinel, Cluster).

Every verb is one Lua script (`lua/`), called in one round trip. A namespace is a fixed set of keys in one
hash slot; queues, lanes, sessions and jobs are fields and members of them. Scripts read and decide on tables,
then write. In Python: `verbs.py` (what is sent and how answers are read, with `encoding.py`, `decoding.py`,
`records.py`, `policies.py`), `conversation.py` (what answers of a server mean), both pure; `wire.py` and
`blocking.py` (the two transports), `ear.py` (wakes and ends), `side.py` (both of one loop, closed with it),
`connections.py` and `url.py` (topologies), `complaints.py` (errors in words), `namespaces.py` (those of a
server), `durability.py`, `store.py` and `broker.py`.
"""

from windlass.broker.redis.broker import RedisBroker
from windlass.broker.redis.url import SCHEMES, read_url

__all__ = ["SCHEMES", "RedisBroker", "read_url"]
