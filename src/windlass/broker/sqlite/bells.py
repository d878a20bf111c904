"""Waking those who wait, in this process and in others.

For work there is a FIFO per queue beside the file: a byte in it is an armed wake, which one waiter takes, in
whatever process. It is written after the commit, and only into an empty FIFO: a thousand jobs are one wake,
and the claim that leaves work arms the next. For jobs that finish and for events everybody who listens is
told: at once in this process, and in others by the version of the file, which they look at every 2 to 50 ms
while they listen, a tenth of the time they have waited.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import termios
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from windlass.broker.sqlite.filesystem import in_words_of_system, is_at
from windlass.descriptors import identity

QUICKEST, SLOWEST = 0.002, 0.050
AGAIN = 1.0
"""Seconds between looks whether a FIFO is still the one at its path."""
_PATIENCE = 10
"""The part of the time already waited after which the file's version is looked at again."""
_WAKE = b"\1"
_NONE = bytes(4)
"""How many bytes an empty FIFO has."""


class Bells:
    """The wakes of a file, as one process hears and rings them."""

    def __init__(self, folder: Path, version: Callable[[], object]) -> None:
        self._folder = folder
        self._version = version
        self._guard = threading.Lock()
        self._fifos: dict[str, int] = {}
        self._files: dict[int, bytes] = {}
        """What each of their numbers led to when it was opened."""
        self._looked_at: dict[str, float] = {}
        self._deleted: list[int] = []
        """FIFOs that somebody has deleted: a loop may still look at them, so they are closed in the end."""
        weakref.finalize(self, _close, self._fifos, self._deleted).atexit = False
        self._loops: dict[asyncio.AbstractEventLoop, dict[int, deque[asyncio.Future[None]]]] = {}
        self._listeners: set[Listener] = set()
        self._seen = version()
        self._looked = 0.0
        self.generation = 0
        """Grows with every commit that this process has heard of."""
        self.closed = False

    def wake(self, queues: Collection[str], *, finished: bool) -> None:
        """A commit has put work into these queues, and something finished or was logged: the one place where
        wakes are rung.
        """
        if queues:
            self.arm(queues)
        if finished:
            self.ring()

    # work

    def arm(self, queues: Collection[str]) -> None:
        """Jobs of these queues became claimable: wake one waiter of each, or let the next return at once."""
        for name in queues:
            try:
                fifo = self._fifo(name)
                if fcntl.ioctl(fifo, termios.FIONREAD, _NONE) == _NONE:
                    os.write(fifo, _WAKE)
            except OSError:
                # It is being closed, and so are those who would wait; or none can be made, and they look by
                # themselves: what was committed is no error because of that.
                continue

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        """Return when a wake of one of the queues was taken, or after `timeout` seconds."""
        with in_words_of_system(self._folder):
            fifos = {self._fifo(name) for name in queues}
        # Each is emptied: one wake is enough for somebody who will ask all of these queues.
        if self.closed or sum(map(_take, fifos)):
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        waiting = self._loops.setdefault(loop, {})
        for fifo in fifos:
            if fifo not in waiting:
                waiting[fifo] = deque()
                loop.add_reader(fifo, _hand_on, fifo, waiting[fifo])
            waiting[fifo].append(woken)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(woken)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled():
                self.arm(set(queues))  # it was woken and will not act on it: another should
            raise
        finally:
            self._leave(loop, fifos, woken)

    def _leave(self, loop: asyncio.AbstractEventLoop, fifos: set[int], woken: asyncio.Future[None]) -> None:
        waiting = self._loops.get(loop, {})
        for fifo in fifos & waiting.keys():
            with contextlib.suppress(ValueError):
                waiting[fifo].remove(woken)
            if not waiting[fifo]:
                del waiting[fifo]
                loop.remove_reader(fifo)
        if not waiting:
            self._loops.pop(loop, None)

    def _fifo(self, name: str) -> int:
        """The FIFO of a queue. Open both ways, so that it is never at its end and keeps a byte for later.

        Opened anew if the program has closed it behind our back, when its number may be another file's by
        now, or if somebody has deleted it.
        """
        now = time.monotonic()
        fifo = self._fifos.get(name)
        looked_at = self._looked_at.get(name, -AGAIN)
        if fifo is not None and now - looked_at < AGAIN and identity(fifo) == self._files[fifo]:
            return fifo
        with self._guard:
            path = self._folder / hashlib.blake2b(name.encode(), digest_size=12).hexdigest()
            fifo = self._fifos.get(name)
            is_open = fifo is not None and identity(fifo) == self._files[fifo]
            if fifo is None or not is_open or not is_at(fifo, path):
                if fifo is not None and is_open:
                    self._deleted.append(fifo)
                    with contextlib.suppress(OSError):
                        os.write(fifo, _WAKE)  # those who wait for it look, and wait for the new one then
                self._folder.mkdir(exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.mkfifo(path)
                fifo = self._fifos[name] = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self._files[fifo] = identity(fifo)
            self._looked_at[name] = now
            return fifo

    # ends and events

    def ring(self) -> None:
        """Something finished or was logged in this process."""
        with self._guard:
            self.generation += 1
            listeners = list(self._listeners)
        for listener in listeners:
            listener.wake()

    def listen(self) -> "Listener":
        """A new listener for the next commit. Listen first, then look: so nothing is missed."""
        listener = Listener(self)
        with self._guard:
            self._listeners.add(listener)
        return listener

    def leave(self, listener: "Listener") -> None:
        """Remove a listener."""
        with self._guard:
            self._listeners.discard(listener)

    def look(self) -> int:
        """Look whether another process has committed; at most once in a while, however often it is called."""
        with self._guard:
            now = time.monotonic()
            if now - self._looked >= QUICKEST and not self.closed:
                self._looked = now
                version = self._version()
                if version != self._seen:
                    self._seen = version
                    self.generation += 1
            return self.generation

    def close(self) -> None:
        """Wake all waiters, and end."""
        with self._guard:
            self.closed = True
        for loop, waiting in list(self._loops.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake_all, waiting)
        self.ring()

    def let_go(self) -> None:
        """Close the FIFOs, except those that a loop still looks at: their numbers must not be reused yet."""
        with self._guard:
            watched = {fifo for waiting in list(self._loops.values()) for fifo in list(waiting)}
            for name in [name for name, fifo in self._fifos.items() if fifo not in watched]:
                os.close(self._fifos.pop(name))
            while self._deleted:
                os.close(self._deleted.pop())


class Listener:
    """A coroutine that waits for ends or events."""

    def __init__(self, bells: Bells) -> None:
        self._bells = bells
        self._heard = bells.generation
        self._since = time.monotonic()
        self._event = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Something happened; from any thread."""
        self._event.set()
        loop, future = self._loop, self._future
        if loop is not None and future is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_wake, future)

    async def heard(self, end: float) -> bool:
        """Wait for the next commit until a time of the monotonic clock; whether there was one."""
        self._loop = asyncio.get_running_loop()
        while not self._new():
            self._future = self._loop.create_future()
            if self._event.is_set():
                continue
            pause = self._pause(end)
            if pause <= 0:
                return False
            timer = self._loop.call_later(pause, _wake, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
        return True

    def _new(self) -> bool:
        """Whether there was a commit since it was asked last."""
        self._event.clear()
        generation = self._bells.look()
        if generation == self._heard and not self._bells.closed:
            return False
        self._heard = generation
        return True

    def _pause(self, end: float) -> float:
        now = time.monotonic()
        pause = min(max((now - self._since) / _PATIENCE, QUICKEST), SLOWEST)
        return min(pause, end - now)


def _close(fifos: dict[str, int], deleted: list[int]) -> None:
    while fifos:
        os.close(fifos.popitem()[1])
    while deleted:
        os.close(deleted.pop())


def _take(fifo: int) -> bool:
    """Take a wake, if there is one."""
    try:
        return bool(os.read(fifo, 4096))
    except OSError:  # there is none; or the program closed it, and the next call opens it anew
        return False


def _hand_on(fifo: int, waiting: deque[asyncio.Future[None]]) -> None:
    """A wake has come: give it to the first waiter, unless another process was quicker."""
    while waiting and waiting[0].done():
        waiting.popleft()
    if waiting and _take(fifo):
        _wake(waiting.popleft())


def _wake_all(waiting: "dict[int, deque[asyncio.Future[None]]]") -> None:
    """Wake all waiters of a loop. Runs on that loop."""
    for each in waiting.values():
        for woken in each:
            _wake(woken)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
