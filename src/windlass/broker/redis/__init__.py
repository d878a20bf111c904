"""The fast store: Redis 6.2 or later, and Valkey (`redis://`, `rediss://`, `unix://`, Sentinel, Cluster).

Every verb is one Lua script, called in one round trip: `lua/verbs` has a file per verb, `lua/parts` what
they share, `scripts.py` links them. A namespace is a fixed set of keys in one hash slot; queues, lanes,
sessions and jobs are fields and members of them. Scripts read and decide on tables, then write.

An enqueue goes `broker.py` → `verbs.py` (what is sent, with `encoding.py`, and how the answer is read, with
`decoding.py` and `records.py`) → `store.py` → `wire.py` or `blocking.py` (the carriers, for event loops and
for threads) → `conversation.py` (what answers of a server mean) → `connections.py` (the driver).
`listener.py` hears of wakes and ends. `url.py`, `complaints.py`, `namespaces.py`, `durability.py`, `acl.py`
and `codes.py` are what they are called.
"""

from windlass.broker.redis.broker import RedisBroker
from windlass.broker.redis.url import SCHEMES, read_url

__all__ = ["SCHEMES", "RedisBroker", "read_url"]
