"""Where history is kept, as a URL names it.

sqlite:///history.db               a file; beside the store's own, not in it
postgresql://user@host/database    tables called windlass_history_…
clickhouse://user@host/database    the same tables; clickhouses:// by TLS
…?keep=90d                         for how long; 30 days unless said

Another package may bring a sink: an entry point of the group `windlass.history`, named as its URLs begin.
"""

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from windlass.core.duration import micros
from windlass.core.units import DAY, Micros
from windlass.errors import InvalidOption
from windlass.plugins import brings

KEPT: Micros = 30 * DAY
GROUP = "windlass.history"
"""The entry points of sinks that other packages bring."""
CLICKHOUSE = ("clickhouse", "clickhouses")
POSTGRES = ("postgres", "postgresql")


class HistoryUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A sink's URL, read. It may hold a password: not to be shown."""

    scheme: str
    url: str
    """Without what is ours."""
    path: str = ""
    """Of a file."""
    keep: Micros = KEPT

    def __repr__(self) -> str:
        return f"<history in {self.scheme}:>"


def read_url(url: str) -> HistoryUrl:
    """Read a URL; `InvalidOption` says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("sqlite", *POSTGRES, *CLICKHOUSE) and not brings(GROUP, parts.scheme):
        raise InvalidOption(
            "history is kept in sqlite:///history.db, postgresql://host/database or "
            "clickhouse://host/database, "
            f'not in a URL that starts with "{parts.scheme}:"'
        )
    if parts.scheme == "sqlite" and (parts.netloc or len(parts.path) < 2):
        raise InvalidOption(
            "a history file is named by sqlite:///history.db or, from the root, sqlite:////var/lib/history.db"
        )
    given = dict(parse_qsl(parts.query))
    keep = micros(given.pop("keep", KEPT / 1_000_000), name="keep")
    if not keep:
        raise InvalidOption('keep says for how long history is kept, such as "30d"')
    if parts.scheme in CLICKHOUSE and given:
        raise InvalidOption(f'history in ClickHouse has the option "keep", not "{min(given)}"')
    return HistoryUrl(
        scheme=parts.scheme,
        url=urlunsplit(parts._replace(query=urlencode(given))),
        path=unquote(parts.path[1:]) if parts.scheme == "sqlite" else "",
        keep=keep,
    )


def check_history_url(url: str) -> str:
    """Refuse a URL that names no place for history."""
    read_url(url)
    return url
