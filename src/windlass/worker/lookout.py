"""The lookout: looks at every child and its table of leases once a second.

A child with a run past its hard timeout is replaced and killed. Jobs that a busy or silent child has not
started are taken back. A child that outlasts its grace is killed. A child that uses too much memory, or was
stopped for so long that its session is over, is replaced.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from windlass.core.bounds import CALL_ITEMS
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import Fence, SessionId
from windlass.pace import Pace
from windlass.worker.supervised_child import KILL_AFTER, SupervisedChild
from windlass.worker.table import Entry

_log = logging.getLogger("windlass.worker")

EVERY = 1.0
LATE = 0.5
"""Seconds past its deadline that a run is still given to end by itself."""
SLOW_IMPORT = 30.0
STOPPED_MARGIN = 2.0
"""Seconds past its TTL after which a stopped child has lost its session for sure."""


class Retire(Protocol):
    """Lets a child end within the grace, and another take its place at once."""

    def __call__(self, supervised: SupervisedChild, why: str, *, margin: float = ...) -> None: ...


class Lookout:
    """Looks at all supervised children."""

    def __init__(
        self,
        pace: Pace,
        all_supervised: Callable[[], Sequence[SupervisedChild]],
        *,
        retire: Retire,
        release: Callable[[Sequence[Settlement]], None],
        ttl: float,
        max_memory: int | None = None,
    ) -> None:
        self._pace = pace
        self._all_supervised = all_supervised
        self._retire = retire
        self._release = release
        self._ttl = ttl
        self._max_memory = max_memory
        self._waiting: dict[SessionId, dict[tuple[int, Fence], float]] = {}
        self._stopped_since: dict[SessionId, float] = {}
        self._slow: set[SessionId] = set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self._pace.sleep(EVERY)
            self.look()

    def look(self) -> None:
        """One look at everybody."""
        now = self._pace.now()
        all_supervised = [supervised for supervised in self._all_supervised() if not supervised.dead]
        for supervised in all_supervised:
            self._for_overruns(supervised, now)
            self._for_stuck_jobs(supervised, now)
            self._for_patience(supervised, now)
            self._for_stops(supervised, now)
            self._for_memory(supervised)
        self._forget_others({supervised.session for supervised in all_supervised})

    def _for_overruns(self, supervised: SupervisedChild, now: float) -> None:
        started = supervised.table.started()
        late = [entry for entry in started if entry.deadline and now > entry.deadline + LATE]
        if not late:
            return
        supervised.late.update((entry.job, entry.fence) for entry in late)
        if not supervised.draining:
            jobs = ", ".join(f"job {entry.job}" for entry in late)
            _log.warning(
                "child %d runs %s past the hard timeout: the process is replaced", supervised.pid, jobs
            )
            self._retire(supervised, "a job overran its hard timeout", margin=0.0)
        # When its neighbours have ended and are settled, nothing is left that would be worth waiting for.
        if len(late) == len(started) or (supervised.kill_at is not None and now >= supervised.kill_at):
            supervised.kill("hard timeout")

    def _for_stuck_jobs(self, supervised: SupervisedChild, now: float) -> None:
        """Take back what has waited to be started since a look ago."""
        before = self._waiting.get(supervised.session, {})
        waiting = supervised.table.waiting()
        if not waiting:
            self._waiting.pop(supervised.session, None)
            return
        since = {key: before.get(key, now) for key in ((entry.slot, entry.fence) for entry in waiting)}
        self._waiting[supervised.session] = since
        stuck = [entry for entry in waiting if now - since[entry.slot, entry.fence] >= EVERY]
        taken = supervised.table.take_back(stuck) if stuck else []
        if taken:
            _log.info("child %d is busy: %d jobs that it has not started go back", supervised.pid, len(taken))
        for at in range(0, len(taken), CALL_ITEMS):
            self._release([_released(entry) for entry in taken[at : at + CALL_ITEMS]])

    def _for_patience(self, supervised: SupervisedChild, now: float) -> None:
        if supervised.kill_at is not None and now >= supervised.kill_at and supervised.killed_for is None:
            _log.warning("child %d outlasted its grace: killed", supervised.pid)
            supervised.kill("it outlasted its grace")
        if (
            not supervised.ready
            and now - supervised.born >= SLOW_IMPORT
            and supervised.session not in self._slow
        ):
            self._slow.add(supervised.session)
            said = "child %d is not ready after %.0f s: it imports %s, or waits for its store"
            _log.warning(said, supervised.pid, SLOW_IMPORT, supervised.begin.app)

    def _for_stops(self, supervised: SupervisedChild, now: float) -> None:
        """Fill the place of a child that was stopped for so long that its session is over."""
        if not supervised.is_stopped():
            self._stopped_since.pop(supervised.session, None)
        elif supervised.spared:
            supervised.kill_at = now + KILL_AFTER
        elif supervised.draining:
            return
        elif now - self._stopped_since.setdefault(supervised.session, now) > self._ttl + STOPPED_MARGIN:
            self._retire(supervised, "it was stopped for longer than its session lives")
            supervised.spared = True  # it may be stopped in a debugger

    def _for_memory(self, supervised: SupervisedChild) -> None:
        if self._max_memory is None or supervised.draining or not supervised.going:
            return
        used = supervised.memory()
        if used > self._max_memory:
            self._retire(supervised, f"replaced: it holds {used >> 20} MiB")

    def _forget_others(self, sessions: set[SessionId]) -> None:
        for kept in (self._waiting, self._stopped_since):
            for session in kept.keys() - sessions:
                del kept[session]
        self._slow &= sessions


def _released(entry: Entry) -> Settlement:
    return Settlement(job=entry.job, fence=entry.fence, outcome=Outcome.RELEASE)
