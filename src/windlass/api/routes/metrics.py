"""`/metrics`, for Prometheus: what this process has counted, and what the store holds."""

from litestar import MediaType, Response, get

from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.context import RouteContext
from windlass.observe.measures import CONTENT_TYPE


@get(
    "/metrics",
    guards=[requires(Scope.READ, unbound=True)],
    tags=["metrics"],
    media_type=MediaType.TEXT,
)
async def metrics(context: RouteContext) -> Response[str]:
    """Metrics in Prometheus's text format."""
    return Response(await context.service.metrics(context.server_state.watch), media_type=CONTENT_TYPE)


ROUTES = (metrics,)
