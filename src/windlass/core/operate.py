"""What operators do to jobs: by id, with the state they expect."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from windlass.core.state import State
from windlass.core.units import JobId


class Target(msgspec.Struct, frozen=True):
    """A job, and the state in which the operator saw it (None: whatever it is in)."""

    job: JobId
    expect: State | None = None


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a waiting or dead job; None leaves one as it is."""

    job: JobId
    expect: State | None = None
    payload: bytes | None = None
    headers: Mapping[str, str] | None = None
    tags: tuple[str, ...] | None = None
    priority: int | None = None
    max_attempts: int | None = None


class Effect(StrEnum):
    """What an operation did to a job."""

    APPLIED = "applied"
    FLAGGED = "flagged"
    """It is running: its worker was asked to stop it."""
    WRONG_STATE = "wrong state"
    NOT_FOUND = "not found"
    CONFLICT = "conflict"
    """Another job stands in the way: it holds the unique key, or it has not ended and needs this one."""


class Operated(msgspec.Struct, frozen=True):
    """The answer for one job, with the state it is in now (None: no record)."""

    job: JobId
    effect: Effect
    state: State | None = None
    by: JobId | None = None
    """With conflict: who holds the key; None if it is needed."""


class Purged(msgspec.Struct, frozen=True):
    """What a purge step did."""

    count: int
    more: bool
