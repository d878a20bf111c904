"""An archive in a table of the history's database."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from windlass.core.units import Micros
from windlass.errors import InvalidOption
from windlass.observe.archive.entry import Entry, decode, encode, forgotten
from windlass.observe.history.sink import Sink, open_sink
from windlass.observe.history.sql import Archived

PAGE = 500
"""Entries that are looked at together."""


@runtime_checkable
class Rows(Protocol):
    """A sink that answers statements: those of PostgreSQL, with numbered parameters."""

    async def rows(self, statement: str, *parameters: Any) -> Sequence[Any]:
        """Execute a statement durably: when this returns, the change survives a crash of the machine."""
        ...


class DatabaseArchive:
    """A table. An entry is named by its namespace, job and death, so that written twice it is one."""

    def __init__(self, sink: Sink, rows: Rows, keep: Micros | None) -> None:
        self._sink = sink
        self._rows = rows
        self._keep = keep

    @classmethod
    async def open(cls, history: str, keep: Micros | None) -> "DatabaseArchive":
        """Open the history, and make the table where it is not there."""
        sink = await open_sink(history)
        if not isinstance(sink, Rows):
            await sink.close()
            raise InvalidOption('this history keeps no archive: name a file, archive="file:///…"')
        return cls(sink, sink, keep)

    async def write(self, entries: Sequence[Entry]) -> None:
        """See `Archive`."""
        for entry in entries:
            await self._rows.rows(
                Archived.ADD, entry.namespace, entry.id, entry.died_at, entry.at, encode(entry).decode()
            )
        if self._keep is not None and entries:
            await self._rows.rows(Archived.FORGET, entries[0].namespace, _before(entries[-1].at, self._keep))

    async def forget(self, namespace: str, tag: str) -> int:
        """See `Archive`."""
        blanked, place = 0, ("", "")
        while page := await self._rows.rows(Archived.PAGE, namespace, *place, PAGE):
            for job, died_at, line in page:
                entry = decode(line)
                blank = forgotten(entry)
                if tag in entry.tags and blank != entry:
                    await self._rows.rows(Archived.REPLACE, namespace, job, died_at, encode(blank).decode())
                    blanked += 1
            place = (page[-1][0], page[-1][1])
        return blanked

    async def close(self) -> None:
        """See `Archive`."""
        await self._sink.close()


def _before(at: str, keep: Micros) -> str:
    return (datetime.fromisoformat(at) - timedelta(microseconds=keep)).isoformat().replace("+00:00", "Z")
