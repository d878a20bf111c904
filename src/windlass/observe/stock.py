"""What the store holds, read when somebody asks for metrics: depth, age, workers, intakes and relays.

A read costs the store one `counts`, one `sessions` and one `documents`, and is kept for a moment, so that
scrapes of many readers are one read.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Protocol

from windlass.broker.contract import Broker
from windlass.broker.management import Configure, Plan, Read
from windlass.core.bridging import bridging, last_report
from windlass.core.intake import IntakeStatus, intakes_run_by
from windlass.core.query import Counts
from windlass.core.relay import RelayReading
from windlass.core.session import SessionState, SessionView
from windlass.core.settings import Document, Kind, Subject
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.errors import StoreError
from windlass.observe import measures
from windlass.observe.exposition import Labels, Registry

KEPT = 2.0
"""Seconds."""
_PAGE = 1_000
_EVER = (State.DONE, State.CANCELLED)


class Readable(Configure, Plan, Read, Protocol):
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
            bridges = bridging(await _readers(broker))
            now = (await broker.schedules(limit=1)).now if bridges.intakes else 0
        except StoreError:
            self._registry.set(measures.UP, 0)
            return
        self._registry.set(measures.INFO, 1, (self._version, broker.capabilities.store))
        self._registry.set(measures.UP, 1)
        self._show_counts(counts)
        self._show_sessions(sessions)
        self._show_intakes(bridges.intakes, now)
        self._show_relays(bridges.relays)

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

    def _show_intakes(self, intakes: Mapping[str, IntakeStatus], now: Micros) -> None:
        lag: dict[Labels, float] = {}
        taken: dict[Labels, float] = {}
        dead: dict[Labels, float] = {}
        rate: dict[Labels, float] = {}
        stopped: dict[Labels, float] = {}
        for name, status in intakes.items():
            for partition, each in status.partitions.items():
                labels = (name, partition)
                if each.lag is not None:
                    # All readers of a queue see the same queue.
                    lag[(name, "") if partition == each.owner else labels] = each.lag
                taken[labels], dead[labels], rate[labels] = each.taken, each.dead, each.rate
                stopped[labels] = float(each.stopped)
        self._registry.replace(measures.INTAKE_LAG, lag)
        self._registry.replace(measures.INTAKE_TAKEN, taken)
        self._registry.replace(measures.INTAKE_DEAD, dead)
        self._registry.replace(measures.INTAKE_RATE, rate)
        self._registry.replace(measures.INTAKE_STOPPED, stopped)
        silent: dict[Labels, float] = {
            (name,): max(0, now - last_report(status)) / SECOND for name, status in intakes.items()
        }
        self._registry.replace(measures.INTAKE_SILENT, silent)

    def _show_relays(self, relays: Mapping[str, RelayReading]) -> None:
        for measure, field in _OF_RELAYS:
            values: dict[Labels, float] = {(name,): getattr(each, field) for name, each in relays.items()}
            self._registry.replace(measure, values)
        behind: dict[Labels, float] = {
            (name,): each.behind / SECOND for name, each in relays.items() if each.behind is not None
        }
        self._registry.replace(measures.RELAY_BEHIND, behind)


_OF_RELAYS = (
    (measures.RELAY_SENT, "sent"),
    (measures.RELAY_REFUSED, "refused"),
    (measures.RELAY_GAPS, "gaps"),
)


async def _readers(broker: Readable) -> list[Document]:
    found: list[Document] = []
    after: Subject | None = None
    while True:
        page = await broker.documents(Kind.READER, after, _PAGE)
        found += page
        if len(page) < _PAGE:
            return found
        after = page[-1].subject


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
