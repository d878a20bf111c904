"""The janitor: sweeps the store, in step with all other janitors of the fleet.

Together they sweep a namespace about every `sweep`, however many they are. Each waits in proportion to its
share of the sessions that are alive; the store itself refuses passes that come too early.

While there is nothing to sweep, passes come as seldom as the liveness clock allows: a second apart it still
keeps time. A pass that finds nothing costs SQLite 1.6 ms (measured), at four a second 0.6 % of a core for an
idle worker. Nothing waits for it: claim promotes what is due, and workers know when that is.
"""

import logging
from collections.abc import Awaitable, Callable

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.session import LIVENESS_STEP, Swept
from windlass.core.units import SECOND
from windlass.errors import StoreError
from windlass.worker.alerting import EVERY
from windlass.worker.pace import Pace
from windlass.worker.patience import Backoff

_log = logging.getLogger("windlass.worker")

ITEMS = 1_000
SPREAD = 0.25
"""Of a wait: keeps janitors that were started together from coming together."""
QUIETER = 1.5
"""By which waits grow while nothing is found."""
SHARES_OF_TTL = 6
"""A session's TTL is never spent in fewer passes by one janitor, so silence is noticed in time."""


class Janitor:
    """Sweeps for ever. `own` says how many sessions this process keeps alive."""

    def __init__(
        self,
        broker: Broker,
        pace: Pace,
        config: Config,
        own: Callable[[], int],
        *,
        fire: Callable[[], Awaitable[None]] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`fire` is called when a schedule is due, `look` every ten seconds or so, for alerts."""
        self._broker = broker
        self._pace = pace
        self._every = config.sweep
        self._longest = config.session_ttl / SECOND / SHARES_OF_TTL
        self._own = own
        self._fire = fire
        self._look = look
        self._next_look = 0.0
        self._backoff = Backoff(pace)
        self._stretch = 1.0

    async def run(self) -> None:
        """Sweep, and wait for the next turn."""
        while True:
            await self._pace.sleep(await self.sweep())

    async def sweep(self) -> float:
        """One pass; how long to wait for the next."""
        began = self._pace.now()
        try:
            swept = await self._broker.sweep(limit=ITEMS, every=self._every)
            if swept.schedules_due and self._fire is not None:
                await self._fire()
            await self._look_at_alerts()
        except StoreError as error:
            if not self._backoff.tries:
                _log.warning("the store cannot be swept: %s; trying until it can", error)
            return self._backoff.failed()
        if self._backoff.tries:
            _log.info("the store can be swept again")
            self._backoff.worked()
        _report(swept)
        self._stretch = self._stretch * QUIETER if _found_nothing(swept) else 1.0
        if not swept.more:
            return self._wait(swept.sessions)
        # Nobody waits for what is pruned, and others wait for the store: they have every other turn.
        return self._pace.now() - began if _only_pruned(swept) else 0.0

    async def _look_at_alerts(self) -> None:
        if self._look is not None and self._pace.now() >= self._next_look:
            self._next_look = self._pace.now() + EVERY
            await self._look()

    def _wait(self, alive: int) -> float:
        """Seconds until this janitor's turn, in a fleet with so many sessions."""
        share = max(1.0, alive / max(1, self._own()))
        every = self._every / SECOND
        self._stretch = max(1.0, min(self._stretch, LIVENESS_STEP / self._every / (1 + SPREAD)))
        wait = every * share * self._stretch * (1 + SPREAD * self._pace.jitter())
        return min(wait, max(self._longest, every))


def _found_nothing(swept: Swept) -> bool:
    return not (swept.promoted or swept.reaped or swept.moved or swept.pruned or swept.more)


def _only_pruned(swept: Swept) -> bool:
    return bool(swept.pruned) and not (swept.promoted or swept.reaped or swept.moved)


def _report(swept: Swept) -> None:
    for session in swept.reaped:
        _log.warning("session %s fell silent for longer than its TTL: its jobs are given to others", session)
    if swept.stepped_back:
        _log.warning(
            "the store's clock has gone back by %.1f s; it is followed: check the clock of its machine",
            swept.stepped_back / SECOND,
        )
