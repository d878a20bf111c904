"""Dedup: what a call under a unique key does when an earlier call holds the key.

A key is unique in (queue, lane, task). It is a record of its own, which outlives the job's.
"""

from enum import StrEnum

from windlass.core.job import Mode
from windlass.core.state import WAITING, State
from windlass.core.units import Micros


class KeyRuling(StrEnum):
    """What becomes of the later call."""

    CREATE = "create"
    DUPLICATE = "duplicate"
    REPLACE = "replace"
    """The first job keeps its id and takes the newest payload and time."""
    FOLLOW = "follow"
    """A new job, blocked on the running one; it holds the key next."""


def rule_key(mode: Mode, holder: State | None, *, within_window: bool) -> KeyRuling:
    """Decide by the mode of the later call and the state of the job that holds the key (or None)."""
    if holder is None:
        return KeyRuling.CREATE
    if holder in WAITING:
        return KeyRuling.REPLACE if mode is Mode.REPLACE else KeyRuling.DUPLICATE
    if holder is State.RUNNING:
        return KeyRuling.FOLLOW if mode is Mode.REPLACE else KeyRuling.DUPLICATE
    if mode is Mode.REPLACE or not within_window:
        return KeyRuling.CREATE
    return KeyRuling.DUPLICATE


def held_until(mode: Mode, window: Micros, accepted_at: Micros, finished_at: Micros) -> Micros:
    """When the key of a finished job is free: `throttle` counts its window from acceptance, the others from
    the end.

    A throttle promises one call per window. If the window began at the end of the run, there would be one
    call per window plus run time.
    """
    if mode is Mode.THROTTLE:
        return max(finished_at, accepted_at + window)
    return finished_at + window
