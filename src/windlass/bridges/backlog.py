"""When reading waits: an operator has paused the intake, or there are ready jobs enough."""

import asyncio
import contextlib
from collections.abc import Collection, Generator
from typing import Protocol

from windlass.bridges.going import Going
from windlass.core.job import NewJob
from windlass.core.query import Counts
from windlass.core.state import State
from windlass.pace import Pace

LOOK = 0.5
"""Seconds between two looks while reading waits."""


class Counted(Protocol):
    """What is needed of a broker."""

    async def counts(self) -> Counts: ...


class Gate:
    """Lets messages through while the queues that they go to have fewer ready jobs than a bound. All readers
    of an intake in a process share it: room is used up before a take is sent, and one of them looks for all.

    Only ready jobs count. What is scheduled, dead or finished may be any number and must not stop the intake.
    """

    def __init__(self, broker: Counted, pace: Pace, queues: Collection[str], bound: int) -> None:
        """`queues` are those that are known beforehand; others are added when a message names them."""
        self._broker = broker
        self._pace = pace
        self._queues = set(queues)
        self._bound = bound
        self._room = 0
        self._begun = self._answered = 0
        """Jobs whose take was begun, and those of them whose take was answered, one way or the other."""
        self._looking = asyncio.Lock()
        self._look_at = float("-inf")
        self.paused = False

    async def opens(self, going: Going, most: int) -> int:
        """How many messages may be read now, at most `most`. 0: it has waited a moment, ask again."""
        if not self.paused and (self.has_room or await self._finds_room()):
            going.waits_for = ""
            return min(most, self._room)
        going.waits_for = "paused" if self.paused else f"{self._bound:,} jobs are ready: reading waits"
        await self._pace.sleep(LOOK)
        return 0

    @property
    def has_room(self) -> bool:
        """Whether there is room left, as far as is known; nobody is asked."""
        return self._room > 0

    @contextlib.contextmanager
    def passing(self, jobs: Collection[NewJob]) -> Generator[None]:
        """While jobs of messages are taken. They use up room from the beginning on, so that other readers do
        not take it as well; what the store refuses is found again by the next look.
        """
        self._room -= len(jobs)
        self._begun += len(jobs)
        self._queues.update(job.queue for job in jobs)
        try:
            yield
        finally:
            self._answered += len(jobs)

    def shut(self) -> None:
        """Let nothing through before the store has been asked again: it did not accept what was read. While
        it is away, messages stay with their broker, which counts how often it hands out each.
        """
        self._room = 0

    async def _finds_room(self) -> bool:
        """Ask the store, unless another reader has just done so; after a no, nobody asks for a while."""
        async with self._looking:
            if self.has_room or self._pace.now() < self._look_at:
                return self.has_room
            answered = self._answered
            counts = await self._broker.counts()
            ready = sum(
                row.count for row in counts.rows if row.state is State.READY and row.queue in self._queues
            )
            # What is being taken may be counted or not.
            self._room = self._bound - ready - (self._begun - answered)
            if not self.has_room:
                self._look_at = self._pace.now() + LOOK
            return self.has_room
