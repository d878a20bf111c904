"""When reading waits: an operator has paused the intake, or there are ready jobs enough."""

from collections.abc import Collection
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
    """Lets messages through while the queues that they go to have fewer ready jobs than a bound.

    Only ready jobs count. What is scheduled, dead or finished may be any number and must not stop the intake.
    """

    def __init__(self, broker: Counted, pace: Pace, queues: Collection[str], bound: int) -> None:
        """`queues` are those that are known beforehand; others are added when a message names them."""
        self._broker = broker
        self._pace = pace
        self._queues = set(queues)
        self._bound = bound
        self._room = 0
        self.paused = False

    async def opens(self, going: Going, most: int) -> int:
        """How many messages may be read now, at most `most`. 0: it has waited a moment, ask again."""
        if not self.paused and (self.has_room or await self._asks_for_room()):
            going.waits_for = ""
            return min(most, self._room)
        going.waits_for = "paused" if self.paused else f"{self._bound:,} jobs are ready: reading waits"
        await self._pace.sleep(LOOK)
        return 0

    @property
    def has_room(self) -> bool:
        """Whether there is room left, as far as is known; nobody is asked."""
        return self._room > 0

    def passed(self, jobs: Collection[NewJob]) -> None:
        """Note the jobs that messages became: of their queues, too."""
        self._room -= len(jobs)
        self._queues.update(job.queue for job in jobs)

    def shut(self) -> None:
        """Let nothing through before the store has been asked again: it did not accept what was read. While
        it is away, messages stay with their broker, which counts how often it hands out each.
        """
        self._room = 0

    async def _asks_for_room(self) -> bool:
        counts = await self._broker.counts()
        ready = [row.count for row in counts.rows if row.state is State.READY and row.queue in self._queues]
        self._room = self._bound - sum(ready)
        return self._room > 0
