"""Flows: listed, drawn, cancelled, and their failed part replayed."""

import msgspec
from litestar import get, post
from litestar.params import FromPath, FromQuery

from windlass.admin.flows import FlowGraph, FlowSeen
from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.bound_keys import shown_name
from windlass.api.context import RouteContext
from windlass.api.gate import named
from windlass.api.page import USUAL, Limit, Page
from windlass.api.problems import not_found
from windlass.core.names import check_flow
from windlass.errors import InvalidOption


class FlowPage(Page[FlowSeen], frozen=True, kw_only=True):
    """Flows: those that are stuck, then the other unfinished ones, then those that have finished; each time
    the newest first. There is no next page: its cursor is null.
    """

    examined: int
    """Jobs that were looked at for flows that have finished."""
    more: bool
    """There may be other flows: finished ones of older jobs, or some beyond the limit; and counts may be too
    low.
    """


class FlowDone(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a flow."""

    flow: str
    jobs: int
    """To how many of its jobs."""


@get("/v1/flows", guards=[requires(Scope.READ)], tags=["flows"])
async def list_flows(
    context: RouteContext,
    limit: Limit = USUAL,
    stuck: FromQuery[bool] = False,  # noqa: FBT002 - Litestar passes it by name
) -> FlowPage:
    """The unfinished flows, however old, and those that have finished among the newest 10,000 jobs. With
    `stuck`, only those that need somebody: nothing of them goes on by itself.
    """
    listed = context.service.flows.stuck if stuck else context.service.flows.seen
    seen = await listed(context.sees, limit=limit)
    items = [msgspec.structs.replace(each, id=shown_name(context.caller, each.id)) for each in seen.flows]
    return FlowPage(items=items, examined=seen.examined, more=seen.more)


@get("/v1/flows/{flow:str}", guards=[requires(Scope.READ)], tags=["flows"])
async def show_flow(context: RouteContext, flow: FromPath[str], limit: Limit = 1_000) -> FlowGraph:
    """One flow: its state, its jobs with theirs, and which waits for which."""
    name = await context.kept_flow(_name(flow))
    graph = await context.service.flows.graph(name, most=limit, sees=context.sees)
    return msgspec.structs.replace(
        graph,
        flow=msgspec.structs.replace(graph.flow, id=shown_name(context.caller, graph.flow.id)),
        jobs=tuple(context.shown(job) for job in graph.jobs),
    )


@post(
    "/v1/flows/{flow:str}/cancel",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["flows"],
)
async def cancel_flow(context: RouteContext, flow: FromPath[str]) -> FlowDone:
    """Cancel whatever of it is unfinished."""
    name = _name(flow)
    total = (await context.service.flows.one(name)).total
    count = await context.service.flows.cancel(name)
    await context.record("flow cancelled", {"flow": name}, jobs=count, wanted=total)
    return FlowDone(flow=name, jobs=count)


@post(
    "/v1/flows/{flow:str}/replay",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["flows"],
)
async def replay_flow(context: RouteContext, flow: FromPath[str]) -> FlowDone:
    """Send its dead letters back, and with them all that waits for them."""
    name = _name(flow)
    dead = (await context.service.flows.one(name)).jobs.get("dead", 0)
    count = await context.service.flows.replay(name)
    await context.record("flow replayed", {"flow": name}, jobs=count, wanted=dead)
    return FlowDone(flow=name, jobs=count)


def _name(flow: str) -> str:
    """404 for what can be no flow's name."""
    try:
        return check_flow(named(flow))
    except InvalidOption as error:
        raise not_found(str(error), field="flow") from None


ROUTES = (list_flows, show_flow, cancel_flow, replay_flow)
