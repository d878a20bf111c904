"""What a route works with: the service, the caller, and what the caller may see."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from windlass import Windlass
from windlass.admin.filtering import JobFilter
from windlass.admin.service import Service
from windlass.admin.views import JobShown
from windlass.api.access import Caller, present, unseen_queue
from windlass.api.bound_keys import shown_name, stored_name
from windlass.api.problems import Refusal, not_found
from windlass.api.seals import Seals
from windlass.api.server_state import ServerState
from windlass.core.ids import check_job_id
from windlass.core.job import JobDetail, JobView
from windlass.core.query import FIRST_PAGE, NO_RECORD, JobQuery
from windlass.core.units import Cursor
from windlass.errors import InvalidOption

_Shown = TypeVar("_Shown", bound=JobShown)
SERVER_STATE = "windlass_server_state"
"""Where the server keeps what it runs with, in the state of the application."""
PREFIX = "windlass_prefix"
"""Where a request keeps the path under which all of this is mounted, if it is."""


class Context:
    """The service for one caller. A route asks it which queues, lanes and jobs the caller sees."""

    def __init__(self, server_state: ServerState, service: Service, caller: Caller, seals: Seals) -> None:
        self.server_state = server_state
        self.app: Windlass = server_state.app
        self.service = service
        self.caller = caller
        self.seals = seals

    # --- pages ----------------------------------------------------------------------------------------------

    def sealed(self, place: str | None, listed: str) -> str | None:
        """A cursor of a `listing` for the outside: opaque, and fit for a URL."""
        return None if place is None else self.seals.cursor(Cursor(place), listed)

    def opened(self, cursor: str | None, listed: str, *, field: str = "cursor") -> Cursor:
        """What `sealed` was given; the first page for None. 400 if no page of this listing had this
        cursor.
        """
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

    # --- what the caller sees -------------------------------------------------------------------------------

    def sees(self, job: JobView | JobShown) -> bool:
        """Whether the caller sees a job. Of a pruned job only its end is kept, not its queue, so only callers
        that see everything see it.
        """
        if job.pruned:
            return not self.caller.is_bound
        return self.caller.sees(job.queue, job.lane)

    async def seen_queue(self, queue: str) -> str:
        """The name of a queue that is declared and that the caller sees; else 404."""
        if self.caller.sees_queue(queue) and await self.service.queues.has(queue):
            return queue
        raise unseen_queue(queue)

    def seen_lane(self, lane: str) -> str:
        """The name of a lane that the caller sees; else 404."""
        if not self.caller.sees_lane(lane):
            raise not_found(f'there is no lane "{lane}"', field="lane")
        return lane

    async def kept_flow(self, flow: str) -> str:
        """The name under which the store keeps a flow that the caller calls by a name: its own, else what
        others have made, where it sees jobs of it.
        """
        own = stored_name(self.caller, flow)
        if own != flow:
            mine = JobFilter(query=JobQuery(flow=own))
            if not (await self.service.jobs.page(mine, FIRST_PAGE, 1, sees=self.sees))[0]:
                return flow
        return own

    def shown(self, job: _Shown) -> _Shown:
        """A job with the name by which the caller calls its flow."""
        name = shown_name(self.caller, job.flow)
        return job if name == job.flow else msgspec.structs.replace(job, flow=name)

    async def seen_job(self, job_id: str) -> JobDetail:
        """A job of this namespace that the caller sees; else 404, also for what is no id."""
        return (await self._found(job_id, elsewhere=False))[1]

    async def seen_job_anywhere(self, job_id: str) -> tuple[Service, JobDetail]:
        """The same for every namespace of the app, with the service of the one that keeps the job. Keys that
        are bound see this namespace alone.
        """
        return await self._found(job_id, elsewhere=not self.caller.is_bound)

    async def _found(self, job_id: str, *, elsewhere: bool) -> tuple[Service, JobDetail]:
        try:
            check_job_id(job_id)
        except InvalidOption as error:
            raise not_found(str(error), field="job") from None
        found = await self.service.find_job(job_id, elsewhere=elsewhere)
        if found is None or not self.sees(found[1]):
            raise unknown_job(job_id)
        return found

    async def record(
        self, what: str, chosen: Mapping[str, str], *, jobs: int, wanted: int, reason: str = ""
    ) -> None:
        """Put on record what was done, by whom, and why."""
        await self.service.audit.record(
            what, chosen, jobs=jobs, wanted=wanted, by=self.caller.name, reason=reason
        )


def unknown_job(job_id: str) -> Refusal:
    """The answer for a job that the store does not know, or that the caller does not see."""
    return not_found(f"job {job_id} is not known: {NO_RECORD}", field="job")


def prefix_of(scope: Any) -> str:
    """The path under which all of this is mounted: `/queue`; nothing on a server of its own."""
    return scope["state"].get(PREFIX, "")


async def route_context(request: Request[Any, Any, Any]) -> Context:
    """Provide the context of a request."""
    server_state: ServerState = request.app.state[SERVER_STATE]
    caller = present(request.scope)
    return Context(server_state, await server_state.service(), caller, await server_state.seals())


RouteContext = NamedDependency[SkipValidation[Context]]
"""The type of a route's parameter `context`."""
