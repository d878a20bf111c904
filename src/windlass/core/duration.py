"""Time as users write it (seconds, "24h", timedelta, datetime), turned into whole microseconds."""

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias

from windlass.core.option import shown
from windlass.core.units import DAY, HOUR, MAX_INTEGER, MILLISECOND, MINUTE, SECOND, Micros
from windlass.errors import InvalidOption

Duration: TypeAlias = float | str | timedelta
"""Seconds, text such as "30s", "5m", "24h", "1d", "500ms", or a timedelta."""

LONGEST: Micros = 100 * 365 * DAY

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Text without a unit is seconds, because an environment variable can hold nothing but text.
_UNITS: dict[str, Micros] = {"": SECOND, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
# Bounded digits: whatever matches is cheap to compute with.
_TEXT = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|)")


def micros(value: Duration, *, name: str, negative: bool = False) -> Micros:
    """Return a duration in microseconds, rounded to the nearest; a refusal calls it `name`."""
    amount = _amount(value)
    if amount is None:
        raise InvalidOption(
            f'{name} must be seconds, a timedelta or text such as "30s", "5m", "24h", "1d", "500ms", '
            f"not {shown(value)}"
        )
    if amount < 0 and not negative:
        raise InvalidOption(f"{name} must not be negative, got {shown(value)}")
    if abs(amount) > LONGEST:
        raise InvalidOption(f"{name} must be at most 100 years, got {shown(value)}")
    return round(amount)


def _amount(value: object) -> int | float | Decimal | None:
    """The microseconds of a value, or None when it is no duration."""
    match value:
        case bool():  # an int to Python, a mistake to everyone else
            return None
        case int():
            return value * SECOND
        case float():
            return value * SECOND if math.isfinite(value) else None
        case timedelta():
            return value // _MICROSECOND
        case str() if found := _TEXT.fullmatch(value.strip()):
            number, unit = found.groups()
            return Decimal(number) * _UNITS[unit]  # exact: as a float, "4.35s" would be off by one
        case _:
            return None


def instant(value: datetime, *, name: str) -> Micros:
    """Return a point in time in microseconds since the epoch; one that does not say its zone is refused."""
    since = _since_epoch(value)
    if since is None:
        raise InvalidOption(
            f"{name} must be a datetime that says its zone, such as datetime(2030, 1, 31, tzinfo=UTC), "
            f"not {shown(value)}"
        )
    if not 0 <= since <= MAX_INTEGER:
        raise InvalidOption(f"{name} must lie between the years 1970 and 2255, got {value.isoformat()}")
    return since


def when(text: str, now: Micros, *, name: str) -> Micros:
    """A point in time that is said as one ("2026-07-01T12:00:00Z") or as how long ago it was ("1h")."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        ago = micros(text, name=f'{name}, unless it is a time such as "2026-07-01T12:00:00Z",')
        return max(0, now - ago)
    return instant(at, name=name)


def _since_epoch(value: object) -> Micros | None:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
