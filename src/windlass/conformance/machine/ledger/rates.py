"""Rates, checked by counting: in any window w at most `rate * w + burst` claims, less what was given back."""

from collections import defaultdict

import msgspec

from windlass.conformance.machine.violated import require
from windlass.core.limits import Rate
from windlass.core.units import Micros


class Log(msgspec.Struct):
    """What was taken and given back under one rate, while it was in force."""

    rate: Rate | None = None
    taken: list[tuple[Micros, int]] = []
    """When, and how much, in units of 1/per tokens so that nothing is rounded; below 0: given back."""
    whole: bool = True
    """It starts with a full bucket: no other rate was in force before, and the clock did not go back."""


class Rates:
    """The logs of queues (lane None) and of lanes."""

    def __init__(self) -> None:
        self._logs: dict[tuple[str, str | None], Log] = defaultdict(Log)

    def took(self, queue: str, lane: str | None, rate: Rate | None, now: Micros) -> None:
        """A claim was made: hold every window that ends with it against the rate."""
        log = self._log(queue, lane, rate, now)
        log.taken.append((now, rate.per if rate else 0))
        count = 0
        for since, change in reversed(log.taken if rate else ()):
            assert rate is not None
            count += change
            held = count <= rate.size * rate.per + (now - since) * rate.count
            require("rates hold in every window", held, queue, lane, rate, log.taken)

    def gave_back(
        self, queue: str, lane: str | None, rate: Rate | None, now: Micros, claimed_at: Micros
    ) -> None:
        """Work came back unstarted, and of its token what has not come anew since it was claimed."""
        worth = max(0, rate.per - max(0, now - claimed_at) * rate.count) if rate else 0
        self._log(queue, lane, rate, now).taken.append((now, -worth))

    def tokens(self, queue: str, lane: str | None, rate: Rate, now: Micros) -> int | None:
        """Whole tokens that must be at hand; None where that cannot be told."""
        log = self._log(queue, lane, rate, now)
        if not log.whole:
            return None
        capacity = level = rate.size * rate.per
        last = now
        for at, change in (*log.taken, (now, 0)):
            level = min(capacity, level + max(0, at - last) * rate.count)
            level = min(capacity, level - change)
            last = at
        return level // rate.per

    def _log(self, queue: str, lane: str | None, rate: Rate | None, now: Micros) -> Log:
        log = self._logs[queue, lane]
        if log.taken and (log.rate != rate or log.taken[-1][0] > now):
            log.taken, log.whole = [], False
        log.rate = rate
        return log
