"""The load, for autoscalers."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from windlass.admin.keys import Scope
from windlass.admin.scale import MOST_WORKERS, Scale
from windlass.api.access import requires
from windlass.api.bound_keys import require_whole_queues
from windlass.api.context import RouteContext
from windlass.api.problems import invalid


@get("/v1/scale", guards=[requires(Scope.READ)], tags=["scale"])
async def show_scale(
    context: RouteContext,
    queue: Annotated[
        list[str] | None,
        QueryParameter(name="queue", max_items=100, description="Only these; by default all."),
    ] = None,
    slots: Annotated[
        int | None,
        QueryParameter(name="slots", ge=1, le=MOST_WORKERS, description="Of one worker process."),
    ] = None,
    least: Annotated[int, QueryParameter(name="least", ge=0, le=MOST_WORKERS)] = 0,
    most: Annotated[int, QueryParameter(name="most", ge=0, le=MOST_WORKERS)] = MOST_WORKERS,
) -> Scale:
    """How much waits and runs, for how long, and how many worker processes it could keep busy (`wanted`)."""
    require_whole_queues(context.caller)
    if most < least:
        raise invalid(f"most ({most}) is below least ({least})", field="most")
    names = [await context.seen_queue(name) for name in queue or ()]
    if not names and context.caller.queues is not None:
        known = [shown.name for shown in await context.service.queues.all()]
        names = [name for name in known if context.caller.sees_queue(name)]
        if not names:
            return Scale(queued=0, running=0, oldest=0.0, workers=0, slots=0, wanted=least, queues=())
    return await context.service.scale(queues=names, slots=slots, least=least, most=most)


ROUTES = (show_scale,)
