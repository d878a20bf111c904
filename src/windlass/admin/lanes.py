"""Lanes page by page, with their settings in both layers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass.admin.insight import Insight
from windlass.admin.views import LaneShown, is_active, lane_shown, moment, settings_shown
from windlass.broker.contract import Broker
from windlass.core.query import FIRST_PAGE, JobQuery, Parked
from windlass.core.settings import Document, Kind, LaneSettings, overlay
from windlass.core.state import State
from windlass.core.units import Cursor

MOST_WEIGHED = 10_000
"""Lanes whose weights are added up; of a queue with more, no lane's share is told."""
MOST_ASKED = 20
_PAGE = 1_000


class LaneWhole(LaneShown, frozen=True, kw_only=True):
    """A lane, and what was said of it by name."""

    settings: Mapping[str, Any]
    """In force, of what was said of this lane; limits for all lanes are the queue's."""
    declared: Mapping[str, Any]
    override: Mapping[str, Any]
    parked_until: datetime | None = None
    """When a lane that is at its rate gets its next token; told of the first 20 of a page."""


async def lane_page(
    broker: Broker, queue: str, after: Cursor, limit: int
) -> tuple[list[LaneWhole], Cursor | None]:
    """Some lanes of a queue, by name, and where to go on."""
    total = await _weight(broker, queue)
    said = await _documents(broker, queue)
    page = await broker.lanes(queue, after, limit)
    lanes = [_whole(lane_shown(lane, total), said.get(lane.lane)) for lane in page.lanes]
    waiting = [lane for lane in lanes if lane.parked == Parked.RATE][:MOST_ASKED]
    until = {lane.lane: await _until(broker, lane) for lane in waiting}
    return [msgspec.structs.replace(lane, parked_until=until.get(lane.lane)) for lane in lanes], page.cursor


async def one_lane(broker: Broker, queue: str, lane: str) -> LaneWhole | None:
    """One lane; None if there is nothing to say of it."""
    cursor: Cursor | None = FIRST_PAGE
    while cursor is not None:
        page = await broker.lanes(queue, cursor, _PAGE)
        for each in page.lanes:
            if each.lane == lane:
                said = await _documents(broker, queue)
                whole = _whole(lane_shown(each, await _weight(broker, queue)), said.get(lane))
                until = await _until(broker, whole) if whole.parked == Parked.RATE else None
                return msgspec.structs.replace(whole, parked_until=until)
        cursor = page.cursor
    return None


def _whole(lane: LaneShown, document: Document | None) -> LaneWhole:
    layers = (None, None) if document is None else (document.declared, document.override)
    declared, override = (layer if isinstance(layer, LaneSettings) else None for layer in layers)
    return LaneWhole(
        **msgspec.structs.asdict(lane),
        settings=settings_shown(overlay(declared, override)),
        declared=settings_shown(declared),
        override=settings_shown(override),
    )


async def _until(broker: Broker, lane: LaneWhole) -> datetime | None:
    """What a waiting job of the lane is told; lanes themselves do not say."""
    query = JobQuery(queue=lane.queue, lane=lane.lane, states=frozenset({State.READY}))
    jobs = (await broker.list(query, limit=1)).jobs
    explained = await broker.explain(jobs[0].id) if jobs else None
    if explained is None or explained.next_in is None:
        return None
    return moment((await Insight(broker).now()) + explained.next_in)


async def _weight(broker: Broker, queue: str) -> int:
    """Of all lanes that wait and are not parked; 0 if they are too many to tell."""
    total = seen = 0
    cursor: Cursor | None = FIRST_PAGE
    while cursor is not None:
        page = await broker.lanes(queue, cursor, _PAGE)
        total += sum(lane.weight for lane in page.lanes if is_active(lane))
        seen += len(page.lanes)
        if seen > MOST_WEIGHED:
            return 0
        cursor = page.cursor
    return total


async def _documents(broker: Broker, queue: str) -> dict[str, Document]:
    return {
        document.subject.lane: document
        async for document in Insight(broker).documents(Kind.LANE)
        if document.subject.name == queue
    }
