"""What a suite asks of the message broker that an adapter is tried on: by another client than the adapter's,
where there is one.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from windlass.bridges.sink import Sink
from windlass.bridges.source import LogSource, QueueSource


class Sent(NamedTuple):
    """A message as the suite sends it, and as it finds it."""

    body: bytes | None
    headers: Mapping[str, str] = {}
    key: str = ""
    id: str | None = None
    """That of a queue's message; None: its producer has given it none."""


class Ground(ABC):
    """A message broker that one test has to itself, or a part of it. Tests run on the loop of `runner`."""

    refuses_unknown: bool = True
    """Whether it knows which places there are; in Redis any name is a list."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner

    def needs(self, ability: str) -> None:
        """Skip the test with a line that says why, where a message broker lacks an ability by its nature."""
        if not getattr(self, ability):
            pytest.skip(f"{type(self).__name__} declares no {ability}")

    @abstractmethod
    async def outage(self) -> None:
        """Let the message broker answer nobody any more."""

    @abstractmethod
    async def recovery(self) -> None:
        """Let it answer again, with all that it had acknowledged."""


class LogGround(Ground):
    """A source with one log or more, of which the first is called `first`."""

    first: str
    has_keys: bool = True
    grows: bool = True
    """Whether a source can get more logs."""
    has_tombstones: bool = False

    @abstractmethod
    async def source(self) -> LogSource:
        """The source, opened anew."""

    @abstractmethod
    async def unknown(self) -> LogSource:
        """A source called `nowhere`, which is not there: opening it, or asking for its logs, is refused."""

    @abstractmethod
    async def send(self, messages: Sequence[Sent], partition: str | None = None) -> None:
        """Put messages into a log (the first), in order, and return when they are there."""

    @abstractmethod
    async def drop(self, messages: int) -> None:
        """Let the oldest messages of the first log be gone, as retention does."""

    @abstractmethod
    async def recreate(self) -> None:
        """Delete all logs of the source and make them anew, empty, with the same name."""

    @abstractmethod
    async def grow(self) -> str:
        """Give the source one log more; which."""


class QueueGround(Ground):
    """A queue."""

    keeps_order: bool = True
    """Of messages that nobody has given back."""
    has_priorities: bool = False
    counts: bool = True
    """Whether it can say how many messages wait, without delay."""

    @abstractmethod
    async def source(self) -> QueueSource:
        """The queue, opened anew: each is another reader."""

    @abstractmethod
    async def unknown(self) -> QueueSource:
        """A queue called `nowhere`, which is not there: opening it, or receiving from it, is refused."""

    @abstractmethod
    async def send(self, messages: Sequence[Sent], priority: int | None = None) -> None:
        """Put messages into the queue, in order, and return when they are there."""


class SinkGround(Ground):
    """A place to publish to, and a second one."""

    has_keys: bool = True
    other: str
    """What `to` is for the second place."""
    unfit: bytes
    """A body that it will never take."""

    @abstractmethod
    async def sink(self) -> Sink:
        """The sink, opened anew on the first place."""

    @abstractmethod
    async def sink_nowhere(self) -> Sink:
        """A sink on a place called `nowhere`, which is not there: opening it, or publishing, is refused."""

    @abstractmethod
    async def found(self, count: int, place: str | None = None) -> Sequence[Sent]:
        """The first messages of a place (the first one), as many as are asked for."""

    @abstractmethod
    def id_of(self, message: Sent) -> str | None:
        """The id by which readers tell repeats; None: the message broker itself drops them."""
