"""Events as they happen: the log of the store as server-sent events, each reader at its own place in it.

A stream holds one page of events at a time, and waits for its client before it reads on: a slow one falls
behind, is told of a gap should the log be cut meanwhile, and costs nobody memory. The id of an event is the
place in the log behind it, so that who comes back with `Last-Event-ID` misses nothing and sees nothing twice.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from windlass.admin.events import event_shown
from windlass.admin.keys import Scope
from windlass.api.access import requires
from windlass.api.context import Context, RouteContext
from windlass.api.page import listing
from windlass.api.problems import Refusal
from windlass.core.event import FROM_START, Event, Events
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
    return QueryParameter(
        name=what, max_items=100, description=f"Only of this {what}; may be said several times."
    )


@get(
    "/v1/events",
    guards=[requires(Scope.READ)],
    tags=["events"],
    media_type="text/event-stream",
)
async def events(
    context: RouteContext,
    queue: Annotated[list[str] | None, _names("queue")] = None,
    task: Annotated[list[str] | None, _names("task")] = None,
    job: Annotated[list[str] | None, _names("job")] = None,
    kind: Annotated[list[Move] | None, _names("kind")] = None,
    start: Annotated[
        str,
        QueryParameter(
            name="from", pattern="^(now|start)$", description="Where to begin without Last-Event-ID."
        ),
    ] = "now",
    last_event_id: Annotated[str | None, HeaderParameter(name="last-event-id", max_length=200)] = None,
) -> Stream:
    """Events as server-sent events: hello (which queues write what), job (one transition), gap (some were
    dropped before you read them), bye. Only queues whose `emit` is final or all write any.
    """
    if context.server_state.stopping.is_set():
        raise Refusal(503, "stopping", "the server is about to stop", headers={"retry-after": "1"})
    wanted = _Wanted(
        queues=None if queue is None else frozenset(queue),
        tasks=None if task is None else frozenset(task),
        jobs=None if job is None else frozenset(job),
        kinds=None if kind is None else frozenset(kind),
    )
    cursor, gap = await _beginning(context, last_event_id, start)
    with context.server_state.long_poll(context.caller.name):
        pass  # a stream that may not begin is told so by its status
    return Stream(
        _Stream(context, wanted, cursor, gap=gap).placed(),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _beginning(context: Context, last: str | None, start: str) -> tuple[Cursor, bool]:
    """Where to read from, and whether some events are lost."""
    newest = await context.service.events.end()
    if last is None:
        return (newest if start == "now" else FROM_START), False
    place = context.opened(last, listing(context.caller, "events"), field="last-event-id")
    if newest.isdecimal() and int(place) > int(newest):
        return newest, True  # of a log that is no more
    return place, False


class _Stream:
    """One reader of the log."""

    def __init__(self, context: Context, wanted: _Wanted, cursor: Cursor, *, gap: bool) -> None:
        self._context = context
        self._wanted = wanted
        self._cursor = cursor
        self._listed = listing(context.caller, "events")
        self._gap = gap
        self._sent = time.monotonic()
        self._trusted = time.monotonic()

    async def placed(self) -> AsyncIterator[bytes]:
        """What is sent, for as long as there is a place for it. It is taken when the first line is asked for:
        who leaves before that holds none.
        """
        try:
            with self._context.server_state.long_poll(self._context.caller.name):
                async for line in self.lines():
                    yield line
        except Refusal as refusal:
            yield _event("bye", {"text": refusal.detail})

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
                    yield b": \n" + self._id(self._cursor) + b"\n"
                continue
            if page.gap:
                yield _GAP
            async for line in self._told(page):
                self._sent = time.monotonic()
                yield line
            self._cursor = page.cursor
        yield _event("bye", {"text": "the server stops"})

    @property
    def _is_stopping(self) -> bool:
        return self._context.server_state.stopping.is_set()

    async def _told(self, page: Events) -> AsyncIterator[bytes]:
        """The events of a page that are asked for and in sight. Their numbers follow each other; of a store
        that counts in another way only the last can be come back to.
        """
        caller = self._context.caller
        left = len(page.items)
        for event in page.items:
            left -= 1
            if self._wanted.has(event) and caller.sees(event.queue, event.lane):
                counted = page.cursor.isdecimal()
                place = str(int(page.cursor) - left) if counted else "" if left else page.cursor
                yield _event("job", event_shown(event), self._id(place))

    async def _page(self) -> Events | None:
        """The next page with events; None after a while, to look around."""
        waiting = asyncio.ensure_future(self._context.service.events.page(self._cursor, PAGE, LOOKS))
        stopping = asyncio.ensure_future(self._context.server_state.stopping.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return None
            page = waiting.result()
        finally:
            waiting.cancel()
            stopping.cancel()
        if page.gap or page.items:
            return page
        self._cursor = page.cursor  # "the oldest" of an empty log has a number now
        return None

    async def _is_trusted(self) -> bool:
        """Who would not be let in any more reads no further than a few seconds: the key was revoked, somebody
        has logged out, or there are keys now and this caller has none.
        """
        if time.monotonic() - self._trusted < TRUSTED:
            return True
        self._trusted = time.monotonic()
        try:
            return await self._context.server_state.callers.is_still(self._context.caller)
        except WindlassError:
            return False

    async def _hello(self) -> bytes:
        sees = self._context.caller.sees_queue
        emits = {
            queue.name: queue.settings.get("emit", "none")
            for queue in await self._context.service.queues.all()
            if sees(queue.name)
        }
        return _event("hello", {"emits": emits}, self._id(self._cursor))

    def _id(self, place: str) -> bytes:
        if place in ("", FROM_START):
            return b""
        return f"id: {self._context.sealed(place, self._listed)}\n".encode()


def _event(name: str, body: object, identity: bytes = b"") -> bytes:
    return b"event: " + name.encode() + b"\n" + identity + b"data: " + msgspec.json.encode(body) + b"\n\n"


_GAP = _event("gap", {"text": "events were dropped before you read them: look at the jobs themselves"})

ROUTES = (events,)
