"""Rules for readers: filters, pages, waiting. Everything else is read after every step anyway."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from windlass.broker.contract import Broker
from windlass.conformance.machine import draws
from windlass.conformance.machine.base import Machine
from windlass.conformance.machine.snapshot import list_all
from windlass.conformance.machine.universe import LANES, NOWHERE, QUEUES, TASKS, job_id
from windlass.conformance.machine.violated import require
from windlass.core.event import FROM_NOW, FROM_START, Event
from windlass.core.query import FIRST_PAGE, JobQuery, LaneView
from windlass.core.settings import Document, Kind
from windlass.core.state import TERMINAL, State
from windlass.core.units import Cursor, JobId

_filters: dict[str, st.SearchStrategy[Any]] = {
    "queue": st.sampled_from((*QUEUES, NOWHERE)),
    "states": st.frozensets(st.sampled_from(State), min_size=1, max_size=3),
    "task": st.sampled_from(TASKS),
    "lane": st.sampled_from(LANES),
    "flow": st.sampled_from(("f", "g")),
}


class Read(Machine):
    """Reads change nothing, and agree with each other."""

    @rule(
        filters=st.fixed_dictionaries({}, optional=_filters),
        jobs=st.lists(draws.of_machine(draws.jobs), min_size=1, max_size=3),
        limit=st.integers(1, 3),
    )
    def read(self, filters: dict[str, Any], jobs: list[int], limit: int) -> None:
        """Page through everything, filter, watch; waiting is but a hint."""
        self.on("wait", lambda broker: broker.wait(QUEUES, 0))
        self._list(JobQuery(**filters), limit)
        self._watch([job_id(number) for number in jobs])
        self._page(limit)
        for start in (FROM_START, FROM_NOW):
            paged = self.on("events", lambda broker, at=start: _all_events(broker, at, limit))
            whole = self.on("events", lambda broker, at=start: _all_events(broker, at, 1_000))
            require("pages of events are the whole", paged == whole, paged, whole)

    def _list(self, query: JobQuery, limit: int) -> None:
        found = self.on("list", lambda broker: list_all(broker, query, limit))
        matching = [view.id for view in self.ledger.last.listed if query.matches(view)]
        require("pages are the whole, in its order", [view.id for view in found] == matching, found, matching)

    def _watch(self, jobs: list[JobId]) -> None:
        told = self.on("watch", lambda broker: broker.watch(jobs, 0))
        views = {job: self.ledger.view(job) for job in jobs}
        finished = {job for job, view in views.items() if view is not None and view.state in TERMINAL}
        require("a watch tells what has finished", {each.job for each in told} == finished, told, finished)

    def _page(self, limit: int) -> None:
        for queue in QUEUES:
            lanes = self.on("lanes", lambda broker, q=queue: _all_lanes(broker, q, limit))
            require("pages of lanes are the whole", lanes == list(self.ledger.last.lanes[queue]), lanes)
        for kind in (Kind.QUEUE, Kind.LANE):
            documents = self.on("documents", lambda broker, k=kind: _all_documents(broker, k, limit))
            whole = [each for each in self.ledger.last.documents if each.subject.kind is kind]
            require("pages of documents are the whole", documents == whole, documents, whole)


async def _all_lanes(broker: Broker, queue: str, limit: int) -> list[LaneView]:
    page = await broker.lanes(queue, FIRST_PAGE, limit)
    found = list(page.lanes)
    while page.cursor is not None:
        page = await broker.lanes(queue, page.cursor, limit)
        found.extend(page.lanes)
    return found


async def _all_documents(broker: Broker, kind: Kind, limit: int) -> list[Document]:
    found = list(await broker.documents(kind, None, limit))
    while page := await broker.documents(kind, found[-1].subject if found else None, limit):
        found.extend(page)
    return found


async def _all_events(broker: Broker, start: Cursor, limit: int) -> list[Event]:
    page = await broker.events(start, limit, 0)
    found = list(page.items)
    while page.items:
        page = await broker.events(page.cursor, limit, 0)
        found.extend(page.items)
    return found
