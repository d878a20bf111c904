"""Which objects are of no use any more: a pure decision about the objects of one job.

    a payload    its job is not known any more, or has another payload by now
    a result     it is not the result of its job (a stale worker put it, or one that died before it told the
                 store), or its time is over

Whatever is younger than the safe age stays: its job may be about to be enqueued or settled. While a job is
known, its result stays as long as the store has the reference; with a retention of its own (`values_kept`) at
least that long, and then which result it was is written beside it before the store forgets it.
"""

from collections.abc import Sequence

import msgspec

from windlass.core.codec import is_reference
from windlass.core.job import JobDetail
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, SECOND, Fence, Micros
from windlass.values.bucket import Stored

SAFE: Micros = DAY
"""An object is not removed before this age."""
SAFE_BEHIND_A_FRONT: Micros = 30 * DAY
"""Nor this one, for the payload of a job that may still wait in a message broker."""
MARGIN: Micros = HOUR


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How long objects stay."""

    safe: Micros = SAFE
    safe_payload: Micros = SAFE
    """For payloads of unknown jobs."""
    kept: Micros | None = None
    """For results, at least; None: as long as the store keeps them."""


def rules_for(*, resend_window: Micros, has_front: bool, kept: Micros | None) -> Rules:
    """Those of an app."""
    safe = max(SAFE, resend_window + MARGIN)
    return Rules(safe=safe, safe_payload=SAFE_BEHIND_A_FRONT if has_front else safe, kept=kept)


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done about the objects of a job."""

    remove: tuple[str, ...] = ()
    keep: Fence | None = None
    """Write beside the results that this is the one."""


def judge_payload(stored: Stored, job: JobDetail | None, now: Micros, rules: Rules) -> Judged:
    """Judge the payload of a job; None: the store has no record of it."""
    age = now - _micros(stored)
    if job is None:
        return Judged(remove=(stored.key,) if age > rules.safe_payload else ())
    in_use = not job.pruned and is_reference(job.payload)
    return Judged(remove=() if in_use or age <= rules.safe else (stored.key,))


def judge_results(
    found: Sequence[Stored], job: JobDetail | None, marked: Fence | None, now: Micros, rules: Rules
) -> Judged:
    """Judge all results of a job. `marked` is the result that was its own, if that is written beside them."""
    is_done = job is not None and job.state is State.DONE
    fence = job.fence if job is not None and is_done else marked
    referred = job is not None and is_done and job.result is not None and is_reference(job.result)
    remove: list[str] = []
    stays: set[str] = set()
    for stored in found:
        name, age = stored.key.rpartition("/")[2], now - _micros(stored)
        if stored.is_mark:
            continue
        lasts = name == f"{fence}" and (referred or (rules.kept is not None and age <= rules.kept))
        if lasts or age <= rules.safe or _may_be_settled(job, name):
            stays.add(name)
        else:
            remove.append(stored.key)
    if not stays:
        # The mark goes first: without it the rest is removed all the same, should this end in between.
        remove = [stored.key for stored in found if stored.is_mark] + remove
    keeps = rules.kept is not None and is_done and marked is None and f"{fence}" in stays
    return Judged(remove=tuple(remove), keep=fence if keeps else None)


def _may_be_settled(job: JobDetail | None, fence: str) -> bool:
    """Whether a run under this fence may still be settled: it is, or was a moment ago, the job's last."""
    return job is not None and job.state is State.RUNNING and f"{job.fence}" == fence


def _micros(stored: Stored) -> Micros:
    return int(stored.at.timestamp() * SECOND)
