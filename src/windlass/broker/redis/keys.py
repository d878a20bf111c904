"""The keys of a namespace: a fixed set in one hash slot, declared by every script as in `parts/store.lua`."""

from typing import Final

HASHES: Final = (
    "meta",
    "set",
    "head",
    "body",
    "past",
    "fifo",
    "lane",
    "key",
    "sess",
    "gone",
    "count",
    "log",
)
LEXSETS: Final = ("ready", "ring", "lease", "link", "time", "names")
BY_SCORE: Final = ("arrived",)


def prefix(namespace: str) -> str:
    """What every key and channel of a namespace begins with. The braces make it one slot of a cluster."""
    return f"windlass:{{{namespace}}}:"


def keys(namespace: str) -> tuple[bytes, ...]:
    """The keys, in the order in which scripts know them."""
    return tuple(f"{prefix(namespace)}{name}".encode() for name in HASHES + LEXSETS + BY_SCORE)


def ends_channel(namespace: str) -> bytes:
    """Where the ids of jobs that end are published, while anybody listens."""
    return f"{prefix(namespace)}ends".encode()


def waiter_channel(namespace: str, name: str) -> bytes:
    """Where one process is told of wakes."""
    return f"{prefix(namespace)}wake:{name}".encode()
