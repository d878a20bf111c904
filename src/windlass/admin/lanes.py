"""Lanes page by page, with their settings in both layers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.admin.insight import Insight
from windlass.admin.views import LaneShown, is_active, lane_shown, settings_shown
from windlass.broker.contract import Broker
from windlass.core.query import FIRST_PAGE
from windlass.core.settings import Document, Kind, LaneSettings, overlay
from windlass.core.units import Cursor

MOST_WEIGHED = 10_000
"""Lanes whose weights are added up; of a queue with more, no lane's share is told."""
_PAGE = 1_000


class LaneWhole(LaneShown, frozen=True, kw_only=True):
    """A lane, and what was said of it by name."""

    settings: Mapping[str, Any]
    """In force, of what was said of this lane; limits for all lanes are the queue's."""
    declared: Mapping[str, Any]
    override: Mapping[str, Any]


async def lane_page(
    broker: Broker, queue: str, after: Cursor, limit: int
) -> tuple[list[LaneWhole], Cursor | None]:
    """Some lanes of a queue, by name, and where to go on."""
    total = await _weight(broker, queue)
    said = await _documents(broker, queue)
    page = await broker.lanes(queue, after, limit)
    return [_whole(lane_shown(lane, total), said.get(lane.lane)) for lane in page.lanes], page.cursor


async def one_lane(broker: Broker, queue: str, lane: str) -> LaneWhole | None:
    """One lane; None if there is nothing to say of it."""
    cursor: Cursor | None = FIRST_PAGE
    while cursor is not None:
        page = await broker.lanes(queue, cursor, _PAGE)
        for each in page.lanes:
            if each.lane == lane:
                said = await _documents(broker, queue)
                return _whole(lane_shown(each, await _weight(broker, queue)), said.get(lane))
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
