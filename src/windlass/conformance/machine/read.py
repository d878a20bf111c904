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
from windlass.core.units import Cursor

_filters: dict[str, st.SearchStrategy[Any]] = {
    "queue": st.sampled_from((*QUEUES, NOWHERE)),
    "states": st.frozensets(st.sampled_from(State), min_size=1, max_size=3),
    "task": st.sampled_from(TASKS),
    "lane": st.sampled_from(LANES),
    "flow": st.sampled_from(("f", "g")),
}


class Read(Machine):
    """Reads change nothing, and agree with each other."""

    @rule(filters=st.fixed_dictionaries({}, optional=_filters), limit=st.integers(1, 3))
    def list_some(self, filters: dict[str, Any], limit: int) -> None:
        """Page through what matches a filter."""
        query = JobQuery(**filters)
        found = self.on("list", lambda broker: list_all(broker, query, limit))
        matching = {view.id for view in self.ledger.last.listed if query.matches(view)}
        require("pages cover what matches", {view.id for view in found} == matching, found, matching)

    @rule(jobs=st.lists(draws.of_machine(draws.jobs), min_size=1, max_size=3))
    def watch(self, jobs: list[int]) -> None:
        """Watch jobs: those that have finished are told at once."""
        ids = [job_id(number) for number in jobs]
        told = self.on("watch", lambda broker: broker.watch(ids, 0))
        views = {job: self.ledger.view(job) for job in ids}
        finished = {job for job, view in views.items() if view is not None and view.state in TERMINAL}
        require("a watch tells what has finished", {each.job for each in told} == finished, told, finished)

    @rule(queue=st.sampled_from(QUEUES), limit=st.integers(1, 2))
    def page(self, queue: str, limit: int) -> None:
        """Pages are what they are parts of; waiting is but a hint."""
        self.on("wait", lambda broker: broker.wait([queue], 0))
        lanes = self.on("lanes", lambda broker: _all_lanes(broker, queue, limit))
        require("pages of lanes are the whole", lanes == list(self.ledger.last.lanes[queue]), lanes)
        for kind in (Kind.QUEUE, Kind.LANE):
            documents = self.on("documents", lambda broker, k=kind: _all_documents(broker, k, limit))
            whole = [each for each in self.ledger.last.documents if each.subject.kind is kind]
            require("pages of documents are the whole", documents == whole, documents, whole)

    @rule(limit=st.integers(1, 3), start=st.sampled_from((FROM_START, FROM_NOW)))
    def read_events(self, limit: int, start: Cursor) -> None:
        """Page through the log: nothing is skipped or repeated."""
        paged = self.on("events", lambda broker: _all_events(broker, start, limit))
        whole = self.on("events", lambda broker: _all_events(broker, start, 1_000))
        require("pages of events are the whole", paged == whole, paged, whole)


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
