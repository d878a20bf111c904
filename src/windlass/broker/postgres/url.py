"""`postgres://user:password@host:port/database`, with options behind a question mark.

What the driver knows (`host`, `sslmode`, `passfile`, server settings …) goes on to it; `connections` and
`pooler` are ours.
"""

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from windlass.errors import InvalidOption

CONNECTIONS: Final = 4


class Place(NamedTuple):
    """What a URL says."""

    dsn: str
    connections: int = CONNECTIONS
    """At the most, per process."""
    pooled: bool = False
    """Whether a pooler in transaction mode stands between: then nothing may outlast a transaction, not even a
    prepared statement.
    """


def read_url(url: str) -> Place:
    """Read a URL, or say what is wrong with it. The rest of it may carry a password, so it is never shown."""
    parts = urlsplit(url)
    kept: list[tuple[str, str]] = []
    connections, pooled = CONNECTIONS, False
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "connections":
            connections = _connections(value)
        elif name == "pooler":
            pooled = _pooled(value)
        else:
            kept.append((name, value))
    return Place(urlunsplit(parts._replace(query=urlencode(kept))), connections, pooled)


def _connections(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= CONNECTIONS:
        raise InvalidOption(f'connections must be from 1 to {CONNECTIONS}, not "{value}"')
    return int(value)


def _pooled(value: str) -> bool:
    if value not in ("none", "transaction"):
        raise InvalidOption(f'pooler must be "none" or "transaction", not "{value}"')
    return value == "transaction"
