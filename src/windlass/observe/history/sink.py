"""The protocol of a sink, which keeps history; and which one a URL names."""

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from windlass.core.units import Cursor, Micros
from windlass.errors import InvalidOption
from windlass.observe.history.attempt import Attempt, Slots
from windlass.observe.history.place import read_url


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts are asked for: those that ended in [since, until)."""

    since: Micros
    until: Micros
    task: str | None = None
    queue: str | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink counts of some attempts. Percentiles are values that occurred, of those that had one."""

    key: str | int = ""
    """What they have in common: a task, or the time that a bucket begins at."""
    done: int = 0
    failed: int = 0
    dead: int = 0
    """Of the failed ones: those that were the last."""
    cancelled: int = 0
    given_back: int = 0
    ran: Micros = 0
    """How long all of them ran together."""
    waits: tuple[Micros | None, Micros | None, Micros | None] = (None, None, None)
    """p50, p95 and p99."""
    runs: tuple[Micros | None, Micros | None, Micros | None] = (None, None, None)


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What there was to run in: sums over samples, each of which stands for `SAMPLE`."""

    key: str | int
    """A host, or the time that a bucket begins at."""
    samples: int
    slots: int
    leases: int


class Sink(Protocol):
    """Keeps history. `source` tells the namespaces apart that share one."""

    async def turn(self, source: str, reader: str, now: float, until: float) -> Cursor | None:
        """Whether it is this reader's turn, until a time (seconds since the epoch): the place in the event
        log where to go on. None: another reader has the turn.

        It saves work and is no lock: two readers that both believe in theirs write the same.
        """
        ...

    async def write(
        self, source: str, reader: str, attempts: Sequence[Attempt], slots: Sequence[Slots], cursor: Cursor
    ) -> None:
        """Keep a batch and the place after it, all or nothing. What is there already stays as it is."""
        ...

    async def forget(self, source: str, before: Micros) -> None:
        """Drop what is older."""
        ...

    async def total(self, source: str, window: Window) -> Figures:
        """All attempts of a window together."""
        ...

    async def by_task(self, source: str, window: Window, limit: int) -> list[Figures]:
        """By task, those with the most attempts first."""
        ...

    async def by_time(self, source: str, window: Window, step: Micros) -> list[Figures]:
        """In buckets of a length, those in which anything ended, in order."""
        ...

    async def used_by_host(self, source: str, window: Window) -> list[Used]:
        """The slots that there were, by host."""
        ...

    async def used_by_time(self, source: str, window: Window, step: Micros) -> list[Used]:
        """The slots that there were, of all hosts, in buckets; `samples` counts moments."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


async def open_sink(url: str) -> Sink:
    """Open what a URL names, and make its tables."""
    place = read_url(url)
    if place.scheme == "sqlite":
        from windlass.observe.history.sqlite import SqliteSink  # noqa: PLC0415 - only who uses it needs it

        return await SqliteSink.open(urlsplit(place.url).path[1:])
    try:
        from windlass.observe.history.postgres import PostgresSink  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise InvalidOption(
            f"this history needs the package {missing.name}: pip install 'windlass[postgres]'"
        ) from missing
    return await PostgresSink.open(place.url)
