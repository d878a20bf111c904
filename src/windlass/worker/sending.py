"""When outcomes are worth an exchange: not one by one, and not so late that slots stand empty."""

from collections.abc import Sequence

from windlass.worker.desk import Bound, Desk
from windlass.worker.hand import Hand
from windlass.worker.settler import Settler

LINGER = 0.005
"""Seconds that outcomes wait for others while there is enough to run."""
LULL = 0.001
"""Seconds that outcomes wait for those of the jobs that run, if jobs take less than that."""
SLOW = 4
"""An exchange that takes so many times as long as the rest of the hand is worth waiting for all of it."""


class Sending:
    """Outcomes go when slots would stand empty, when half of what was in hand has ended, or after a moment.

    Slots may stand empty for as long as the other jobs that run take anyway, if those are short: else the
    first of sixteen ends would go alone, and the rest with the next exchange. For the same reason outcomes
    wait for all of the hand where its other half is run in a fraction of the time that an exchange takes: two
    of half the size take a store that is busy longer than one, and little is run meanwhile. Not where it
    serves one after the other: it would rest; but for jobs under a limit, of which an exchange carries few.
    """

    def __init__(self, desks: Sequence[Desk], hand: Hand, settler: Settler, *, serial: bool = False) -> None:
        self._desks, self._hand, self._settler = desks, hand, settler
        self._serial = serial
        self._lingering_since: float | None = None
        self._taken_in_at = 0.0
        self._took = 0.0

    def took(self, seconds: float) -> None:
        """An exchange has been answered after so long."""
        self._took = seconds
        self._lingering_since = None

    def taken_in(self, now: float) -> None:
        """Jobs have arrived."""
        self._taken_in_at = now

    def is_worth_it(self, now: float, *, draining: bool) -> bool:
        """Whether the outcomes that there are should go."""
        pending = len(self._settler)
        if not pending:
            self._lingering_since = None
            return False
        waiting = self._hand.waiting
        others, linger = (waiting, LINGER) if waiting else (self._soon_done(), LULL)
        if draining or (pending >= others and not (waiting and self._is_rest_short(pending, waiting, now))):
            return True
        if self._lingering_since is None:
            self._lingering_since = now
        return now - self._lingering_since >= linger

    def enough(self, now: float) -> int:
        """How many outcomes are worth an exchange: one, or those that would make up half of the hand or all
        of it, or those that will be there in a moment.
        """
        waiting, pending = self._hand.waiting, len(self._settler)
        if self._lingering_since is None:
            fresh = not waiting and now - self._taken_in_at < LULL
            return max(1, self._soon_done()) if fresh else 1
        if not waiting:
            return max(pending + 1, self._soon_done())
        if self._is_rest_short(pending, waiting, now):
            return pending + waiting
        return pending + max(1, (waiting - pending + 1) // 2)

    def ends(self, now: float) -> float | None:
        """Until when outcomes that are not worth an exchange wait for others."""
        if self._lingering_since is not None:
            return self._lingering_since + (LINGER if self._hand.waiting else LULL)
        return self._taken_in_at + LULL if now - self._taken_in_at < LULL else None

    def _is_rest_short(self, pending: int, waiting: int, now: float) -> bool:
        """Whether what waits is run in a fraction of the time of an exchange, if it goes on as it has."""
        if self._serial and all(desk.bound is not Bound.SOON for desk in self._desks):
            return False
        return SLOW * waiting * (now - self._taken_in_at) < self._took * pending

    def _soon_done(self) -> int:
        """How many outcomes there will be in a moment, those that there are included, if nobody waits here
        and what runs is short. Not quite all: one of them may take long, against the rule.
        """
        total = 0
        for desk in self._desks:
            running = self._hand.unfinished[desk.number]
            if running and not desk.prefetch.shorter_than(LULL):
                return 0
            total += running
        return total - total // 4
