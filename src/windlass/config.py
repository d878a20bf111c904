"""Settings of an application: keywords of `Windlass(...)`, else environment variables, else defaults.

`session_ttl=20` and `WINDLASS_SESSION_TTL=20s` say the same. Durations are seconds or text such as "24h".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, cast

import msgspec

from windlass.bridges.addresses import address_of
from windlass.broker.contract import Options
from windlass.broker.registry import check_url
from windlass.core.address import allowed
from windlass.core.codec import MAX_PAYLOAD
from windlass.core.duration import Duration, micros
from windlass.core.names import check_namespace
from windlass.core.option import shown, whole
from windlass.core.private import check_patterns
from windlass.core.session import SESSION_TTL
from windlass.core.settings import Retention
from windlass.core.units import HOUR, MAX_INTEGER, MILLISECOND, SECOND, Micros
from windlass.errors import InvalidOption
from windlass.observe.archive.archive import check_archive_url, in_history
from windlass.observe.history.place import check_history_url
from windlass.values.configured import ValueSettings
from windlass.values.place import check_values_url

DEFAULT_URL = "sqlite:///windlass.db"
PREFIX = "WINDLASS_"
FRONT_MEMORY: Micros = HOUR
"""For how long the id of a job that came through a front door is known after its end, at least. Two messages
of one job were sent within the resend window; so long may pass between the takes of both.
"""
EVENTS_KEPT = Options().events_kept
EVENTS_KEPT_FOR_RELAYS = 1_000_000
"""So many ends may come while a relay's message broker is away: a hundred a second for almost three hours."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What an application runs with. Times in microseconds; None: the store's own default."""

    url: str = DEFAULT_URL
    namespace: str = "windlass"
    beat: Micros = 5 * SECOND
    session_ttl: Micros = SESSION_TTL
    sweep: Micros = 250 * MILLISECOND
    poll_floor: Micros = SECOND
    visibility: Micros = 30 * SECOND
    grace: Micros = 30 * SECOND
    retention: Micros | None = None
    result_ttl: Micros | None = None
    dead_retention: Micros | None = None
    resend_window: Micros = 10 * SECOND
    max_payload: int = MAX_PAYLOAD
    max_size: int | None = None
    front: str | None = None
    """The message broker that jobs are sent through, as a URL; None: they are sent to the store."""
    events_kept: int | None = None
    """Of the event log; None: `EVENTS_KEPT`, and `EVENTS_KEPT_FOR_RELAYS` where a relay is declared."""
    history: str | None = None
    """Where finished attempts are kept, as a URL; see `windlass.observe.history`."""
    archive: str | None = None
    """Where the traces of dead letters go that are removed, as a URL; see `windlass.observe.archive`."""
    private_patterns: tuple[str, ...] = ()
    """What is masked by how it looks, wherever jobs are shown or told of; see `windlass.core.private`."""
    values: str | None = None
    """Where large payloads and results are kept, as a URL; see `windlass.values`."""
    values_over: int = 64 * 1024
    """Bytes of a payload or a result from which on it is kept there."""
    values_kept: Micros | None = None
    """For how long results are kept there at least; None: as long as the store keeps them."""
    max_value: int = 64 * 1024 * 1024
    """The limit, in bytes, of a payload or a result that is kept there."""
    webhooks: bool = False
    """Whether others are told of the ends of jobs and of alerts; see `windlass.worker.webhooks`."""
    webhook_allow: tuple[str, ...] = ()
    """Networks and hosts that may be told although they are not on the public Internet."""

    def __repr__(self) -> str:
        """Without the URL, which may carry a password."""
        return f"<Config of {self.url.partition(':')[0]}:, namespace {self.namespace}>"

    @property
    def largest(self) -> int:
        """The limit, in bytes, of a payload or a result, wherever it is kept."""
        return self.max_payload if self.values is None else max(self.max_payload, self.max_value)

    @property
    def value_settings(self) -> ValueSettings | None:
        """What is said of large values; None: all are kept in the store."""
        if self.values is None:
            return None
        return ValueSettings(
            url=self.values,
            namespace=self.namespace,
            over=min(self.values_over, self.max_payload),
            most_inside=self.max_payload,
            kept=self.values_kept,
        )

    def broker_options(self) -> Options:
        """What the broker is opened with."""
        said = {
            name: value
            for name in ("retention", "result_ttl", "dead_retention")
            if (value := getattr(self, name)) is not None
        }
        return Options(
            namespace=self.namespace,
            session_ttl=self.session_ttl,
            resend_window=max(self.resend_window, 0 if self.front is None else FRONT_MEMORY),
            retention=Retention(**said) if said else None,
            max_size=self.max_size,
            events_kept=EVENTS_KEPT if self.events_kept is None else self.events_kept,
        )


class Settings(TypedDict, total=False):
    """What `Windlass(...)` takes besides its URL; None stands for "not given"."""

    namespace: str | None
    beat: Duration | None
    session_ttl: Duration | None
    sweep: Duration | None
    poll_floor: Duration | None
    visibility: Duration | None
    grace: Duration | None
    retention: Duration | None
    result_ttl: Duration | None
    dead_retention: Duration | None
    resend_window: Duration | None
    max_payload: int | None
    max_size: int | None
    front: str | None
    events_kept: int | None
    history: str | None
    archive: str | None
    private_patterns: Sequence[str] | str | None
    values: str | None
    values_over: int | None
    values_kept: Duration | None
    max_value: int | None
    webhooks: bool | None
    webhook_allow: Sequence[str] | str | None


_DURATIONS = frozenset(
    (
        "beat",
        "session_ttl",
        "sweep",
        "poll_floor",
        "visibility",
        "grace",
        "retention",
        "result_ttl",
        "dead_retention",
        "resend_window",
        "values_kept",
    )
)
_SIZES = {
    "max_payload": 8 * MAX_PAYLOAD,
    "max_size": MAX_INTEGER,
    "events_kept": 100_000_000,
    "values_over": 8 * MAX_PAYLOAD,
    "max_value": 1024 * MAX_PAYLOAD,
}


def _check_front(url: str) -> str:
    address_of(url)
    return url


_TEXTS = {
    "url": check_url,
    "namespace": check_namespace,
    "front": _check_front,
    "history": check_history_url,
    "archive": check_archive_url,
    "values": check_values_url,
}
_MAY_BE_NOTHING = frozenset(("grace", "retention", "result_ttl", "dead_retention"))


def configure(given: Mapping[str, object], environment: Mapping[str, str]) -> Config:
    """Read the settings; a keyword wins over its variable. `None` stands for "not given"."""
    values: dict[str, object] = {}
    for name in Config.__struct_fields__:
        variable = PREFIX + name.upper()
        if given.get(name) is not None:
            values[name] = _read(name, given[name], called=name)
        elif variable in environment:
            values[name] = _read(name, environment[variable], called=variable)
    config = Config(**values)  # pyright: ignore[reportArgumentType]
    if config.session_ttl < 2 * config.beat:
        raise InvalidOption(
            f"session_ttl ({config.session_ttl / SECOND:g} s) must be at least "
            f"two beats ({config.beat / SECOND:g} s each)"
        )
    if config.archive is not None and in_history(config.archive) and config.history is None:
        raise InvalidOption(
            'archive="history" needs a history: set history= (WINDLASS_HISTORY), or name a file, such as '
            "file:///var/lib/shop/dead.jsonl, or object storage"
        )
    return config


def _read(name: str, value: object, *, called: str) -> object:
    if value == "":
        raise InvalidOption(f"{called} is empty; give it a value, or leave it out")
    if name in _DURATIONS:
        return _duration(value, called, may_be_nothing=name in _MAY_BE_NOTHING)
    if name in _SIZES:
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        return whole(number, name=called, least=1, most=_SIZES[name])
    if name == "webhooks":
        return _flag(value, called)
    if name in _LISTS:
        return _LISTS[name](_entries(value, called))
    if not isinstance(value, str):
        raise InvalidOption(f"{called} must be text, not {shown(value)}")
    try:
        return _TEXTS[name](value)
    except InvalidOption as error:
        raise InvalidOption(f"{called}: {error}") from None
    except ValueError:  # brackets in the wrong place; the URL may carry a password, so it is not shown
        raise InvalidOption(f"{called} is not a URL, such as sqlite:///windlass.db") from None


def _flag(value: object, called: str) -> bool:
    word = value.strip().lower() if isinstance(value, str) else value
    if word is True or word in ("1", "true", "yes", "on"):
        return True
    if word is False or word in ("0", "false", "no", "off"):
        return False
    raise InvalidOption(f"{called} must be true or false, not {shown(value)}")


def _entries(value: object, called: str) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, Sequence):
        raise InvalidOption(f"{called} must be a list of texts, not {shown(value)}")
    entries = tuple(cast("Sequence[object]", given))
    if strangers := [entry for entry in entries if not isinstance(entry, str)]:
        raise InvalidOption(f"{called} must be a list of texts; {shown(strangers[0])} is none")
    return tuple(entry.strip() for entry in cast("tuple[str, ...]", entries))


def _hosts(entries: tuple[str, ...]) -> tuple[str, ...]:
    allowed(entries)
    return entries


_LISTS: Mapping[str, Callable[[tuple[str, ...]], tuple[str, ...]]] = {
    "webhook_allow": _hosts,
    "private_patterns": check_patterns,
}


def _duration(value: object, called: str, *, may_be_nothing: bool) -> Micros:
    read: Duration = value  # pyright: ignore[reportAssignmentType] - micros refuses what is none
    length = micros(read, name=called)
    if length == 0 and not may_be_nothing:
        raise InvalidOption(f"{called} must be longer than nothing")
    return length
