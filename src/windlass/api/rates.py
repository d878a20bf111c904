"""How many requests a caller may send: a token bucket for each, in the memory of one server process."""

import time
from collections import OrderedDict

from windlass.api.problems import Refusal

MOST = 10_000
"""Callers that are remembered; the one that was silent for longest is forgotten first."""


class Rates:
    """Buckets by name."""

    def __init__(self, *, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, what: str) -> None:
        """Count one; 429 when there are too many."""
        now = time.monotonic()
        left = self._left(name, now)
        if left < 1:
            wait = max(1, round((1 - left) / self._rate + 0.5))
            raise Refusal(
                429,
                "too-many-requests",
                f"too many {what}: at most {self._rate:g} a second",
                headers={"retry-after": str(wait)},
            )
        self._buckets[name] = (left - 1, now)
        self._buckets.move_to_end(name)
        if len(self._buckets) > MOST:
            self._buckets.popitem(last=False)

    def is_over(self, name: str) -> bool:
        """Whether somebody has had too many."""
        return self._left(name, time.monotonic()) < 1

    def _left(self, name: str, now: float) -> float:
        left, at = self._buckets.get(name, (self._burst, 0.0))
        return min(self._burst, left + (now - at) * self._rate)
