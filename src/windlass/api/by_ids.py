"""Doing something to jobs by their ids: to those in the caller's sight, and on record."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.admin.audit import LONGEST_REASON
from windlass.api.desk import Desk
from windlass.api.problems import field, invalid
from windlass.core.bounds import CALL_ITEMS
from windlass.core.ids import check_job_id
from windlass.core.operate import Effect, Operated
from windlass.core.units import JobId

_DETAILS = 100

Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]


class Ids(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, by their ids; up to 1,000."""

    ids: list[str]
    reason: Reason = ""
    """Why, for the record (`/v1/audit`)."""


async def each(
    desk: Desk, asked: Ids, what: str, verb: Callable[[Sequence[str]], AsyncIterator[Sequence[Operated]]]
) -> list[Operated]:
    """Do it to those in sight; the others are not found. What became of each, in order."""
    if not 1 <= len(asked.ids) <= CALL_ITEMS:
        raise invalid(f"give 1 to {CALL_ITEMS:,} ids, not {len(asked.ids):,}", field="ids")
    with field("ids"):
        wanted = list(dict.fromkeys(check_job_id(job) for job in asked.ids))
    seen = await _in_sight(desk, wanted)
    answers: dict[JobId, Operated] = {job: Operated(job, Effect.NOT_FOUND) for job in wanted}
    if seen:
        async for batch in verb(seen):
            answers.update({answer.job: answer for answer in batch})
    done = sum(answer.effect in (Effect.APPLIED, Effect.FLAGGED) for answer in answers.values())
    await desk.record(what, {"ids": f"{len(wanted):,}"}, jobs=done, wanted=len(wanted), reason=asked.reason)
    return list(answers.values())


async def _in_sight(desk: Desk, ids: Sequence[JobId]) -> list[JobId]:
    if not desk.caller.is_bound:
        return list(ids)
    found: list[JobId] = []
    for start in range(0, len(ids), _DETAILS):
        jobs = await desk.broker.get(ids[start : start + _DETAILS])
        found += [job.id for job in jobs if job is not None and desk.sees(job)]
    return found
