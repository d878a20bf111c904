"""When outcomes are sent to the store: not one by one, and not so late that slots stand empty."""

from collections.abc import Sequence

from windlass.worker.asking import AskingGroup, Bound
from windlass.worker.local_leases import LocalLeases
from windlass.worker.settler import Settler

LINGER = 0.005
"""Seconds that outcomes wait for others while jobs wait for slots. About one exchange. Too high: results are
late. Too low: small batches, so more calls per job.
"""
LULL = 0.001
"""Seconds that outcomes wait for runs that are about to end, if jobs take less than this and none waits for a
slot. Too high: slots stand empty. Too low: of sixteen short jobs the first goes alone.
"""
SLOW_EXCHANGE = 4
"""If an exchange takes so many times as long as it takes to run the other leases, outcomes wait for them.
Two exchanges of half the size take a busy store longer than one, and little is run meanwhile. Too low:
slots stand empty during the exchange. Too high: more calls per job on a slow store.
"""


class Sending:
    """Outcomes go when half of the leases have ended, when nothing waits for a slot, or after a moment.

    Two exceptions make batches larger. If the jobs that run are short, outcomes wait for them (`LULL`). If
    an exchange is slow, they wait for the other leases (`SLOW_EXCHANGE`). The second does not hold for a
    store that serves one worker after the other: it would rest meanwhile. There it holds only for jobs under
    a limit, of which an exchange carries few.
    """

    def __init__(
        self,
        groups: Sequence[AskingGroup],
        local_leases: LocalLeases,
        settler: Settler,
        *,
        serial: bool = False,
    ) -> None:
        self._groups, self._local_leases, self._settler = groups, local_leases, settler
        self._serial = serial
        self._lingering_since: float | None = None
        self._taken_in_at = 0.0
        self._took = 0.0

    def took(self, seconds: float) -> None:
        """Note how long an exchange took."""
        self._took = seconds
        self._lingering_since = None

    def taken_in(self, now: float) -> None:
        """Note that jobs have arrived."""
        self._taken_in_at = now

    def is_worth_it(self, now: float, *, draining: bool) -> bool:
        """Whether the outcomes that there are should be sent."""
        pending = len(self._settler)
        if not pending:
            self._lingering_since = None
            return False
        waiting = self._local_leases.waiting
        others, linger = (waiting, LINGER) if waiting else (self._soon_done(), LULL)
        if draining or (pending >= others and not (waiting and self._is_rest_short(pending, waiting, now))):
            return True
        if self._lingering_since is None:
            self._lingering_since = now
        return now - self._lingering_since >= linger

    def enough(self, now: float) -> int:
        """How many outcomes are worth an exchange: one, or those that would make up half or all of the
        leases, or those that will be there in a moment.
        """
        waiting, pending = self._local_leases.waiting, len(self._settler)
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
            return self._lingering_since + (LINGER if self._local_leases.waiting else LULL)
        return self._taken_in_at + LULL if now - self._taken_in_at < LULL else None

    def _is_rest_short(self, pending: int, waiting: int, now: float) -> bool:
        """Whether what waits is run in a fraction of the time of an exchange, if it goes on as it has."""
        if self._serial and all(group.bound is not Bound.SOON for group in self._groups):
            return False
        return SLOW_EXCHANGE * waiting * (now - self._taken_in_at) < self._took * pending

    def _soon_done(self) -> int:
        """How many outcomes there will be in a moment, those that there are included, if no job waits for
        a slot and those that run are short. Three quarters of them: one may take longer than usual.
        """
        total = 0
        for group in self._groups:
            running = self._local_leases.unfinished[group.number]
            if running and not group.prefetch.shorter_than(LULL):
                return 0
            total += running
        return total - total // 4
