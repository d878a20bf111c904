"""`windlass workers`: sessions that are alive, and sessions that ended within the last hour."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.admin.views import WorkerShown
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, show
from windlass.cli.text import age, mebibytes, since
from windlass.core.session import SessionState


def list_workers(
    app: given.App,
    /,
    *,
    alive: Annotated[bool, Parameter(name="--alive", help="Only live workers.")] = False,
    json: given.Json = False,
) -> int:
    """List worker processes that are alive, and those that ended within the last hour, with the cause."""

    async def work(service: Service) -> None:
        found = [worker async for worker in service.workers.all() if not alive or _is_alive(worker)]
        found.sort(key=lambda worker: (not _is_alive(worker), worker.host, worker.pid))
        nothing = f"no workers; start one: windlass worker {app}"
        await show(each(found), _columns(await service.clock()), json=json, nothing=nothing)

    return with_service(app, work)


def _is_alive(worker: WorkerShown) -> bool:
    return worker.state == SessionState.ALIVE


def _columns(now: datetime) -> Sequence[Column[WorkerShown]]:
    return (
        Column("session", lambda worker: worker.id),
        Column("host", lambda worker: worker.host, wraps=True),
        Column("pid", lambda worker: str(worker.pid or ""), right=True),
        Column("state", lambda worker: worker.state),
        Column("queues", lambda worker: ",".join(worker.queues) or _runs(worker), wraps=True),
        Column("slots", lambda worker: str(worker.slots), right=True),
        Column("leases", lambda worker: str(worker.leases), right=True),
        Column("silent", lambda worker: age(worker.silent_for), right=True),
        Column("up", lambda worker: since(worker.opened_at, now) if _is_alive(worker) else "", right=True),
        Column("memory", lambda worker: mebibytes(worker.memory), right=True),
        Column("cause", _cause, wraps=True),
    )


def _runs(worker: WorkerShown) -> str:
    return f"(runs intakes: {', '.join(worker.intakes)})" if worker.intakes else ""


def _cause(worker: WorkerShown) -> str:
    return "" if worker.cause is None else f"{worker.cause.kind} {worker.cause.detail}".strip()
