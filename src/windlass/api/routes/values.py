"""The payload and the result of a job as they were put, for those that are too large to be shown."""

from typing import Literal

from litestar import Response, get
from litestar.params import FromPath

from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.context import RouteContext


@get("/v1/jobs/{job:str}/payload", guards=[requires(Scope.OPERATE)], tags=["jobs"])
async def show_payload(context: RouteContext, job: FromPath[str]) -> Response[bytes]:
    """The payload of a job as it was put, secrets included, which goes on record. From a bucket: a redirect
    to a signed link, which leads there for five minutes.
    """
    return await _document(context, job, "payload")


@get("/v1/jobs/{job:str}/result", guards=[requires(Scope.OPERATE)], tags=["jobs"])
async def show_result(context: RouteContext, job: FromPath[str]) -> Response[bytes]:
    """The result of a job as it was put, in the same way."""
    return await _document(context, job, "result")


async def _document(context: RouteContext, job: str, what: Literal["payload", "result"]) -> Response[bytes]:
    service, found = await context.seen_job_anywhere(job)
    document = await service.jobs.document(found, what)
    await context.record("secrets shown", {"job": job, "what": what}, jobs=1, wanted=1)
    headers = {"cache-control": "no-store"}
    if isinstance(document, str):
        return Response(b"", status_code=307, headers={**headers, "location": document})
    headers["content-disposition"] = f'attachment; filename="{job}.{what}.json"'
    return Response(document, media_type="application/json", headers=headers)


ROUTES = (show_payload, show_result)
