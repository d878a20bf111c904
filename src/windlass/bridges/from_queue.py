"""Takes a queue: a message is acknowledged when its job has been accepted, never when the job has ended."""

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence

from windlass.bridges.backlog import Gate
from windlass.bridges.going import Going
from windlass.bridges.message import Message
from windlass.bridges.source import QueueSource
from windlass.bridges.taking import Taking
from windlass.core.intake import IntakeSettings, source_name
from windlass.core.take import Source
from windlass.errors import BridgeError
from windlass.pace import Pace

RECEIVE = 500
"""Messages that are received at once."""
LOOK_AGAIN = 5.0
"""Seconds between two looks at how many messages wait."""
WAIT = 1.0
"""Seconds that it waits for the first message."""


class QueueIntake:
    """Receives, takes and acknowledges, for as long as it is run."""

    def __init__(
        self,
        settings: IntakeSettings,
        queue: QueueSource,
        *,
        taking: Taking,
        gate: Gate,
        going: Going,
        pace: Pace,
        look_at_settings: Callable[[], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._look_at_settings = look_at_settings
        self._taking = taking
        self._gate = gate
        self._going = going
        self._pace = pace
        self._jobs_each = 1
        """Jobs that a message became the last time, on average: no more is received than there is room for.
        SQS counts how often a message was received, also if it was given back, and puts it away in the end.
        """
        # It never has an offset, so takes of any number of readers are never RACED.
        self._source = Source(source_name(settings.name, ""))

    async def run(self) -> None:
        """Work for ever. `BridgeError`, `StoreError`: for now, or until something is changed."""
        looked = float("-inf")
        while True:
            if self._pace.now() - looked >= LOOK_AGAIN:
                looked = self._pace.now()
                await self._look_at_settings()
                self._going.lag = await self._queue.lag()
            room = await self._gate.opens(self._going, RECEIVE * self._jobs_each)
            most = max(1, room // self._jobs_each)
            if room and (messages := await self._queue.receive(most, WAIT)):
                await self._take(messages)
            self._going.works()

    async def _take(self, messages: Sequence[Message]) -> None:
        taken = jobs = 0
        try:
            for piece in self._taking.pieces(messages):
                if not self._gate.has_room:
                    break  # a message may be a thousand jobs
                with self._gate.passing(piece.jobs):
                    _, piece = await self._taking.take(self._source, None, None, piece)
                taken, jobs = taken + len(piece.messages), jobs + len(piece.jobs)
                self._jobs_each = max(1, math.ceil(jobs / taken))
                await self._queue.acknowledge(piece.messages)
                self._going.took(len(piece.messages), piece.dead, place=piece.messages[-1].place)
        except BaseException:
            # What was taken and not acknowledged comes again, and is known by its id.
            self._gate.shut()
            with contextlib.suppress(BridgeError):
                await self._queue.give_back(messages[taken:])
            raise
        if taken < len(messages):
            await self._queue.give_back(messages[taken:])
