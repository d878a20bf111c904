"""Between the store's microseconds and datetimes."""

import time
from datetime import UTC, datetime, timedelta

from windlass.core.duration import instant
from windlass.core.units import SECOND, Micros

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_datetime(at: Micros) -> datetime:
    """A time of the store, exactly."""
    return _EPOCH + timedelta(microseconds=at)


def beginning(now: datetime | None) -> Micros:
    """Where the clock of a test starts.

    Without a wish, one to two seconds from now: a `run_at` that the code under test computes from
    `datetime.now()` a moment later is then due after `advance` by its distance, and not a moment too late. A
    time that stands still on a full second, as tools that move Python's clock leave it, is taken as it is.
    """
    if now is not None:
        return instant(now, name="now")
    present = time.time_ns() // 1_000
    return present if present % SECOND == 0 else (present // SECOND + 2) * SECOND
