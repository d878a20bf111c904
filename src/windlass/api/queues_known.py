"""Which queues there are, remembered for a while: every claim asks, and the answer hardly ever changes."""

import time

from windlass.admin.insight import Insight
from windlass.core.settings import Kind

KEPT = 10.0
"""Seconds for which a queue that was there is taken to be there. One that was not is looked for each time."""


class KnownQueues:
    """The names of the queues of a namespace."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._until = 0.0

    async def has(self, queue: str, insight: Insight) -> bool:
        """Whether a queue is declared."""
        if queue not in self._names or time.monotonic() > self._until:
            self._names = frozenset([found.subject.name async for found in insight.documents(Kind.QUEUE)])
            self._until = time.monotonic() + KEPT
        return queue in self._names
