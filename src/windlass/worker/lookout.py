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
from windlass.worker.pace import Pace
from windlass.worker.table import Entry
from windlass.worker.ward import KILL_AFTER, Ward

_log = logging.getLogger("windlass.worker")

EVERY = 1.0
LATE = 0.5
"""Seconds past its deadline that a run is still given to end by itself."""
SLOW_IMPORT = 30.0
STOPPED_MARGIN = 2.0
"""Seconds past its TTL after which a stopped child has lost its session for sure."""


class Retire(Protocol):
    """Lets a child end within the grace, and another take its place at once."""

    def __call__(self, ward: Ward, why: str, *, margin: float = ...) -> None: ...


class Lookout:
    """Looks at all wards."""

    def __init__(
        self,
        pace: Pace,
        wards: Callable[[], Sequence[Ward]],
        *,
        retire: Retire,
        release: Callable[[Sequence[Settlement]], None],
        ttl: float,
        max_memory: int | None = None,
    ) -> None:
        self._pace = pace
        self._wards = wards
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
        wards = [ward for ward in self._wards() if not ward.dead]
        for ward in wards:
            self._for_overruns(ward, now)
            self._for_stuck_jobs(ward, now)
            self._for_patience(ward, now)
            self._for_stops(ward, now)
            self._for_memory(ward)
        self._forget_others({ward.session for ward in wards})

    def _for_overruns(self, ward: Ward, now: float) -> None:
        started = ward.table.started()
        late = [entry for entry in started if entry.deadline and now > entry.deadline + LATE]
        if not late:
            return
        ward.late.update((entry.job, entry.fence) for entry in late)
        if not ward.draining:
            jobs = ", ".join(f"job {entry.job}" for entry in late)
            _log.warning("child %d runs %s past the hard timeout: the process is replaced", ward.pid, jobs)
            self._retire(ward, "a job overran its hard timeout", margin=0.0)
        # When its neighbours have ended and are settled, nothing is left that would be worth waiting for.
        if len(late) == len(started) or (ward.kill_at is not None and now >= ward.kill_at):
            ward.kill("hard timeout")

    def _for_stuck_jobs(self, ward: Ward, now: float) -> None:
        """Take back what has waited to be started since a look ago."""
        before = self._waiting.get(ward.session, {})
        waiting = ward.table.waiting()
        if not waiting:
            self._waiting.pop(ward.session, None)
            return
        since = {key: before.get(key, now) for key in ((entry.slot, entry.fence) for entry in waiting)}
        self._waiting[ward.session] = since
        stuck = [entry for entry in waiting if now - since[entry.slot, entry.fence] >= EVERY]
        taken = ward.table.take_back(stuck) if stuck else []
        if taken:
            _log.info("child %d is busy: %d jobs that it has not started go back", ward.pid, len(taken))
        for at in range(0, len(taken), CALL_ITEMS):
            self._release([_released(entry) for entry in taken[at : at + CALL_ITEMS]])

    def _for_patience(self, ward: Ward, now: float) -> None:
        if ward.kill_at is not None and now >= ward.kill_at and ward.killed_for is None:
            _log.warning("child %d outlasted its grace: killed", ward.pid)
            ward.kill("it outlasted its grace")
        if not ward.ready and now - ward.born >= SLOW_IMPORT and ward.session not in self._slow:
            self._slow.add(ward.session)
            said = "child %d is not ready after %.0f s: it imports %s, or waits for its store"
            _log.warning(said, ward.pid, SLOW_IMPORT, ward.begin.app)

    def _for_stops(self, ward: Ward, now: float) -> None:
        """Fill the place of a child that was stopped for so long that its session is over."""
        if not ward.is_stopped():
            self._stopped_since.pop(ward.session, None)
        elif ward.spared:
            ward.kill_at = now + KILL_AFTER
        elif ward.draining:
            return
        elif now - self._stopped_since.setdefault(ward.session, now) > self._ttl + STOPPED_MARGIN:
            self._retire(ward, "it was stopped for longer than its session lives")
            ward.spared = True  # it may be stopped in a debugger

    def _for_memory(self, ward: Ward) -> None:
        if self._max_memory is None or ward.draining or not ward.going:
            return
        used = ward.memory()
        if used > self._max_memory:
            self._retire(ward, f"replaced: it holds {used >> 20} MiB")

    def _forget_others(self, sessions: set[SessionId]) -> None:
        for kept in (self._waiting, self._stopped_since):
            for session in kept.keys() - sessions:
                del kept[session]
        self._slow &= sessions


def _released(entry: Entry) -> Settlement:
    return Settlement(job=entry.job, fence=entry.fence, outcome=Outcome.RELEASE)
