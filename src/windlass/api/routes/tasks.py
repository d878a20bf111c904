"""Tasks: what each takes, as JSON Schema; paused and resumed; strikes on some of their jobs."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from windlass.admin.keys import Scope
from windlass.admin.strikes import StrikeShown, Striking
from windlass.admin.tasks import TaskEntry
from windlass.api.access import requires
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.problems import Refusal, not_found


class Why(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is done; shown to everybody who asks why a job waits."""

    reason: str = ""


class NewStrike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are to be held: those of a task whose arguments have these values."""

    task: str
    where: dict[str, Any]
    """Values by their paths: {"user_id": 42, "address.city": "Oslo"}. All must hold."""
    reason: str = ""


@get("/v1/tasks", guards=[requires(Scope.READ, Scope.ENQUEUE)], tags=["tasks"])
async def list_tasks(context: RouteContext) -> list[TaskEntry]:
    """Every task that the app has or workers have declared, with the JSON Schema of its arguments."""
    return [
        _seen(context, task)
        for task in await context.service.tasks.all(_counts(context))
        if _sees(context, task)
    ]


@get("/v1/tasks/{task:str}", guards=[requires(Scope.READ, Scope.ENQUEUE)], tags=["tasks"])
async def show_task(context: RouteContext, task: FromPath[str]) -> TaskEntry:
    """One task."""
    name = named(task)
    for each in await context.service.tasks.all(_counts(context)):
        if each.name == name and _sees(context, each):
            return _seen(context, each)
    raise _unknown(name)


@post(
    "/v1/tasks/{task:str}/pause",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def pause_task(
    context: RouteContext, task: FromPath[str], data: JSONBody[Why | None] = None
) -> Striking:
    """Hold every job of a task before it starts; what runs goes on."""
    name = _own(context, task)
    reason = "" if data is None else data.reason
    return await context.service.strikes.pause(name, reason=reason, by=context.caller.name)


@post(
    "/v1/tasks/{task:str}/resume",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def resume_task(context: RouteContext, task: FromPath[str]) -> Striking | None:
    """Let the jobs of a task run again; null: it was not paused."""
    return await context.service.strikes.resume(_own(context, task), by=context.caller.name)


@get("/v1/strikes", guards=[requires(Scope.READ, unbound=True)], tags=["tasks"])
async def list_strikes(context: RouteContext) -> list[StrikeShown]:
    """The strikes in force. A strike without conditions pauses its task."""
    return [strike async for strike in context.service.strikes.all()]


@post("/v1/strikes", guards=[requires(Scope.OPERATE, unbound=True)], tags=["tasks"])
async def make_strike(context: RouteContext, data: JSONBody[NewStrike]) -> Striking:
    """Hold the jobs of a task whose arguments match, without a deploy."""
    return await context.service.strikes.strike(
        data.task, data.where, reason=data.reason, by=context.caller.name
    )


@delete(
    "/v1/strikes/{strike:str}",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def lift_strike(context: RouteContext, strike: FromPath[str]) -> Striking:
    """Remove a strike, and let the jobs run that it held."""
    if not any([each.id == strike async for each in context.service.strikes.all()]):
        raise not_found(f'there is no strike "{strike}"', field="strike")
    return await context.service.strikes.lift(strike, by=context.caller.name)


def _counts(context: Context) -> Callable[[str], bool]:
    """Jobs of which queues are counted: none for who does not see whole queues."""
    caller = context.caller
    return lambda queue: caller.lanes is None and caller.sees_queue(queue)


def _sees(context: Context, task: TaskEntry) -> bool:
    return context.caller.sees_queue(task.queue)


def _seen(context: Context, task: TaskEntry) -> TaskEntry:
    """Without counts, to who may enqueue only."""
    return task if context.caller.may(Scope.READ) else msgspec.structs.replace(task, jobs={})


def _own(context: Context, task: str) -> str:
    name = named(task)
    if name not in context.app.tasks:
        raise _unknown(name)
    return name


def _unknown(task: str) -> Refusal:
    return not_found(f'there is no task "{task}"', field="task")


ROUTES = (list_tasks, show_task, pause_task, resume_task, list_strikes, make_strike, lift_strike)
