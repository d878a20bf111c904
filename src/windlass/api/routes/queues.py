"""Queues: seen, paused, resumed, their settings overridden and reset."""

from typing import Literal

import msgspec
from litestar import delete, get, patch, post
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, UnsetType

from windlass.admin.keys import Scope
from windlass.admin.views import QueueShown
from windlass.api.access import requires
from windlass.api.bound_keys import require_whole_queues
from windlass.api.context import Context, RouteContext
from windlass.api.gate import named
from windlass.api.overriding import on_record, overrides
from windlass.client.settings import queue_settings
from windlass.core.settings import QueueSettings, check_queue_settings


class QueueChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be overridden. What is left out stays as it is; null is no limit, where there can be one."""

    concurrency: int | None | UnsetType = UNSET
    rate: str | None | UnsetType = UNSET
    """Such as "100/s"."""
    lane_concurrency: int | None | UnsetType = UNSET
    lane_rate: str | None | UnsetType = UNSET
    order: Literal["band", "lane"] | UnsetType = UNSET
    bands: dict[int, int] | None | UnsetType = UNSET
    """Weights by priority; null: strict."""
    age_step: float | None | UnsetType = UNSET
    """Seconds."""
    sequence: bool | UnsetType = UNSET
    emit: Literal["none", "final", "all"] | UnsetType = UNSET
    """What is written to the log of events."""
    retention: float | UnsetType = UNSET
    """Seconds."""
    retention_count: int | None | UnsetType = UNSET
    result_ttl: float | UnsetType = UNSET
    """Seconds."""
    dead_retention: float | UnsetType = UNSET
    """Seconds."""


@get("/v1/queues", guards=[requires(Scope.READ)], tags=["queues"])
async def list_queues(context: RouteContext) -> list[QueueShown]:
    """Every declared queue: jobs by state, age of the oldest, settings declared, overridden and in force."""
    require_whole_queues(context.caller)
    return [queue for queue in await context.service.queues.all() if context.caller.sees_queue(queue.name)]


@get("/v1/queues/{queue:str}", guards=[requires(Scope.READ)], tags=["queues"])
async def show_queue(context: RouteContext, queue: FromPath[str]) -> QueueShown:
    """One queue."""
    return await _shown(context, queue)


@post("/v1/queues/{queue:str}/pause", status_code=200, guards=[requires(Scope.OPERATE)], tags=["queues"])
async def pause_queue(context: RouteContext, queue: FromPath[str]) -> QueueShown:
    """Pause a queue: the store stops handing out its jobs. Running jobs go on."""
    name = await _mine(context, queue)
    await context.service.queues.pause(name)
    await context.record("queue paused", {"queue": name}, jobs=0, wanted=0)
    return await _shown(context, queue)


@post("/v1/queues/{queue:str}/resume", status_code=200, guards=[requires(Scope.OPERATE)], tags=["queues"])
async def resume_queue(context: RouteContext, queue: FromPath[str]) -> QueueShown:
    """Resume a queue: the store hands out its jobs again."""
    name = await _mine(context, queue)
    await context.service.queues.resume(name)
    await context.record("queue resumed", {"queue": name}, jobs=0, wanted=0)
    return await _shown(context, queue)


@patch("/v1/queues/{queue:str}/override", guards=[requires(Scope.OPERATE)], tags=["queues"])
async def override_queue(
    context: RouteContext, queue: FromPath[str], data: JSONBody[QueueChange]
) -> QueueShown:
    """Override some settings of a queue until they are reset; other overrides stay."""
    name = await _mine(context, queue)
    settings = overrides(data, QueueSettings, queue_settings, check_queue_settings)
    await context.service.queues.override(name, settings)
    await context.record("queue overridden", {"queue": name, **on_record(data)}, jobs=0, wanted=0)
    return await _shown(context, queue)


@delete("/v1/queues/{queue:str}/override", status_code=200, guards=[requires(Scope.OPERATE)], tags=["queues"])
async def reset_queue(context: RouteContext, queue: FromPath[str]) -> QueueShown:
    """Drop the override of a queue: its declared settings apply again."""
    name = await _mine(context, queue)
    if await context.service.queues.reset(name):
        await context.record("queue reset", {"queue": name}, jobs=0, wanted=0)
    return await _shown(context, queue)


async def _mine(context: Context, queue: str) -> str:
    require_whole_queues(context.caller)
    return await context.seen_queue(named(queue))


async def _shown(context: Context, queue: str) -> QueueShown:
    return await context.service.queues.one(await _mine(context, queue))


ROUTES = (list_queues, show_queue, pause_queue, resume_queue, override_queue, reset_queue)
