"""What the pump has fetched of one partition, and nobody has taken yet."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice

from confluent_kafka import KafkaError

from windlass.bridges.kafka.offsets import Position
from windlass.bridges.message import Message

FULL = 2_000
"""Messages after which no more are fetched: two takes."""
FULL_BYTES = 16 * 1_048_576


class Inbox:
    """Filled by the thread of the pump, emptied on the loop of those who read. `changed` guards it, and wakes
    the pump.
    """

    def __init__(self, partition: int, position: Position, changed: threading.Condition) -> None:
        self.partition = partition
        self.position = position
        """Of its first message."""
        self.looks_back = position.epoch is not None and position.offset > 0
        """Whether it is still to be seen that the message before is the one that was read."""
        self.is_paused = False
        """Whether the pump has stopped fetching for it, so that others go on."""
        self.awaited = False
        """Whether somebody waits for its first message."""
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._error: KafkaError | None = None
        self._failure: Exception | None = None
        self._end: int | None = None

    # --- the pump's side, which holds `changed` -------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be fetched for it."""
        return len(self._messages) >= FULL or self._bytes >= FULL_BYTES

    @property
    def has_room(self) -> bool:
        """Whether fetching may go on, once it was stopped."""
        return len(self._messages) < FULL // 2 and self._bytes < FULL_BYTES // 2

    def put(self, message: Message) -> None:
        """Add the next message."""
        self.looks_back = False
        if self._error is not None:
            return
        self._messages.append(message)
        self._bytes += len(message.body or b"")

    def put_error(self, error: KafkaError) -> None:
        """Nothing comes after this."""
        self._error = self._error or error

    def fail(self, failure: Exception) -> None:
        """The pump has failed by an error that nobody expected: the reader gets it."""
        self._failure = failure

    def put_end(self, offset: int) -> None:
        """There is nothing more before this offset, for now."""
        self._end = offset

    def tell(self) -> None:
        """Wake the reader, if there is something to take."""
        if self.awaited and not self._is_empty():
            self.awaited = False
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._filled.set)

    # --- the readers' side ----------------------------------------------------------------------------------

    async def filled(self, seconds: float) -> None:
        """Wait for the first message, or an error, at most so long."""
        with self._changed:
            if not self._is_empty():
                return
            self.awaited = True
            self._filled.clear()
            self._changed.notify()
        try:
            async with asyncio.timeout(seconds):
                await self._filled.wait()
        except TimeoutError:
            return
        finally:
            with self._changed:
                self.awaited = False

    def first(self, limit: int) -> tuple[Sequence[Message], KafkaError | None]:
        """The first messages, which stay; the error, if there is one and no message before it."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            messages = list(islice(self._messages, limit))
            return messages, None if messages else self._error

    def drop(self, count: int) -> None:
        """Forget the first messages: they were read."""
        with self._changed:
            for _ in range(count):
                self._bytes -= len(self._messages.popleft().body or b"")
            self._changed.notify()

    @property
    def awaits_its_first(self) -> bool:
        """Whether there is nothing to read."""
        with self._changed:
            return self._is_empty()

    def passed(self, offset: int) -> int:
        """The offset up to which there is nothing to read from another one on, which is where it stands."""
        with self._changed:
            if self._messages or self._end is None:
                return offset
            return max(offset, self._end)

    def _is_empty(self) -> bool:
        return not self._messages and self._error is None and self._failure is None
