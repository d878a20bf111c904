"""The rights that a user of the server needs at least, as ACL rules."""

from typing import Final

from windlass.broker.redis.keys import prefix

_SCRIPTS: Final = ("eval", "evalsha", "time")
_HASHES: Final = ("hget", "hmget", "hset", "hsetnx", "hdel", "hexists", "hincrby", "hgetall")
_SETS: Final = ("zadd", "zrem", "zrangebylex", "zrevrangebylex", "zrevrangebyscore", "zlexcount", "zscore")
_CHANNELS: Final = ("publish", "subscribe", "pubsub")
_CONNECTION: Final = ("ping", "select", "info", "client|setname")
COMMANDS: Final = (*_SCRIPTS, *_HASHES, *_SETS, *_CHANNELS, *_CONNECTION)
"""With `wait` for `?wait=`, `cluster|slots` on a cluster, and `config|get` so that `doctor` can tell how the
server syncs its file; `sadd` and `smembers` on `windlass:namespaces` to be listed there (`namespaces.py`).
"""


def rules(namespace: str, *more: str) -> tuple[str, ...]:
    """The rules of an `ACL SETUSER`, except for its password."""
    place = f"{prefix(namespace)}*"
    # In a pattern a brace stands for itself.
    return (
        "on",
        "resetkeys",
        f"~{place}",
        "resetchannels",
        f"&{place}",
        "-@all",
        *(f"+{c}" for c in (*COMMANDS, *more)),
    )
