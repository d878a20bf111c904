"""The wire for threads: one connection, one call at a time, in the caller's own thread."""

import threading
import time
from typing import Any, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import BlockingConnection, ask_blocking, find, named, open_blocking
from windlass.broker.redis.conversation import ConnectTo, Pause, Send, Talk
from windlass.broker.redis.url import Address, Location

_T = TypeVar("_T")


class BlockingWire:
    """A connection that threads share."""

    def __init__(self, location: Location, key: bytes) -> None:
        self._location = location
        self._key = key
        self._lock = threading.Lock()
        self._opened: BlockingConnection | None = None
        self._address: Address | None = None
        self._found = location.kind == "direct"
        self._asked = False
        """A question was sent whose answer was not read yet."""
        self._used = False
        """The connection has answered before."""
        self._said: exceptions.RedisError | None = None
        """Why it puts the caller off, if it does."""

    def hold(self, talk: Talk[_T]) -> _T:
        """Hold a conversation to its end. The time in line counts: threads do not wait one after the other
        for a server that hangs.
        """
        if not self._lock.acquire(timeout=self._location.timeout):
            raise complaint(TimeoutError(), self._location, self._address, used=True)
        try:
            return self._hold(talk)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            told = complaint(error, self._location, self._address, used=self._used, said=self._said)
            self._drop()
            raise told from error
        except BaseException:
            # Interrupted, perhaps between a question and its answer: the next must not read that.
            if self._asked:
                self._drop()
            raise
        finally:
            self._lock.release()

    def _hold(self, talk: Talk[_T]) -> _T:
        answer: Any = None
        self._said = None
        end = time.monotonic() + self._location.timeout
        while True:
            try:
                step = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if time.monotonic() > end:
                raise TimeoutError
            answer = None
            match step:
                case Send():
                    answer = self._answer(step)
                    self._said = answer if isinstance(answer, exceptions.RedisError) else None
                case Pause():
                    time.sleep(step.seconds)
                case ConnectTo():
                    self._drop(step)

    def _answer(self, step: Send) -> Any:
        if step.to is None:
            opened = self._connected()
            self._asked = True
            reply = ask_blocking(opened, step.commands)
            self._asked, self._used = False, True
            return reply
        other = named(self._location, self._address, step.to)  # for once
        opened = open_blocking(self._location, other)
        try:
            return ask_blocking(opened, step.commands)
        finally:
            opened.disconnect()

    def _connected(self) -> BlockingConnection:
        if self._opened is None:
            if not self._found:
                self._address, self._found = find(self._location, self._key), True
            self._opened = open_blocking(self._location, self._address)
        return self._opened

    def _drop(self, go: ConnectTo | None = None) -> None:
        """Close the connection. The next one leads where `go` says, else to the server in charge."""
        opened, self._opened, self._asked, self._used = self._opened, None, False, False
        if go is not None and go.to is not None:
            self._address, self._found = named(self._location, self._address, go.to), True
        elif self._location.kind == "direct":
            self._address = None
        else:
            self._found = False
        if opened is not None:
            opened.disconnect()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()
