"""Waiting for jobs to finish: one query for all the waits of this process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.records import id_of
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import Finished
from windlass.core.units import JobId

FIRST_LOOK = 0.005
FLOOR = 0.25
"""Seconds between two looks at what other processes have done, at the least and at the most."""

Read = Callable[[Sequence[JobId]], Awaitable[Mapping[JobId, Finished]]]
"""Those of the jobs that have finished."""


class _Wait:
    """A wait for any of some jobs."""

    def __init__(self, jobs: Sequence[JobId]) -> None:
        loop = asyncio.get_running_loop()
        self.ids = tuple(map(id_of, jobs))
        self.since = loop.time()
        self.told: asyncio.Future[tuple[Finished, ...]] = loop.create_future()

    def tell(self, found: Mapping[JobId, Finished]) -> None:
        """End the wait if one of its jobs is among these."""
        mine = tuple(found[job] for job in self.ids if job in found)
        if mine and not self.told.done():
            self.told.set_result(mine)


class FinishWaits:
    """The waits of this process for jobs, and the task that looks for them."""

    def __init__(self, read: Read, bell: Bell) -> None:
        self._read = read
        self._bell = bell
        self._waits: set[_Wait] = set()
        self._looking: asyncio.Task[None] | None = None

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> tuple[Finished, ...]:
        """Wait until a job has finished, and return those that have; after `timeout` seconds, none."""
        wait = _Wait(jobs)
        rung = self._bell.rung
        wait.tell(await self._read(wait.ids))
        if timeout <= 0 or wait.told.done():
            return wait.told.result() if wait.told.done() else ()
        self._waits.add(wait)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(rung))
        try:
            async with asyncio.timeout(timeout):
                return await wait.told
        except TimeoutError:
            return ()
        finally:
            self._waits.discard(wait)

    def close(self) -> None:
        """End all waits."""
        if self._looking is not None:
            self._looking.cancel()
        self._leave(())

    async def _look(self, rung: int) -> None:
        """Look for as long as there is a wait."""
        try:
            while self._waits:
                await self._bell.heard(rung, self._pause())
                rung = self._bell.rung
                found = await self._find()
                for wait in tuple(self._waits):
                    wait.tell(found)
                self._waits = {wait for wait in self._waits if not wait.told.done()}
        except Exception as error:  # noqa: BLE001 - it belongs to the callers
            for wait in self._waits:
                with suppress(asyncio.InvalidStateError):
                    wait.told.set_exception(error)
            self._waits.clear()

    def _pause(self) -> float:
        """A tenth of the time that the latest has waited: a long wait may be a little longer."""
        now = asyncio.get_running_loop().time()
        waited = min((now - wait.since for wait in self._waits), default=0.0)
        return min(FLOOR, max(FIRST_LOOK, waited / 10))

    async def _find(self) -> Mapping[JobId, Finished]:
        wanted = tuple(dict.fromkeys(job for wait in self._waits for job in wait.ids))
        found: dict[JobId, Finished] = {}
        for start in range(0, len(wanted), CALL_ITEMS):
            found.update(await self._read(wanted[start : start + CALL_ITEMS]))
        return found

    def _leave(self, found: Iterable[Finished]) -> None:
        for wait in self._waits:
            if not wait.told.done():
                wait.told.set_result(tuple(found))
        self._waits.clear()
