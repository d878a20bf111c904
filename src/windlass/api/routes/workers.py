"""Workers: sessions, how long they have been silent, and what each runs."""

from litestar import get
from litestar.params import FromPath

from windlass.admin.fleet import WorkerWhole, fleet
from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.desk import AtDesk
from windlass.api.problems import not_found


@get("/v1/workers", guards=[requires(Scope.READ)], tags=["workers"])
async def list_workers(desk: AtDesk) -> list[WorkerWhole]:
    """Worker processes that are alive, and those that ended within the last hour, with the jobs they hold."""
    return [worker async for worker in fleet(desk.broker, sees=desk.caller.sees) if _is_seen(desk, worker)]


@get("/v1/workers/{worker:str}", guards=[requires(Scope.READ)], tags=["workers"])
async def show_worker(desk: AtDesk, worker: FromPath[str]) -> WorkerWhole:
    """One of them."""
    async for each in fleet(desk.broker, sees=desk.caller.sees):
        if each.id == worker and _is_seen(desk, each):
            return each
    raise not_found(f'there is no worker "{worker}"; one that ended is kept for an hour', field="worker")


def _is_seen(desk: AtDesk, worker: WorkerWhole) -> bool:
    return desk.caller.queues is None or any(desk.caller.sees_queue(queue) for queue in worker.queues)


ROUTES = (list_workers, show_worker)
