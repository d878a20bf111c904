"""New jobs on the wire by hand, for a thread that has nothing to do but wait for the answer.

The driver is made for a loop: futures, timers, callbacks, a look at what is ready before and after, and a new
buffer of 256 KiB for each read. Of a blocking call that was more than all the rest of the client's part. Here
a call is one message, one wait and one read, what jobs of one task have in common is packed once, and arrays
are joined, not walked. The driver still connects, logs in and prepares, and takes whatever else is said.
"""

import asyncio
import contextlib
import os
import select
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from os import read, write
from typing import Any, Final

from windlass.broker.postgres import copying
from windlass.broker.postgres.driver import PATIENCE, Connection, Refused, refusal
from windlass.broker.postgres.statements import statement

_OPTIONS: Final = ("text", "text", "int2", "int8", "int8", "int8", "bytea", "bytea", "int4", "int8", "text")
_TYPES: Final = {
    "enqueue_one": ("int8", "uuid", "bytea", *_OPTIONS),
    "enqueue_alike": ("int8", "bool", "uuid", "uuid[]", "bytea[]", *_OPTIONS),
}
"""Of the arguments, which travel in binary."""
_PATIENCE_MS: Final = int(PATIENCE * 1_000)
_MOST_BYTES: Final = 4_096
"""Read at a time: the answer is 36 bytes, an error some hundred."""

_small, _middle, _large = struct.Struct(">ih").pack, struct.Struct(">ii").pack, struct.Struct(">iq").pack
_length: Final = struct.Struct(">i").pack
_head: Final = struct.Struct(">ci").pack
_array: Final = struct.Struct(">6i").pack
"""Its length in bytes; one dimension, no NULL, the type of its elements, how many, the first one's number."""
_AN_UUID, _A_BYTEA = 2950, 17
_NULL: Final = _length(-1)
_TRUE: Final = _length(1) + b"\1"
_UUID: Final = _length(16)
_ALL_BINARY: Final = b"\0\1\0\1"
_END: Final = _ALL_BINARY + b"E\0\0\0\x09\0\0\0\0\0" + b"S\0\0\0\4"
"""The result in binary; execute; that is all."""
_CREATED: Final = b"2\0\0\0\4" + b"D\0\0\0\x0a\0\1\0\0\0\0" + b"C\0\0\0\x0dSELECT 1\0" + b"Z\0\0\0\5I"
"""What the server answers if nothing is wrong: bound, one row of nothing, one row in all, ready and idle."""
_ASIDE: Final = frozenset({b"A", b"N", b"S"})
"""Notifications, notices, settings: no part of an answer."""
_PARTS: Final = frozenset({b"2", b"C", b"D", b"G"})
_COPY: Final = b"\0\0\0\0\0\0" + b"E\0\0\0\x09\0\0\0\0\0"
"""Without arguments and results; execute."""
_COPIED: Final = b"c\0\0\0\4"
"""These were all the rows."""


class Wire:
    """A connection on which the short ways of enqueue are prepared."""

    __slots__ = ("_copy", "_feed", "_fileno", "_poll", "_prepared", "_starts", "connection")

    def __init__(
        self,
        connection: Connection,
        fileno: int,
        prepared: dict[str, Any],
        feed: Callable[[bytes], None],
        copy: Any = None,
    ) -> None:
        """`copy` is the prepared statement by which rows are sent, if there is one."""
        self.connection = connection
        self._fileno = fileno
        self._prepared = prepared  # the server forgets what nobody has any more
        self._feed = feed
        self._starts = {
            function: b"\0%b\0%b\0%c" % (made.get_name().encode(), _ALL_BINARY, len(made.get_parameters()))
            for function, made in prepared.items()
        }
        self._copy = b""
        if copy is not None:
            self._prepared = {**prepared, "": copy}
            start = b"\0%b\0" % copy.get_name().encode()
            self._copy = _head(b"B", len(start) + 10) + start + _COPY
        self._poll = _polled(fileno, select.POLLIN)

    def one(self, now: int | None, values: Sequence[Any]) -> tuple[bytes, ...] | None:
        """The call of `enqueue_one` for a job, given value by value, in parts; None if the driver has to make
        it: there is no such value, and the driver says so.
        """
        job, payload, *options = values
        try:
            rest = _packed(*options)
        except (struct.error, UnicodeError):
            return None
        at = _NULL if now is None else _large(8, now)
        start, size = self._starts["enqueue_one"], len(payload)
        length = len(start) + len(at) + 24 + size + len(rest) + 4 + len(_ALL_BINARY)  # 24: the id, the length
        parts = (_head(b"B", length), start, at, _UUID, _digits(job), _length(size), payload, rest, _END)
        return (b"".join(parts),)

    def alike(self, now: int | None, values: Sequence[Any]) -> tuple[bytes, ...] | None:
        """Likewise the call of `enqueue_alike`, after which nothing follows."""
        first, ids, payloads, *options = values
        many = len(ids)
        digits = bytes.fromhex("00000010" + "00000010".join(ids).replace("-", ""))
        bodies = _joined(payloads)
        given = (
            *(_TRUE, _UUID, _digits(first)),
            *(_array(len(digits) + 20, 1, 0, _AN_UUID, many, 1), digits),
            _array(len(bodies) + 20, 1, 0, _A_BYTEA, many, 1),
        )
        return self._bound("enqueue_alike", now, given, bodies, options)

    def copied(self, now: int | None, values: Sequence[Any]) -> Iterator[tuple[bytes, ...]] | None:
        """Likewise jobs that are alike, as rows: calls to send one after the other, made as they are asked
        for; None too if they are better sent otherwise. First a number is drawn, which may fail as `send` and
        `hear` do.
        """
        _, _, payloads, _, queue, *_ = values
        if not self._copy or not copying.are_large(payloads):
            return None
        try:
            self.send(self._call(copying.DRAWN, copying.draw(now, queue)))
        except UnicodeError:
            return None
        rows = copying.Rows(values)
        drawn = copying.drawn(self._hear(self._more()))
        try:
            return self._copies(*rows.packed(*drawn))
        except (struct.error, UnicodeError):
            return None

    def _copies(self, rows: Iterable[bytes], left: Callable[[], bytes]) -> Iterator[tuple[bytes, ...]]:
        for some in rows:
            yield self._copy + _head(b"d", len(some) + 4), some, _COPIED
        yield (self._call(copying.COPIED, left()),)

    def _call(self, function: str, arguments: bytes) -> bytes:
        first = self._starts[function] + arguments
        return _head(b"B", len(first) + 4 + len(_ALL_BINARY)) + first + _END

    def _bound(
        self, function: str, now: int | None, given: tuple[bytes, ...], large: bytes, options: Sequence[Any]
    ) -> tuple[bytes, ...] | None:
        """A call, in parts. What is large is a part of its own: half of what packing takes is new memory."""
        try:
            rest = _packed(*options)
        except (struct.error, UnicodeError):
            return None
        first = b"".join((self._starts[function], _NULL if now is None else _large(8, now), *given))
        head = _head(b"B", len(first) + len(large) + len(rest) + 4 + len(_ALL_BINARY))
        return (head + first, large, rest + _END)

    def send(self, first: bytes, *more: bytes) -> None:
        """Send a call. `OSError`: the connection is of no use any more; the call was not made."""
        try:
            sent = os.writev(self._fileno, (first, *more)) if more else write(self._fileno, first)
        except BlockingIOError:  # what was sent before has not been read yet
            sent = 0
        if sent == (len(first) + sum(map(len, more)) if more else len(first)):
            return
        rest = memoryview(b"".join((first, *more)))[sent:]
        has_room = _polled(self._fileno, select.POLLOUT)
        while rest:
            if not has_room(_PATIENCE_MS):
                raise TimeoutError
            with contextlib.suppress(BlockingIOError):
                rest = rest[write(self._fileno, rest) :]

    def hear(self) -> None:
        """Wait until it is done. What the server says against it is raised as the driver would; `OSError`:
        the connection is of no use any more, and whether the jobs were kept is not known.
        """
        answer = self._more()
        if answer != _CREATED:
            self._hear(answer)

    def _more(self) -> bytes:
        if not self._poll(_PATIENCE_MS):
            raise TimeoutError
        heard = read(self._fileno, _MOST_BYTES)
        if not heard:
            raise ConnectionError("the server closed the connection")
        return heard

    def _hear(self, heard: bytes) -> bytes:
        """Read on, message by message, until the server is ready for the next call; the last row, if any."""
        error: Exception | None = None
        kind = row = b""
        while kind != b"Z":
            try:
                while len(heard) < (end := 1 + int.from_bytes(heard[1:5] if len(heard) > 4 else b"\4")):
                    heard += self._more()
            except OSError as lost:
                raise error or lost from None
            kind, said, heard = heard[:1], heard[5:end], heard[end:]
            if kind == b"E":
                fields = said.decode(errors="replace").split("\0")
                error = refusal({field[0]: field[1:] for field in fields if field})
            elif kind == b"D":
                row = said
            elif kind in _ASIDE:
                self._feed(_head(kind, len(said) + 4) + said)
            elif kind not in _PARTS and (kind, said, heard) != (b"Z", b"I", b""):
                raise ConnectionError("the server said what was not asked for")
        if error is not None:
            raise error
        return row


async def wire_of(connection: Connection, schema: str) -> Wire | None:
    """Prepare the short ways on the wire of a connection; None if somebody has to be between the two, as with
    TLS, or if driver or functions are others than those known here.
    """
    transport = getattr(connection, "_transport", None)
    if not isinstance(transport, asyncio.Transport) or not hasattr(select, "poll"):
        return None
    socket, protocol = transport.get_extra_info("socket"), transport.get_protocol()
    if socket is None or transport.get_extra_info("ssl_object") is not None:
        return None
    if not isinstance(protocol, asyncio.Protocol):
        return None
    prepared = await _prepared(connection, schema, _TYPES)
    if prepared is None:
        return None
    copy: Any = None
    try:
        more = await _prepared(connection, schema, copying.TYPES)
        if more is not None:
            copy = await connection.prepare(copying.copy_statement(schema))
            prepared |= more
    except Refused:
        copy = None  # older functions, which this role may not renew
    return Wire(connection, socket.fileno(), prepared, protocol.data_received, copy)


async def _prepared(
    connection: Connection, schema: str, known: Mapping[str, Sequence[str]]
) -> dict[str, Any] | None:
    """Statements that call these functions, by their names; None if their types are others."""
    prepared: dict[str, Any] = {}
    for function, types in known.items():
        made = prepared[function] = await connection.prepare(statement(schema, function, len(types)))
        if tuple(kind.name for kind in made.get_parameters()) != types:
            return None
    return prepared


def _polled(fileno: int, events: int) -> Callable[[int], object]:
    poll = select.poll()
    poll.register(fileno, events)
    return poll.poll


def _digits(job: object) -> bytes:
    return bytes.fromhex(str(job).replace("-", ""))


def _joined(values: Sequence[bytes]) -> bytes:
    """Elements of an array, each behind its length."""
    lengths = list(map(len, values))
    if lengths.count(lengths[0]) == len(lengths):
        return _length(lengths[0]).join((b"", *values))
    return b"".join(chain.from_iterable(zip(map(_length, lengths), values, strict=True)))


@lru_cache(maxsize=256)
def _packed(
    task: str,
    queue: str,
    priority: int,
    delay: int,
    run_at: int | None,
    expires: int | None,
    headers: bytes | None,
    tags: bytes | None,
    max_attempts: int,
    revision: int,
    flow: str,
) -> bytes:
    """What jobs of one task under the same options have in common."""
    return b"".join(
        (
            _bytes(task.encode()),
            _bytes(queue.encode()),
            _small(2, priority),
            _large(8, delay),
            _NULL if run_at is None else _large(8, run_at),
            _NULL if expires is None else _large(8, expires),
            _NULL if headers is None else _bytes(headers),
            _NULL if tags is None else _bytes(tags),
            _middle(4, max_attempts),
            _large(8, revision),
            _bytes(flow.encode()),
        )
    )


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value
