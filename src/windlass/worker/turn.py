"""Whose turn it is to read the event log for one purpose: webhooks, or a relay.

Of all workers of a namespace one reads. It holds a document with the place in the log, and a time until which
the others leave it alone. The document is changed by compare-and-set on its version, so of two who believe
that it is their turn one moves the place and the other is told that it has lost it. What was read is acted
on before the place is moved: who dies in between is repeated by the next.
"""

import asyncio
import contextlib
import uuid
from typing import Generic, Protocol, TypeVar

import msgspec

from windlass.broker.management import Configure, Plan
from windlass.core.bridging import decoded
from windlass.core.reading import Reading
from windlass.core.settings import Change, Subject
from windlass.core.units import SECOND, Micros
from windlass.errors import StoreError
from windlass.pace import Pace
from windlass.worker.documents import document_of

R = TypeVar("R", bound=Reading)

SOON = 0.5
"""Seconds between two looks at a log that had nothing new."""
LATER = 2.0
"""Seconds between two looks of those whose turn it is not."""
HELD: Micros = 30 * SECOND
"""How long the others leave the reading to the one who has it."""
SURE = HELD / SECOND / 2
"""Seconds for which it is not asked again whose turn it is: each write makes all workers read their settings
again. The holder of the turn knows that nobody else reads for at least as long after that.
"""
LEAVING = 1.0
"""Seconds that a store is given to hear that a reader leaves."""


class Keeps(Configure, Plan, Protocol):
    """What is needed of a broker."""


class Turn(Generic[R]):
    """The part of one process in reading the log for one purpose."""

    def __init__(self, broker: Keeps, pace: Pace, subject: Subject, first: R) -> None:
        """`first` is what is read from while nothing was kept."""
        self._broker = broker
        self._pace = pace
        self._subject = subject
        self._first = first
        self._me = uuid.uuid4().hex
        self._version = 0
        self._reading: R | None = None
        self._sure_until = 0.0
        """By this process's clock."""

    @property
    def reading(self) -> R | None:
        """The place, if it is this process's turn for sure; nobody is asked."""
        return self._reading if self._pace.now() < self._sure_until else None

    async def take(self) -> R | None:
        """The place to read from; None: somebody else reads."""
        if (sure := self.reading) is not None:
            return sure
        document = await document_of(self._broker, self._subject)
        known = None if document is None else decoded(document.override, type(self._first))
        reading = known or self._first
        self._version = 0 if document is None else document.version
        if reading.holder != self._me and await self.now() < reading.until:
            return None
        return await self.keep(reading)

    async def keep(self, reading: R) -> R | None:
        """Keep how far it was read, and that it goes on here; None: somebody else has taken it."""
        return await self._keep(reading, holder=self._me, until=await self.now() + HELD, sure=SURE)

    async def leave(self) -> None:
        """Let another take the turn at once, if it is this process's."""
        if self._reading is not None:
            await self._keep(self._reading, holder="", until=0, sure=0.0)

    async def leave_at_end(self) -> None:
        """Leave, when the process ends; a store that does not answer is not waited for."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVING):
                await self.leave()

    async def now(self) -> Micros:
        """The store's time."""
        return (await self._broker.schedules(limit=1)).now

    async def _keep(self, reading: R, *, holder: str, until: Micros, sure: float) -> R | None:
        reading = msgspec.structs.replace(reading, holder=holder, until=until)
        sent = self._pace.now()
        self._reading = None  # unless the store says that it is so
        changed = await self._broker.override(self._subject, msgspec.json.encode(reading), self._version)
        kept = changed.change in (Change.APPLIED, Change.UNCHANGED)
        self._version = changed.version
        self._reading = reading if kept else None
        self._sure_until = sent + sure
        return self._reading
