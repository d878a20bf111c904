"""Many concurrent `aenqueue` calls become few round trips.

Each caller keeps a group of its own, so what is refused for one is accepted for the others. Keyed jobs travel
apart: a store may have to wait for another transaction's key, and nobody else should. While a call is under
way the next ones gather, so that the batch grows with the load and an idle caller waits for nobody.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from windlass.client.resend import Resend
from windlass.core.group import payload_bytes
from windlass.core.job import GROUP_BYTES, NewJob, Receipt
from windlass.errors import StoreUnavailable, WindlassError

Send = Callable[[Sequence[Sequence[NewJob]], Resend], Awaitable[Sequence[Sequence[Receipt]]]]

BATCH_JOBS = 1_000


class _Group:
    __slots__ = ("jobs", "receipts", "size")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.size = payload_bytes(jobs)
        self.receipts: asyncio.Future[Sequence[Receipt]] = asyncio.get_running_loop().create_future()


class Coalescer:
    """Sends groups of one event loop, many at a time."""

    def __init__(self, send: Send, window: float) -> None:
        self._plain = _Lane(send, window)
        self._keyed = _Lane(send, window)

    def enqueue(self, jobs: Sequence[NewJob]) -> Awaitable[Sequence[Receipt]]:
        """Send one group; its receipts are to be awaited. A caller that is cancelled may or may not have been
        served.
        """
        for job in jobs:
            if job.key is not None:
                return self._keyed.enqueue(jobs)
        return self._plain.enqueue(jobs)


class _Lane:
    def __init__(self, send: Send, window: float) -> None:
        self._send = send
        self._window = window
        self._waiting: deque[_Group] = deque()
        self._sending = False
        self._sender: asyncio.Task[None] | None = None

    def enqueue(self, jobs: Sequence[NewJob]) -> Awaitable[Sequence[Receipt]]:
        group = _Group(jobs)
        self._waiting.append(group)
        if not self._sending:
            # Set before the task exists: an eager one may be through before create_task returns. An empty
            # context, because it outlives the caller and serves others.
            self._sending = True
            self._sender = asyncio.create_task(self._run(), context=contextvars.Context())
        return group.receipts

    async def _run(self) -> None:
        batch: list[_Group] = []
        try:
            while batch := self._next_batch():
                await self._send_batch(batch, Resend(self._window))
        except BaseException as error:
            # Cancelled, or the program ends: nobody would ever answer those who still wait.
            _fail([*batch, *self._waiting], StoreUnavailable(_INTERRUPTED), cause=error)
            self._waiting.clear()
            raise
        finally:
            self._sending, self._sender = False, None

    def _next_batch(self) -> list[_Group]:
        """As many of those who wait as fit, without those who have left."""
        batch: list[_Group] = []
        jobs = size = 0
        while self._waiting:
            group = self._waiting[0]
            if not group.receipts.done():
                jobs, size = jobs + len(group.jobs), size + group.size
                if batch and (jobs > BATCH_JOBS or size > GROUP_BYTES):
                    break
                batch.append(group)
            self._waiting.popleft()
        return batch

    async def _send_batch(self, batch: list[_Group], resend: Resend) -> None:
        """Send groups together. If that raises, send each half by itself: ids make that safe, and the error
        of one group ends with its caller. Not if the store is away: each half would wait for it anew.
        """
        try:
            answers = await self._send([group.jobs for group in batch], resend)
            pairs = list(zip(batch, answers, strict=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
            if len(batch) == 1 or isinstance(error, StoreUnavailable) or resend.is_over:
                _fail(batch, error)
                return
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                if staying := [group for group in half if not group.receipts.done()]:
                    await self._send_batch(staying, resend)
            return
        for group, receipts in pairs:
            if not group.receipts.done():
                group.receipts.set_result(receipts)


_INTERRUPTED = "the call was interrupted before the store had answered; whether it was kept is not known"


def _fail(groups: Iterable[_Group], error: Exception, cause: BaseException | None = None) -> None:
    for group in groups:
        if not group.receipts.done():
            group.receipts.set_exception(_own(error, cause or error))


def _own(error: Exception, cause: BaseException) -> Exception:
    """An error for one caller alone: what is raised in several places gathers the tracebacks of all."""
    if not isinstance(error, WindlassError):
        return error
    own = type(error)(*error.args)
    own.__cause__ = cause
    return own
