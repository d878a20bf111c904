"""Flows for operators: which there are, how they are doing, and their jobs."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from windlass.admin.listing import DETAILS, pages
from windlass.admin.views import JobShown, job_shown, moment
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.flow_handle import FlowTally, FlowView
from windlass.core.bounds import CALL_ITEMS
from windlass.core.job import JobView
from windlass.core.names import check_flow
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, JobQuery, UnfinishedFlow
from windlass.core.units import Cursor, JobId

LOOKED_AT = 10_000
"""Jobs that are looked through for flows that have finished: no store keeps a list of these."""
FLOWS_READ = 10_000
"""Unfinished flows that are looked through."""


class FlowShown(msgspec.Struct, frozen=True, kw_only=True):
    """A flow: how it is doing, and how many of its jobs are in each state."""

    id: str
    state: str
    jobs: dict[str, int]
    total: int
    progress: float


class FlowSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A flow in a list, with its jobs as far as they were looked at."""

    id: str
    jobs: dict[str, int]
    newest: datetime
    unfinished: bool = False
    """A job of it is blocked, scheduled, ready or running."""
    stuck: bool = False
    """Nothing of it goes on by itself: it has a dead letter or a held job, and needs somebody."""


class FlowsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Flows: those that are stuck, then the other unfinished ones, then those that have finished; each time
    the newest first.
    """

    flows: list[FlowSeen]
    examined: int
    """Jobs that were looked at for flows that have finished, of those that the reader sees."""
    more: bool
    """There are, or may be, others: flows that have finished may be missing, and counts too low."""


class FlowEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One job waits for another."""

    parent: JobId
    child: JobId
    on_failure: str


class FlowGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as a graph. Spawned children have their `parent`, which is no edge: nobody waits."""

    flow: FlowShown
    jobs: tuple[JobShown, ...]
    edges: tuple[FlowEdge, ...]
    more: bool
    """It has more jobs than are shown."""


MOST_NODES = 1_000


class Flows:
    """What can be seen of flows and done to them."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def seen(
        self, sees: Callable[[JobView], bool] = lambda _: True, *, limit: int = CALL_ITEMS
    ) -> FlowsSeen:
        """Up to `limit` flows, as far as the reader sees them: the unfinished ones, whatever came after them,
        and those that have finished if a job of theirs is among the newest `LOOKED_AT`.
        """
        unfinished, cut = await self._unfinished()
        met: dict[str, list[JobView]] = {}
        looked = examined = 0
        async for page in pages(self._broker, JobQuery()):
            for job in filter(sees, page):
                examined += 1
                if job.flow:
                    met.setdefault(job.flow, []).append(job)
            looked += len(page)
            if looked >= LOOKED_AT:
                cut = True
                break
        shown, rest = await self._read(unfinished, sees, met if not cut else {}, most=limit)
        finished = [
            _seen(name, jobs) for name, jobs in met.items() if name not in {f.flow for f in unfinished}
        ]
        flows = sorted([*shown, *finished], key=_rank)
        cut = cut or rest or len(flows) > limit
        return FlowsSeen(flows=flows[:limit], examined=examined, more=cut)

    async def stuck(
        self, sees: Callable[[JobView], bool] = lambda _: True, *, limit: int = CALL_ITEMS
    ) -> FlowsSeen:
        """Up to `limit` flows that are stuck, as far as the reader sees them, whatever came after them."""
        unfinished, cut = await self._unfinished()
        stuck = [flow for flow in unfinished if flow.stuck]
        flows, rest = await self._read(stuck, sees, {}, most=limit)
        return FlowsSeen(flows=sorted(flows, key=_rank), examined=0, more=cut or rest)

    async def stuck_names(self) -> tuple[list[str], bool]:
        """The names of all flows that are stuck, and whether there may be more."""
        unfinished, cut = await self._unfinished()
        return [flow.flow for flow in unfinished if flow.stuck], cut

    async def _unfinished(self) -> tuple[list[UnfinishedFlow], bool]:
        """The unfinished flows, those that are stuck first; and whether there are more than were read."""
        found: list[UnfinishedFlow] = []
        cursor: Cursor | None = FIRST_PAGE
        while cursor is not None and len(found) < FLOWS_READ:
            page = await self._broker.flows(cursor, PAGE_ROWS)
            found += page.flows
            cursor = page.cursor
        return sorted(found, key=lambda flow: not flow.stuck), cursor is not None

    async def _read(
        self,
        flows: Sequence[UnfinishedFlow],
        sees: Callable[[JobView], bool],
        known: Mapping[str, list[JobView]],
        *,
        most: int,
    ) -> tuple[list[FlowSeen], bool]:
        """Unfinished flows with their newest jobs, as far as the reader sees any; and whether some were not
        looked at. A reader who sees few of them has no more than `CALL_ITEMS` looked at.
        """
        found: list[FlowSeen] = []
        for flow in flows[:CALL_ITEMS]:
            if len(found) == most:
                return found, True
            jobs = known.get(flow.flow, [])
            if not jobs:
                page = await self._broker.list(JobQuery(flow=flow.flow), limit=PAGE_ROWS)
                jobs = [job for job in page.jobs if sees(job)]
            if jobs:
                found.append(_seen(flow.flow, jobs, flow))
        return found, len(flows) > CALL_ITEMS

    async def one(self, flow: str) -> FlowShown:
        """One flow, with all its jobs counted; `JobNotFound` if none is kept."""
        return (await self._whole(flow, most=0)).shown

    async def graph(
        self, flow: str, *, most: int = MOST_NODES, sees: Callable[[JobView], bool] = lambda _: True
    ) -> FlowGraph:
        """The jobs of a flow that the reader sees, and which waits for which; `JobNotFound` without any."""
        whole = await self._whole(flow, most=most, sees=sees)
        return FlowGraph(
            flow=whole.shown,
            jobs=tuple(job_shown(job) for job in whole.jobs),
            edges=tuple([edge async for edge in self._edges([job.id for job in whole.jobs])]),
            more=whole.shown.total > len(whole.jobs),
        )

    async def _whole(
        self, flow: str, *, most: int, sees: Callable[[JobView], bool] = lambda _: True
    ) -> "_Whole":
        jobs: list[JobView] = []
        tally = FlowTally()
        async for page in pages(self._broker, JobQuery(flow=check_flow(flow))):
            for job in filter(sees, page):
                tally.add(job)
                if len(jobs) < most:
                    jobs.append(job)
        return _Whole(shown=_shown(tally.view(flow)), jobs=jobs)

    async def _edges(self, ids: list[JobId]) -> AsyncIterator[FlowEdge]:
        for start in range(0, len(ids), DETAILS):
            for job in await self._broker.get(ids[start : start + DETAILS]):
                if job is not None:
                    for edge in job.after:
                        yield FlowEdge(parent=edge.parent, child=job.id, on_failure=edge.on_failure)

    async def jobs(self, flow: str) -> AsyncIterator[JobShown]:
        """The jobs of a flow."""
        async for page in pages(self._broker, JobQuery(flow=check_flow(flow))):
            for job in page:
                yield job_shown(job)

    async def cancel(self, flow: str) -> int:
        """Cancel whatever of it is unfinished."""
        return await self._app.flow(flow).acancel()

    async def replay(self, flow: str) -> int:
        """Send its dead letters back."""
        return await self._app.flow(flow).areplay()


class _Whole(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with all its jobs counted, and the first of them."""

    shown: FlowShown
    jobs: list[JobView]


def _seen(name: str, jobs: Sequence[JobView], flow: UnfinishedFlow | None = None) -> FlowSeen:
    return FlowSeen(
        id=name,
        jobs={str(state): count for state, count in Counter(job.state for job in jobs).items()},
        newest=moment(max(job.accepted_at for job in jobs)),
        unfinished=flow is not None,
        stuck=flow is not None and flow.stuck,
    )


def _rank(flow: FlowSeen) -> tuple[bool, bool, float]:
    return not flow.stuck, not flow.unfinished, -flow.newest.timestamp()


def _shown(view: FlowView) -> FlowShown:
    return FlowShown(
        id=view.id,
        state=view.state,
        jobs={state.value: count for state, count in view.counts.items()},
        total=view.total,
        progress=round(view.progress, 4),
    )
