"""`postgres://user:password@host:port/database`, with options behind a question mark.

What the driver knows (`host`, `sslmode`, `passfile`, server settings …) goes on to it; `connections`,
`pooler` and `wake` are ours.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from windlass.errors import InvalidOption

CONNECTIONS: Final = 4
_MOST_PORT: Final = 65_535
_PORT: Final = re.compile(r":(\d+)(?=,|$)")


class Location(NamedTuple):
    """What a URL says."""

    dsn: str
    connections: int = CONNECTIONS
    """At the most, per process."""
    pooled: bool = False
    """Whether a pooler in transaction mode stands between: then nothing may outlast a transaction, not even a
    prepared statement.
    """
    wake: bool = True
    """Whether idle workers listen to the server; otherwise they look now and then."""

    @property
    def listens(self) -> bool:
        """Whether a connection is set apart for listening: that needs a session, and two others for calls."""
        return self.wake and not self.pooled and self.connections > 2


def read_url(url: str) -> Location:
    """Read a URL, or say what is wrong with it. The rest of it may carry a password, so it is never shown."""
    parts = urlsplit(url)
    if any(not 1 <= int(port) <= _MOST_PORT for port in _PORT.findall(parts.netloc.rpartition("@")[2])):
        raise InvalidOption(f"the URL of PostgreSQL cannot be used: the port must be from 1 to {_MOST_PORT}")
    kept: list[tuple[str, str]] = []
    connections, pooled, wake = CONNECTIONS, False, True
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "connections":
            connections = _connections(value)
        elif name == "pooler":
            pooled = _pooled(value)
        elif name == "wake":
            wake = _wake(value)
        else:
            kept.append((name, value))
    query = urlencode(kept, quote_via=quote)  # libpq takes a plus sign for one
    return Location(urlunsplit(parts._replace(query=query)), connections, pooled, wake)


def _connections(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= CONNECTIONS:
        raise InvalidOption(f'connections must be from 1 to {CONNECTIONS}, not "{value}"')
    return int(value)


def _pooled(value: str) -> bool:
    if value not in ("none", "transaction"):
        raise InvalidOption(f'pooler must be "none" or "transaction", not "{value}"')
    return value == "transaction"


def _wake(value: str) -> bool:
    if value not in ("notify", "poll"):
        raise InvalidOption(f'wake must be "notify" or "poll", not "{value}"')
    return value == "notify"
