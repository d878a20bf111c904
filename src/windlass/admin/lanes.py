"""Lanes: backlog, share and settings; paused, resumed, overridden and reset."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from windlass.admin.overrides import override, reset
from windlass.admin.queues import Queues
from windlass.admin.reading import documents, store_time
from windlass.admin.views import LaneShown, is_active, lane_shown, moment, settings_shown
from windlass.broker.contract import Broker
from windlass.core.names import check_lane, check_queue
from windlass.core.query import FIRST_PAGE, JobQuery, LaneView, Parked
from windlass.core.settings import Document, Kind, LaneSettings, Subject, overlay
from windlass.core.state import State
from windlass.core.units import Cursor

MOST_WEIGHED = 10_000
"""Lanes whose weights are added up. Of a queue with more, no lane's share is shown."""
MOST_ASKED = 20
"""Lanes of a page at their rate that are asked when their next token comes."""
_PAGE = 1_000


class LaneWhole(LaneShown, frozen=True, kw_only=True):
    """A lane, and what was said of it by name."""

    settings: Mapping[str, Any]
    """In force, of what was said of this lane; limits for all lanes are the queue's."""
    declared: Mapping[str, Any]
    override: Mapping[str, Any]
    parked_until: datetime | None = None
    """When a lane that is at its rate gets its next token; told of the first 20 of a page."""


class Lanes:
    """The lanes of the queues of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queues = Queues(broker)

    # --- reads ----------------------------------------------------------------------------------------------

    async def all(self, queue: str) -> AsyncIterator[LaneShown]:
        """Every lane of a queue that has jobs, settings, or is paused, by name."""
        await self._queues.check(queue)
        total = sum([lane.weight async for lane in self._views(queue) if is_active(lane)])
        async for lane in self._views(queue):
            yield lane_shown(lane, total)

    async def page(self, queue: str, after: Cursor, limit: int) -> tuple[list[LaneWhole], Cursor | None]:
        """Some lanes of a queue with their settings, by name, and where the next page begins."""
        total = await self._weight(queue)
        said = await self._documents(queue)
        page = await self._broker.lanes(queue, after, limit)
        lanes = [_whole(lane_shown(lane, total), said.get(lane.lane)) for lane in page.lanes]
        waiting = [lane for lane in lanes if lane.parked == Parked.RATE][:MOST_ASKED]
        until = {lane.lane: await self._parked_until(lane) for lane in waiting}
        shown = [msgspec.structs.replace(lane, parked_until=until.get(lane.lane)) for lane in lanes]
        return shown, page.cursor

    async def one(self, queue: str, lane: str) -> LaneWhole | None:
        """One lane with its settings; None if it has no jobs, no settings and is not paused."""
        async for view in self._views(queue):
            if view.lane == lane:
                said = await self._documents(queue)
                whole = _whole(lane_shown(view, await self._weight(queue)), said.get(lane))
                until = await self._parked_until(whole) if whole.parked == Parked.RATE else None
                return msgspec.structs.replace(whole, parked_until=until)
        return None

    # --- writes ---------------------------------------------------------------------------------------------

    async def pause(self, queue: str, lane: str) -> None:
        """Stop handing out the jobs of one lane; what runs goes on."""
        if not await self._broker.pause(check_queue(queue), check_lane(lane)):
            await self._queues.check(queue)

    async def resume(self, queue: str, lane: str) -> None:
        """Hand out the jobs of a lane again."""
        if not await self._broker.resume(check_queue(queue), check_lane(lane)):
            await self._queues.check(queue)

    async def override(self, queue: str, lane: str, settings: LaneSettings) -> None:
        """Override what these settings name until it is reset; other overrides stay."""
        await self._queues.check(check_queue(queue))
        await override(self._broker, Subject(Kind.LANE, queue, check_lane(lane)), settings)

    async def reset(self, queue: str, lane: str) -> bool:
        """Let the declared settings of a lane count again. Returns False if nothing was overridden."""
        await self._queues.check(check_queue(queue))
        return await reset(self._broker, Subject(Kind.LANE, queue, check_lane(lane)))

    # --- parts ----------------------------------------------------------------------------------------------

    async def _views(self, queue: str) -> AsyncIterator[LaneView]:
        cursor: Cursor | None = FIRST_PAGE
        while cursor is not None:
            page = await self._broker.lanes(queue, cursor, _PAGE)
            for lane in page.lanes:
                yield lane
            cursor = page.cursor

    async def _weight(self, queue: str) -> int:
        """The weight of all lanes that wait and are not parked; 0 if there are too many to add up."""
        total = count = 0
        async for lane in self._views(queue):
            total += lane.weight if is_active(lane) else 0
            count += 1
            if count > MOST_WEIGHED:
                return 0
        return total

    async def _documents(self, queue: str) -> dict[str, Document]:
        return {
            document.subject.lane: document
            async for document in documents(self._broker, Kind.LANE)
            if document.subject.name == queue
        }

    async def _parked_until(self, lane: LaneWhole) -> datetime | None:
        """Stores do not say this of a lane; a waiting job of the lane knows."""
        query = JobQuery(queue=lane.queue, lane=lane.lane, states=frozenset({State.READY}))
        jobs = (await self._broker.list(query, limit=1)).jobs
        explained = await self._broker.explain(jobs[0].id) if jobs else None
        if explained is None or explained.next_in is None:
            return None
        return moment(await store_time(self._broker) + explained.next_in)


def _whole(lane: LaneShown, document: Document | None) -> LaneWhole:
    layers = (None, None) if document is None else (document.declared, document.override)
    declared, overridden = (layer if isinstance(layer, LaneSettings) else None for layer in layers)
    return LaneWhole(
        **msgspec.structs.asdict(lane),
        settings=settings_shown(overlay(declared, overridden)),
        declared=settings_shown(declared),
        override=settings_shown(overridden),
    )
