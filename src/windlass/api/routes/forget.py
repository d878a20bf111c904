"""Forgetting: everything that is kept under a tag is removed, because a person has asked for it."""

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from windlass.admin.filtering import JobFilter
from windlass.admin.keys import Scope
from windlass.admin.operations import OperationShown
from windlass.api.access import requires
from windlass.api.by_ids import Reason
from windlass.api.context import RouteContext
from windlass.api.page import After, listing
from windlass.api.problems import field
from windlass.core.names import LONGEST_TAG, check_tag
from windlass.core.state import TERMINAL, State

MOST_COUNTED = 2_000
"""Jobs that one call counts."""

Tag = Annotated[str, QueryParameter(max_length=LONGEST_TAG, description="Such as user:42.")]


class NewForgetting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to forget."""

    tag: Annotated[str, Meta(max_length=LONGEST_TAG)]
    """Such as "user:42": jobs that have it are removed."""
    reason: Reason = ""
    """Why, for the record (`/v1/audit`)."""


class TagCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs have a tag."""

    jobs: int
    waiting: int
    """Of these, those that would be cancelled first."""
    running: int
    """Of these, those that would be asked to stop, and left."""
    cursor: str | None = None
    """There may be more: ask on from here, and add up."""


@get("/v1/forget/count", guards=[requires(Scope.OPERATE, unbound=True)], tags=["forget"])
async def count_tag(context: RouteContext, tag: Tag, cursor: After = None) -> TagCount:
    """How many jobs have a tag. It looks at some in each call: while there is a `cursor`, ask on with it."""
    with field("tag"):
        wanted = JobFilter(tag=check_tag(tag))
    listed = listing(context.caller, "forget count", tag)
    after = context.opened(cursor, listed)
    found, place = await context.service.jobs.page(wanted, after, MOST_COUNTED)
    running = sum(job.state is State.RUNNING for job in found)
    return TagCount(
        jobs=len(found),
        waiting=sum(job.state not in TERMINAL for job in found) - running,
        running=running,
        cursor=context.sealed(place, listed),
    )


@post("/v1/forget", status_code=202, guards=[requires(Scope.OPERATE, unbound=True)], tags=["forget"])
async def forget_tag(context: RouteContext, data: JSONBody[NewForgetting]) -> OperationShown:
    """Remove the jobs with a tag, and blank what history and archive hold of them, in the background. Waiting
    jobs are cancelled first. Running ones are asked to stop, and left: then the operation ends as `failed`,
    its `error` says how many, and it is to be done again when they have ended. Its progress is asked for at
    `/v1/dead/operations/{id}`.
    """
    with field("tag"):
        tag = check_tag(data.tag)
    # Its end goes on record with what became of it, unless its server dies before that.
    await context.record("forget begun", {"tag": tag}, jobs=0, wanted=0, reason=data.reason)
    return await context.service.operations.forget(tag, by=context.caller.name, reason=data.reason)


ROUTES = (count_tag, forget_tag)
