"""What a URL says: where the server is, how to reach it, and what an enqueue waits for.

    redis://user:password@host:6379/0            rediss://… with TLS         unix:///run/redis.sock?db=0
    redis+sentinel://h1:26379,h2:26379/name/0    the primary that Sentinel names (rediss+sentinel:// with TLS)
    redis+cluster://h1:7000,h2:7000              one namespace is one slot (rediss+cluster:// with TLS)

Options: `timeout` (seconds for an answer), `wait` (replicas that confirm an enqueue), and those of redis-py
(`ssl_ca_certs`, `db`, …).
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis import connection

from windlass.errors import InvalidOption

SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
TIMEOUT: Final = 5.0
_DATABASE: Final = re.compile(r"/?|/[0-9]{1,9}/?", re.ASCII)
"""The driver would take any other path for database 0."""
Address = tuple[str, int]


class Location(NamedTuple):
    """Where a namespace is kept."""

    kind: str
    """direct, sentinel or cluster"""
    options: Mapping[str, Any]
    """For redis-py's connections; host and port of a direct one included."""
    nodes: tuple[Address, ...] = ()
    """Sentinels, or nodes of a cluster to ask first."""
    primary: str = ""
    """The name that Sentinel knows the primary by."""
    timeout: float = TIMEOUT
    wait: int = 0
    tls: bool = False


def read_url(url: str) -> Location:
    """Read a URL. Errors never show it: it may carry a password."""
    try:
        return _read(url)
    except (ValueError, KeyError) as error:
        raise InvalidOption(f"the Redis URL is not understood: {_harmless(error)}") from None


def _harmless(error: Exception) -> str:
    # A message of the standard library may quote the part it could not read, and that may be a password.
    return str(error) if isinstance(error, InvalidOption) else "check host, port and options"


def _read(url: str) -> Location:
    parts = urlsplit(url)
    scheme, _, kind = parts.scheme.partition("+")
    options = dict(parse_qsl(parts.query))
    timeout, wait = float(options.pop("timeout", TIMEOUT)), int(options.pop("wait", 0))
    if wait < 0 or timeout <= 0:
        raise InvalidOption("timeout must be positive and wait not negative")
    if not kind:
        if scheme != "unix" and not _DATABASE.fullmatch(parts.path):
            raise InvalidOption(
                "the path of a Redis URL is the number of a database, such as redis://host:6379/0"
            )
        said = _parsed(f"{url.partition('?')[0]}?{urlencode(options)}")
        if scheme == "unix":
            said["unix"] = True
        return Location("direct", {**said}, timeout=timeout, wait=wait, tls=scheme == "rediss")
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    said = _parsed(f"{scheme}://localhost?{urlencode(options)}")
    for own in ("host", "port"):
        said.pop(own, None)
    if name:
        said["username"] = unquote(name)
    if password:
        said["password"] = unquote(password)
    primary, _, db = parts.path.strip("/").partition("/")
    if kind == "sentinel":
        if not primary:
            raise InvalidOption(
                "redis+sentinel:// needs the name of the primary: redis+sentinel://host:26379/name"
            )
        said["db"] = int(db or 0)
    return Location(
        kind,
        {**said},
        nodes=tuple(_address(host, 26379 if kind == "sentinel" else 6379) for host in hosts.split(",")),
        primary=primary,
        timeout=timeout,
        wait=wait,
        tls=scheme == "rediss",
    )


def _parsed(url: str) -> dict[str, Any]:
    said: dict[str, Any] = cast("Any", connection).parse_url(url)
    said.pop("connection_class", None)
    return said


def _address(text: str, port: int) -> Address:
    parts = urlsplit(f"//{text}")
    return parts.hostname or "localhost", parts.port or port
