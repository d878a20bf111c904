"""What becomes of a message: jobs, or one job that is born dead."""

from typing import Protocol

import msgspec

from windlass.bridges.message import Message
from windlass.core.job import NewJob
from windlass.core.outcome import Error


class Mapped(msgspec.Struct, frozen=True):
    """The jobs of a message."""

    jobs: tuple[NewJob, ...]
    error: Error | None = None
    """Why it cannot be read: then there is one job, born dead, which carries the bytes of the message."""


class Mapper(Protocol):
    """Makes jobs of the messages of one intake. It never raises."""

    def map(self, message: Message) -> Mapped:
        """The jobs of a message; one that is born dead if nobody can read it."""
        ...

    def unfit(self, message: Message, why: str) -> Mapped:
        """The dead letter of a message whose jobs the store has refused."""
        ...
