"""What the client cannot decode is kept as far as it goes.

Its decoder raises for a text that is no UTF-8 and for a time after the year 9999 (a producer that counts
nanoseconds). The error ends the connection, and the message is the first that comes by the next one: a single
message would hold up its queue for ever.
"""

from collections.abc import Callable
from typing import Any, Final

from pamqp import decode

_LENGTH: Final = 4


def _bears(read: Callable[[bytes], Any], otherwise: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def reading(value: bytes) -> Any:
        try:
            return read(value)
        except (ValueError, OverflowError, OSError):
            return otherwise(value)

    return reading


def _text(value: bytes) -> tuple[int, str]:
    end = 1 + value[0]
    return end, value[1:end].decode(errors="backslashreplace")


def _no_time(_: bytes) -> tuple[int, None]:
    return 8, None


def _no_table(value: bytes) -> tuple[int, dict[str, Any]]:
    return _LENGTH + int.from_bytes(value[:_LENGTH]), {}


def bear() -> None:
    """Let the client's decoder go on. It has one for the whole process; what it could read, it reads as
    before.
    """
    client: Any = decode
    time, table = _bears(client.timestamp, _no_time), _bears(client.field_table, _no_table)
    client.METHODS.update(shortstr=_bears(client.short_str, _text), timestamp=time, table=table)
    client.TABLE_MAPPING.update({b"T": time, b"F": table})
