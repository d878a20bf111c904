"""Forks: what must not be under way while the process forks, and what the child must not take over.

A child has one thread and a copy of all memory. A lock that another thread held stays locked, and what the
parent has open is still the parent's. So a fork waits until no work of a `Gate` is under way; in the child,
whatever asked for it starts anew (`renew_after_fork`), and what it has from its parent is never touched again
(`leave_to_parent`).
"""

import asyncio
import ctypes
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Protocol

from windlass.errors import StoreUnavailable

LONGEST_FORK: Final = 60.0
"""Seconds that new work waits for a fork. Past that something in the fork waits for this very work."""
_LOOK: Final = 0.005


class Renewed(Protocol):
    """Something that starts anew in the child of a fork."""

    def renew(self) -> None:
        """Forget, in the child, what belongs to the parent. No other thread runs yet."""
        ...


# One hook for all: a hook cannot be taken back, and apps come and go.
_known: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(one: Renewed) -> None:
    """Call its `renew` in every child, as long as it lives."""
    _known.add(one)


def leave_to_parent(*things: object) -> None:
    """In a child: keep what is the parent's, and never touch it.

    To destroy a connection of the parent's is to use it: the driver would say goodbye on it, or take its
    socket out of the parent's event loop, which the child shares.
    """
    keep_for_ever(*things)


def keep_for_ever(*things: object) -> None:
    """Keep these until the process is gone, even while Python shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(things))


class Gate:
    """Work that must not be under way while the process forks: the fork waits for it, and new work for the
    fork. Not to be entered twice by one thread: the second time would wait for a fork that waits for the
    first.
    """

    def __init__(self, patience: float) -> None:
        """`patience`: seconds that a fork waits at the most. Then it goes ahead all the same."""
        self._patience = patience
        self._start()
        _gates.append(self)

    def _start(self) -> None:
        # It can be taken again by the thread that has it: objects are destroyed at any moment, and some
        # enter a gate to be closed.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._under_way = 0
        self._forks = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._forks:
                self._wait_for_fork()
            self._under_way += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._under_way -= 1
            if self._forks:
                self._changed.notify_all()

    def try_to_enter(self) -> bool:
        """Enter unless the process is about to fork; whether it has."""
        with self._lock:
            if self._forks:
                return False
            self._under_way += 1
            return True

    @asynccontextmanager
    async def entered(self) -> AsyncGenerator[None, None]:
        """The same for coroutines: the loop goes on meanwhile, and with it what the fork waits for."""
        end = time.monotonic() + LONGEST_FORK
        while not self.try_to_enter():
            if time.monotonic() > end:
                raise StoreUnavailable(_FORKING)
            await asyncio.sleep(_LOOK)
        try:
            yield
        finally:
            self.__exit__(None, None, None)

    def _wait_for_fork(self) -> None:
        if not self._changed.wait_for(lambda: not self._forks, LONGEST_FORK):
            raise StoreUnavailable(_FORKING)

    # --- called around a fork -------------------------------------------------------------------------------

    def shut(self) -> None:
        """Before a fork: let no more work begin, and wait for what is under way."""
        with self._lock:
            self._forks += 1
            if self._changed.wait_for(lambda: not self._under_way, self._patience):
                self.on_quiet()

    def on_quiet(self) -> None:
        """Before a fork, when no work is under way."""

    def reopen(self) -> None:
        """In the parent: work goes on, unless another thread is about to fork as well."""
        with self._lock:
            self._forks = max(0, self._forks - 1)  # it may be younger than the fork
            self._changed.notify_all()

    def renew(self) -> None:
        """In the child: whatever the parent's threads did, nobody does it here."""
        self._start()


_FORKING = (
    f"this process has been about to fork for {LONGEST_FORK:g} s, and its threads wait for that; "
    "do not use an app in a hook of os.register_at_fork(before=...)"
)
_gates: list[Gate] = []


def _before() -> None:
    for gate in _gates:
        gate.shut()


def _in_parent() -> None:
    for gate in _gates:
        gate.reopen()


def _in_child() -> None:
    for gate in _gates:
        gate.renew()
    for one in list(_known):
        one.renew()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

CONNECTING: Final = Gate(patience=2.0)
"""Connecting to a server: the driver, the resolver and TLS hold locks of their own meanwhile, which the child
of a fork would wait for without end. What takes longer than this waits for the network, and holds none.
"""
