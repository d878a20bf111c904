"""The application: what it defines (`definitions.py`, `bridges.py`), and calls sent to its store."""

import os
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from windlass.broker.observed import Observer
from windlass.client.around import Lifespan
from windlass.client.bridges import Bridges
from windlass.client.flow_handle import Flow
from windlass.client.handle import Job
from windlass.client.options import check_known
from windlass.client.sending import Accepted, handles_of, in_groups, jobs_of
from windlass.client.task import Call
from windlass.clock import Clock
from windlass.config import Settings, configure
from windlass.core.duration import Duration
from windlass.core.ids import check_job_id
from windlass.core.job import NewJob
from windlass.core.names import check_flow
from windlass.core.option import shown
from windlass.errors import InvalidOption
from windlass.observe.traces import active as active_spans
from windlass.observe.traces import sending

if TYPE_CHECKING:
    from windlass.worker.embedded import EmbeddedWorker
    from windlass.worker.several import SeveralWorkers

T = TypeVar("T")


class Windlass(Bridges):
    """A set of tasks and queues, and their store.

    `url` names the store: by default `$WINDLASS_URL`, or `sqlite:///windlass.db` if that is not set. The app
    opens nothing before its first use, so you can import it anywhere and use it after a fork. Every setting
    has an environment variable: `session_ttl` is `WINDLASS_SESSION_TTL`. `lifespan` is a function that takes
    the app, or nothing, and returns a context manager. Each process that runs jobs enters it. Tasks read the
    value that it yields as `current.resources`.
    """

    is_windlass_app = True
    """What a command line that was given `module:app` looks for."""

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        revision: int = 0,
        clock: Clock | None = None,
        lifespan: Lifespan | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        check_known(settings, Settings, "lifespan", "name", "revision", "url")
        config = configure({"url": url, **settings}, os.environ)
        super().__init__(config, name=name, revision=revision, clock=clock, lifespan=lifespan)
        self._open_front()

    def worker(
        self,
        *,
        concurrency: int = 16,
        queues: Sequence[str] = (),
        groups: Sequence[str] = (),
        grace: Duration | None = None,
        intakes: bool = True,
    ) -> "EmbeddedWorker | SeveralWorkers":
        """A worker inside this process, for applications and scripts: `async with app.worker(): ...`.

        The block ends when its jobs have ended, or when their grace is over. `windlass worker` promises more;
        see `windlass.worker.embedded`. An app with queues in several namespaces gets a worker for each
        namespace, each with `concurrency` slots. With `intakes=False` it leaves the intakes of the app to
        other workers.
        """
        from windlass.client.working import embedded  # noqa: PLC0415 - producers need none of it

        return embedded(
            self, concurrency=concurrency, queues=queues, groups=groups, grace=grace, intakes=intakes
        )

    def observe(self, observer: Observer) -> Observer:
        """From now on, call a function after each call that this app makes to the store; see
        `broker.observed`.
        """
        if not callable(observer):
            raise InvalidOption(f"an observer is a function of an Observation, not {shown(observer)}")
        for place in self.namespaces.values():
            place.connection.observe(observer)
        return observer

    # --- sending --------------------------------------------------------------------------------------------

    def enqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Send many calls, in groups of up to 1,000. The store accepts a whole group or none of it.

        `calls` may be a generator: each group is sent as soon as it is full. Each namespace has its own
        groups. If a group is refused, the store keeps the groups before it, and the error says how many jobs
        it has kept. With your own `connection` all jobs exist when you commit.
        """
        with Accepted[T]() as accepted:
            for place, group in in_groups(self, calls):
                accepted.add(group, place.send(group.calls, connection))
        return accepted.in_order()

    async def aenqueue_many(self, calls: Iterable[Call[T]], *, connection: object = None) -> list[Job[T]]:
        """Async twin of `enqueue_many`."""
        with Accepted[T]() as accepted:
            for place, group in in_groups(self, calls):
                accepted.add(group, await place.asend(group.calls, connection))
        return accepted.in_order()

    def send(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from blocking code, inside a span if this program traces."""
        return self.send_jobs(calls, jobs_of(self, calls), connection)

    def send_jobs(
        self, calls: Sequence[Call[T]], jobs: Sequence[NewJob], connection: object = None
    ) -> list[Job[T]]:
        """Send one group of calls whose jobs are already made."""
        spans = active_spans()
        if spans is None:
            return self._deliver(calls, jobs, connection)
        with spans.sending(jobs) as stamped:
            return self._deliver(calls, stamped, connection)

    def _deliver(self, calls: Sequence[Call[T]], jobs: Sequence[NewJob], connection: object) -> list[Job[T]]:
        if connection is not None:
            return handles_of(self, calls, self.connection.enqueue_on(connection, [jobs])[0], None)
        sent = time.monotonic()
        return handles_of(self, calls, self.connection.enqueue([jobs])[0], sent)

    async def asend(self, calls: Sequence[Call[T]], connection: object = None) -> list[Job[T]]:
        """Send one group from async code, inside a span if this program traces."""
        with sending(jobs_of(self, calls)) as jobs:
            if connection is not None:
                (receipts,) = await self.connection.aenqueue_on(connection, [jobs])
                return handles_of(self, calls, receipts, None)
            sent = time.monotonic()
            return handles_of(self, calls, (await self.connection.send([jobs]))[0], sent)

    async def asend_one(self, call: Call[T], connection: object = None) -> Job[T]:
        """Send one call from async code, together with those of other callers."""
        if connection is not None:
            return (await self.asend((call,), connection))[0]
        with sending(jobs_of(self, (call,))) as jobs:
            sent = time.monotonic()
            return handles_of(self, (call,), await self.connection.aenqueue(jobs), sent)[0]

    # --- reading --------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job[Any]:
        """The handle of a job by its id, in any namespace of this app."""
        return Job(self._tagged(check_job_id(job_id)), job_id)

    def flow(self, flow: str) -> Flow:
        """The handle of a flow by its name. If you chose the name yourself, Windlass searches only this
        namespace for it; see `within`.
        """
        return Flow(self._tagged(check_flow(flow)), flow)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """From blocking code, run async code that asks the store."""
        return self.connection.run(work)

    def close(self) -> None:
        """Close the connections to the store. You can use the app again: it then opens new ones."""
        for place in self.namespaces.values():
            place.connection.shut()

    async def aclose(self) -> None:
        """Async twin of `close`."""
        for place in self.namespaces.values():
            await place.connection.close()
