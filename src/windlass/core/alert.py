"""Alerts: when a queue, or a task, is in trouble, and when it is out of it again. Pure.

An alert is raised when one of its values passes its threshold, and cleared when all of them are at or below
`clear` percent of theirs. In between it stays as it is, so that a value that wavers around a threshold does
not raise it again and again.
"""

from collections.abc import Mapping

import msgspec

from windlass.core.query import Counts
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.core.webhook import check_target
from windlass.errors import InvalidOption, UnreadablePayload

CLEAR = 80


class Alert(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Thresholds for one queue, or with None for all of them together; of one task's jobs, or of all."""

    queue: str | None = None
    task: str | None = None
    depth: int | None = None
    """Ready jobs."""
    oldest: Micros | None = None
    """How long the longest-waiting ready job has been due."""
    dead: int | None = None
    """Dead letters."""
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
    thresholds = {"depth": alert.depth, "oldest": alert.oldest, "dead": alert.dead}
    if all(value is None for value in thresholds.values()):
        raise InvalidOption("an alert needs a threshold: depth, oldest or dead")
    for name, value in thresholds.items():
        if value is not None and value < 0:
            raise InvalidOption(f"{name} must not be negative, got {value}")
    if alert.task is not None and alert.oldest is not None:
        raise InvalidOption(
            "oldest is told by queue, not by task: give the queue of the task, or depth or dead for the task"
        )
    if not 0 <= alert.clear <= 100:
        raise InvalidOption(f"clear must be from 0 to 100 percent, got {alert.clear}")
    if alert.webhook is not None:
        check_target(alert.webhook, name="webhook")
    return alert


def values(alert: Alert, counts: Counts) -> Mapping[str, int]:
    """What an alert looks at, of those thresholds that it has."""
    rows = [row for row in counts.rows if alert.queue in (None, row.queue) and alert.task in (None, row.task)]
    oldest = [age for queue, age in counts.oldest.items() if alert.queue in (None, queue)]
    found = {
        "depth": sum(row.count for row in rows if row.state is State.READY),
        "oldest": max(oldest, default=0),
        "dead": sum(row.count for row in rows if row.state is State.DEAD),
    }
    return {name: value for name, value in found.items() if getattr(alert, name) is not None}


def judged(alert: Alert, counts: Counts, before: AlertState, now: Micros) -> AlertState:
    """The state of an alert by what there is now."""
    seen = values(alert, counts)
    over = [name for name, value in seen.items() if value > getattr(alert, name)]
    if over:
        why = ", ".join(_said(name, seen[name], getattr(alert, name), alert.task) for name in over)
        return AlertState(raised=True, since=before.since if before.raised else now, why=why)
    calm = all(value * 100 <= getattr(alert, name) * alert.clear for name, value in seen.items())
    if before.raised and not calm:
        return before
    return AlertState(raised=False, since=now if before.raised else before.since)


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
