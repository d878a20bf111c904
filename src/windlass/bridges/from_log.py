"""Takes one log (a partition): its offset is in the store and moves together with the jobs."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from windlass.bridges.backlog import Gate
from windlass.bridges.going import Going
from windlass.bridges.message import Message
from windlass.bridges.source import Log
from windlass.bridges.taking import Piece, Takes, Taking
from windlass.core.intake import IntakeSettings, source_name
from windlass.core.take import Offset, Source, Take, TakeStatus
from windlass.errors import SourceReplaced
from windlass.pace import Pace

_log = logging.getLogger("windlass.bridges")

READ = 1_000
"""Messages that are read at once: what one step of the store takes."""
WAIT = 1.0
"""Seconds that a read waits for the first message."""
LOOK_AGAIN = 5.0
"""Seconds between two looks at the lag, and whether an operator has moved the offset."""
RACED_PAUSE = 1.0
"""Seconds that a reader waits when another reads the same log: owners are changing."""


class Offsets(Takes, Protocol):
    """What is needed of a broker."""

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]: ...


class LogIntake:
    """Reads a log from where the store says, for as long as it is run."""

    def __init__(
        self,
        settings: IntakeSettings,
        log: Log,
        *,
        broker: Offsets,
        taking: Taking,
        gate: Gate,
        going: Going,
        pace: Pace,
    ) -> None:
        self._settings = settings
        self._log = log
        self._broker = broker
        self._taking = taking
        self._gate = gate
        self._going = going
        self._pace = pace
        self._source = Source(source_name(settings.name, log.partition), log.identity)
        self._left: Sequence[Message] = ()
        """What was read and not taken, since other partitions had used up the room."""
        self._left_at = ""

    async def run(self) -> None:
        """Read and take, for ever. `SourceReplaced`: an operator has to say where to go on. `BridgeError`,
        `StoreError`: for now, or until something is changed.
        """
        at, looked = await self._begun(), float("-inf")
        while True:
            if self._pace.now() - looked >= LOOK_AGAIN:
                at, looked = await self._moved_on(await self._begun()), self._pace.now()
                self._going.lag = await self._log.lag(at)
            if most := await self._gate.opens(self._going, READ):
                at = await self._read(at, most)

    async def _read(self, at: str, most: int) -> str:
        """Read and take once; where to go on."""
        left = self._left if self._left_at == at else ()
        messages = left or await self._log.read(at, most, WAIT)
        self._left, taken = (), 0
        self._going.works()
        for piece in self._taking.pieces(messages[:most]):
            if not self._gate.has_room:
                break  # a message may be a thousand jobs
            at, goes_on = await self._take(at, piece)
            if not goes_on:
                return at
            taken += len(piece.messages)
        self._left, self._left_at = messages[taken:], at
        if taken:
            await self._tell_the_broker(at)
        return at

    async def _begun(self) -> str:
        """Where to go on. A log without an offset is begun, and the store knows so at once: who starts at
        the end would else leave out what comes until the first message is taken.
        """
        while True:
            known = await offset_of(self._broker, self._source.name)
            if known is not None:
                if known.source.identity != self._source.identity:
                    raise self._replaced()
                self._going.at = known.at
                return known.at
            at = await self._log.begin(at_end=self._settings.start == "last")
            await self._broker.take(Take(source=self._source, expect=None, then=at))

    async def _moved_on(self, at: str) -> str:
        """Where to go on: behind what stands there and nobody must see, which may be dropped at any time."""
        then = await self._log.passed(at)
        if then == at:
            return at
        taken = await self._broker.take(Take(source=self._source, expect=at, then=then))
        return then if taken.status is TakeStatus.TAKEN else await self._begun()

    async def _take(self, at: str, piece: Piece) -> tuple[str, bool]:
        """Take a piece; where to go on, and whether what was read behind it may be taken as well."""
        then = piece.messages[-1].after
        with self._gate.passing(piece.jobs):
            taken, piece = await self._taking.take(self._source, at, then, piece)
        if taken.status is TakeStatus.FOREIGN:
            raise self._replaced()
        stands = None if taken.offset is None else taken.offset.at
        if taken.status is TakeStatus.TAKEN or stands == then:
            # RACED, and it stands where it was to be moved: the answer to the first try was lost.
            place = piece.messages[-1].place
            self._going.took(len(piece.messages), piece.dead, place=place, at=then)
            return then, True
        _log.info("intake %s: another process reads it, too; going on where that is", self._source.name)
        await self._pace.sleep(RACED_PAUSE * (0.5 + self._pace.jitter()))
        return await self._begun(), False

    async def _tell_the_broker(self, at: str) -> None:
        """For monitors of the message broker only: whether it worked makes no difference here."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(WAIT):
                await self._log.commit(at)

    def _replaced(self) -> SourceReplaced:
        return SourceReplaced(
            f"{self._source.name} is another log than the one that was taken so far: it was deleted and made "
            "anew; say where to go on: windlass intakes move"
        )


async def offset_of(broker: Offsets, name: str) -> Offset | None:
    """The offset of a source; None: it has none."""
    after = _just_before(name)
    while True:
        page = await broker.offsets(after, 1)
        if not page or page[0].source.name > name:
            return None
        if page[0].source.name == name:
            return page[0]
        after = page[0].source.name


def _just_before(name: str) -> str:
    """A text with no other name of a source between it and this one: there may be hundreds of partitions."""
    last = ord(name[-1])
    before = 0xD7FF if last == 0xE000 else last - 1  # what is between them is no character
    return f"{name[:-1]}{chr(before)}\U0010ffff"
