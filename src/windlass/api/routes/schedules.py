"""Schedules: listed, made, edited, paused, resumed, run now, deleted, and their next times previewed."""

from datetime import datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath, JSONBody, QueryParameter

from windlass.admin.keys import Scope
from windlass.admin.schedules import MOST_PREVIEWED, ScheduleShown
from windlass.api.access import requires
from windlass.api.bound_keys import shown_name, stored_name, visible_task
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.problems import conflict, field, invalid, not_found
from windlass.client.options import CallOptions
from windlass.client.schedule import ScheduleOptions
from windlass.core.names import check_own_queue, check_schedule


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how a schedule fires: one of cron, every and at; what is left out stays, or is the default.
    Durations are seconds, or text such as "5m".
    """

    cron: str | None = None
    tz: str | None = None
    every: float | str | None = None
    at: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    jitter: float | str | None = None
    catch_up: Literal["skip", "one", "all"] | None = None
    grace: float | str | None = None
    cap: int | None = None
    overlap: Literal["allow", "skip", "queue"] | None = None


class NewSchedule(Timing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule of a task."""

    name: str
    task: str
    arguments: dict[str, Any] = {}
    """By name."""
    queue: str | None = None
    lane: str | None = None
    priority: int | None = None
    tags: list[str] | None = None


class PreviewWanted(Timing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that is not kept, and how many of its next times."""

    count: int = 10


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule was run now."""

    job: str
    """The job that came of it."""


@get("/v1/schedules", guards=[requires(Scope.READ)], tags=["schedules"])
async def list_schedules(context: RouteContext) -> list[ScheduleShown]:
    """Every schedule, by name, with its latest fires."""
    return [_shown(context, each) async for each in context.service.schedules.all() if _sees(context, each)]


@get("/v1/schedules/{name:str}", guards=[requires(Scope.READ)], tags=["schedules"])
async def show_schedule(context: RouteContext, name: FromPath[str]) -> ScheduleShown:
    """One schedule, with its latest fires: the tick, when it happened, the jobs that came of it, and how many
    ticks made no job.
    """
    return _shown(context, await _mine(context, name))


@get("/v1/schedules/{name:str}/preview", guards=[requires(Scope.READ)], tags=["schedules"])
async def preview_schedule(
    context: RouteContext,
    name: FromPath[str],
    count: Annotated[int, QueryParameter(name="count", ge=1, le=MOST_PREVIEWED)] = 10,
) -> list[datetime]:
    """The next times of a schedule, as if it were not paused."""
    return await context.service.schedules.preview((await _mine(context, name)).name, count)


@post("/v1/schedules/preview", status_code=200, guards=[requires(Scope.READ)], tags=["schedules"])
async def preview_rule(context: RouteContext, data: JSONBody[PreviewWanted]) -> list[datetime]:
    """The next times of a rule. No schedule is made."""
    return await context.service.schedules.preview_rule(_timing(data), data.count)


@post("/v1/schedules", guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def create_schedule(context: RouteContext, data: JSONBody[NewSchedule]) -> ScheduleShown:
    """Make a schedule of a task."""
    with field("name"):
        name = check_schedule(stored_name(context.caller, check_schedule(data.name)))
    task = visible_task(context.app, context.caller, data.task)
    with field("queue"):
        queue = await context.seen_queue(check_own_queue(data.queue or task.options.queue))
    context.seen_lane(data.lane or "")
    if await _found(context, data.name) is not None:
        raise conflict(f'there is a schedule "{data.name}" already', field="name")
    given = {"lane": data.lane, "priority": data.priority, "tags": data.tags, "queue": data.queue and queue}
    calls = {option: value for option, value in given.items() if value is not None}
    made = await context.service.schedules.create(
        name, data.task, msgspec.json.encode(data.arguments), cast("CallOptions", calls), _timing(data)
    )
    await context.record("schedule created", {"schedule": name, "task": data.task}, jobs=0, wanted=0)
    return _shown(context, made)


@patch("/v1/schedules/{name:str}", guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def edit_schedule(context: RouteContext, name: FromPath[str], data: JSONBody[Timing]) -> ScheduleShown:
    """Override when and how a schedule fires, until it is reset. Its call stays as it is."""
    known = (await _mine(context, name)).name
    timing = _timing(data)
    if not timing:
        raise invalid("say what to change: " + ", ".join(Timing.__struct_fields__))
    edited = await context.service.schedules.edit(known, timing)
    await context.record("schedule edited", {"schedule": known, **_said(timing)}, jobs=0, wanted=0)
    return _shown(context, edited)


@post("/v1/schedules/{name:str}/reset", status_code=200, guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def reset_schedule(context: RouteContext, name: FromPath[str]) -> ScheduleShown:
    """Drop the override of a schedule: the declared rule applies again."""
    known = (await _mine(context, name)).name
    if await context.service.schedules.reset(known):
        await context.record("schedule reset", {"schedule": known}, jobs=0, wanted=0)
    return _shown(context, await context.service.schedules.one(known))


@post("/v1/schedules/{name:str}/pause", status_code=200, guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def pause_schedule(context: RouteContext, name: FromPath[str]) -> ScheduleShown:
    """Pause a schedule. `catch_up` says what becomes of its ticks until it is resumed."""
    return await _paused(context, name, paused=True)


@post(
    "/v1/schedules/{name:str}/resume", status_code=200, guards=[requires(Scope.OPERATE)], tags=["schedules"]
)
async def resume_schedule(context: RouteContext, name: FromPath[str]) -> ScheduleShown:
    """Resume a schedule."""
    return await _paused(context, name, paused=False)


@post("/v1/schedules/{name:str}/run", guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def run_schedule(context: RouteContext, name: FromPath[str]) -> Ran:
    """Enqueue the job of a schedule now. Its next ticks stay as they are."""
    known = (await _mine(context, name)).name
    job = await context.service.schedules.run_now(known)
    await context.record("schedule run", {"schedule": known}, jobs=1, wanted=1)
    return Ran(job=job)


@delete("/v1/schedules/{name:str}", guards=[requires(Scope.OPERATE)], tags=["schedules"])
async def delete_schedule(context: RouteContext, name: FromPath[str]) -> None:
    """Remove a schedule and its history. One that code declares comes back with the next worker."""
    known = (await _mine(context, name)).name
    await context.service.schedules.delete(known)
    await context.record("schedule deleted", {"schedule": known}, jobs=0, wanted=0)


async def _paused(context: Context, name: str, *, paused: bool) -> ScheduleShown:
    known = (await _mine(context, name)).name
    await context.service.schedules.pause(known, paused=paused)
    what = "schedule paused" if paused else "schedule resumed"
    await context.record(what, {"schedule": known}, jobs=0, wanted=0)
    return _shown(context, await context.service.schedules.one(known))


async def _mine(context: Context, name: str) -> ScheduleShown:
    known = named(name)
    found = await _found(context, known)
    if found is None:
        raise not_found(f'there is no schedule "{known}"', field="name")
    return found


async def _found(context: Context, name: str) -> ScheduleShown | None:
    """What the caller calls by a name: its own, else what others have made where it sees it."""
    seen = {each.name: each async for each in context.service.schedules.all() if _sees(context, each)}
    return seen.get(stored_name(context.caller, name)) or seen.get(name)


def _shown(context: Context, schedule: ScheduleShown) -> ScheduleShown:
    return msgspec.structs.replace(schedule, name=shown_name(context.caller, schedule.name))


def _sees(context: Context, schedule: ScheduleShown) -> bool:
    if schedule.problem:  # nobody can tell where its jobs go
        return not context.caller.is_bound
    return context.caller.sees(schedule.queue, schedule.lane)


def _timing(data: Timing) -> ScheduleOptions:
    given = {name: getattr(data, name) for name in Timing.__struct_fields__}
    return cast("ScheduleOptions", {name: value for name, value in given.items() if value is not None})


def _said(timing: ScheduleOptions) -> dict[str, str]:
    return {name: str(value) for name, value in timing.items()}


ROUTES = (
    list_schedules,
    show_schedule,
    preview_schedule,
    preview_rule,
    create_schedule,
    edit_schedule,
    reset_schedule,
    pause_schedule,
    resume_schedule,
    run_schedule,
    delete_schedule,
)
