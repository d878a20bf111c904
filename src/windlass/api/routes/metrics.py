"""`/metrics`, for Prometheus: what this process has counted, and what the store holds."""

from litestar import MediaType, Response, get

from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.desk import AtDesk
from windlass.observe.measures import CONTENT_TYPE
from windlass.observe.watch import page


@get(
    "/metrics",
    guards=[requires(Scope.READ, unbound=True)],
    tags=["metrics"],
    media_type=MediaType.TEXT,
)
async def metrics(desk: AtDesk) -> Response[str]:
    """Metrics in Prometheus's text format."""
    return Response(await page([(desk.running.watch, desk.broker)]), media_type=CONTENT_TYPE)


ROUTES = (metrics,)
