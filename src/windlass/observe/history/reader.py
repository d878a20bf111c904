"""From the event log into a sink, every five seconds.

Any number of processes may do it: workers' supervisors and servers all try, and the sink gives one of them
the turn. The turn is a courtesy, which keeps a fleet from reading the same log a hundred times; what makes
the result right is that an attempt is named by job and fence, so that written twice it is one.

The place in the log is kept in the sink, in the transaction that keeps what was read, so that nothing is
skipped when a reader dies. The store caps its log: a reader that was away for too long is told of a gap, and
says so. A log that is shorter than the place (a store that was emptied) is read from its start.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import msgspec
from msgspec import UNSET

from windlass.broker.contract import Broker
from windlass.core.event import FROM_NOW, FROM_START, Event
from windlass.core.session import SessionState, SessionView
from windlass.core.settings import Kind, QueueSettings
from windlass.core.units import Cursor, Micros, SessionId
from windlass.errors import WindlassError
from windlass.observe.history.attempt import Batch, slots_at, workers_at, workers_gone
from windlass.observe.history.place import KEPT, read_url
from windlass.observe.history.records import Records, attempt_of, enqueued_of
from windlass.observe.history.sink import Sink, open_sink

_log = logging.getLogger("windlass.observe")

EVERY = 5.0
"""Seconds."""
TURN = 3 * EVERY
"""Seconds for which a reader that falls silent keeps the others waiting."""
BATCH = 1_000
"""Events that are read and written together."""
BATCHES = 100
"""Of one turn: then it is asked for again, lest it runs out meanwhile."""
SWEPT_EVERY = 600.0
"""Seconds between two looks for what is too old."""
CHECKED_EVERY = 60.0
"""Seconds between two looks for queues that write no events."""
LONGEST_PAUSE = 60.0
_PAGE = 1_000


class HistoryReader:
    """Copies the ends of attempts of one namespace."""

    def __init__(
        self,
        broker: Broker,
        sink: Sink,
        source: str,
        *,
        keep: Micros = KEPT,
        patterns: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._sink = sink
        self._source = source
        self._keep = keep
        self._patterns = patterns
        self._clock = clock
        self._name = uuid4().hex
        self._forget_at = 0.0
        self._check_at = 0.0
        self._told: set[str] = set()
        self._records = Records(broker)
        self._sessions: dict[SessionId, SessionView] = {}
        """Those that are alive, or ended within the last hour."""
        self.is_behind = False
        """Whether more was there than it copies at once."""
        self._end: Cursor | None = None
        """A place that was found to be the end of the log."""

    async def step(self) -> int | None:
        """Copy what has come since the last time; how many attempts. None: it is another reader's turn."""
        now = self._clock()
        place = await self._sink.turn(self._source, self._name, now, now + TURN)
        self.is_behind = False
        if place is None:
            return None
        copied, seen, self.is_behind = 0, await self._seen(), True
        for _ in range(BATCHES):
            page = await self._broker.events(place, BATCH, 0)
            if page.gap:
                _log.warning("history has a gap: events were dropped from the log before they were read")
            if not page.items and await self._is_foreign(page.cursor):
                _log.warning(
                    "the event log is not the one that history was read from; it is read from its start"
                )
                place = FROM_START
                continue
            batch = await self._batch(page.items, seen)
            await self._sink.write(self._source, self._name, batch, page.cursor)
            copied, place, seen = copied + len(batch.attempts), page.cursor, Batch()
            if len(page.items) < BATCH:
                self.is_behind = False
                break
        await self._forget(now)
        await self._check_queues(now)
        return copied

    async def _is_foreign(self, place: Cursor) -> bool:
        """Whether a place that nothing follows is not the end of the log: asked once for each place, since a
        log that goes on is the one that it was.
        """
        if place == self._end:
            return False
        end = (await self._broker.events(FROM_NOW, 1, 0)).cursor
        foreign = end != place and not (await self._broker.events(place, 1, 0)).items
        self._end = None if foreign else place
        return foreign

    async def _batch(self, events: Sequence[Event], seen: Batch) -> Batch:
        """What these events tell, with what the store knows of their jobs; and the workers that were seen."""
        records = await self._records.of(events)
        found = (
            attempt_of(event, records.get(event.job), self._sessions, self._patterns) for event in events
        )
        attempts = [attempt for attempt in found if attempt is not None]
        return msgspec.structs.replace(
            seen,
            attempts=attempts,
            enqueued=enqueued_of(events, records),
            workers=[*seen.workers, *workers_gone(self._sessions, attempts)],
        )

    async def _seen(self) -> Batch:
        """The workers that there are."""
        now = (await self._broker.schedules(limit=1)).now
        sessions: list[SessionView] = []
        while True:
            page = await self._broker.sessions(sessions[-1].id if sessions else "", _PAGE)
            sessions += page
            if len(page) < _PAGE:
                break
        self._sessions = {session.id: session for session in sessions}
        alive = [session for session in sessions if session.state is SessionState.ALIVE]
        return Batch(slots=slots_at(now, alive), workers=workers_at(now, alive))

    async def _forget(self, now: float) -> None:
        if now >= self._forget_at:
            self._forget_at = now + SWEPT_EVERY
            at = (await self._broker.schedules(limit=1)).now
            await self._sink.forget(self._source, at - self._keep)

    async def _check_queues(self, now: float) -> None:
        """Say which queues history misses. A process of the app that was not told of history, such as a
        producer, declares them without events; who means that says `emit="none"`.
        """
        if now < self._check_at:
            return
        self._check_at = now + CHECKED_EVERY
        for document in await self._broker.documents(Kind.QUEUE, None, _PAGE):
            declared, override = document.declared, document.override
            says_so = any(
                isinstance(said, QueueSettings) and said.emit is not UNSET for said in (declared, override)
            )
            if not says_so and document.subject.name not in self._told:
                self._told.add(document.subject.name)
                _log.warning(
                    'queue "%s" writes no events, so history misses its jobs: set WINDLASS_HISTORY for every '
                    'process of its app, producers too (emit="none" on the queue: that is meant)',
                    document.subject.name,
                )


async def keep_history(
    url: str,
    broker: Broker,
    source: str,
    *,
    patterns: Sequence[str] = (),
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Copy for ever, whatever happens to the store or the sink meanwhile. What runs jobs does not wait for
    it, and does not notice. What looks private by these patterns is masked.
    """
    keep = read_url(url).keep
    sink: Sink | None = None
    pause, failing = EVERY, False
    try:
        reader: HistoryReader | None = None
        while True:
            try:
                if reader is None:
                    sink = await open_sink(url, broker)
                    reader = HistoryReader(broker, sink, source, keep=keep, patterns=patterns)
                await reader.step()
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs must not depend on it
                if not failing:
                    unforeseen = None if isinstance(error, WindlassError) else error
                    _log.warning(
                        "history cannot be kept: %s; trying until it can", error, exc_info=unforeseen
                    )
                failing, pause = True, min(LONGEST_PAUSE, 2 * pause)
            else:
                if failing:
                    _log.info("history is kept again")
                failing, pause = False, EVERY
            await sleep(0.0 if reader is not None and reader.is_behind and not failing else pause)
    finally:
        if sink is not None:
            await sink.close()
