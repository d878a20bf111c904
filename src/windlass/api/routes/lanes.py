"""Lanes: seen, paused, resumed, their settings overridden and reset.

A lane is any text, so it is named in the query or in the body, never in the path.
"""

from typing import Annotated

import msgspec
from litestar import get, patch, post
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from windlass.admin.keys import Scope
from windlass.admin.lanes import LaneWhole
from windlass.api.access import requires
from windlass.api.context import Context, RouteContext
from windlass.api.overriding import on_record, overrides
from windlass.api.page import USUAL, After, Limit, Page, listing
from windlass.api.problems import field, not_found
from windlass.client.settings import lane_settings
from windlass.core.names import check_lane
from windlass.core.settings import LaneSettings, check_lane_settings

QueueName = Annotated[
    str, QueryParameter(name="queue", max_length=100, description="The queue of the lanes.")
]


class LanePlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lane."""

    queue: str
    lane: str
    """Empty for jobs without a lane."""


class LaneChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be overridden of which lane. What is left out stays; null is no limit."""

    queue: str
    lane: str
    weight: int | UnsetType = UNSET
    concurrency: int | None | UnsetType = UNSET
    rate: str | None | UnsetType = UNSET
    """Such as "5/s"."""


class LaneState(msgspec.Struct, frozen=True, kw_only=True):
    """A lane after a change; without jobs and settings there is nothing to tell of it."""

    queue: str
    lane: str
    shown: LaneWhole | None


@get("/v1/lanes", guards=[requires(Scope.READ)], tags=["lanes"])
async def list_lanes(
    context: RouteContext, queue: QueueName, limit: Limit = USUAL, cursor: After = None
) -> Page[LaneWhole]:
    """The lanes of a queue that have jobs ready or running, settings, or are paused, by name: backlog, share,
    how far ahead of the others (`lag`, in jobs), limit, tokens, and why it is parked.
    """
    name = await context.seen_queue(queue)
    listed = listing(context.caller, "lanes", name)
    after = context.opened(cursor, listed)
    if context.caller.lanes is not None:
        own = [await context.service.lanes.one(name, lane) for lane in sorted(context.caller.lanes)[:limit]]
        return Page(items=[lane for lane in own if lane is not None])
    lanes, place = await context.service.lanes.page(name, after, limit)
    return Page(items=lanes, cursor=context.sealed(place, listed))


@post("/v1/lanes/pause", status_code=200, guards=[requires(Scope.OPERATE)], tags=["lanes"])
async def pause_lane(context: RouteContext, data: JSONBody[LanePlace]) -> LaneState:
    """Pause a lane: the store stops handing out its jobs. Running jobs go on."""
    queue, lane = await _mine(context, data)
    await context.service.lanes.pause(queue, lane)
    await context.record("lane paused", {"queue": queue, "lane": lane}, jobs=0, wanted=0)
    return await _state(context, queue, lane)


@post("/v1/lanes/resume", status_code=200, guards=[requires(Scope.OPERATE)], tags=["lanes"])
async def resume_lane(context: RouteContext, data: JSONBody[LanePlace]) -> LaneState:
    """Resume a lane: the store hands out its jobs again."""
    queue, lane = await _mine(context, data)
    await context.service.lanes.resume(queue, lane)
    await context.record("lane resumed", {"queue": queue, "lane": lane}, jobs=0, wanted=0)
    return await _state(context, queue, lane)


@patch("/v1/lanes/override", guards=[requires(Scope.OPERATE)], tags=["lanes"])
async def override_lane(context: RouteContext, data: JSONBody[LaneChange]) -> LaneState:
    """Override the weight or the limits of a lane until they are reset."""
    queue, lane = await _mine(context, data)
    settings = overrides(data, LaneSettings, lane_settings, check_lane_settings)
    await context.service.lanes.override(queue, lane, settings)
    await context.record("lane overridden", on_record(data), jobs=0, wanted=0)
    return await _state(context, queue, lane)


@post("/v1/lanes/reset", status_code=200, guards=[requires(Scope.OPERATE)], tags=["lanes"])
async def reset_lane(context: RouteContext, data: JSONBody[LanePlace]) -> LaneState:
    """Drop the override of a lane: its declared settings apply again."""
    queue, lane = await _mine(context, data)
    if await context.service.lanes.reset(queue, lane):
        await context.record("lane reset", {"queue": queue, "lane": lane}, jobs=0, wanted=0)
    return await _state(context, queue, lane)


async def _mine(context: Context, data: LanePlace | LaneChange) -> tuple[str, str]:
    with field("lane"):
        lane = check_lane(data.lane)
    queue = await context.seen_queue(data.queue)
    if not context.caller.sees_lane(lane):
        raise not_found(f'there is no lane "{lane}"', field="lane")
    return queue, lane


async def _state(context: Context, queue: str, lane: str) -> LaneState:
    return LaneState(queue=queue, lane=lane, shown=await context.service.lanes.one(queue, lane))


ROUTES = (list_lanes, pause_lane, resume_lane, override_lane, reset_lane)
