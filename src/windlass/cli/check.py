"""`windlass check`: print alerts and set the exit code, for cron and monitoring."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, show
from windlass.core.alert import Alert, AlertState, check_alert
from windlass.core.duration import micros


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """An alert and its current value."""

    alert: str
    state: str
    queue: str | None
    task: str | None
    intake: str | None
    relay: str | None
    why: str


def check_queues(
    app: given.App,
    /,
    *,
    queue: given.Queue = None,
    task: given.Task = None,
    depth: Annotated[int | None, Parameter(help="Raise an alert if more jobs than this are ready.")] = None,
    oldest: Annotated[
        str | None, Parameter(help='Raise an alert if a job has waited longer than this: "15m".')
    ] = None,
    dead: Annotated[
        int | None, Parameter(help="Raise an alert if there are more dead letters than this.")
    ] = None,
    json: given.Json = False,
) -> int:
    """Check the alerts that the code declares, or thresholds given here. Exit code 1: an alert is raised."""
    age = None if oldest is None else micros(oldest, name="--oldest")
    asked = None
    if not (depth is None and age is None and dead is None):
        asked = check_alert(Alert(queue=queue, task=task, depth=depth, oldest=age, dead=dead))

    async def work(service: Service) -> int:
        if queue is not None:
            await service.queues.check(queue)
        if asked is not None:
            rows = [_row("(asked)", asked, await service.alerts.judge(asked))]
        else:
            seen = await service.alerts.look()
            rows = [
                _row(one.name, one.alert, one.state)
                for one in seen
                if queue in (None, one.alert.queue) and task in (None, one.alert.task)
            ]
        nothing = "no alert is declared; give a threshold: --depth, --oldest or --dead"
        await show(each(rows), _COLUMNS, json=json, nothing=nothing)
        return 1 if any(row.state == "raised" for row in rows) else 0

    return with_service(app, work)


def _row(name: str, alert: Alert, found: AlertState) -> Checked:
    state = "raised" if found.raised else "ok"
    return Checked(
        alert=name,
        state=state,
        queue=alert.queue,
        task=alert.task,
        intake=alert.intake,
        relay=alert.relay,
        why=found.why,
    )


def _about(row: Checked) -> str:
    if row.intake is not None:
        return f"intake {row.intake}"
    return "(all)" if row.relay is None else f"relay {row.relay}"


_COLUMNS: Sequence[Column[Checked]] = (
    Column("alert", lambda row: row.alert, wraps=True),
    Column("state", lambda row: row.state),
    Column("queue", lambda row: row.queue or _about(row), wraps=True),
    Column("why", lambda row: row.why, wraps=True),
)
