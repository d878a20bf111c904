"""What a process has open of a namespace: connections per event loop, and one for threads."""

import asyncio
import os
import threading
from typing import Any, TypeVar

from windlass.broker.contract import Options
from windlass.broker.redis.blocking import BlockingWire
from windlass.broker.redis.codes import FORMAT
from windlass.broker.redis.complaints import BrokenLink
from windlass.broker.redis.conversation import Send, Talk, converse
from windlass.broker.redis.durability import Durability, read_durability
from windlass.broker.redis.keys import ends_channel, keys
from windlass.broker.redis.loop_connections import LoopConnections
from windlass.broker.redis.records import blob, pack
from windlass.broker.redis.url import Location
from windlass.broker.redis.verbs import ScriptCall
from windlass.clock import Clock
from windlass.errors import StoreError, StoreUnavailable
from windlass.forks import leave_to_parent, renew_after_fork

_T = TypeVar("_T")


class Store:
    """A namespace on a server."""

    def __init__(self, location: Location, options: Options, clock: Clock | None) -> None:
        self.location = location
        self.options = options
        self._clock = clock
        self._keys = keys(options.namespace)
        self._rest = (
            options.session_ttl,
            options.resend_window,
            options.events_kept,
            False if options.max_size is None else options.max_size,
            blob(ends_channel(options.namespace)),
        )
        self._steady = None if clock is not None else pack((False, *self._rest))
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopConnections] = {}
        self._blocking: BlockingWire | None = None
        self.closed = False
        renew_after_fork(self)

    def _talk(self, call: ScriptCall[_T]) -> Talk[_T]:
        context = self._steady
        if context is None:
            assert self._clock is not None
            context = pack((self._clock.now(), *self._rest))
        return converse(call, self._keys, context, self.location.wait, self.location.timeout)

    async def run(self, call: ScriptCall[_T]) -> _T:
        """Run a script, from a coroutine."""
        wire = self.on_this_loop().wire
        try:
            return await wire.hold(self._talk(call))
        except BrokenLink:
            if not call.repeatable:
                raise
        return await wire.hold(self._talk(call))

    def run_blocking(self, call: ScriptCall[_T]) -> _T:
        """Run a script, from a thread."""
        wire = self._thread_wire()
        try:
            return wire.hold(self._talk(call))
        except BrokenLink:
            if not call.repeatable:
                raise
        return wire.hold(self._talk(call))

    async def durability(self) -> Durability:
        """What the server promises; the namespace exists from here on."""
        found = await self.run(ScriptCall("open", (pack([]),), int))
        if found not in (0, FORMAT):
            raise StoreError(
                f'namespace "{self.options.namespace}" is kept in format {found}, and this Windlass knows '
                f"format {FORMAT}: use the version that wrote it, or another namespace"
            )
        return await self.on_this_loop().wire.hold(_facts(self.location.wait))

    def on_this_loop(self) -> LoopConnections:
        """What this loop has open."""
        self._renew_in_child()
        loop = asyncio.get_running_loop()
        connections = self._by_loop.get(loop)
        if connections is None:
            if self.closed:  # a caller that was woken would open connections that nobody closes
                raise StoreUnavailable("the broker is closed; open another")
            with self._guard:
                for other in [each for each in self._by_loop if each.is_closed()]:
                    del self._by_loop[other]  # it did not end in order, and closed nothing
                connections = self._by_loop[loop] = LoopConnections(
                    self.location,
                    self.options.namespace,
                    self._keys[0],
                    gone=lambda: self._by_loop.pop(loop, None),
                )
        return connections

    def _thread_wire(self) -> BlockingWire:
        self._renew_in_child()
        with self._guard:
            if self._blocking is None:
                self._blocking = BlockingWire(self.location, self._keys[0])
            return self._blocking

    def _renew_in_child(self) -> None:
        """Renew also where a fork called no hook of Python's."""
        if self._pid != os.getpid():
            self.renew()

    def renew(self) -> None:
        """In a child of a fork: open connections of its own."""
        leave_to_parent(self._by_loop, self._blocking)
        self._guard = threading.Lock()
        self._by_loop, self._blocking, self._pid = {}, None, os.getpid()

    async def close(self) -> None:
        """Close the connections of this loop, and those of threads."""
        self.closed = True
        connections = self._by_loop.pop(asyncio.get_running_loop(), None)
        if connections is not None:
            await connections.close()
        for loop, other in list(self._by_loop.items()):
            if not loop.is_closed():
                loop.call_soon_threadsafe(other.begin_to_close)  # its connections are that loop's to close
        blocking, self._blocking = self._blocking, None
        if blocking is not None:
            await asyncio.to_thread(blocking.close)


def _facts(replicas: int) -> Talk[Durability]:
    info: Any = yield Send(((b"INFO",),))
    config: Any = yield Send(((b"CONFIG", b"GET", b"appendfsync"),))
    save: Any = yield Send(((b"CONFIG", b"GET", b"save"),))
    # An ACL may forbid CONFIG: what is not known is not claimed.
    said: list[Any] = [] if isinstance(config, Exception) or isinstance(save, Exception) else [*config, *save]
    return read_durability(info if isinstance(info, bytes) else b"", said, replicas)
