"""The protocol of a sink, which keeps history; and which one a URL names."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from windlass.core.units import Cursor, Micros
from windlass.errors import InvalidOption
from windlass.observe.history.attempt import Attempt, Slots
from windlass.observe.history.place import read_url
from windlass.observe.history.rollup import Figures


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts are asked for: those that ended in [since, until), by whole minutes."""

    since: Micros
    until: Micros
    task: str | None = None
    queue: str | None = None


class Minute(msgspec.Struct, frozen=True):
    """The attempts of a task in a minute."""

    at: Micros
    task: str
    queue: str
    figures: Figures


class Used(msgspec.Struct, frozen=True):
    """What there was to run in, on a host in a minute: sums over samples, each of which stands for
    `SAMPLE`.
    """

    at: Micros
    host: str
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
        """Keep a batch, add what is new of it to its minutes, and keep the place after it: all or nothing.
        What is there already stays as it is and is not counted again.
        """
        ...

    async def forget(self, source: str, before: Micros) -> None:
        """Drop what is older."""
        ...

    async def minutes(self, source: str, window: Window) -> Sequence[Minute]:
        """Every minute of every task in which something ended."""
        ...

    async def used(self, source: str, window: Window) -> Sequence[Used]:
        """The slots that there were, by minute and host."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


async def open_sink(url: str) -> Sink:
    """Open what a URL names, and make its tables."""
    place = read_url(url)
    if place.scheme == "sqlite":
        from windlass.observe.history.sqlite import SqliteSink  # noqa: PLC0415 - only who uses it needs it

        return await SqliteSink.open(place.path)
    try:
        from windlass.observe.history.postgres import PostgresSink  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise InvalidOption(
            f"this history needs the package {missing.name}: pip install 'windlass-queue[postgres]'"
        ) from missing
    return await PostgresSink.open(place.url)
