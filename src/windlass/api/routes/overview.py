"""The first page of a dashboard, in one call; and the record of what operators did."""

from litestar import get

from windlass.admin.alerts import Alerts, AlertShown
from windlass.admin.audit import ActShown
from windlass.admin.keys import Scope
from windlass.admin.overview import Glance, Overview
from windlass.api.access import requires
from windlass.api.desk import AtDesk
from windlass.api.page import USUAL, Limit, Page
from windlass.api.sight import whole_queues


@get("/v1/overview", guards=[requires(Scope.READ)], tags=["overview"])
async def overview(desk: AtDesk) -> Overview:
    """Everything at a glance: queues, workers, schedules, alerts, and what is wrong, in words."""
    whole_queues(desk.caller)
    return await Glance(desk.app, desk.broker).overview(desk.caller.sees_queue)


@get("/v1/alerts", guards=[requires(Scope.READ)], tags=["overview"])
async def alerts(desk: AtDesk) -> list[AlertShown]:
    """Alerts, and how they stand."""
    whole_queues(desk.caller)
    caller = desk.caller
    return [
        alert
        async for alert in Alerts(desk.broker).all()
        if (not caller.is_bound if alert.queue is None else caller.sees_queue(alert.queue))
    ]


@get("/v1/audit", guards=[requires(Scope.OPERATE, unbound=True)], tags=["overview"])
async def audit(desk: AtDesk, limit: Limit = USUAL) -> Page[ActShown]:
    """What operators did, newest first; the last 1,000 acts are kept."""
    found: list[ActShown] = []
    async for act in desk.audit.acts():
        found.append(act)
        if len(found) == limit:
            break
    return Page(items=found)


ROUTES = (overview, alerts, audit)
