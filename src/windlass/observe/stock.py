"""What the store holds, read when somebody asks for metrics: depth, age, workers.

A read costs the store one `counts` and one `sessions`, and is kept for a moment, so that scrapes of many
readers are one read.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from windlass.broker.contract import Broker
from windlass.broker.management import Read
from windlass.core.intake import intakes_run_by
from windlass.core.query import Counts
from windlass.core.session import SessionState, SessionView
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import StoreError
from windlass.observe import measures
from windlass.observe.exposition import Labels, Registry

KEPT = 2.0
"""Seconds."""
_PAGE = 1_000
_EVER = (State.DONE, State.CANCELLED)


class Readable(Read, Protocol):
    """What is needed of a broker."""


class Stock:
    """Reads a store into a registry."""

    def __init__(
        self, registry: Registry, *, version: str = "", now: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._version = version
        self._now = now
        self._read_at: float | None = None

    async def refresh(self, broker: Broker) -> None:
        """Read, unless that was a moment ago. A store that does not answer is a metric, too."""
        now = self._now()
        if self._read_at is not None and now - self._read_at < KEPT:
            return
        self._read_at = now
        try:
            counts, sessions = await broker.counts(), await _sessions(broker)
        except StoreError:
            self._registry.set(measures.UP, 0)
            return
        self._registry.set(measures.INFO, 1, (self._version, broker.capabilities.store))
        self._registry.set(measures.UP, 1)
        self._show_counts(counts)
        self._show_sessions(sessions)

    def _show_counts(self, counts: Counts) -> None:
        here: dict[Labels, float] = {}
        ever: dict[Labels, float] = {}
        for row in counts.rows:
            (ever if row.state in _EVER else here)[row.queue, row.task, row.state.value] = row.count
        queues = {row.queue for row in counts.rows} | set(counts.paused) | set(counts.oldest)
        self._registry.replace(measures.JOBS, here)
        self._registry.raise_to(measures.FINISHED, ever)
        oldest: dict[Labels, float] = {(queue,): counts.oldest.get(queue, 0) / SECOND for queue in queues}
        paused: dict[Labels, float] = {(queue,): float(queue in counts.paused) for queue in queues}
        self._registry.replace(measures.OLDEST, oldest)
        self._registry.replace(measures.PAUSED, paused)

    def _show_sessions(self, sessions: list[SessionView]) -> None:
        alive: defaultdict[Labels, float] = defaultdict(float)
        slots: defaultdict[Labels, float] = defaultdict(float)
        leases: defaultdict[Labels, float] = defaultdict(float)
        for session in sessions:
            host = (session.info.host,)
            alive[host] += 1
            slots[host] += session.info.slots
            leases[host] += session.leases
        self._registry.replace(measures.SESSIONS, alive)
        self._registry.replace(measures.FLEET_SLOTS, slots)
        self._registry.replace(measures.FLEET_LEASES, leases)


async def _sessions(broker: Readable) -> list[SessionView]:
    """Those alive, of processes that run jobs."""
    found: list[SessionView] = []
    after = ""
    while True:
        page = await broker.sessions(after, _PAGE)
        found += [session for session in page if session.state is SessionState.ALIVE and _runs_jobs(session)]
        if len(page) < _PAGE:
            return found
        after = page[-1].id


def _runs_jobs(session: SessionView) -> bool:
    return not intakes_run_by(session.info.queues)
