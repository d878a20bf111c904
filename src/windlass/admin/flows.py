"""Flows for operators: which there are, how they are doing, and their jobs."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec

from windlass.admin.listing import DETAILS, pages
from windlass.admin.views import JobShown, job_shown, moment
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.client.flow_handle import FlowView, flow_state
from windlass.core.job import JobView
from windlass.core.names import check_flow
from windlass.core.query import NO_RECORD, JobQuery
from windlass.core.state import UNFINISHED, State
from windlass.core.units import JobId, Micros
from windlass.errors import JobNotFound

LOOKED_AT = 10_000
"""Jobs that are looked through for flows: no store keeps a list of them."""


class FlowShown(msgspec.Struct, frozen=True, kw_only=True):
    """A flow: how it is doing, and how many of its jobs are in each state."""

    id: str
    state: str
    jobs: dict[str, int]
    total: int
    progress: float


class FlowSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that was met among jobs, with what was met of it."""

    id: str
    jobs: dict[str, int]
    newest: datetime


class FlowsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Flows that were met, the newest first."""

    flows: list[FlowSeen]
    examined: int
    """Jobs that were looked at."""
    more: bool
    """There are, or may be, more jobs than that: flows may be missing, and counts too low."""


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

    async def seen(self, sees: Callable[[JobView], bool] = lambda _: True) -> FlowsSeen:
        """The flows of the jobs that are listed first (the newest, where the store's listing is ordered), as
        far as the reader sees them.
        """
        counts: dict[str, Counter[State]] = {}
        newest: dict[str, Micros] = {}
        looked, cut = 0, False
        async for page in pages(self._broker, JobQuery()):
            for job in page:
                if job.flow and sees(job):
                    counts.setdefault(job.flow, Counter())[job.state] += 1
                    newest[job.flow] = max(newest.get(job.flow, 0), job.accepted_at)
            looked += len(page)
            if cut := looked >= LOOKED_AT:
                break
        found = [
            FlowSeen(id=flow, jobs={str(s): n for s, n in count.items()}, newest=moment(newest[flow]))
            for flow, count in counts.items()
        ]
        return FlowsSeen(
            flows=sorted(found, key=lambda flow: flow.newest, reverse=True), examined=looked, more=cut
        )

    async def one(self, flow: str) -> FlowShown:
        """One flow, with all its jobs counted; `JobNotFound` if none is kept."""
        return _shown(await self._app.flow(flow).aview())

    async def graph(
        self, flow: str, *, most: int = MOST_NODES, sees: Callable[[JobView], bool] = lambda _: True
    ) -> FlowGraph:
        """The jobs of a flow that the reader sees, and which waits for which; `JobNotFound` without any."""
        nodes: dict[JobId, JobView] = {}
        counts: Counter[State] = Counter()
        moving = 0
        async for page in pages(self._broker, JobQuery(flow=check_flow(flow))):
            for job in page:
                if sees(job):
                    counts[job.state] += 1
                    moving += job.state in UNFINISHED and job.state is not State.BLOCKED
                    if len(nodes) < most:
                        nodes[job.id] = job
        if not nodes:
            raise JobNotFound(f'no job of a flow "{flow}" is kept: {NO_RECORD}')
        view = FlowView(id=flow, state=flow_state(counts, moving), counts=dict(counts))
        return FlowGraph(
            flow=_shown(view),
            jobs=tuple(job_shown(job) for job in nodes.values()),
            edges=tuple([edge async for edge in self._edges(list(nodes))]),
            more=view.total > len(nodes),
        )

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


def _shown(view: FlowView) -> FlowShown:
    return FlowShown(
        id=view.id,
        state=view.state,
        jobs={state.value: count for state, count in view.counts.items()},
        total=view.total,
        progress=round(view.progress, 4),
    )
