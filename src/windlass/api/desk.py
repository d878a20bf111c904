"""What a route works with: the services behind API and command line, for one caller."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from windlass import Windlass
from windlass.admin.audit import Audit
from windlass.admin.flows import Flows
from windlass.admin.insight import Insight
from windlass.admin.operate import Operator
from windlass.admin.schedules import Schedules
from windlass.admin.views import JobShown
from windlass.api.access import Caller, present, unseen_queue
from windlass.api.problems import Refusal, not_found
from windlass.api.running import Running
from windlass.api.seals import Seals
from windlass.broker.contract import Broker
from windlass.core.ids import check_job_id
from windlass.core.job import JobDetail, JobView
from windlass.core.query import FIRST_PAGE, NO_RECORD
from windlass.core.units import Cursor
from windlass.errors import InvalidOption

RUNNING = "windlass_running"
"""Where the server keeps what it runs with, in the state of the application."""


class Desk:
    """The services, and what the caller sees of the namespace."""

    def __init__(self, running: Running, broker: Broker, caller: Caller, seals: Seals) -> None:
        self.running = running
        self.app: Windlass = running.app
        self.broker = broker
        self.caller = caller
        self.seals = seals

    @cached_property
    def insight(self) -> Insight:
        """What can be looked at."""
        return Insight(self.broker, not_known=self.app.not_known)

    @cached_property
    def operator(self) -> Operator:
        """What operators do."""
        return Operator(self.broker)

    @property
    def audit(self) -> Audit:
        """The record of what operators did."""
        return Audit(self.broker)

    @property
    def flows(self) -> Flows:
        """Flows."""
        return Flows(self.app, self.broker)

    @property
    def schedules(self) -> Schedules:
        """Schedules."""
        return Schedules(self.app, self.broker)

    # --- pages ----------------------------------------------------------------------------------------------

    def sealed(self, place: str | None, listed: str) -> str | None:
        """A cursor of a `listing` for the outside: opaque, and fit for a URL."""
        return None if place is None else self.seals.cursor(Cursor(place), listed)

    def opened(self, cursor: str | None, listed: str, *, field: str = "cursor") -> Cursor:
        """What `sealed` was given; the beginning for none. 400 for what no page of this listing came with."""
        place = FIRST_PAGE if cursor is None else self.seals.open_cursor(cursor, listed)
        if place is None:
            raise Refusal(
                400,
                "invalid",
                f"this {field} is not from this listing; begin without one, and send the same filters with "
                "the one of the page before",
                field=field,
            )
        return place

    # --- what is in sight -----------------------------------------------------------------------------------

    def sees(self, job: JobView | JobShown) -> bool:
        """Whether a job is in sight. One of which only the end is remembered is nobody's but theirs who see
        everything: nobody can tell any more where it was.
        """
        if job.pruned:
            return not self.caller.is_bound
        return self.caller.sees(job.queue, job.lane)

    async def seen_queue(self, queue: str) -> str:
        """The name of a queue that is declared and in sight; else 404."""
        if self.caller.sees_queue(queue) and await self.running.queues.has(queue, self.insight):
            return queue
        raise unseen_queue(queue)

    def seen_lane(self, lane: str) -> str:
        """The name of a lane that is in sight; else 404."""
        if not self.caller.sees_lane(lane):
            raise not_found(f'there is no lane "{lane}"', field="lane")
        return lane

    async def keeper(self, job_id: str) -> Broker:
        """The broker of the namespace that keeps a job: what is enqueued here may be for another one.
        Keys that are bound see this namespace alone.
        """
        if len(self.app.namespaces) == 1 or self.caller.is_bound or not _is_id(job_id):
            return self.broker
        if (await self.broker.get([job_id]))[0] is not None:
            return self.broker
        place = await self.app.find(job_id)
        return self.broker if place is None else await place.broker()

    async def seen_job(self, job_id: str, broker: Broker | None = None) -> JobDetail:
        """A job that is known and in sight; else 404, also for what is no id."""
        try:
            check_job_id(job_id)
        except InvalidOption as error:
            raise not_found(str(error), field="job") from None
        found = (await (broker or self.broker).get([job_id]))[0]
        if found is None or not self.sees(found):
            raise unknown_job(job_id)
        return found

    async def record(
        self, what: str, chosen: Mapping[str, str], *, jobs: int, wanted: int, reason: str = ""
    ) -> None:
        """Keep what was done, by whom, and why."""
        await self.audit.record(what, chosen, jobs=jobs, wanted=wanted, by=self.caller.name, reason=reason)


def _is_id(text: str) -> bool:
    try:
        check_job_id(text)
    except InvalidOption:
        return False
    return True


def unknown_job(job_id: str) -> Refusal:
    """A job that is not known, or not in sight."""
    return not_found(f"job {job_id} is not known: {NO_RECORD}", field="job")


async def at_desk(request: Request[Any, Any, Any]) -> Desk:
    """Provide the desk of a request."""
    return await desk_of(request.app.state[RUNNING], present(request.scope))


async def desk_of(running: Running, caller: Caller) -> Desk:
    """The desk for a caller."""
    return Desk(running, await running.app.connection.broker(), caller, await running.seals())


AtDesk = NamedDependency[SkipValidation[Desk]]
"""The type of a route's parameter `desk`."""
