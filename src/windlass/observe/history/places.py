"""How far a sink was filled, and whose turn it is: for sinks that have no transactions.

A sink with transactions keeps its place together with what it was given. Another keeps its data first; its
place is then a document of the store that the events come from. Who dies in between is repeated by the next,
so such a sink must make one of what is written twice.
"""

from typing import Protocol

import msgspec

from windlass.broker.management import Configure
from windlass.core.bridging import decoded
from windlass.core.event import FROM_START
from windlass.core.reading import Reading
from windlass.core.settings import Change, Document, Kind, Subject
from windlass.core.units import SECOND, Cursor, Micros

_ROWS = 1_000


class Places(Protocol):
    """Keeps the places of a sink: `Sink.turn`, and the second half of `Sink.write`."""

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """As `Sink.turn`."""
        ...

    async def go_on(self, source: str, reader: str, cursor: Cursor) -> None:
        """Keep the place, if it is this reader's turn; else nothing changes."""
        ...


class StorePlaces:
    """Places in documents of the store, which change by compare-and-set on their versions."""

    def __init__(self, broker: Configure, sink: str) -> None:
        """`sink` names where the data are: another place begins at the start of the log."""
        self._broker = broker
        self._sink = sink
        self._readings: dict[str, tuple[Reading, int]] = {}
        """By source: what was kept last, and its version."""

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """See `Places`. Each write makes all workers read their settings again: while half of a turn is left,
        it is not asked for again.
        """
        at, then = int(now * SECOND), int(until * SECOND)
        known = self._readings.get(source)
        if known is not None and known[0].holder == reader and known[0].until - at > (then - at) // 2:
            return Cursor(known[0].cursor)
        document = await self._document(source)
        kept = None if document is None else decoded(document.override, Reading)
        reading = kept or Reading(cursor=FROM_START)
        if reading.holder not in ("", reader) and at <= reading.until:
            return None
        version = 0 if document is None else document.version
        return await self._keep(source, version, reading.cursor, reader, then)

    async def go_on(self, source: str, reader: str, cursor: Cursor) -> None:
        """See `Places`."""
        known = self._readings.get(source)
        if known is None or known[0].holder != reader or known[0].cursor == cursor:
            return
        await self._keep(source, known[1], cursor, reader, known[0].until)

    async def _keep(
        self, source: str, version: int, cursor: str, reader: str, until: Micros
    ) -> Cursor | None:
        reading = Reading(cursor=cursor, holder=reader, until=until)
        self._readings.pop(source, None)  # until the store says that it is so
        changed = await self._broker.override(self._subject(source), msgspec.json.encode(reading), version)
        if changed.change not in (Change.APPLIED, Change.UNCHANGED):
            return None
        self._readings[source] = (reading, changed.version)
        return Cursor(cursor)

    def _subject(self, source: str) -> Subject:
        return Subject(Kind.READER, f"history:{self._sink}:{source}")

    async def _document(self, source: str) -> Document | None:
        subject, after = self._subject(source), None
        while True:
            page = await self._broker.documents(Kind.READER, after, _ROWS)
            for document in page:
                if document.subject == subject:
                    return document
            if len(page) < _ROWS:
                return None
            after = page[-1].subject
