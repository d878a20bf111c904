"""The wire for threads: one connection, one call at a time, in the caller's own thread."""

import threading
import time
from typing import Any, TypeVar

from redis import exceptions

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.connections import ThreadLink, connect_blocking, find
from windlass.broker.redis.conversation import Go, Pause, Say, Talk
from windlass.broker.redis.url import Address, Place

_T = TypeVar("_T")


class BlockingWire:
    """A connection that threads share."""

    def __init__(self, place: Place, key: bytes) -> None:
        self._place = place
        self._key = key
        self._lock = threading.Lock()
        self._link: ThreadLink | None = None
        self._address: Address | None = None
        self._found = place.kind == "direct"
        self._used = False
        """The connection has answered before."""
        self._said: exceptions.RedisError | None = None
        """Why it puts the caller off, if it does."""

    def hold(self, talk: Talk[_T]) -> _T:
        """Hold a conversation to its end. Its turn counts: a server that hangs is not waited for in line."""
        if not self._lock.acquire(timeout=self._place.timeout):
            raise complaint(TimeoutError(), self._place, self._address, used=True)
        try:
            return self._hold(talk)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            told = complaint(error, self._place, self._address, used=self._used, said=self._said)
            self._drop()
            raise told from error
        finally:
            self._lock.release()

    def _hold(self, talk: Talk[_T]) -> _T:
        answer: Any = None
        self._said = None
        end = time.monotonic() + self._place.timeout
        while True:
            try:
                step = talk.send(answer)
            except StopIteration as stop:
                return stop.value
            if time.monotonic() > end:
                raise TimeoutError
            answer = None
            match step:
                case Say():
                    answer = self._answer(step)
                    self._said = answer if isinstance(answer, exceptions.RedisError) else None
                case Pause():
                    time.sleep(step.seconds)
                case Go():
                    self._drop()
                    self._address = step.to
                    self._found = step.to is not None or self._place.kind == "direct"

    def _answer(self, step: Say) -> Any:
        if step.to is None:
            return self._say(self._connected(), step)
        link = connect_blocking(self._place, step.to)  # another server, for once
        try:
            link.connect()
            return self._say(link, step)
        finally:
            link.disconnect()

    def _say(self, link: ThreadLink, step: Say) -> Any:
        said = [step.packed] if step.packed is not None else None
        if said is None:
            said = [part for command in step.commands for part in link.pack_command(*command)]
        link.send_packed_command(said)
        reply: Any = None
        for _ in step.commands:
            try:
                reply = link.read_response()
            except exceptions.BusyLoadingError as error:  # a redis-py ConnectionError, although it is a reply
                reply = error
            except (exceptions.ConnectionError, exceptions.TimeoutError):
                raise
            except exceptions.RedisError as error:
                reply = error
        self._used = True
        return reply

    def _connected(self) -> ThreadLink:
        if self._link is None:
            if not self._found:
                self._address, self._found = find(self._place, self._key), True
            link = connect_blocking(self._place, self._address)
            link.connect()
            self._link = link
        return self._link

    def _drop(self) -> None:
        link, self._link, self._used = self._link, None, False
        if self._place.kind != "direct":
            self._found = False
        if link is not None:
            link.disconnect()

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._drop()
