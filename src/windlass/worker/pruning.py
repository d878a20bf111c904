"""Dead letters whose time is over: their traces first, then they go."""

import asyncio
import contextlib
import logging
import platform
from collections.abc import Sequence

from windlass.broker.contract import Broker
from windlass.core.units import JobId
from windlass.errors import WindlassError
from windlass.observe.archive.removing import Remover
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.program import Program

_log = logging.getLogger("windlass.worker")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries while the archive takes nothing."""


class Pruning:
    """Removes what sweeps name as overdue. Beside them: an archive that is slow or away holds up no sweep.
    The dead letters stay until it takes them.
    """

    def __init__(self, broker: Broker, program: Program, pace: Pace) -> None:
        self._remover = Remover(broker, program.config, program.signature_of, program.values)
        self._pace = pace
        self._by = f"retention, on {platform.node()}"
        self._backoff = Backoff(pace, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        self._next_try = 0.0
        self._at_work: asyncio.Task[None] | None = None

    def begin(self, jobs: Sequence[JobId]) -> None:
        """Begin to remove dead letters, unless others are being removed: the next sweep names them again."""
        if jobs and self._at_work is None and self._pace.now() >= self._next_try:
            self._at_work = asyncio.create_task(self._prune(jobs))
            self._at_work.add_done_callback(self._ended)

    async def close(self) -> None:
        """Stop, and let go of the archive."""
        if (task := self._at_work) is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with contextlib.suppress(WindlassError):
            await self._remover.close()

    async def _prune(self, jobs: Sequence[JobId]) -> None:
        try:
            await self._remover.prune(jobs, by=self._by)
        except WindlassError as error:
            self._backoff.tell("dead letters whose time is over stay: %s; trying until they can go", error)
            self._next_try = self._pace.now() + self._backoff.failed()
        else:
            if self._backoff.tries:
                _log.info("dead letters whose time is over can go again")
                self._backoff.worked()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._at_work = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("dead letters could not be pruned", exc_info=error)
            self._next_try = self._pace.now() + LONGEST_PAUSE
