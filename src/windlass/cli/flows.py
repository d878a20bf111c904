"""`windlass flows`: list and show flows, cancel a flow, replay its dead letters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from windlass.admin.flows import FlowSeen
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.jobs import check_limit, job_columns
from windlass.cli.opening import with_service
from windlass.cli.output import Column, confirm, each, say, say_aside, say_json, show, show_fields
from windlass.cli.text import since
from windlass.core.state import State

FlowName = Annotated[str, Parameter(name="FLOW", help="The flow's name or id.")]


def list_flows(
    app: given.App,
    /,
    *,
    stuck: Annotated[bool, Parameter(help="Only stuck flows.")] = False,
    limit: given.Limit = None,
    json: given.Json = False,
) -> int:
    """List unfinished flows, and finished flows among the newest 10,000 jobs.

    Stuck flows come first. A stuck flow has a dead letter or a held job and does not continue by itself.
    """
    check_limit(limit)

    async def work(service: Service) -> None:
        flows = service.flows
        seen = await (flows.stuck() if stuck else flows.seen())
        columns = _columns(await service.clock())
        await show(
            each(seen.flows),
            columns,
            json=json,
            limit=limit,
            nothing="no flow is stuck" if stuck else "no job belongs to a flow",
        )
        if seen.more:
            say_aside(
                "windlass: finished flows may be missing, and counts may be too low; "
                "windlass flows APP show FLOW counts all jobs of a flow"
            )

    return with_service(app, work)


def show_flow(
    app: given.App, flow: FlowName, /, *, limit: given.Limit = None, json: given.Json = False
) -> int:
    """Show a flow and its jobs."""
    check_limit(limit)

    async def work(service: Service) -> None:
        flows = service.flows
        found = await flows.one(flow)
        if json:
            say_json(found)
            return
        show_fields(
            [
                ("flow", found.id),
                ("state", found.state),
                ("jobs", _counted(found.jobs)),
                ("finished", f"{found.progress:.0%} of {found.total:,}"),
            ]
        )
        say("")
        columns = job_columns(await service.clock())
        await show(flows.jobs(flow), columns, json=False, limit=limit, nothing="")

    return with_service(app, work)


def cancel_flow(
    app: given.App, flow: FlowName, /, *, yes: given.Yes = False, json: given.Json = False
) -> int:
    """Cancel all unfinished jobs of a flow."""

    async def work(service: Service) -> None:
        found = await service.flows.one(flow)
        if not confirm(f'cancel flow "{flow}" ({_counted(found.jobs)})', yes=yes):
            say_aside("nothing was done")
            return
        count = await service.flows.cancel(flow)
        await put_on_record(service, "flow cancelled", {"flow": flow}, jobs=count, wanted=found.total)
        _tell(flow, "cancelled", count, json=json)

    return with_service(app, work)


def replay_flow(app: given.App, flow: FlowName, /, *, json: given.Json = False) -> int:
    """Replay the dead letters of a flow. The jobs that wait for them run when they are done."""

    async def work(service: Service) -> None:
        dead = (await service.flows.one(flow)).jobs.get("dead", 0)
        count = await service.flows.replay(flow)
        await put_on_record(service, "flow replayed", {"flow": flow}, jobs=count, wanted=dead)
        _tell(flow, "replayed", count, json=json)

    return with_service(app, work)


def _tell(flow: str, done: str, count: int, *, json: bool) -> None:
    if json:
        say_json({"flow": flow, "effect": done, "jobs": count})
    else:
        say(f'flow "{flow}": {count:,} job{"" if count == 1 else "s"} {done}')


def _state(flow: FlowSeen) -> str:
    return "stuck" if flow.stuck else "unfinished" if flow.unfinished else "finished"


def _columns(now: datetime) -> Sequence[Column[FlowSeen]]:
    return (
        Column("flow", lambda flow: flow.id, wraps=True),
        Column("state", _state),
        Column("jobs", lambda flow: _counted(flow.jobs), wraps=True),
        Column("newest", lambda flow: since(flow.newest, now), right=True),
    )


def _counted(jobs: Mapping[str, int]) -> str:
    return ", ".join(f"{jobs[state]:,} {state}" for state in map(str, State) if jobs.get(state))
