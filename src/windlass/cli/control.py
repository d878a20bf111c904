"""`windlass control`: list, pause and resume tasks, and strike some of their jobs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.admin.strikes import StrikeShown, Striking, TaskShown, read_value
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.opening import with_service
from windlass.cli.output import Column, each, say, say_json, show
from windlass.cli.text import since
from windlass.core.state import State

TaskName = Annotated[str, Parameter(name="TASK", help="The task.")]
StrikeId = Annotated[str, Parameter(help='The id of the strike, as the verb "strikes" lists it.')]
Reason = Annotated[str, Parameter(help="Why you do it; `explain` shows this for a held job.")]
Where = Annotated[
    tuple[str, ...],
    Parameter(
        help="An argument and its value, such as user_id=42 or address.city=Paris; repeat for more: "
        "all must match."
    ),
]


def list_tasks(app: given.App, /, *, json: given.Json = False) -> int:
    """List the app's tasks: queue, jobs by state, and whether an operator holds any of them."""

    async def work(service: Service) -> None:
        tasks = await service.strikes.tasks()
        await show(each(tasks), _columns(), json=json, nothing="this app has no tasks")

    return with_service(app, work)


def pause_task(app: given.App, task: TaskName, /, *, reason: Reason = "", json: given.Json = False) -> int:
    """Hold every job of a task before it starts, until you resume the task. Running jobs continue."""

    async def work(service: Service) -> None:
        done = await service.strikes.pause(task, reason=reason)
        _tell(done, "paused" if done.changed else "paused already", json=json)

    return with_service(app, work)


def resume_task(app: given.App, task: TaskName, /, *, json: given.Json = False) -> int:
    """Let the jobs of a task run again. Strikes on some of its jobs stay in force."""

    async def work(service: Service) -> None:
        done = await service.strikes.resume(task)
        if done is not None:
            _tell(done, "resumed", json=json)
        elif json:
            say_json({"task": task, "effect": "not paused"})
        else:
            say(f'task "{task}": not paused')

    return with_service(app, work)


def strike_task(
    app: given.App,
    task: TaskName,
    /,
    *,
    where: Where = (),
    reason: Reason = "",
    json: given.Json = False,
) -> int:
    """Hold the jobs of a task whose arguments match, before they start, until you lift the strike."""
    if not where:
        raise UsageError("choose jobs, such as --where user_id=42; the verb pause holds all jobs of a task")

    async def work(service: Service) -> None:
        done = await service.strikes.strike(task, _conditions(service, task, where), reason=reason)
        _tell(done, "struck" if done.changed else "struck already", json=json)

    return with_service(app, work)


def list_strikes(app: given.App, /, *, json: given.Json = False) -> int:
    """List strikes in force, including paused tasks: what they match, who made them and why."""

    async def work(service: Service) -> None:
        columns = _strike_columns(await service.clock())
        await show(service.strikes.all(), columns, json=json, nothing="there are no strikes")

    return with_service(app, work)


def lift_strike(app: given.App, strike: StrikeId, /, *, json: given.Json = False) -> int:
    """Lift a strike: the jobs that it held can run again."""

    async def work(service: Service) -> None:
        done = await service.strikes.lift(strike)
        _tell(done, "lifted", json=json)

    return with_service(app, work)


def _conditions(service: Service, task: str, where: Sequence[str]) -> dict[str, Any]:
    signature = service.app.signature_of(task)
    found: dict[str, Any] = {}
    for text in where:
        path, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f'--where must be argument=value, such as user_id=42, not "{text}"')
        if path in found:
            raise UsageError(f'--where names "{path}" twice; one strike matches one value of it')
        found[path] = read_value(signature, path, value)
    return found


def _tell(done: Striking, effect: str, *, json: bool) -> None:
    strike = done.strike
    if json:
        say_json({"task": strike.task, "strike": strike.id, "effect": effect, "freed": done.freed})
        return
    freed = f"; {done.freed:,} job{'' if done.freed == 1 else 's'} can run" if done.freed else ""
    which = f" where {_written(strike)}: strike {strike.id}" if strike.where else ""
    say(f'task "{strike.task}": {effect}{which}{freed}')


def _written(strike: StrikeShown) -> str:
    return ", ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in strike.where.items())


def _columns() -> Sequence[Column[TaskShown]]:
    states = (State.READY, State.RUNNING, State.SCHEDULED, State.BLOCKED, State.DEAD, State.DONE)
    return (
        Column("task", lambda task: task.name, wraps=True),
        Column("queue", lambda task: task.queue),
        *(_count(state) for state in states),
        Column("held", _held),
    )


def _count(state: State) -> Column[TaskShown]:
    return Column(state.value, lambda task: f"{task.jobs[state]:,}", right=True)


def _held(task: TaskShown) -> str:
    struck = f"{task.strikes} strike{'' if task.strikes == 1 else 's'}" if task.strikes else ""
    return ", ".join(filter(None, ("paused" if task.paused else "", struck)))


def _strike_columns(now: datetime) -> Sequence[Column[StrikeShown]]:
    return (
        Column("id", lambda strike: strike.id),
        Column("task", lambda strike: strike.task, wraps=True),
        Column("where", lambda strike: _written(strike) or "every job", wraps=True),
        Column("reason", lambda strike: strike.reason, wraps=True),
        Column("by", lambda strike: strike.by),
        Column("since", lambda strike: since(strike.at, now), right=True),
    )
