"""Limits: token buckets and concurrency, in integers.

A bucket holds `level` in units of 1/per token, so that refilling is exact: in `elapsed` microseconds it
gains `elapsed * count` units, and a token is `per` units. Nothing is rounded, so in any window w at most
`rate * w + burst` tokens are handed out; a float would drift, and differently on each store.
"""

import re

import msgspec

from windlass.core.units import DAY, HOUR, MAX_INTEGER, MILLISECOND, MINUTE, SECOND, Micros
from windlass.errors import InvalidOption

_UNITS: dict[str, Micros] = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_RATE = re.compile(r"(\d{1,9})\s*/\s*(\d{1,9})?\s*(ms|s|m|h|d)")


class Rate(msgspec.Struct, frozen=True):
    """At most `count` in each period `per`, and at most `burst` at once: "100/s", "5/m", "10/500ms"."""

    count: int
    per: Micros = SECOND
    burst: int | None = None

    @property
    def size(self) -> int:
        """How many tokens a full bucket has: the burst. By default the tokens of a tenth of a second, at
        least 1.
        """
        return max(1, self.count * SECOND // (10 * self.per)) if self.burst is None else self.burst


def check_rate(rate: Rate) -> Rate:
    """Refuse rates that the integer arithmetic of a store cannot hold."""
    if not 1 <= rate.count <= 1_000_000:
        raise InvalidOption(f"a rate must allow 1 to 1,000,000 per period, not {rate.count}")
    if not MILLISECOND <= rate.per <= DAY:
        raise InvalidOption(f"the period of a rate must be from 1 ms to 1 day, not {rate.per} µs")
    if rate.size < 1 or rate.size * rate.per > MAX_INTEGER // 2:
        raise InvalidOption(f"a burst of {rate.size} is out of range for a period of {rate.per} µs")
    return rate


def parse_rate(text: str, *, burst: int | None = None) -> Rate:
    """Read "100/s", "5/m", "10/500ms"."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise InvalidOption(f'rate {text!r} is not understood; write for example "100/s", "5/m", "10/500ms"')
    count, number, unit = match.groups()
    return check_rate(Rate(int(count), int(number or 1) * _UNITS[unit], burst))


class Bucket(msgspec.Struct, frozen=True):
    """The state of a token bucket. `per` is the period it was filled under, to notice a changed rate."""

    level: int
    at: Micros
    per: Micros


def full(rate: Rate, now: Micros) -> Bucket:
    """A bucket that was never used."""
    return Bucket(rate.size * rate.per, now, rate.per)


def refilled(bucket: Bucket, rate: Rate, now: Micros) -> Bucket:
    """The bucket as it is now. A rate that was changed meanwhile keeps the whole tokens and applies from here
    on.
    """
    capacity = rate.size * rate.per
    # Whole tokens are cut at the new burst before they are multiplied: the old burst times a long period
    # would pass 2^53.
    kept = bucket.level if bucket.per == rate.per else min(bucket.level // bucket.per, rate.size) * rate.per
    level = min(kept, capacity)
    missing = capacity - level
    elapsed = max(0, now - bucket.at)
    # Compared before multiplying: a year of elapsed time times the count would pass 2^53.
    gained = missing if elapsed >= -(-missing // rate.count) else elapsed * rate.count
    return Bucket(level + gained, max(now, bucket.at), rate.per)


def token_in(bucket: Bucket, rate: Rate, now: Micros) -> Micros:
    """How long until a token can be taken; 0 if now."""
    missing = rate.per - refilled(bucket, rate, now).level
    return max(0, -(-missing // rate.count))


def taken(bucket: Bucket, rate: Rate, now: Micros) -> Bucket:
    """The bucket after one token was taken. Only call when `token_in` is 0."""
    current = refilled(bucket, rate, now)
    return Bucket(current.level - rate.per, current.at, rate.per)


def returned(bucket: Bucket, rate: Rate, now: Micros, claimed_at: Micros) -> Bucket:
    """The bucket after a token came back from work that was claimed and never started.

    The bucket gets back only the part of the token that it has not gained since the claim. Without the claim,
    a full bucket would have gained nothing in that time. If it got a whole token on top of that gain, a
    window could have one start more than `rate * w + burst`.
    """
    current = refilled(bucket, rate, now)
    elapsed = max(0, now - claimed_at)
    worth = 0 if elapsed >= -(-rate.per // rate.count) else rate.per - elapsed * rate.count
    return Bucket(min(rate.size * rate.per, current.level + worth), current.at, rate.per)


def tokens(bucket: Bucket, rate: Rate, now: Micros) -> int:
    """Whole tokens at hand."""
    return refilled(bucket, rate, now).level // rate.per


def has_slot(running: int, concurrency: int | None) -> bool:
    """Whether one more lease fits under a concurrency limit."""
    return concurrency is None or running < concurrency
