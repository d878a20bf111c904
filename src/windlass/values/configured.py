"""What an app is configured for: object storage or none, and what must stay in the store either way.

Nothing here needs the client of object storage, which an app without it does not have.
"""

from typing import TYPE_CHECKING

from windlass.config import Config
from windlass.errors import PayloadTooLarge

if TYPE_CHECKING:
    from windlass.values.values import Values


def values_of(config: Config) -> "Values | None":
    """Those of an app; None: it has no object storage."""
    if config.values is None:
        return None
    from windlass.values.values import Values  # noqa: PLC0415 - only who uses it needs its package

    return Values(config.values, config)


def check_inside(payload: bytes, config: Config, what: str) -> bytes:
    """Refuse a payload that must be kept in the store and is too large for it."""
    if len(payload) > config.max_payload:
        raise PayloadTooLarge(
            f"{what} is kept in the store, and has at most {config.max_payload:,} bytes (max_payload), not "
            f"{len(payload):,}"
        )
    return payload
