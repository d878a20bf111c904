"""The janitor: sweeps the store, in step with all other janitors of the fleet.

Together they sweep a namespace about every `sweep`, however many they are. They pace themselves by
the passes of all: a janitor whose pass comes too early is refused by the store and waits longer from then on;
one that finds the last pass long ago waits half as long. So when part of the fleet is lost, the rest takes
over within seconds.

While there is nothing to sweep, passes come about once a second. A pass that finds nothing costs SQLite
1.6 ms (measured), at four a second 0.6 % of a core for an idle worker. Nothing waits for it: claim promotes
what is due, and workers know when that is.
"""

import logging
from collections.abc import Awaitable, Callable

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.session import Swept
from windlass.core.units import SECOND
from windlass.errors import StoreError, StoreReplaced
from windlass.pace import Pace
from windlass.patience import Backoff
from windlass.worker.alerting import EVERY, SELDOM, SHARE
from windlass.worker.charged import report_charged
from windlass.worker.pruning import Pruning

_log = logging.getLogger("windlass.worker")

ITEMS = 1_000
SPREAD = 0.25
"""Of a wait: keeps janitors that were started together from coming together."""
IDLE = 0.8
"""Seconds between two passes while nothing is found."""
SLOWER, FASTER = 1.5, 0.5
"""What a wait is multiplied by after a pass that came early, and after one that came late."""
LATE = 1.5
"""Of the time that passes should be apart: a pass that comes later than this is late."""
SHARES_OF_TTL = 10
"""No janitor waits for longer than this part of a session's TTL. Two waits in a row stay below the gap that
the liveness clock takes for an outage (`windlass.core.session.OUTAGE_SHARE`).
"""


class Janitor:
    """Sweeps for ever."""

    def __init__(
        self,
        broker: Broker,
        pace: Pace,
        config: Config,
        *,
        pruning: Pruning,
        fire: Callable[[], Awaitable[None]] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`pruning` takes the dead letters whose time is over: no sweep drops them without a trace. `fire` is
        called when a schedule is due, `look` every few seconds, for alerts (`alerting.EVERY`).
        """
        self._broker = broker
        self._pace = pace
        self._every = config.sweep / SECOND
        self._idle = max(self._every, IDLE)
        self._longest = max(self._every, config.session_ttl / SECOND / SHARES_OF_TTL)
        self._apart = self._wait = self._every
        self._fire = fire
        self._look = look
        self._pruning = pruning
        self._next_look = self._look_took = 0.0
        self._backoff = Backoff(pace)

    async def run(self) -> None:
        """Sweep, and wait for the next turn."""
        try:
            while True:
                await self._pace.sleep(await self.sweep())
        finally:
            await self._pruning.close()

    async def sweep(self) -> float:
        """One pass; how long to wait for the next. `StoreReplaced`: there can be none."""
        began = self._pace.now()
        try:
            swept = await self._broker.sweep(limit=ITEMS, every=round(self._apart * SECOND), keep_dead=True)
            self._pruning.begin(swept.overdue)
            if swept.schedules_due and self._fire is not None:
                await self._fire()
            await self._look_at_alerts()
        except StoreReplaced:
            raise
        except StoreError as error:
            self._backoff.tell("the store cannot be swept: %s; trying until it can", error)
            return self._backoff.failed()
        if self._backoff.tries:
            _log.info("the store can be swept again")
            self._backoff.worked()
        _log_swept(swept)
        await report_charged(self._broker, swept.moved)
        if not swept.more:
            return self._next_wait(swept)
        # Pruning is not urgent, and workers wait for the store: they get every other turn.
        return self._pace.now() - began if _only_pruned(swept) else 0.0

    async def _look_at_alerts(self) -> None:
        if self._look is not None and self._pace.now() >= self._next_look:
            began = self._pace.now()
            self._next_look = began + SELDOM  # if it fails
            await self._look()
            took = self._pace.now() - began
            self._next_look = began + min(max(EVERY, SHARE * min(took, self._look_took)), SELDOM)
            self._look_took = took

    def _next_wait(self, swept: Swept) -> float:
        """Seconds until this janitor comes again."""
        if swept.early:
            self._wait *= SLOWER
        elif swept.since > LATE * self._apart * SECOND:
            self._wait *= FASTER
        if not swept.early:
            apart = min(self._apart * SLOWER, self._idle) if _found_nothing(swept) else self._every
            self._wait *= apart / self._apart
            self._apart = apart
        self._wait = min(max(self._wait, self._apart), self._longest)
        return min(self._wait * (1 + SPREAD * self._pace.jitter()), max(self._longest, self._every))


def _found_nothing(swept: Swept) -> bool:
    return not (swept.promoted or swept.reaped or swept.moved or swept.pruned or swept.overdue or swept.more)


def _only_pruned(swept: Swept) -> bool:
    return bool(swept.pruned) and not (swept.promoted or swept.reaped or swept.moved)


def _log_swept(swept: Swept) -> None:
    for session in swept.reaped:
        _log.warning("session %s fell silent for longer than its TTL: its jobs are given to others", session)
    if swept.stepped_back:
        _log.warning(
            "the store's clock has gone back by %.1f s; it is followed: check the clock of its machine",
            swept.stepped_back / SECOND,
        )
