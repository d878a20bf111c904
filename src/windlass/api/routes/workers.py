"""Workers: sessions, how long they have been silent, and what each runs."""

from collections.abc import AsyncIterator

import msgspec
from litestar import get
from litestar.params import FromPath

from windlass.admin.keys import Scope
from windlass.admin.workers import WorkerWhole
from windlass.api.access import requires
from windlass.api.context import Context, RouteContext
from windlass.api.problems import not_found


@get("/v1/workers", guards=[requires(Scope.READ)], tags=["workers"])
async def list_workers(context: RouteContext) -> list[WorkerWhole]:
    """Worker processes that are alive, and those that ended within the last hour, with the jobs they hold."""
    return [worker async for worker in _seen(context)]


@get("/v1/workers/{worker:str}", guards=[requires(Scope.READ)], tags=["workers"])
async def show_worker(context: RouteContext, worker: FromPath[str]) -> WorkerWhole:
    """One worker process."""
    async for each in _seen(context):
        if each.id == worker:
            return each
    raise not_found(f'there is no worker "{worker}"; one that ended is kept for an hour', field="worker")


async def _seen(context: Context) -> AsyncIterator[WorkerWhole]:
    """A key that is bound to queues sees the workers that serve one of them, and of each no other queue."""
    caller = context.caller
    async for worker in context.service.workers.with_jobs(sees=caller.sees):
        queues = tuple(queue for queue in worker.queues if caller.sees_queue(queue))
        if caller.queues is None or queues:
            yield msgspec.structs.replace(worker, queues=queues)


ROUTES = (list_workers, show_worker)
