"""`windlass lanes`: list the lanes of a queue, pause and resume them, override their settings."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.admin.views import LaneShown
from windlass.cli import parameters as given
from windlass.cli.effects import put_on_record
from windlass.cli.failure import UsageError
from windlass.cli.jobs import check_limit
from windlass.cli.opening import with_service
from windlass.cli.output import Column, say, say_json, show
from windlass.cli.queues import NO_LIMIT, as_number
from windlass.client.settings import LaneOptions, lane_settings
from windlass.core.settings import LaneSettings


def list_lanes(
    app: given.App,
    queue: given.QueueName,
    /,
    *,
    limit: given.Limit = None,
    json: given.Json = False,
) -> int:
    """List the lanes of a queue: backlog, share, lag, limits, and why a lane is parked."""
    check_limit(limit)

    async def work(service: Service) -> None:
        lanes = service.lanes.all(queue)
        await show(
            lanes,
            _columns(),
            json=json,
            limit=limit,
            nothing=f'queue "{queue}" has no lane with jobs or settings',
        )

    return with_service(app, work)


def pause_lane(
    app: given.App, queue: given.QueueName, lane: given.LaneName, /, *, json: given.Json = False
) -> int:
    """Stop handing out the jobs of one lane until you resume it. Running jobs continue."""

    async def work(service: Service) -> None:
        await service.lanes.pause(queue, lane)
        await put_on_record(service, "lane paused", {"queue": queue, "lane": lane})
        _tell(queue, lane, "paused", json=json)

    return with_service(app, work)


def resume_lane(
    app: given.App, queue: given.QueueName, lane: given.LaneName, /, *, json: given.Json = False
) -> int:
    """Hand out the jobs of a lane again."""

    async def work(service: Service) -> None:
        await service.lanes.resume(queue, lane)
        await put_on_record(service, "lane resumed", {"queue": queue, "lane": lane})
        _tell(queue, lane, "resumed", json=json)

    return with_service(app, work)


def set_lane(
    app: given.App,
    queue: given.QueueName,
    lane: given.LaneName,
    /,
    *,
    weight: Annotated[str | None, Parameter(help="Its share of the queue, relative to other lanes.")] = None,
    concurrency: Annotated[
        str | None, Parameter(help=f'Jobs that run at once; "{NO_LIMIT}": no limit.')
    ] = None,
    rate: Annotated[
        str | None, Parameter(help=f'Jobs that start per period; "{NO_LIMIT}": no limit.')
    ] = None,
    json: given.Json = False,
) -> int:
    """Override settings of one lane until you reset them."""
    options = {"weight": weight, "concurrency": concurrency, "rate": rate}
    said = {name: value for name, value in options.items() if value is not None}
    settings = _read(said)

    async def work(service: Service) -> None:
        await service.lanes.override(queue, lane, settings)
        await put_on_record(service, "lane overridden", {"queue": queue, "lane": lane, **said})
        _tell(queue, lane, "overridden", json=json)

    return with_service(app, work)


def reset_lane(
    app: given.App, queue: given.QueueName, lane: given.LaneName, /, *, json: given.Json = False
) -> int:
    """Drop the override of a lane: the declared settings apply again."""

    async def work(service: Service) -> None:
        changed = await service.lanes.reset(queue, lane)
        if changed:
            await put_on_record(service, "lane reset", {"queue": queue, "lane": lane})
        _tell(queue, lane, "reset" if changed else "not overridden", json=json)

    return with_service(app, work)


def _read(said: Mapping[str, str]) -> LaneSettings:
    if not said:
        raise UsageError("name a setting, such as --weight 2; the verb reset drops an override")
    unlimited = {name for name in ("concurrency", "rate") if said.get(name) == NO_LIMIT}
    options = {name: as_number(name, value) for name, value in said.items() if name not in unlimited}
    settings = lane_settings(LaneOptions(**options))  # pyright: ignore[reportArgumentType]
    return msgspec.structs.replace(settings, **dict.fromkeys(unlimited))


def _tell(queue: str, lane: str, done: str, *, json: bool) -> None:
    if json:
        say_json({"queue": queue, "lane": lane, "effect": done})
    else:
        say(f'lane "{lane}" of queue "{queue}": {done}')


def _columns() -> Sequence[Column[LaneShown]]:
    return (
        Column("lane", lambda lane: lane.lane or '""', wraps=True),
        Column("ready", lambda lane: f"{lane.ready:,}", right=True),
        Column("running", lambda lane: f"{lane.running:,}", right=True),
        Column("weight", lambda lane: str(lane.weight), right=True),
        Column("share", lambda lane: "" if lane.share is None else f"{lane.share:.0%}", right=True),
        Column("lag", lambda lane: f"{lane.lag:g}", right=True),
        Column(
            "concurrency", lambda lane: "" if lane.concurrency is None else str(lane.concurrency), right=True
        ),
        Column("tokens", lambda lane: "" if lane.tokens is None else str(lane.tokens), right=True),
        Column("parked", lambda lane: lane.parked or ("paused" if lane.paused else "")),
    )
