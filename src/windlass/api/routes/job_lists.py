"""Jobs in numbers: listed and counted by filters, cancelled and sent back by their ids."""

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, JSONBody, QueryParameter, SkipValidation

from windlass.admin.filtering import JobFilter, wanted
from windlass.admin.jobs import Counted
from windlass.admin.keys import Scope
from windlass.admin.views import JobShown, job_shown
from windlass.api.access import requires
from windlass.api.by_ids import Ids, each
from windlass.api.context import RouteContext
from windlass.api.page import USUAL, After, Limit, Page, listing
from windlass.api.problems import field
from windlass.core.operate import Operated
from windlass.core.query import JobQuery
from windlass.core.state import State

States = Annotated[
    list[State] | None,
    QueryParameter(name="state", description="Only these states; give it again for more."),
]
Tag = Annotated[str | None, QueryParameter(name="tag", max_length=200, description="Only with this tag.")]
Text = Annotated[
    str | None,
    QueryParameter(
        name="text",
        max_length=200,
        description="Only with this text in the id, task, queue, lane, unique key, flow, reason or a tag, in "
        "any case.",
    ),
]
Since = Annotated[
    str | None,
    QueryParameter(
        name="since", max_length=40, description='Accepted since a time, or so long ago: "1h", "7d".'
    ),
]
Until = Annotated[str | None, QueryParameter(name="until", max_length=40, description="Accepted until then.")]
Parent = Annotated[
    str | None,
    QueryParameter(name="parent", max_length=100, description="Only those that this job spawned."),
]


async def chosen(
    context: RouteContext,
    states: States = None,
    queue: FromQuery[str | None] = None,
    task: FromQuery[str | None] = None,
    lane: FromQuery[str | None] = None,
    flow: FromQuery[str | None] = None,
    tag: Tag = None,
    text: Text = None,
    since: Since = None,
    until: Until = None,
    parent: Parent = None,
) -> JobFilter:
    """Provide the filter that a query asks for: checked, and with times by the store's clock."""
    if queue is not None:
        await context.seen_queue(queue)
    if lane is not None:
        context.seen_lane(lane)
    if flow is not None:
        flow = await context.kept_flow(flow)
    query = JobQuery(queue=queue, task=task, lane=lane, flow=flow, states=frozenset(states or State))
    found = JobFilter(query=query, text=text or None)
    given = {"tag": tag, "since": since, "until": until, "parent": parent}
    said = {name: value for name, value in given.items() if value is not None}
    now = await context.service.now() if said else 0
    for name, value in said.items():
        with field(name):
            read = wanted(query, now, **{name: value})
        found = msgspec.structs.replace(found, **{name: getattr(read, name)})
    return found


Chosen = NamedDependency[SkipValidation[JobFilter]]
_CHOSEN = {"chosen": Provide(chosen)}


@get("/v1/jobs", guards=[requires(Scope.READ)], dependencies=_CHOSEN, tags=["jobs"])
async def list_jobs(
    context: RouteContext, chosen: Chosen, limit: Limit = USUAL, cursor: After = None
) -> Page[JobShown]:
    """Jobs, the newest first where the store keeps them so. A page looks at about 10,000 jobs and may be
    short, even empty.
    """
    listed = listing(context.caller, "jobs", chosen.query)
    after = context.opened(cursor, listed)
    jobs, place = await context.service.jobs.page(chosen, after, limit, sees=context.sees)
    return Page(items=[context.shown(job_shown(job)) for job in jobs], cursor=context.sealed(place, listed))


@get("/v1/jobs/count", guards=[requires(Scope.READ)], dependencies=_CHOSEN, tags=["jobs"])
async def count_jobs(context: RouteContext, chosen: Chosen) -> Counted:
    """How many jobs match: exactly for unfinished jobs and dead letters by queue, state and task, whose
    counts the store keeps. For other filters up to 20,000 jobs are looked at, and `more` says that the count
    is a least one.
    """
    # What is counted of a queue tells of all its lanes.
    sees_queue = context.caller.sees_queue if context.caller.lanes is None else None
    return await context.service.jobs.count(chosen, sees=context.sees, sees_queue=sees_queue)


@post("/v1/jobs/cancel", status_code=200, guards=[requires(Scope.OPERATE)], tags=["jobs"])
async def cancel_jobs(context: RouteContext, data: JSONBody[Ids]) -> list[Operated]:
    """Cancel jobs, by id: waiting jobs at once; for running jobs, workers are asked to stop them (`flagged`).
    The answer says what became of each, in order.
    """
    return await each(context, data, "cancelled", context.service.jobs.cancel)


@post("/v1/jobs/replay", status_code=200, guards=[requires(Scope.OPERATE)], tags=["jobs"])
async def replay_jobs(context: RouteContext, data: JSONBody[Ids]) -> list[Operated]:
    """Send dead letters back, by id; the same as `/v1/dead/replay`."""
    return await each(context, data, "replayed", context.service.dead.replay)


ROUTES = (list_jobs, count_jobs, cancel_jobs, replay_jobs)
