"""Columns of a call as arrays of PostgreSQL, and ids as text: what psycopg is told beyond its own types.

psycopg writes lists in pure Python, item by item, and takes the type of a list of numbers from its largest: a
statement would be prepared once for each combination. Each class below is a list whose form is always the
same. For every other driver it is a plain list.
"""

from struct import Struct
from typing import Any, Final

from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format

_HEAD: Final = Struct("!iiI")
"""Dimensions (0 if there are no items), whether an item is NULL, the type of the items."""
_DIMENSION: Final = Struct("!ii")
_length: Final = Struct("!i").pack
_NULL: Final = _length(-1)
_BYTEA, _TEXT, _UUID = 17, 25, 2950
_BYTEA_ARRAY, _TEXT_ARRAY, _UUID_ARRAY = 1001, 1009, 2951


class Texts(list[str | None]):
    """A `text[]`."""


class Blobs(list[bytes | None]):
    """A `bytea[]`."""


class Ids(list[str]):
    """A `uuid[]` of ids in canonical text."""


class Numbers(list[int | None]):
    """An array of integers: of which size is up to the function that is called."""


def _head(items: list[Any], kind: int) -> bytes:
    if not items:
        return _HEAD.pack(0, 0, kind)
    return _HEAD.pack(1, int(None in items), kind) + _DIMENSION.pack(len(items), 1)


class _TextsDumper(Dumper):
    oid = _TEXT_ARRAY
    format = Format.BINARY

    def dump(self, obj: Texts) -> Buffer:
        parts = [_head(obj, _TEXT)]
        for item in obj:
            if item is None:
                parts.append(_NULL)
            else:
                data = item.encode()
                parts += (_length(len(data)), data)
        return b"".join(parts)


class _BlobsDumper(Dumper):
    oid = _BYTEA_ARRAY
    format = Format.BINARY

    def dump(self, obj: Blobs) -> Buffer:
        parts = [_head(obj, _BYTEA)]
        for item in obj:
            if item is None:
                parts.append(_NULL)
            else:
                parts += (_length(len(item)), item)
        return b"".join(parts)


_ID_LENGTH: Final = _length(16).hex()


class _IdsDumper(Dumper):
    oid = _UUID_ARRAY
    format = Format.BINARY

    def dump(self, obj: Ids) -> Buffer:
        digits = "".join([_ID_LENGTH + item for item in obj]).replace("-", "")
        return _head(obj, _UUID) + bytes.fromhex(digits)


class _NumbersDumper(Dumper):
    """As text of no type: the function's own parameter says which it is."""

    def dump(self, obj: Numbers) -> Buffer:
        items = ["NULL" if item is None else str(item) for item in obj]
        return f"{{{','.join(items)}}}".encode()


class _IdLoader(Loader):
    """An id as the contract has it: canonical text."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        digits = bytes(data).hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def adapt(context: AdaptContext) -> None:
    """Teach a cursor of ours these types. Not a connection: callers may be lent it, and expect psycopg's."""
    adapters = context.adapters
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Blobs, _BlobsDumper)
    adapters.register_dumper(Ids, _IdsDumper)
    adapters.register_dumper(Numbers, _NumbersDumper)
    adapters.register_loader(_UUID, _IdLoader)
