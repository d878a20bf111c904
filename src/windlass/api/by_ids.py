"""Doing something to jobs by their ids: to those in the caller's sight, and on record."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.admin.audit import LONGEST_REASON
from windlass.api.context import Context
from windlass.api.problems import field, invalid
from windlass.core.bounds import CALL_ITEMS
from windlass.core.ids import check_job_id
from windlass.core.operate import Effect, Operated
from windlass.core.units import JobId

Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]


class Ids(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs, by their ids; up to 1,000."""

    ids: list[str]
    reason: Reason = ""
    """Why, for the record (`/v1/audit`)."""


async def each(
    context: Context,
    asked: Ids,
    what: str,
    verb: Callable[[Sequence[str]], AsyncIterator[Sequence[Operated]]],
) -> list[Operated]:
    """Do it to those in sight; the others are not found. What became of each, in order."""
    if not 1 <= len(asked.ids) <= CALL_ITEMS:
        raise invalid(f"give 1 to {CALL_ITEMS:,} ids, not {len(asked.ids):,}", field="ids")
    with field("ids"):
        wanted = list(dict.fromkeys(check_job_id(job) for job in asked.ids))
    seen = await _in_sight(context, wanted)
    answers: dict[JobId, Operated] = {job: Operated(job, Effect.NOT_FOUND) for job in wanted}
    if seen:
        async for batch in verb(seen):
            answers.update({answer.job: answer for answer in batch})
    done = sum(answer.effect in (Effect.APPLIED, Effect.FLAGGED) for answer in answers.values())
    await context.record(
        what, {"ids": f"{len(wanted):,}"}, jobs=done, wanted=len(wanted), reason=asked.reason
    )
    return list(answers.values())


async def _in_sight(context: Context, ids: Sequence[JobId]) -> list[JobId]:
    if not context.caller.is_bound:
        return list(ids)
    return [job.id for job in (await context.service.jobs.details(ids)).values() if context.sees(job)]
