"""The units and identifiers that every room shares.

Inside core, contract and stores every time is a whole number of microseconds since the Unix epoch on
the store's clock, and every duration a whole number of microseconds. Integers compare equal on every store,
survive JSON, Lua and SQL unchanged, and stay below 2^53 until the year 2255. Seconds exist only in the
public face and in the timeouts of `wait`, `watch` and `events`, which are spent by the calling process.
"""

from typing import NewType, TypeAlias

Micros: TypeAlias = int
"""A time (since the epoch, on the store's clock) or a duration, in microseconds."""

JobId: TypeAlias = str
"""A UUIDv7 in canonical lower-case text."""

Fence: TypeAlias = int
"""The delivery number of a job: new and higher on every claim, never reused."""

SessionId: TypeAlias = str
"""One boot of one worker process; random, never reused."""

Cursor = NewType("Cursor", str)
"""A place in a listing or in the event log; opaque to everyone but the store that gave it out."""

MILLISECOND: Micros = 1_000
SECOND: Micros = 1_000_000
MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
DAY: Micros = 24 * HOUR

MAX_INTEGER = 2**53 - 1
"""The largest integer that every store (Redis keeps numbers as doubles) holds exactly."""
