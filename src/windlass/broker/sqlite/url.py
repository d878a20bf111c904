"""`sqlite:///relative/path` and `sqlite:////absolute/path`, with options behind a question mark."""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from windlass.broker.sqlite.store import LOCK_TIMEOUT
from windlass.errors import InvalidOption

_FORMS = "write sqlite:///relative/path or sqlite:////absolute/path"


class Location(NamedTuple):
    """What a URL says."""

    path: Path
    lock_timeout: float = LOCK_TIMEOUT
    """Seconds that a verb waits for other processes to let it write."""


def read_url(url: str) -> Location:
    """Read a URL, or say what is wrong with it."""
    parts = urlsplit(url)
    if parts.netloc:
        raise InvalidOption(f'a SQLite URL names no host, got "{parts.hostname}"; {_FORMS}')
    path = unquote(parts.path.removeprefix("/"))
    if not path or "\0" in path or parts.fragment:
        raise InvalidOption(f"a SQLite URL names a file; {_FORMS}")
    lock_timeout = LOCK_TIMEOUT
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name != "lock_timeout":
            raise InvalidOption(f'a SQLite URL has no option "{name}"; it has lock_timeout')
        lock_timeout = _seconds(value)
    return Location(Path(path), lock_timeout)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 86_400:
        raise InvalidOption(f'lock_timeout must be seconds from more than 0 to 86,400, not "{value}"')
    return seconds
