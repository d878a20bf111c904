"""The log of events, for readers that each keep their own place in it."""

from datetime import datetime

import msgspec

from windlass.admin.views import moment, seconds
from windlass.broker.contract import Broker
from windlass.core.event import FROM_NOW, Event, Events
from windlass.core.units import Cursor


class EventShown(msgspec.Struct, frozen=True, kw_only=True):
    """One transition of one job; no payload, no error text, no result."""

    at: datetime
    job: str
    task: str
    queue: str
    lane: str
    kind: str
    """What happened: enqueue, claim, done, retry, dead, crash, …"""
    before: str | None
    after: str | None
    reason: str | None
    outcome: str | None
    attempt: int
    fence: int
    runtime: float | None
    waited: float | None


class EventLog:
    """The events of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def end(self) -> Cursor:
        """The place behind the newest event."""
        return (await self._broker.events(FROM_NOW, 1, 0.0)).cursor

    async def page(self, after: Cursor, limit: int, wait: float) -> Events:
        """The next events; an empty page if none comes within so many seconds."""
        return await self._broker.events(after, limit, wait)


def event_shown(event: Event) -> EventShown:
    """An event for the outside."""
    return EventShown(
        at=moment(event.at),
        job=event.job,
        task=event.task,
        queue=event.queue,
        lane=event.lane,
        kind=event.move,
        before=event.before,
        after=event.after,
        reason=event.reason,
        outcome=event.outcome,
        attempt=event.attempt,
        fence=event.fence,
        runtime=None if event.runtime is None else seconds(event.runtime),
        waited=None if event.waited is None else seconds(event.waited),
    )
