"""Alerts: when a queue, a task, an intake or a relay is in trouble, and when it is out of it again. Pure.

An alert is raised when one of its values passes its threshold, and cleared when all of them are at or below
`clear` percent of theirs. In between it stays as it is, so that a value that wavers around a threshold does
not raise it again and again.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from windlass.core.bridging import NOTHING, Bridging, is_unread, lag_of, stopped_in, why_stopped
from windlass.core.query import Counts
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.core.webhook import check_target
from windlass.errors import InvalidOption, UnreadablePayload

CLEAR = 80


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Thresholds for one queue, or with None for all of them together, and of those for one task, or for all;
    or for one intake or relay, or with None for each of them.
    """

    queue: str | None = None
    task: str | None = None
    intake: str | None = None
    relay: str | None = None
    depth: int | None = None
    """Ready jobs."""
    oldest: Micros | None = None
    """How long the longest-waiting ready job has been due."""
    dead: int | None = None
    """Dead letters."""
    lag: int | None = None
    """Messages that wait for an intake in its message broker."""
    behind: Micros | None = None
    """The age of what a relay reads."""
    stopped: bool = False
    """Raised while an intake waits for an operator, or nobody runs an intake or a relay."""
    clear: int = CLEAR
    """Percent of a threshold at which it counts as passed no longer."""
    webhook: str | None = None
    """Whom to tell when it is raised, and when it is cleared."""


class AlertState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an alert is raised, since when and why: what the store keeps between two looks."""

    raised: bool = False
    since: Micros = 0
    why: str = ""


def check_alert(alert: Alert) -> Alert:
    """Refuse what has no meaning."""
    thresholds = {name: getattr(alert, name) for name in _THRESHOLDS}
    said = [name for name, value in thresholds.items() if value is not None and value is not False]
    if not said:
        raise InvalidOption(f"an alert needs a threshold: {', '.join(_THRESHOLDS)}")
    for name in said:
        if thresholds[name] < 0:
            raise InvalidOption(f"{name} must not be negative, got {thresholds[name]}")
    _check_named(alert, said)
    if not 0 <= alert.clear <= 100:
        raise InvalidOption(f"clear must be from 0 to 100 percent, got {alert.clear}")
    if alert.webhook is not None:
        check_target(alert.webhook, name="webhook")
    return alert


_THRESHOLDS = ("depth", "oldest", "dead", "lag", "behind", "stopped")
_OF: Mapping[str, tuple[str, ...]] = {
    "queue": ("depth", "oldest", "dead"),
    "task": ("depth", "dead"),
    "intake": ("lag", "stopped"),
    "relay": ("behind", "stopped"),
}


def _check_named(alert: Alert, said: Sequence[str]) -> None:
    """An alert that names what it is about has thresholds of that alone."""
    named = [name for name in _OF if getattr(alert, name) is not None]
    if len(named) > 1 and named != ["queue", "task"]:
        raise InvalidOption(f"an alert is about one thing; this names {' and '.join(named)}: make two of it")
    for name in named:
        if strange := [each for each in said if each not in _OF[name]]:
            raise InvalidOption(f"{strange[0]} says nothing of one {name}; it has {', '.join(_OF[name])}")


def looks_at_bridges(alert: Alert) -> bool:
    """Whether it has to be known how intakes and relays go."""
    return alert.lag is not None or alert.behind is not None or alert.stopped


def values(alert: Alert, counts: Counts) -> Mapping[str, int]:
    """What an alert looks at of queues, of those thresholds that it has."""
    rows = [row for row in counts.rows if alert.queue in (None, row.queue) and alert.task in (None, row.task)]
    oldest = [age for queue, age in counts.oldest.items() if alert.queue in (None, queue)]
    found = {
        "depth": sum(row.count for row in rows if row.state is State.READY),
        "oldest": max(oldest, default=0),
        "dead": sum(row.count for row in rows if row.state is State.DEAD),
    }
    return {name: value for name, value in found.items() if getattr(alert, name) is not None}


def judged(
    alert: Alert, counts: Counts, before: AlertState, now: Micros, bridging: Bridging = NOTHING
) -> AlertState:
    """The state of an alert by what there is now."""
    seen = values(alert, counts)
    limits = {name: getattr(alert, name) for name in seen}
    over = [
        _said(name, value, limits[name], alert.task) for name, value in seen.items() if value > limits[name]
    ]
    calm = all(value * 100 <= limits[name] * alert.clear for name, value in seen.items())
    for value, limit, why in _of_bridges(alert, bridging, now):
        if value > limit:
            over.append(why)
        calm = calm and value * 100 <= limit * alert.clear
    if over:
        return AlertState(raised=True, since=before.since if before.raised else now, why=", ".join(over))
    if before.raised and not calm:
        return before
    return AlertState(raised=False, since=now if before.raised else before.since)


def _of_bridges(alert: Alert, bridging: Bridging, now: Micros) -> Iterator[tuple[int, int, str]]:
    """What an alert looks at of intakes and relays: each value, its threshold, and what is said of it."""
    if not looks_at_bridges(alert):
        return
    for name, status in bridging.intakes.items():
        if alert.relay is None and alert.intake in (None, name):
            if alert.lag is not None:
                lag = lag_of(status) or 0
                yield lag, alert.lag, f'intake "{name}" is {lag:,} messages behind (over {alert.lag:,})'
            if alert.stopped:
                yield stopped_in(status, now), 0, f'intake "{name}" {why_stopped(status)}'
    for name, reading in bridging.relays.items():
        if alert.intake is None and alert.relay in (None, name):
            if alert.behind is not None:
                behind = reading.behind or 0
                said = f"{behind / SECOND:,.0f} s behind (over {alert.behind / SECOND:,.0f} s)"
                yield behind, alert.behind, f'relay "{name}" is {said}'
            if alert.stopped:
                yield int(is_unread(reading, now)), 0, f'relay "{name}" is run by nobody'


def encode_alert(alert: Alert) -> bytes:
    """The bytes that a store keeps."""
    return msgspec.json.encode(alert, order="deterministic")


def decode_alert(document: bytes) -> Alert:
    """The alert that a store kept; `UnreadablePayload` if this code cannot read it."""
    try:
        return msgspec.json.decode(document, type=Alert)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadablePayload(f"an alert is not readable: {error}") from None


def decode_state(document: bytes | None) -> AlertState:
    """How an alert stood; what cannot be read counts as never looked at."""
    try:
        return AlertState() if document is None else msgspec.json.decode(document, type=AlertState)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return AlertState()


def _said(name: str, value: int, threshold: int, task: str | None) -> str:
    if name == "oldest":
        return f"the oldest job has waited {value / SECOND:,.0f} s (over {threshold / SECOND:,.0f} s)"
    what = "ready jobs" if name == "depth" else "dead letters"
    of = "" if task is None else f" of task {task}"
    return f"{value:,} {what}{of} (over {threshold:,})"
