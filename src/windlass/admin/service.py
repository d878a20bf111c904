"""The one service behind API, command line and dashboard: a property for each noun, all on one namespace.

A route or a command asks the service and never a broker. That keeps a rule that concerns both (what may be
shown, what goes on record, how a page is cut) in one place.
"""

from collections.abc import AsyncIterator, Callable, Collection
from datetime import datetime
from functools import cached_property
from typing import BinaryIO

from windlass.admin.alerts import Alerts
from windlass.admin.audit import Audit
from windlass.admin.dead import DeadLetters
from windlass.admin.enqueueing import Enqueueing
from windlass.admin.events import EventLog
from windlass.admin.flows import Flows
from windlass.admin.forgetting import Forgetting
from windlass.admin.intakes import Intakes
from windlass.admin.jobs import Jobs
from windlass.admin.keys import Keys
from windlass.admin.lanes import Lanes
from windlass.admin.leases import Leases
from windlass.admin.logins import Logins
from windlass.admin.operations import Operations
from windlass.admin.overview import Overview, overview
from windlass.admin.queues import Queues
from windlass.admin.reading import store_time
from windlass.admin.relays import Relays
from windlass.admin.scale import MOST_WORKERS, Scale, scale
from windlass.admin.schedules import Schedules
from windlass.admin.server_secret import server_secret
from windlass.admin.strikes import Strikes
from windlass.admin.tasks import Tasks
from windlass.admin.transfer import Dead, Imported, JobLine, exported, imported
from windlass.admin.views import moment
from windlass.admin.webhooks import Webhooks
from windlass.admin.workers import Workers
from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.ids import check_job_id
from windlass.core.job import JobDetail
from windlass.core.query import JobQuery
from windlass.core.units import JobId, Micros
from windlass.errors import InvalidOption
from windlass.observe.history.report import History, look, opened
from windlass.observe.history.sink import By, Window
from windlass.observe.history.trail import JobHistory, job_history
from windlass.observe.watch import Watch, page


class Service:
    """What can be seen and done in one namespace of an app."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self.app = app
        self._broker = broker

    @classmethod
    async def of(cls, app: Windlass) -> "Service":
        """The service of an app, whose store is opened if it is not open yet."""
        return cls(app, await app.broker())

    async def renewed(self) -> "Service":
        """Return this service, or a new one if the app has opened its store anew. The store is told first of
        what the app has declared in between.
        """
        broker = await self.app.broker()
        return self if broker is self._broker else Service(self.app, broker)

    # --- a property for each noun ---------------------------------------------------------------------------

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs."""
        return Jobs(self.app, self._broker)

    @cached_property
    def enqueueing(self) -> Enqueueing:
        """Enqueueing by a task's name."""
        return Enqueueing(self.app, self._broker)

    @cached_property
    def dead(self) -> DeadLetters:
        """Dead letters."""
        return DeadLetters(self.app, self._broker)

    @cached_property
    def operations(self) -> Operations:
        """Operations on many dead letters, in the background of this process."""
        return Operations(self.app, self._broker)

    def forgetting(self, tag: str) -> Forgetting:
        """Forgetting a tag; `InvalidOption` for what is none."""
        return Forgetting(self.app, self._broker, tag)

    @cached_property
    def queues(self) -> Queues:
        """Queues."""
        return Queues(self._broker)

    @cached_property
    def lanes(self) -> Lanes:
        """Lanes."""
        return Lanes(self._broker)

    @cached_property
    def tasks(self) -> Tasks:
        """Tasks."""
        return Tasks(self.app, self._broker)

    @cached_property
    def strikes(self) -> Strikes:
        """Strikes, and pausing tasks."""
        return Strikes(self.app, self._broker)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules."""
        return Schedules(self.app, self._broker)

    @cached_property
    def flows(self) -> Flows:
        """Flows."""
        return Flows(self.app, self._broker)

    @cached_property
    def workers(self) -> Workers:
        """Workers."""
        return Workers(self._broker)

    @cached_property
    def leases(self) -> Leases:
        """Leases of workers that speak HTTP."""
        return Leases(self.app, self._broker)

    @cached_property
    def events(self) -> EventLog:
        """The log of events."""
        return EventLog(self._broker)

    @cached_property
    def alerts(self) -> Alerts:
        """Alerts."""
        return Alerts(self.app, self._broker)

    @cached_property
    def webhooks(self) -> Webhooks:
        """Webhooks."""
        return Webhooks(self.app, self._broker)

    @cached_property
    def intakes(self) -> Intakes:
        """Intakes: where jobs are taken from."""
        return Intakes(self.app, self._broker)

    @cached_property
    def relays(self) -> Relays:
        """Relays: where the ends of jobs are told."""
        return Relays(self.app, self._broker)

    @cached_property
    def audit(self) -> Audit:
        """The record of what operators did."""
        return Audit(self._broker)

    @cached_property
    def keys(self) -> Keys:
        """API keys."""
        return Keys(self._broker)

    @cached_property
    def logins(self) -> Logins:
        """Logins of the dashboard that have ended."""
        return Logins(self._broker)

    # --- the namespace as a whole ---------------------------------------------------------------------------

    def check_shared(self, why: str) -> None:
        """Refuse a store that lives inside this process; `why` says what would go wrong."""
        capabilities = self._broker.capabilities
        if not capabilities.shared:
            raise InvalidOption(
                f"a {capabilities.store} store lives inside one process: {why}; use one that is shared, such "
                "as sqlite:///windlass.db"
            )

    async def now(self) -> Micros:
        """The time by the store's clock. It is also how to find out whether the store answers."""
        return await store_time(self._broker)

    async def clock(self) -> datetime:
        """The same as a datetime."""
        return moment(await self.now())

    async def find_job(self, job_id: JobId, *, elsewhere: bool) -> "tuple[Service, JobDetail] | None":
        """A job, and the service of the namespace that keeps it: this one, else with `elsewhere` another
        namespace of the app, because a job that was enqueued here may be for another one.
        """
        found = await self.jobs.find(job_id)
        if found is not None:
            return self, found
        for app in self.app.namespaces.values() if elsewhere else ():
            if app is not self.app:
                other = await Service.of(app)
                found = await other.jobs.find(job_id)
                if found is not None:
                    return other, found
        return None

    async def overview(self, sees: Callable[[str], bool] = lambda _: True) -> Overview:
        """Everything at a glance, of the queues that the reader sees."""
        return await overview(self.app, self._broker, sees)

    async def scale(
        self,
        *,
        queues: Collection[str] = (),
        slots: int | None = None,
        least: int = 0,
        most: int = MOST_WORKERS,
    ) -> Scale:
        """The load of some queues, or of all, and how many worker processes it could keep busy."""
        return await scale(self._broker, queues=queues, slots=slots, least=least, most=most)

    async def history(self, window: Window, step: Micros | None, by: By | None = None) -> History:
        """How attempts went in a window of time. `Unsupported`: the app keeps no history."""
        async with opened(self.app.config.history) as sink:
            return await look(sink, self.app.config.namespace, window, step=step, by=by)

    async def job_history(self, job: str) -> JobHistory | None:
        """What history knows of a job; None: nothing. `Unsupported`: the app keeps no history."""
        wanted = check_job_id(job)
        async with opened(self.app.config.history) as sink:
            return job_history(wanted, await sink.trail(self.app.config.namespace, wanted))

    async def metrics(self, watch: Watch) -> str:
        """What this process has counted and what the store holds, for Prometheus."""
        return await page([(watch, self._broker)])

    async def secret(self) -> bytes:
        """The secret that the servers of the namespace share."""
        return await server_secret(self._broker)

    async def exported(
        self, query: JobQuery, *, left: Callable[[JobId], object] = lambda _: None
    ) -> AsyncIterator[JobLine]:
        """Every waiting job and dead letter that matches; `left` is told of Windlass's own, left out."""
        async for line in exported(self._broker, query, await self.now(), values=self.app.values, left=left):
            yield line

    async def imported(self, file: BinaryIO, *, dead: Dead, told: Callable[[int], object]) -> Imported:
        """Enqueue the jobs of a file that was exported; `told` is called with each number accepted."""
        return await imported(self.app, self._broker, file, dead=dead, told=told)
