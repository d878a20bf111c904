"""Large jobs that are alike, sent as rows by COPY: the server fills many pages at once.

A number and the time are drawn first; meanwhile ids are put into bytes. All the rest is sent without waiting
and is one transaction: COPY with its rows, a few hundred at a time, and what is left to do
(`enqueue_copied`). The server writes the first rows while the next are packed.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any, Final

COPIED: Final = "enqueue_copied"
DRAWN: Final = "enqueue_number"
TYPES: Final = {
    DRAWN: ("int8", "text"),
    COPIED: ("int8", "int8", "uuid", "int4[]", "text", "text", "int2", "int8", "int8", "int4"),
}
"""Of the arguments, which travel in binary."""
LEAST_BYTES: Final = 512
"""Of a payload, on average: below, forming rows is what costs, not pages."""
LEAST_ALL: Final = 32_768
"""Of all payloads: below, it is not worth a second round trip."""

ROWS: Final = 200
"""At a time. The server keeps up to 1,000 rows before it writes them, each in a slot that it finds by looking
at all others: with 1,000 that is a tenth of its work.
"""
_COLUMNS: Final = (
    *("id", "n", "seq", "state", "priority", "band", "max_attempts", "revision", "queue", "lane", "task"),
    *("accepted_at", "due_at", "flow", "expires_at", "headers", "tags", "timer", "waits", "size", "payload"),
)
_head: Final = struct.Struct(">hi16siqiq").pack
"""How many columns; id, number and place, each behind its length."""
_tail: Final = struct.Struct(">iqi").pack
"""The size; the payload's length."""
_numbers: Final = struct.Struct(">ihihiqiiiq").pack
_times: Final = struct.Struct(">iqiq").pack
_drawn: Final = struct.Struct(">hi5iiqiq")
"""A row of one value, which is an array of two numbers, each behind its length."""
_length: Final = struct.Struct(">i").pack
_large: Final = struct.Struct(">iq").pack
_array: Final = struct.Struct(">6i").pack
_AN_INTEGER: Final = 23
_NULL: Final = _length(-1)
_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"


def copy_statement(schema: str) -> str:
    """What rows are sent by. No default of the table is volatile: else it would write them one by one."""
    return f"COPY {schema}.job ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT binary)"


def are_large(payloads: Sequence[bytes]) -> bool:
    """Whether jobs with these are worth it."""
    size = sum(map(len, payloads))
    return size >= LEAST_ALL and size >= LEAST_BYTES * len(payloads)


def draw(now: int | None, queue: str) -> bytes:
    """The arguments of `enqueue_number`."""
    return (_NULL if now is None else _large(8, now)) + _bytes(queue.encode())


def drawn(row: bytes) -> tuple[int, int]:
    """Its answer: the first number, and the time."""
    *_, number, _, at = _drawn.unpack(row)
    return number, at


class Rows:
    """Jobs that are alike, given value by value."""

    def __init__(self, values: Sequence[Any]) -> None:
        first, ids, self._payloads, *self._options = values
        self._first = bytes.fromhex(str(first).replace("-", ""))
        digits = bytes.fromhex("".join(ids).replace("-", ""))
        self._ids = struct.unpack("16s" * len(ids), digits)
        self._sizes = list(map(len, self._payloads))

    def packed(self, number: int, at: int) -> tuple[Iterator[bytes], Callable[[], bytes]]:
        """What COPY reads, in parts that are made as they are asked for, and how to make the arguments of
        `enqueue_copied`. `struct.error`, `UnicodeError`: there is no such value; parts know of none.
        """
        task, queue, priority, delay, run_at, expires, headers, tags, attempts, revision, flow = self._options
        due = at + delay if run_at is None else max(at, run_at)
        is_ready = due <= at
        until = _NULL if expires is None else _large(8, at + expires)
        names = (_bytes(task.encode()), _bytes(queue.encode()))
        alike = b"".join(
            (
                _numbers(2, 1 + is_ready, 2, priority, 8, -priority * is_ready, 4, attempts, 8, revision),
                names[1],
                _length(0),  # no lane
                names[0],
                _times(8, at, 8, due),
                _bytes(flow.encode()),
                until,
                _NULL if headers is None else _bytes(headers),
                _NULL if tags is None else _bytes(tags),
                until,
                _NULL if is_ready else b"\0\0\0\2\0\1",
            )
        )
        rows = self._rows(number, alike)
        ends = (*names, struct.pack(">ihiq", 2, priority, 8, due), until, struct.pack(">ii", 4, attempts))
        return rows, lambda: b"".join(
            (_large(8, at), _large(8, number), _bytes(self._first), *self._lengths(), *ends)
        )

    def _rows(self, number: int, alike: bytes) -> Iterator[bytes]:
        count, sizes = len(self._ids), self._sizes
        places = range(number, number + count)
        columns, long, short = repeat(len(_COLUMNS)), repeat(16), repeat(8)
        heads = map(_head, columns, long, self._ids, short, places, short, places)
        if sizes.count(sizes[0]) == count:
            parts = zip(heads, repeat(alike + _tail(8, sizes[0], sizes[0])), self._payloads)
        else:
            tails = map(_tail, short, sizes, sizes)
            parts = zip(heads, repeat(alike), tails, self._payloads)
        for _ in range(0, count, ROWS):
            yield b"".join(chain((_BEGIN,), chain.from_iterable(islice(parts, ROWS)), (_END,)))

    def _lengths(self) -> tuple[bytes, bytes]:
        """An array of the payloads' lengths."""
        count = len(self._sizes)
        elements = [4] * (2 * count)
        elements[1::2] = self._sizes
        return _array(8 * count + 20, 1, 0, _AN_INTEGER, count, 1), struct.pack(f">{2 * count}i", *elements)


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value
