"""Everything that can be read of a broker, in one value."""

from collections.abc import Iterable, Mapping

import msgspec

from windlass.broker.contract import Broker
from windlass.conformance.machine.universe import QUEUES
from windlass.core.event import FROM_START, Event
from windlass.core.job import JobDetail, JobView
from windlass.core.query import FIRST_PAGE, Counts, Explanation, JobQuery, LaneView, UnfinishedFlow
from windlass.core.session import SessionView
from windlass.core.settings import Document, Kind
from windlass.core.take import Offset
from windlass.core.timetable import ScheduleView
from windlass.core.units import Cursor, JobId, Micros

EVERYTHING = JobQuery()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What `read_everything` found."""

    jobs: Mapping[JobId, JobDetail | None] = {}
    listed: tuple[JobView, ...] = ()
    counts: Counts = Counts()
    flows: tuple[UnfinishedFlow, ...] = ()
    lanes: Mapping[str, tuple[LaneView, ...]] = {}
    sessions: tuple[SessionView, ...] = ()
    documents: tuple[Document, ...] = ()
    schedules: Mapping[str, ScheduleView] = {}
    scheduled_now: Micros = 0
    offsets: Mapping[str, Offset] = {}
    explained: Mapping[JobId, Explanation] = {}
    events: tuple[Event, ...] = ()
    """Since the last snapshot."""
    gap: bool = False
    cursor: Cursor = FROM_START


async def read_everything(broker: Broker, jobs: Iterable[JobId], events_after: Cursor) -> Snapshot:
    """Read everything; of jobs those that are named."""
    ids = sorted(jobs)
    schedules = await broker.schedules()
    events = await broker.events(events_after, 1_000, 0)
    documents = [document for kind in Kind for document in await broker.documents(kind)]
    return Snapshot(
        jobs=dict(zip(ids, await broker.get(ids), strict=True)),
        listed=await list_all(broker),
        counts=await broker.counts(),
        flows=(await broker.flows()).flows,
        lanes={queue: (await broker.lanes(queue)).lanes for queue in QUEUES},
        sessions=tuple(await broker.sessions()),
        documents=tuple(documents),
        schedules={schedule.name: schedule for schedule in schedules.schedules},
        scheduled_now=schedules.now,
        offsets={offset.source.name: offset for offset in await broker.offsets()},
        explained={job: await broker.explain(job) for job in ids},
        events=events.items,
        gap=events.gap,
        cursor=events.cursor,
    )


async def list_all(broker: Broker, query: JobQuery = EVERYTHING, limit: int = 100) -> tuple[JobView, ...]:
    """Every job that matches, over as many pages as it takes."""
    found: list[JobView] = []
    page = await broker.list(query, FIRST_PAGE, limit)
    found.extend(page.jobs)
    while page.cursor is not None:
        page = await broker.list(query, page.cursor, limit)
        found.extend(page.jobs)
    return tuple(found)
