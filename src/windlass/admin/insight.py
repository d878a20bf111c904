"""Reads: jobs, dead letters, queues, lanes, workers, and why a job waits."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from windlass.admin.advice import Advice, advise
from windlass.admin.filtering import Filtering, JobFilter
from windlass.admin.listing import Selection, dead_ids, dead_letters
from windlass.admin.views import (
    DeadShown,
    JobShown,
    JobWhole,
    LaneShown,
    QueueShown,
    WorkerShown,
    dead_shown,
    is_active,
    job_shown,
    job_whole,
    lane_shown,
    seconds,
    settings_shown,
    worker_shown,
)
from windlass.broker.contract import Broker
from windlass.client.elsewhere import not_known as not_known_here
from windlass.core.ids import check_job_id
from windlass.core.job import JobDetail
from windlass.core.query import FIRST_PAGE, Count, LaneView, Why
from windlass.core.session import SessionState, SessionView
from windlass.core.settings import Document, Kind, QueueSettings, Subject, overlay
from windlass.core.signature import Signature
from windlass.core.spelling import hint
from windlass.core.state import State
from windlass.core.units import JobId, Micros
from windlass.errors import InvalidOption, JobNotFound

_PAGE = 1_000


class Insight:
    """What can be seen through a broker."""

    def __init__(
        self, broker: Broker, *, not_known: Callable[[JobId], Awaitable[JobNotFound]] | None = None
    ) -> None:
        """`not_known` makes the error for a job that the broker does not know, `Connection.not_known`."""
        self._broker = broker
        self._not_known = not_known or partial(not_known_here, None)

    async def now(self) -> Micros:
        """The store's time."""
        return (await self._broker.schedules(limit=1)).now

    # --- jobs -----------------------------------------------------------------------------------------------

    async def jobs(self, chosen: JobFilter) -> AsyncIterator[JobShown]:
        """Every job that matches, once, in constant memory."""
        if chosen.query.queue is not None:
            await self.queue_document(chosen.query.queue)
        async for job in Filtering(self._broker).all(chosen):
            yield job_shown(job)

    async def job(
        self,
        job_id: str,
        *,
        payload: bool = False,
        secrets: bool = False,
        signature_of: Callable[[str], Signature | None] = lambda _: None,
    ) -> JobWhole:
        """One job; its payload and result only if asked for, its secrets only if those are. `JobNotFound`."""
        job = await self._detail(job_id)
        return job_whole(job, payload=payload, secrets=secrets, signature=signature_of(job.task))

    async def dead(self, selection: Selection) -> AsyncIterator[DeadShown]:
        """Every dead letter that was chosen, once, in constant memory."""
        await self.check_selection(selection)
        async for batch in dead_letters(self._broker, selection):
            for job in batch:
                yield dead_shown(job)

    async def count_dead(self, selection: Selection) -> int:
        """How many dead letters were chosen; asked of the store's counts where they can tell."""
        await self.check_selection(selection)
        if selection.indexed:
            rows = (await self._broker.counts()).rows
            return sum(row.count for row in rows if _is_counted(row, selection))
        return sum([len(batch) async for batch in dead_ids(self._broker, selection)])

    async def check_selection(self, selection: Selection) -> None:
        """Refuse a queue that nobody declared: it has no dead letters, and is a slip."""
        if selection.queue is not None:
            await self.queue_document(selection.queue)

    async def explain(self, job_id: str, *, sees: Callable[[str], bool] = lambda _: True) -> Advice:
        """Why a job waits, and what to do about it; other queues are named if the reader sees them.
        `JobNotFound`.
        """
        job = await self._detail(job_id)
        explanation = await self._broker.explain(job.id)
        holder = None
        if explanation.why is Why.RUNNING and job.session is not None:
            holder = await self._session(job.session)
        served = await self._served() if explanation.why is Why.NO_WORKER else ()
        seen = [queue for queue in served if sees(queue)]
        others = None if served and not seen else seen
        return advise(job, explanation, holder=holder, served=others, now=await self.now())

    async def _detail(self, job_id: str) -> JobDetail:
        found = (await self._broker.get([check_job_id(job_id)]))[0]
        if found is None:
            raise await self._not_known(job_id)
        return found

    # --- queues and lanes -----------------------------------------------------------------------------------

    async def queues(self) -> list[QueueShown]:
        """Every declared queue, by name."""
        counts = await self._broker.counts()
        jobs: defaultdict[str, dict[str, int]] = defaultdict(lambda: {state.value: 0 for state in State})
        for row in counts.rows:
            jobs[row.queue][row.state] += row.count
        return [
            self._queue(
                document,
                jobs[document.subject.name],
                counts.oldest.get(document.subject.name),
                paused=document.subject.name in counts.paused,
            )
            async for document in self.documents(Kind.QUEUE)
        ]

    async def queue(self, name: str) -> QueueShown:
        """One queue; `InvalidOption` names those that are declared."""
        await self.queue_document(name)
        return next(queue for queue in await self.queues() if queue.name == name)

    async def lanes(self, queue: str) -> AsyncIterator[LaneShown]:
        """The lanes of a queue that there is something to say of, by name."""
        await self.queue_document(queue)
        total = sum([lane.weight async for lane in self._lanes(queue) if is_active(lane)])
        async for lane in self._lanes(queue):
            yield lane_shown(lane, total)

    async def queue_document(self, name: str) -> Document:
        """The settings of a queue; `InvalidOption` names the queues that are declared."""
        known: list[str] = []
        async for document in self.documents(Kind.QUEUE):
            if document.subject.name == name:
                return document
            known.append(document.subject.name)
        raise InvalidOption(f'queue "{name}" is not declared; {hint(name, sorted(known), "declared queues")}')

    async def documents(self, kind: Kind) -> AsyncIterator[Document]:
        """Every document of a kind, by subject."""
        after: Subject | None = None
        while True:
            page = await self._broker.documents(kind, after, _PAGE)
            for document in page:
                yield document
            if len(page) < _PAGE:
                return
            after = page[-1].subject

    async def _lanes(self, queue: str) -> AsyncIterator[LaneView]:
        cursor = FIRST_PAGE
        while True:
            page = await self._broker.lanes(queue, cursor, _PAGE)
            for lane in page.lanes:
                yield lane
            if page.cursor is None:
                return
            cursor = page.cursor

    def _queue(
        self, document: Document, jobs: dict[str, int], oldest: Micros | None, *, paused: bool
    ) -> QueueShown:
        declared = document.declared if isinstance(document.declared, QueueSettings) else None
        override = document.override if isinstance(document.override, QueueSettings) else None
        return QueueShown(
            name=document.subject.name,
            jobs=jobs,
            oldest=None if oldest is None else seconds(oldest),
            paused=paused,
            settings=settings_shown(overlay(declared, override)),
            declared=settings_shown(declared),
            override=settings_shown(override),
            app=document.app,
            revision=document.revision,
            version=document.version,
        )

    # --- workers --------------------------------------------------------------------------------------------

    async def workers(self) -> AsyncIterator[WorkerShown]:
        """Sessions alive, and those that ended within the last hour."""
        async for session in self.sessions():
            yield worker_shown(session)

    async def sessions(self) -> AsyncIterator[SessionView]:
        """The same, as the broker tells them."""
        after = ""
        while True:
            page = await self._broker.sessions(after, _PAGE)
            for session in page:
                yield session
            if len(page) < _PAGE:
                return
            after = page[-1].id

    async def _served(self) -> Sequence[str]:
        """The queues that live workers serve."""
        alive = [session.info async for session in self.sessions() if session.state is SessionState.ALIVE]
        return sorted({queue for info in alive for queue in info.queues})

    async def _session(self, session_id: str) -> SessionView | None:
        async for session in self.sessions():
            if session.id == session_id:
                return session
        return None


def _is_counted(row: Count, selection: Selection) -> bool:
    return (
        row.state is State.DEAD
        and selection.queue in (None, row.queue)
        and selection.task in (None, row.task)
    )
