"""Dedup: what a call under a unique key does when an earlier call holds the key.

A key is unique in (queue, lane, task). It is a record of its own, which outlives the job's.
"""

from enum import StrEnum

from windlass.core.job import Mode
from windlass.core.state import WAITING, State
from windlass.core.units import Micros


class Meeting(StrEnum):
    """What becomes of the later call."""

    CREATE = "create"
    DUPLICATE = "duplicate"
    REPLACE = "replace"
    """The first job keeps its id and takes the newest payload and time."""
    FOLLOW = "follow"
    """A new job, blocked on the running one; it holds the key next."""


def meet(mode: Mode, first: State | None, *, within_window: bool) -> Meeting:
    """Decide by the mode of the later call and the state of the job that holds the key (or None)."""
    if first is None:
        return Meeting.CREATE
    if first in WAITING:
        return Meeting.REPLACE if mode is Mode.REPLACE else Meeting.DUPLICATE
    if first is State.RUNNING:
        return Meeting.FOLLOW if mode is Mode.REPLACE else Meeting.DUPLICATE
    if mode is Mode.REPLACE or not within_window:
        return Meeting.CREATE
    return Meeting.DUPLICATE


def held_until(mode: Mode, window: Micros, accepted_at: Micros, finished_at: Micros) -> Micros:
    """When the key of a finished job is free: `throttle` counts its window from acceptance, the others from
    the end.

    One call per window is what a throttle promises; counted from the end it would be one per window and run.
    """
    if mode is Mode.THROTTLE:
        return max(finished_at, accepted_at + window)
    return finished_at + window
