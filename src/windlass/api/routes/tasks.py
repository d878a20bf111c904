"""Tasks: what each takes, as JSON Schema; paused and resumed; strikes on some of their jobs."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from windlass.admin.keys import Scope
from windlass.admin.registry import Registry, TaskEntry
from windlass.admin.strikes import Strikes, StrikeShown, Striking
from windlass.api.access import requires
from windlass.api.desk import AtDesk, Desk
from windlass.api.gate import named
from windlass.api.problems import Refusal, not_found


class Why(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is done; shown to whoever asks why a job waits."""

    reason: str = ""


class NewStrike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs are to be held: those of a task whose arguments have these values."""

    task: str
    where: dict[str, Any]
    """Values by their paths: {"user_id": 42, "address.city": "Oslo"}. All must hold."""
    reason: str = ""


@get("/v1/tasks", guards=[requires(Scope.READ, Scope.ENQUEUE)], tags=["tasks"])
async def list_tasks(desk: AtDesk) -> list[TaskEntry]:
    """Every task that the app has or workers have declared, with the JSON Schema of its arguments."""
    return [_seen(desk, task) for task in await _registry(desk).all(_counts(desk)) if _sees(desk, task)]


@get("/v1/tasks/{task:str}", guards=[requires(Scope.READ, Scope.ENQUEUE)], tags=["tasks"])
async def show_task(desk: AtDesk, task: FromPath[str]) -> TaskEntry:
    """One task."""
    name = named(task)
    for each in await _registry(desk).all(_counts(desk)):
        if each.name == name and _sees(desk, each):
            return _seen(desk, each)
    raise _unknown(name)


@post(
    "/v1/tasks/{task:str}/pause",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def pause_task(desk: AtDesk, task: FromPath[str], data: JSONBody[Why | None] = None) -> Striking:
    """Hold every job of a task before it starts; what runs goes on."""
    name = _own(desk, task)
    reason = "" if data is None else data.reason
    return await _strikes(desk).pause(name, reason=reason, by=desk.caller.name)


@post(
    "/v1/tasks/{task:str}/resume",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def resume_task(desk: AtDesk, task: FromPath[str]) -> Striking | None:
    """Let the jobs of a task run again; null: it was not paused."""
    return await _strikes(desk).resume(_own(desk, task), by=desk.caller.name)


@get("/v1/strikes", guards=[requires(Scope.READ, unbound=True)], tags=["tasks"])
async def list_strikes(desk: AtDesk) -> list[StrikeShown]:
    """Strikes in force; one without conditions pauses its task."""
    return [strike async for strike in _strikes(desk).all()]


@post("/v1/strikes", guards=[requires(Scope.OPERATE, unbound=True)], tags=["tasks"])
async def make_strike(desk: AtDesk, data: JSONBody[NewStrike]) -> Striking:
    """Hold the jobs of a task whose arguments match, without a deploy."""
    return await _strikes(desk).strike(data.task, data.where, reason=data.reason, by=desk.caller.name)


@delete(
    "/v1/strikes/{strike:str}",
    status_code=200,
    guards=[requires(Scope.OPERATE, unbound=True)],
    tags=["tasks"],
)
async def lift_strike(desk: AtDesk, strike: FromPath[str]) -> Striking:
    """Remove a strike, and let the jobs run that it held."""
    if not any([each.id == strike async for each in _strikes(desk).all()]):
        raise not_found(f'there is no strike "{strike}"', field="strike")
    return await _strikes(desk).lift(strike, by=desk.caller.name)


def _registry(desk: Desk) -> Registry:
    return Registry(desk.app, desk.broker)


def _strikes(desk: Desk) -> Strikes:
    return Strikes(desk.app, desk.broker)


def _counts(desk: Desk) -> Callable[[str], bool]:
    """Jobs of which queues are counted: none for who does not see whole queues."""
    caller = desk.caller
    return lambda queue: caller.lanes is None and caller.sees_queue(queue)


def _sees(desk: Desk, task: TaskEntry) -> bool:
    return desk.caller.sees_queue(task.queue)


def _seen(desk: Desk, task: TaskEntry) -> TaskEntry:
    """Without counts, to who may enqueue only."""
    return task if desk.caller.may(Scope.READ) else msgspec.structs.replace(task, jobs={})


def _own(desk: Desk, task: str) -> str:
    name = named(task)
    if name not in desk.app.tasks:
        raise _unknown(name)
    return name


def _unknown(task: str) -> Refusal:
    return not_found(f'there is no task "{task}"', field="task")


ROUTES = (list_tasks, show_task, pause_task, resume_task, list_strikes, make_strike, lift_strike)
