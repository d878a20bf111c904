"""Enqueue for threads: in the caller's own thread, by a connection and an event loop of its own.

The driver cannot block, so the caller runs a loop for as long as its call takes: half the processor time of a
hop to another thread's loop and back. One call is under way at a time; whoever comes meanwhile waits, and the
next one sends for all who wait, in one transaction.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.pool import Pool
from windlass.broker.postgres.producing import Enqueue, Groups, Receipts
from windlass.broker.postgres.statements import statement
from windlass.broker.postgres.url import Place
from windlass.core.units import Micros
from windlass.errors import StoreUnavailable
from windlass.forks import leave_to_parent, renew_after_fork
from windlass.threads import LoopThreads

_MOST_JOBS: Final = 1_000
"""Of those that one caller sends for others."""


class BlockingProducer:
    """The connection that the threads of a process share for enqueueing."""

    def __init__(
        self,
        place: Place,
        schema: str,
        now: Callable[[], Micros | None],
        tell: Callable[[Callable[[], None]], None],
        pool: Pool,
        bell: Bell,
    ) -> None:
        """`tell` has something called on the loop to which the broker's pool and bell belong."""
        self._place = place._replace(connections=1, wake=False)
        self._schema = schema
        self._now = now
        self._tell = tell
        self._of_broker = pool
        self._bell = bell
        self._begin()
        renew_after_fork(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[_Turn] = deque()
        self._line = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._pool = Pool(self._place)

    async def _enqueue(self, groups: Groups) -> Receipts:
        call = Enqueue(groups)
        if call.is_empty:
            return call.receipts(())
        arguments = (self._now(), *call.arguments())
        query = statement(self._schema, "enqueue", len(arguments))
        return call.receipts(await self._pool.call(query, *arguments))

    def enqueue(self, groups: Groups) -> Receipts:
        """As the broker's."""
        if self._pid != os.getpid():
            self.renew()  # a fork that called no hook of Python's
        turn = _Turn(groups)
        self._waiting.append(turn)
        try:
            with self._line:
                if not turn.is_over:
                    self._serve(turn)
        except BaseException:
            with contextlib.suppress(ValueError):  # interrupted in line: nobody need send this any more
                self._waiting.remove(turn)
            raise
        return turn.receipts()

    def renew(self) -> None:
        """In a child of a fork: open a connection of its own."""
        leave_to_parent(self._loop, self._pool)
        self._begin()

    def close(self) -> None:
        """Let go of the connection."""
        if self._pid != os.getpid():
            return
        with self._line:
            self._closed = True
            if self._loop is not None:
                self._run(self._pool.close)
                self._loop.close()
                self._loop = None

    def _serve(self, own: "_Turn") -> None:
        """Send for oneself, and for those who wait and ask for nothing that could hold others up."""
        turns = [own]
        self._waiting.remove(own)
        jobs = own.jobs
        while own.is_plain and self._waiting and self._waiting[0].is_plain:
            jobs += self._waiting[0].jobs
            if jobs > _MOST_JOBS:
                break
            turns.append(self._waiting.popleft())
        try:
            self._send_for(turns)
        except BaseException:
            for turn in turns[1:]:
                turn.error = turn.error or StoreUnavailable(_INTERRUPTED)
            raise

    def _send_for(self, turns: "Sequence[_Turn]") -> None:
        """Send for several. What is wrong with one call is wrong for its caller alone: ids make it safe to
        send again, each by itself. Not if the store is away: each would wait for it anew.
        """
        try:
            self._send(turns)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
            if len(turns) > 1 and not isinstance(error, StoreUnavailable):
                for turn in turns:
                    self._send_for([turn])
                return
            for turn in turns:
                turn.error = type(error)(*error.args) if len(turns) > 1 else error

    def _send(self, turns: "Sequence[_Turn]") -> None:
        if self._closed:
            raise StoreUnavailable("the broker is closed")
        groups = [group for turn in turns for group in turn.groups]
        receipts = self._run(lambda: self._enqueue(groups))
        start = 0
        for turn in turns:
            turn.answer = receipts[start : start + len(turn.groups)]
            start += len(turn.groups)
        self._ring()

    def _ring(self) -> None:
        if self._bell.is_waited_for:
            self._tell(self._bell.ring)

    def _run(self, work: Callable[[], Any]) -> Any:
        if not _is_async():
            return self._run_here(work)
        # A blocking call in async code: a thread can run but one loop at a time.
        found: list[Any] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(self._run_here(work))
            except BaseException as error:  # noqa: BLE001 - raised where it belongs
                failed.append(error)

        thread = threading.Thread(target=run, name="windlass-enqueue", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return found[0]

    def _run_here(self, work: Callable[[], Any]) -> Any:
        loop = self._loop
        if loop is None:
            self._tell(self._of_broker.set_apart)
            loop = self._loop = asyncio.SelectorEventLoop()
            loop.set_default_executor(LoopThreads())
        task = loop.create_task(work())
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                # Interrupted in the middle of an answer: the connection is of no use any more.
                task.cancel()
                loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise


def _is_async() -> bool:
    """Whether the caller is in async code, whose loop runs in this thread."""
    # The public one raises if there is none: 5.5 µs instead of 1.8 in a thread that has just been woken.
    return asyncio._get_running_loop() is not None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


_INTERRUPTED = "the call was interrupted before the store had answered; whether it was kept is not known"


class _Turn:
    """One caller's call."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.jobs = sum(map(len, groups))
        self.is_plain = not any(job.key is not None or job.after for group in groups for job in group)
        self.answer: Receipts | None = None
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        return self.answer is not None or self.error is not None

    def receipts(self) -> Receipts:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer
