"""What an app is configured for: object storage or none, and what must stay in the store either way.

Nothing here needs the client of object storage, which an app without it does not have.
"""

from typing import TYPE_CHECKING

import msgspec

from windlass.core.units import Micros
from windlass.errors import PayloadTooLarge

if TYPE_CHECKING:
    from windlass.values.values import Values


class ValueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an app says of its large values."""

    url: str
    namespace: str
    over: int
    """Bytes of a payload or a result from which on it is put into object storage."""
    most_inside: int
    """Bytes that one may have at the most that stays in the store."""
    kept: Micros | None
    """For how long results are kept at least."""


def values_of(settings: ValueSettings | None) -> "Values | None":
    """Those of an app; None: it has no object storage."""
    if settings is None:
        return None
    from windlass.values.values import Values  # noqa: PLC0415 - only who uses it needs its package

    return Values(settings)


def check_inside(payload: bytes, most: int, what: str) -> bytes:
    """Refuse a payload that must be kept in the store and is too large for it."""
    if len(payload) > most:
        raise PayloadTooLarge(
            f"{what} is kept in the store, and has at most {most:,} bytes (max_payload), not {len(payload):,}"
        )
    return payload
