"""Jobs: listed, counted, shown, explained, waited for, changed and cancelled."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal

import msgspec

from windlass.admin.advice import Advice, advise
from windlass.admin.filtering import JobFilter
from windlass.admin.listing import job_page, pages
from windlass.admin.pacing import by_ids
from windlass.admin.queues import Queues
from windlass.admin.reading import sessions, store_time, workers
from windlass.admin.showing import shower_of
from windlass.admin.views import JobShown, JobWhole, job_shown, job_whole
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.codec import is_reference
from windlass.core.ids import check_job_id
from windlass.core.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, MAX_ATTEMPTS, JobDetail, JobView
from windlass.core.names import check_tags, refuse_reserved
from windlass.core.operate import Edit, Operated, Target
from windlass.core.option import whole
from windlass.core.query import FIRST_PAGE, PAGE_ROWS, Why
from windlass.core.session import SessionState, SessionView
from windlass.core.state import State
from windlass.core.units import Cursor, JobId
from windlass.errors import InvalidOption, UnreadablePayload, ValueMissing, ValuesError
from windlass.values.configured import check_inside

LOOKS_FOR_COUNT = 20
"""Pages of the store that are read to count: 20,000 jobs at the most."""
DETAILS = 100
"""Jobs that `details` reads in one call of the store."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs match."""

    count: int
    more: bool
    """There are, or may be, more: so many matched among those that were looked at."""


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """New values for a job; what is None stays."""

    arguments: bytes | None = None
    """A JSON object."""
    priority: int | None = None
    max_attempts: int | None = None
    tags: Sequence[str] | None = None


def _everything(_: object) -> bool:
    return True


class Jobs:
    """The jobs of one namespace."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    # --- many -----------------------------------------------------------------------------------------------

    async def all(self, chosen: JobFilter) -> AsyncIterator[JobShown]:
        """Every job that matches, once, in constant memory, however many have to be looked at."""
        if chosen.query.queue is not None:
            await Queues(self._broker).check(chosen.query.queue)
        chosen = await self._narrowed(chosen)
        async for page in pages(self._broker, chosen.query):
            for job in page:
                if chosen.admits(job):
                    yield job_shown(job)
            if chosen.since is not None and all(job.accepted_at < chosen.since for job in page):
                return

    async def page(
        self,
        chosen: JobFilter,
        after: Cursor,
        limit: int,
        *,
        sees: Callable[[JobView], bool] = _everything,
    ) -> tuple[list[JobView], Cursor | None]:
        """The next jobs that match and that the reader sees, newest first, and where the next page begins."""
        if after == FIRST_PAGE and (found := await self._by_text(chosen)) is not None and sees(found):
            return [found], None
        chosen = await self._narrowed(chosen)
        return await job_page(
            self._broker,
            chosen.query,
            after,
            limit,
            admits=lambda job: chosen.admits(job) and sees(job),
            since=chosen.since,
        )

    async def count(
        self,
        chosen: JobFilter,
        *,
        sees: Callable[[JobView], bool] = _everything,
        sees_queue: Callable[[str], bool] | None = _everything,
    ) -> Counted:
        """How many jobs match: exactly where the store has counted them (unfinished jobs and dead letters by
        queue, state and task), else among those looked at. `sees_queue` says of which queues the reader may
        know the store's counts; None: of no queue, because the reader sees a part of each.
        """
        query = chosen.query
        if sees_queue is not None and chosen.is_counted:
            rows = (await self._broker.counts()).rows
            return Counted(
                count=sum(
                    row.count
                    for row in rows
                    if row.state in query.states
                    and query.queue in (None, row.queue)
                    and query.task in (None, row.task)
                    and sees_queue(row.queue)
                ),
                more=False,
            )
        chosen = await self._narrowed(chosen)
        found: set[JobId] = set()
        place: Cursor | None = FIRST_PAGE
        for _ in range(LOOKS_FOR_COUNT):
            jobs, place = await job_page(self._broker, query, place, PAGE_ROWS, since=chosen.since, looks=1)
            found.update(job.id for job in jobs if chosen.admits(job) and sees(job))
            if place is None:
                break
        return Counted(count=len(found), more=place is not None)

    async def details(self, ids: Sequence[JobId]) -> dict[JobId, JobDetail]:
        """Those of some jobs that the store knows, whole, by id."""
        found: dict[JobId, JobDetail] = {}
        for start in range(0, len(ids), DETAILS):
            for job in await self._broker.get(ids[start : start + DETAILS]):
                if job is not None:
                    found[job.id] = job
        return found

    def cancel(self, ids: Sequence[str]) -> AsyncIterator[Sequence[Operated]]:
        """Cancel jobs by their ids; what became of each, batch by batch."""
        return by_ids(self._broker.cancel, ids, expect=None)

    # --- one ------------------------------------------------------------------------------------------------

    async def find(self, job_id: str) -> JobDetail | None:
        """A job, whole; None if the store does not know it. `InvalidOption`: this is no id."""
        return (await self._broker.get([check_job_id(job_id)]))[0]

    async def one(self, job_id: str) -> JobDetail:
        """A job, whole. `JobNotFound` names the namespace that knows it, if another one does."""
        found = await self.find(job_id)
        if found is None:
            raise await self._app.not_known(job_id)
        return found

    def shown(self, job: JobDetail, *, payload: bool = False, secrets: bool = False) -> JobWhole:
        """A job for the outside: its payload and result only if asked for, its secrets only if those are."""
        return job_whole(job, shower_of(self._app, job.task, secrets=secrets), payload=payload)

    async def shown_whole(self, job: JobDetail, *, secrets: bool = False) -> JobWhole:
        """The same with payload and result, also those in object storage, unless they are very large."""
        whole = self.shown(job, payload=True, secrets=secrets)
        values = self._app.values
        if values is None or not (whole.payload_stored or whole.result_stored):
            return whole
        try:
            read = await values.whole(job, most=self._app.config.max_payload)
        except (ValuesError, UnreadablePayload) as error:
            why: dict[str, Any] = {}
            if whole.payload_stored:
                why["payload"] = str(error)
            if whole.result_stored:
                why["result"] = str(error)
            return msgspec.structs.replace(whole, **why)
        read_too = self.shown(read, payload=True, secrets=secrets)
        return msgspec.structs.replace(whole, payload=read_too.payload, result=read_too.result)

    async def document(self, job: JobDetail, what: Literal["payload", "result"]) -> bytes | str:
        """The bytes of a payload or a result as they were put, or a signed link to them, for a few minutes.
        `ValueMissing`: there is nothing.
        """
        found = job.payload if what == "payload" else job.result
        if not found:
            raise ValueMissing(f"job {job.id} has no {what} that is kept")
        values = self._app.values
        if values is None or not is_reference(found):
            return found
        return await values.link_or_bytes(job, what)

    async def wait(self, job_id: JobId, seconds: float) -> None:
        """Wait until a job has finished, but no longer than so many seconds."""
        await self._broker.watch([job_id], seconds)

    async def explain(self, job: JobDetail, *, sees: Callable[[str], bool] = _everything) -> Advice:
        """Why a job waits, and what to do about it; other queues are named if the reader sees them."""
        explanation = await self._broker.explain(job.id)
        holder = None
        if explanation.why is Why.RUNNING and job.session is not None:
            holder = await self._session(job.session)
        served = await self._served() if explanation.why is Why.NO_WORKER else ()
        seen = [queue for queue in served if sees(queue)]
        others = None if served and not seen else seen
        now = await store_time(self._broker)
        return advise(job, explanation, holder=holder, served=others, now=now)

    async def cancel_one(self, job_id: JobId) -> Operated:
        """Cancel a job: at once if it waits; if it runs, its worker is asked to stop it."""
        return (await self._broker.cancel([Target(job_id)]))[0]

    async def edit(self, job: JobDetail, change: JobChange) -> Operated:
        """Change a job that waits, or a dead letter; its new arguments are checked as those of a call."""
        refuse_reserved(job.task, "a job of task")  # Windlass speaks in its own name in these
        priority, attempts = change.priority, change.max_attempts
        if priority is not None:
            whole(priority, name="priority", least=LOWEST_PRIORITY, most=HIGHEST_PRIORITY)
        if attempts is not None:
            whole(attempts, name="max_attempts", least=1, most=MAX_ATTEMPTS)
        edit = Edit(
            job=job.id,
            # A waiting job may become ready in between, and a dead one be replayed: only the second matters.
            expect=State.DEAD if job.state is State.DEAD else None,
            payload=None if change.arguments is None else self._payload(job.task, change.arguments),
            tags=None if change.tags is None else check_tags(change.tags),
            priority=priority,
            max_attempts=attempts,
        )
        return (await self._broker.edit([edit]))[0]

    # --- parts ----------------------------------------------------------------------------------------------

    def _payload(self, task: str, arguments: bytes) -> bytes:
        signature = self._app.signature_of(task)
        if signature is None:
            raise InvalidOption(f'task "{task}" is not one of this app: its arguments cannot be checked here')
        # It stays in the store: one that is changed may be about to be read.
        payload = signature.encode_json(arguments)
        return check_inside(payload, self._app.config.max_payload, f"{task}: a payload that is changed")

    async def _by_text(self, chosen: JobFilter) -> JobView | None:
        """The job whose whole id is the text of the filter: no other job has to be looked at."""
        try:
            job_id = check_job_id(chosen.text)
        except InvalidOption:
            return None
        found = await self.find(job_id)
        if found is None or found.pruned or not chosen.query.matches(found):
            return None
        return found if chosen.admits(found) else None

    async def _narrowed(self, chosen: JobFilter) -> JobFilter:
        """No child is older than its parent: do not look at jobs that are."""
        if chosen.parent is None:
            return chosen
        parent = await self.find(chosen.parent)
        if parent is None or parent.pruned:
            return chosen
        return msgspec.structs.replace(chosen, since=max(chosen.since or 0, parent.accepted_at))

    async def _served(self) -> Sequence[str]:
        """The queues that live workers serve."""
        alive = [each.info async for each in workers(self._broker) if each.state is SessionState.ALIVE]
        return sorted({queue for info in alive for queue in info.queues})

    async def _session(self, session_id: str) -> SessionView | None:
        async for session in sessions(self._broker):
            if session.id == session_id:
                return session
        return None
