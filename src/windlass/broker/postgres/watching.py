"""Waiting for jobs to finish: one query for everybody in this process who waits, however many."""

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


class _Watcher:
    """Somebody who waits for any of some jobs."""

    def __init__(self, jobs: Sequence[JobId]) -> None:
        loop = asyncio.get_running_loop()
        self.ids = tuple(map(id_of, jobs))
        self.since = loop.time()
        self.told: asyncio.Future[tuple[Finished, ...]] = loop.create_future()

    def tell(self, found: Mapping[JobId, Finished]) -> None:
        """Let it go on if one of its jobs is among these."""
        mine = tuple(found[job] for job in self.ids if job in found)
        if mine and not self.told.done():
            self.told.set_result(mine)


class Watching:
    """Everybody in this process who waits for jobs, and the one who looks for them."""

    def __init__(self, read: Read, bell: Bell) -> None:
        self._read = read
        self._bell = bell
        self._watchers: set[_Watcher] = set()
        self._looking: asyncio.Task[None] | None = None

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> tuple[Finished, ...]:
        """Those of the jobs that are finished as soon as there is one, or none after so many seconds."""
        watcher = _Watcher(jobs)
        rung = self._bell.rung
        watcher.tell(await self._read(watcher.ids))
        if timeout <= 0 or watcher.told.done():
            return watcher.told.result() if watcher.told.done() else ()
        self._watchers.add(watcher)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(rung))
        try:
            async with asyncio.timeout(timeout):
                return await watcher.told
        except TimeoutError:
            return ()
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Let everybody go."""
        if self._looking is not None:
            self._looking.cancel()
        self._leave(())

    async def _look(self, rung: int) -> None:
        """Look for as long as anybody waits."""
        try:
            while self._watchers:
                await self._bell.heard(rung, self._pause())
                rung = self._bell.rung
                found = await self._find()
                for watcher in tuple(self._watchers):
                    watcher.tell(found)
                self._watchers = {watcher for watcher in self._watchers if not watcher.told.done()}
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait
            for watcher in self._watchers:
                with suppress(asyncio.InvalidStateError):
                    watcher.told.set_exception(error)
            self._watchers.clear()

    def _pause(self) -> float:
        """A tenth of the time that the latest has waited: whoever waits for long can wait a little longer."""
        now = asyncio.get_running_loop().time()
        waited = min((now - watcher.since for watcher in self._watchers), default=0.0)
        return min(FLOOR, max(FIRST_LOOK, waited / 10))

    async def _find(self) -> Mapping[JobId, Finished]:
        wanted = tuple(dict.fromkeys(job for watcher in self._watchers for job in watcher.ids))
        found: dict[JobId, Finished] = {}
        for start in range(0, len(wanted), CALL_ITEMS):
            found.update(await self._read(wanted[start : start + CALL_ITEMS]))
        return found

    def _leave(self, found: Iterable[Finished]) -> None:
        for watcher in self._watchers:
            if not watcher.told.done():
                watcher.told.set_result(tuple(found))
        self._watchers.clear()
