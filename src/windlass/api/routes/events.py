"""Events as they happen: the log of the store as server-sent events, each reader at its own place in it.

A stream holds one page of events at a time, and waits for its client before it reads on: a slow one falls
behind, is told of a gap should the log be cut meanwhile, and costs nobody memory. The id of an event names
the page and the place in it, so that who comes back with `Last-Event-ID` misses nothing and sees nothing
twice.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import Parameter
from litestar.response import Stream

from windlass.admin.keys import Scope
from windlass.admin.views import moment, seconds
from windlass.api.access import requires
from windlass.api.desk import AtDesk, Desk
from windlass.api.problems import Refusal, invalid
from windlass.broker.contract import Broker
from windlass.core.event import FROM_NOW, FROM_START, Event, Events
from windlass.core.state import Move
from windlass.core.units import Cursor
from windlass.errors import WindlassError

PAGE = 200
"""Events that a stream holds."""
HEARTBEAT = 10.0
"""Seconds between two signs of life of a stream that has nothing to tell."""
LOOKS = 1.0
"""Seconds that a stream waits for events before it looks around."""
TRUSTED = 3.0
"""Seconds between two looks at whether the key is still valid."""

_PLACE = re.compile(r"([0-9]{1,4}):([0-9]{1,19})")


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


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a reader asked for."""

    queues: frozenset[str] | None = None
    tasks: frozenset[str] | None = None
    jobs: frozenset[str] | None = None
    kinds: frozenset[str] | None = None

    def has(self, event: Event) -> bool:
        return (
            (self.queues is None or event.queue in self.queues)
            and (self.tasks is None or event.task in self.tasks)
            and (self.jobs is None or event.job in self.jobs)
            and (self.kinds is None or event.move in self.kinds)
        )


def _names(what: str) -> Any:
    return Parameter(
        query=what, max_items=100, description=f"Only of this {what}; may be said several times."
    )


@get(
    "/v1/events",
    guards=[requires(Scope.READ)],
    tags=["events"],
    media_type="text/event-stream",
)
async def events(
    desk: AtDesk,
    queue: Annotated[list[str] | None, _names("queue")] = None,
    task: Annotated[list[str] | None, _names("task")] = None,
    job: Annotated[list[str] | None, _names("job")] = None,
    kind: Annotated[list[Move] | None, _names("kind")] = None,
    start: Annotated[
        str,
        Parameter(query="from", pattern="^(now|start)$", description="Where to begin without Last-Event-ID."),
    ] = "now",
    last_event_id: Annotated[str | None, Parameter(header="last-event-id", max_length=200)] = None,
) -> Stream:
    """Events as server-sent events: `hello` (which queues write what), `job` (one transition), `gap` (some
    were dropped before you read them), `bye`. Only queues whose `emit` is final or all write any.
    """
    if desk.running.stopping.is_set():
        raise Refusal(503, "stopping", "the server is about to stop", headers={"retry-after": "1"})
    wanted = _Wanted(
        queues=None if queue is None else frozenset(queue),
        tasks=None if task is None else frozenset(task),
        jobs=None if job is None else frozenset(job),
        kinds=None if kind is None else frozenset(kind),
    )
    cursor, skipped, gap = await _beginning(desk, last_event_id, start)
    # Taken here: a stream that may not begin is told so by its status.
    place = desk.running.long_poll()
    place.__enter__()
    stream = _Stream(desk, wanted, cursor, skipped, gap=gap)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for line in stream.lines():
                yield line
        finally:
            place.__exit__(None, None, None)

    return Stream(
        lines(),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _beginning(desk: Desk, last: str | None, start: str) -> tuple[Cursor, int, bool]:
    """Where to read from, how many events of that page are known, and whether some are lost."""
    newest = (await desk.broker.events(FROM_NOW, 1, 0.0)).cursor
    if last is None:
        return (newest if start == "now" else FROM_START), 0, False
    found = _PLACE.fullmatch(desk.opened(last))
    if found is None:
        raise invalid("this is not the id of an event", field="last-event-id")
    if newest.isdecimal() and int(found[2]) > int(newest):
        return newest, 0, True  # of a log that is no more
    return Cursor(found[2]), int(found[1]), False


class _Stream:
    """One reader of the log."""

    def __init__(self, desk: Desk, wanted: _Wanted, cursor: Cursor, skipped: int, *, gap: bool) -> None:
        self._desk = desk
        self._wanted = wanted
        self._cursor = cursor
        self._skipped = skipped
        self._gap = gap
        self._sent = time.monotonic()
        self._trusted = time.monotonic()

    async def lines(self) -> AsyncIterator[bytes]:
        """What is sent."""
        yield await self._hello()
        if self._gap:
            yield _GAP
        while not self._is_stopping:
            if not await self._is_trusted():
                yield _event("bye", {"text": "the key is not valid any more"})
                return
            try:
                page = await self._page()
            except WindlassError as error:
                yield _event("bye", {"text": f"the store does not answer: {error}"})
                return
            if page is None:
                if time.monotonic() - self._sent >= HEARTBEAT:
                    self._sent = time.monotonic()
                    yield b": \n" + self._id(self._skipped) + b"\n"
                continue
            if page.gap:
                self._skipped = 0
                yield _GAP
            async for line in self._told(page):
                self._sent = time.monotonic()
                yield line
            self._cursor, self._skipped = page.cursor, 0
        yield _event("bye", {"text": "the server stops"})

    @property
    def _is_stopping(self) -> bool:
        return self._desk.running.stopping.is_set()

    async def _told(self, page: Events) -> AsyncIterator[bytes]:
        caller = self._desk.caller
        for number, event in enumerate(page.items, 1):
            if number > self._skipped and self._wanted.has(event) and caller.sees(event.queue, event.lane):
                yield _event("job", event_shown(event), self._id(number))

    async def _page(self) -> Events | None:
        """The next page with events; None after a while, to look around."""
        waiting = asyncio.ensure_future(self._read(self._desk.broker))
        stopping = asyncio.ensure_future(self._desk.running.stopping.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return None
            page = waiting.result()
        finally:
            waiting.cancel()
            stopping.cancel()
        return page if page.gap or len(page.items) > self._skipped else None

    async def _read(self, broker: Broker) -> Events:
        page = await broker.events(self._cursor, PAGE, LOOKS)
        if len(page.items) <= self._skipped and page.items:
            await asyncio.sleep(LOOKS)  # all of it is known, and none of it is waited for
        return page

    async def _is_trusted(self) -> bool:
        """A key that was revoked reads no further than a few seconds."""
        caller = self._desk.caller
        if caller.key is None or time.monotonic() - self._trusted < TRUSTED:
            return True
        self._trusted = time.monotonic()
        try:
            return await self._desk.running.keys.by_id(caller.key) is not None
        except WindlassError:
            return False

    async def _hello(self) -> bytes:
        sees = self._desk.caller.sees_queue
        emits = {
            queue.name: queue.settings.get("emit", "none")
            for queue in await self._desk.insight.queues()
            if sees(queue.name)
        }
        return _event("hello", {"emits": emits}, self._id(self._skipped))

    def _id(self, number: int) -> bytes:
        if not self._cursor.isdecimal():
            return b""
        return f"id: {self._desk.sealed(f'{number}:{self._cursor}')}\n".encode()


def event_shown(event: Event) -> EventShown:
    """An event as the outside sees it."""
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


def _event(name: str, body: object, identity: bytes = b"") -> bytes:
    return b"event: " + name.encode() + b"\n" + identity + b"data: " + msgspec.json.encode(body) + b"\n\n"


_GAP = _event("gap", {"text": "events were dropped before you read them: look at the jobs themselves"})

ROUTES = (events,)
