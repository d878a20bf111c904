"""Why a job waits."""

from litestar import get
from litestar.params import FromPath

from windlass.admin.advice import Advice
from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.context import RouteContext


@get("/v1/jobs/{job:str}/explain", guards=[requires(Scope.READ)], tags=["jobs"])
async def explain(context: RouteContext, job: FromPath[str]) -> Advice:
    """Why a job is not running, or what it does, and what to do about it."""
    return await context.service.jobs.explain(await context.seen_job(job), sees=context.caller.sees_queue)


ROUTES = (explain,)
