"""The carrier for blocking code: enqueue in the caller's own thread, by a connection that threads share.

One call is under way at a time. Threads that call meanwhile wait, and the next of them sends for all, in one
transaction.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.driver import PATIENCE, TROUBLE, BlockingLink, ends
from windlass.broker.postgres.pool import Pool
from windlass.broker.postgres.store import Namespace
from windlass.broker.postgres.trouble import Tries
from windlass.broker.postgres.verbs import Groups, ProcedureCall, Receipts, enqueue
from windlass.errors import StoreUnavailable
from windlass.forks import leave_to_parent, renew_after_fork

_T = TypeVar("_T")
_MOST_JOBS: Final = 1_000
"""Of those that one caller sends for others."""
_LOOK: Final = 1.0
"""Seconds between two looks at how long a call takes."""


class SharedConnection:
    """The connection: calls one after the other, each with a timeout. Its caller has the turn."""

    def __init__(self, pool: Pool, namespace: Namespace, opened: Callable[[], None]) -> None:
        """`opened` is called when the first connection is made."""
        self._location = pool.location
        self._namespace = namespace
        self._opened: Callable[[], None] | None = opened
        self._link: BlockingLink | None = None
        self._guard = threading.Lock()
        self._asked: tuple[BlockingLink, float] | None = None
        """The connection on which an answer is waited for, and until when."""
        self._is_watched = False

    def run(self, call: ProcedureCall[_T]) -> _T:
        """Make a call."""
        if not call.function:
            return call.read(())
        said, arguments = self._namespace.said(call)
        tries = Tries(self._location)
        while True:
            try:
                link = self._connected()
                self._await(link)
                try:
                    return call.read(link.fetch(said, arguments, named=call.named))
                finally:
                    self._await(None)
            except TROUBLE as error:
                if self._link is not None and (ends(error) or not self._link.is_usable):
                    self.close()
                pause = tries.after(error)
            except BaseException:
                self.close()  # in the middle of an answer: the next must not read that
                raise
            time.sleep(pause)

    def _connected(self) -> BlockingLink:
        link = self._link
        if link is not None and link.is_usable and link.is_quiet:
            return link
        self.close()
        if self._opened is not None:
            self._opened()
            self._opened = None
        self._link = BlockingLink.open(self._location)
        return self._link

    def _await(self, link: BlockingLink | None) -> None:
        """Have the connection cut if the server does not answer in time: psycopg would wait for ever. None:
        it has answered.
        """
        with self._guard:
            self._asked = None if link is None else (link, time.monotonic() + PATIENCE)
            if link is not None and not self._is_watched:
                self._is_watched = True
                with contextlib.suppress(RuntimeError):  # Python is ending, and starts no more threads
                    threading.Thread(target=self._watch, name="windlass-patience", daemon=True).start()

    def _watch(self) -> None:
        """Look at how long the server takes, for as long as there is something to look at."""
        while True:
            time.sleep(_LOOK)
            with self._guard:
                if self._asked is None:
                    self._is_watched = False
                    return
                link, due = self._asked
                if time.monotonic() > due:
                    link.cut()

    def close(self) -> None:
        """Close the connection."""
        link, self._link = self._link, None
        if link is not None:
            link.drop()

    def leave_to_parent(self) -> None:
        """In a child of a fork: never touch the connection."""
        leave_to_parent(self._link)


class BlockingProducer:
    """Enqueue for the threads of a process."""

    def __init__(
        self, pool: Pool, namespace: Namespace, tell: Callable[[Callable[[], None]], None], bell: Bell
    ) -> None:
        """`tell` has something called on the loop to which the broker's pool and bell belong."""
        self._pool = pool
        self._namespace = namespace
        self._tell = tell
        self._bell = bell
        self._begin()
        renew_after_fork(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[_Turn] = deque()
        self._turn = threading.Lock()
        self._closed = False
        self._shared = SharedConnection(self._pool, self._namespace, lambda: self._tell(self._pool.set_apart))

    def enqueue(self, groups: Groups) -> Receipts:
        """As the broker's."""
        if self._pid != os.getpid():
            self.renew()  # a fork that called no hook of Python's
        turn = _Turn(groups)
        self._waiting.append(turn)
        try:
            with self._turn:
                if not turn.is_over:
                    self._serve(turn)
        except BaseException:
            with contextlib.suppress(ValueError):  # interrupted in line: nobody has to send this any more
                self._waiting.remove(turn)
            raise
        return turn.receipts()

    def renew(self) -> None:
        """In a child of a fork: open a connection of its own."""
        self._shared.leave_to_parent()
        self._begin()

    def close(self) -> None:
        """Close the connection."""
        if self._pid != os.getpid():
            return
        with self._turn:
            self._closed = True
            self._shared.close()

    def _serve(self, own: "_Turn") -> None:
        """Send for this caller, and for those that wait, if their calls cannot hold others up."""
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
        receipts = self._shared.run(enqueue([group for turn in turns for group in turn.groups]))
        start = 0
        for turn in turns:
            turn.answer = receipts[start : start + len(turn.groups)]
            start += len(turn.groups)
        if self._bell.is_waited_for:
            self._tell(self._bell.ring)


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
