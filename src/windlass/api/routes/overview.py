"""The first page of a dashboard, in one call; and the record of what operators did."""

from litestar import get

from windlass.admin.alerts import AlertShown
from windlass.admin.audit import ActShown
from windlass.admin.keys import Scope
from windlass.admin.overview import Overview
from windlass.api.access import requires
from windlass.api.bound_keys import require_whole_queues
from windlass.api.context import RouteContext
from windlass.api.page import USUAL, Limit, Page


@get("/v1/overview", guards=[requires(Scope.READ)], tags=["overview"])
async def overview(context: RouteContext) -> Overview:
    """Everything at a glance: queues, workers, schedules, alerts, and what is wrong, in words."""
    require_whole_queues(context.caller)
    return await context.service.overview(context.caller.sees_queue)


@get("/v1/alerts", guards=[requires(Scope.READ)], tags=["overview"])
async def alerts(context: RouteContext) -> list[AlertShown]:
    """Alerts, and how they stand."""
    require_whole_queues(context.caller)
    caller = context.caller
    return [
        alert
        async for alert in context.service.alerts.all()
        if (not caller.is_bound if alert.queue is None else caller.sees_queue(alert.queue))
    ]


@get("/v1/audit", guards=[requires(Scope.OPERATE, unbound=True)], tags=["overview"])
async def audit(context: RouteContext, limit: Limit = USUAL) -> Page[ActShown]:
    """What operators did, newest first; the last 1,000 acts are kept."""
    found: list[ActShown] = []
    async for act in context.service.audit.acts():
        found.append(act)
        if len(found) == limit:
            break
    return Page(items=found)


ROUTES = (overview, alerts, audit)
