"""Notes of running jobs on their way to the store: the newest progress, log lines, steps."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TypeAlias

import msgspec

from windlass.broker.contract import Consume
from windlass.core.bounds import CALL_ITEMS
from windlass.core.outcome import Verdict
from windlass.core.session import LOG_LINES, Note
from windlass.core.units import Fence, JobId
from windlass.errors import ContractError, StoreError

_log = logging.getLogger("windlass.worker")

EVERY = 0.2
"""Seconds between two calls that send progress and log lines, which may wait. Too low: more calls than are
needed. Too high: the dashboard shows old progress.
"""


class Notes:
    """Collects notes on any thread; the fetcher sends them."""

    def __init__(self, *, nudge: Callable[[], None]) -> None:
        self._nudge = nudge
        self._lock = threading.Lock()
        self._said: dict[tuple[JobId, Fence], Note] = {}
        self._asked: list[tuple[Note, Future[Verdict]]] = []
        self._closed = False
        self.sent_at = 0.0

    def note(self, note: Note) -> None:
        """Merge a note with what the job said before: the newest progress, and all lines."""
        key = (note.job, note.fence)
        with self._lock:
            first = not self._said
            self._said[key] = _merged(self._said.get(key), note)
        if first:
            self._nudge()

    def confirm(self, note: Note) -> Future[Verdict]:
        """Send a note at once; the future gets the store's verdict."""
        future: Future[Verdict] = Future()
        with self._lock:
            if not self._closed:
                self._asked.append((note, future))
        if self._closed:
            _tell(future, StoreError(_ENDED))
        self._nudge()
        return future

    def close(self) -> None:
        """The worker has ended: tasks that still wait for an answer get an error."""
        with self._lock:
            self._closed = True
            asked, self._asked = self._asked, []
        for _, future in asked:
            _tell(future, StoreError(_ENDED))

    @property
    def urgent(self) -> bool:
        """Whether a task waits for an answer."""
        return bool(self._asked)

    def __bool__(self) -> bool:
        return bool(self._said or self._asked)

    async def send(self, broker: Consume, now: float) -> None:
        """Send everything; what the store could not be asked stays for the next time."""
        self.sent_at = now
        with self._lock:
            said, self._said = self._said, {}
            asked, self._asked = self._asked, []
        everything: list[_Unsent] = [(note, None) for note in said.values()]
        everything += asked
        for start in range(0, len(everything), CALL_ITEMS):
            page = everything[start : start + CALL_ITEMS]
            try:
                verdicts = await broker.annotate([note for note, _ in page])
            except StoreError:
                self._keep(everything[start:])
                raise
            except ContractError as error:
                _log.warning("the store does not take what jobs say of themselves: %s", error)
                _answer_with(page, error)
            else:
                for (_, future), verdict in zip(page, verdicts, strict=True):
                    if future is not None:
                        with contextlib.suppress(InvalidStateError):  # the task no longer waits
                            future.set_result(verdict)

    def _keep(self, unsent: "list[_Unsent]") -> None:
        with self._lock:
            for note, future in unsent:
                if future is None:
                    key = (note.job, note.fence)
                    newer = self._said.get(key)
                    self._said[key] = note if newer is None else _merged(note, newer)
                else:
                    self._asked.append((note, future))


_Unsent: TypeAlias = tuple[Note, Future[Verdict] | None]


def _answer_with(page: "list[_Unsent]", error: Exception) -> None:
    for _, future in page:
        if future is not None:
            _tell(future, error)


def _tell(future: Future[Verdict], error: Exception) -> None:
    with contextlib.suppress(InvalidStateError):  # the task no longer waits
        future.set_exception(error)


_ENDED = "the worker has ended"


def _merged(before: Note | None, note: Note) -> Note:
    if before is None:
        return note
    spoke = note.permille is not None
    return msgspec.structs.replace(
        before,
        permille=note.permille if spoke else before.permille,
        message=note.message if spoke else before.message,
        logs=(before.logs + note.logs)[-LOG_LINES:],
    )
