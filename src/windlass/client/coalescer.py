"""Many concurrent `aenqueue` calls become few round trips.

Each caller keeps a group of its own, so what is refused for one is accepted for the others. Keyed jobs travel
apart:
a store may have to wait for another transaction's key, and nobody else should. While a call is under way the
next
ones gather, so that the batch grows with the load and an idle caller waits for nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windlass.core.job import GROUP_BYTES, NewJob, Receipt

Send = Callable[[Sequence[Sequence[NewJob]]], Awaitable[Sequence[Sequence[Receipt]]]]

BATCH_JOBS = 1_000


class _Group:
    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.size = sum(len(job.payload) for job in jobs)
        self.receipts: asyncio.Future[Sequence[Receipt]] = asyncio.get_running_loop().create_future()


class Coalescer:
    """Sends groups of one event loop, many at a time."""

    def __init__(self, send: Send) -> None:
        self._plain = _Lane(send)
        self._keyed = _Lane(send)

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Send one group and wait for its receipts. A caller that is cancelled may or may not have been
        served.
        """
        lane = self._keyed if any(job.key is not None for job in jobs) else self._plain
        return await lane.enqueue(jobs)


class _Lane:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: list[_Group] = []
        self._sender: asyncio.Task[None] | None = None

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        group = _Group(jobs)
        self._waiting.append(group)
        if self._sender is None:
            self._sender = asyncio.create_task(self._run())
        return await group.receipts

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send_batch(self._next_batch())
        finally:
            self._sender = None

    def _next_batch(self) -> list[_Group]:
        """As many of those who wait as fit, without those who have left."""
        batch: list[_Group] = []
        jobs = size = 0
        while self._waiting:
            group = self._waiting[0]
            jobs, size = jobs + len(group.jobs), size + group.size
            if batch and (jobs > BATCH_JOBS or size > GROUP_BYTES):
                break
            self._waiting.pop(0)
            if not group.receipts.cancelled():
                batch.append(group)
        return batch

    async def _send_batch(self, batch: list[_Group]) -> None:
        try:
            answers = await self._send([group.jobs for group in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
            await self._send_apart(batch, error)
            return
        for group, receipts in zip(batch, answers, strict=True):
            if not group.receipts.done():
                group.receipts.set_result(receipts)

    async def _send_apart(self, batch: list[_Group], error: Exception) -> None:
        """A batch that failed as a whole is sent group by group: ids make that safe, and one error harms one
        caller.
        """
        for group in batch:
            if group.receipts.done():
                continue
            if len(batch) == 1:
                group.receipts.set_exception(error)
                continue
            await self._send_batch([group])
