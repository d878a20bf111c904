"""The face of the PostgreSQL broker: the contract's verbs, each one call of one function, one transaction."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from windlass.broker.contract import BlockingProduce, Capabilities, Options, Pacing, Settled, Transact
from windlass.broker.postgres import offset_verbs, verbs
from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.blocking import BlockingProducer
from windlass.broker.postgres.driver import TROUBLE
from windlass.broker.postgres.finish_waits import FLOOR, FinishWaits
from windlass.broker.postgres.health import Health, health_of
from windlass.broker.postgres.listening import Listener
from windlass.broker.postgres.migrating import up_to_date
from windlass.broker.postgres.polling import Polling
from windlass.broker.postgres.pool import Pool, spares_one
from windlass.broker.postgres.store import Namespace, Store
from windlass.broker.postgres.transactional import Completing, Enqueuing, enqueue_on, enqueue_on_blocking
from windlass.broker.postgres.trouble import in_words
from windlass.broker.postgres.url import Location
from windlass.clock import Clock
from windlass.core.bounds import check_items
from windlass.core.event import Events
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed
from windlass.core.operate import Edit, Operated, Purged, Target
from windlass.core.outcome import Answer, Cause, Verdict
from windlass.core.query import FIRST_PAGE, Counts, Explanation, JobQuery, Lanes, Page, UnfinishedFlows
from windlass.core.session import Beat, Ended, Note, Pulse, SessionView, Swept
from windlass.core.settings import Body, Changed, Declaration, Document, Kind, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.take import Offset, Take, Taken
from windlass.core.timetable import Fire, Fired, NewSchedule, Schedules
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId
from windlass.threads import are_greenlets

CAPABILITIES = Capabilities(
    store="postgres",
    durability="committed by PostgreSQL: it survives a power cut (unless synchronous_commit is off)",
    durable=True,
    shared=True,
    transactional_enqueue=True,
    transactional_completion=True,
    # One at a time claims from lanes, its commit included: with half as many commits they give a quarter
    # more jobs a second.
    pacing=Pacing(soon=500),
)
_WAIT_FLOOR = 1.0
"""Seconds between two looks at what other processes have done, at the most."""


class PostgresBroker:
    """A broker whose store is a schema of a PostgreSQL database. It belongs to the loop that opened it."""

    def __init__(self, location: Location, *, clock: Clock | None, options: Options) -> None:
        self._location = location
        self._options = options
        self._namespace = Namespace(options.namespace, clock)
        self._bell = Bell()
        self._pool = Pool(location)
        self._store = Store(self._pool, self._namespace, self._bell)
        self._listener = Listener(location, self._namespace.schema, self._bell)
        self._polling = Polling(self._bell)
        self._finish_waits = FinishWaits(lambda jobs: self._store.run(verbs.finished(jobs)), self._bell)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocking: BlockingProducer | None = None
        if spares_one(location) and not are_greenlets():
            self._blocking = BlockingProducer(self._pool, self._namespace, self._tell, self._bell)
        self._database: str | None = None  # a caller's connection must lead to the same

    @classmethod
    async def open(
        cls, location: Location, *, clock: Clock | None = None, options: Options | None = None
    ) -> "PostgresBroker":
        """Connect, and bring the namespace up to date."""
        broker = cls(location, clock=clock, options=options or Options())
        try:
            await broker._prepare()
        except BaseException:
            await broker.close()
            raise
        return broker

    async def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._pool.use(lambda connection: up_to_date(connection, self.namespace))
        rows = await self._pool.fetch(b"SELECT current_database()", named=False)
        self._database = rows[0][0]
        await self._store.run(verbs.open_with(self._options))

    @property
    def namespace(self) -> str:
        """The schema that it lives in."""
        return self._options.namespace

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        return CAPABILITIES

    @property
    def blocking(self) -> BlockingProduce | None:
        """A connection of its own for threads, unless there is none to spare: then a portal serves them."""
        return self._blocking

    @property
    def transact(self) -> Transact | None:
        """Those of the callers: enqueue and completion."""
        return self

    async def health(self) -> Health:
        """What an operator should know of the server."""
        parts = [await self._store.run(part) for part in verbs.health()]
        return health_of(parts)

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of this store."""
        return (await self.health()).warnings()

    async def close(self) -> None:
        """End every wait, and close the connections."""
        self._finish_waits.close()
        self._polling.close()
        await self._listener.close()
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking.close)  # somebody may be in the middle of a call
        await self._pool.close()

    def _tell(self, call: Callable[[], None]) -> None:
        """Have something called on the loop that this belongs to, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(call)

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return await self._store.run(verbs.enqueue(groups))

    async def enqueue_on(
        self, connection: Any, groups: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Receipt]]:
        """Enqueue in the transaction that is open on the caller's own connection."""
        return await enqueue_on(connection, self._enqueuing(groups))

    def enqueue_on_blocking(
        self, connection: Any, groups: Sequence[Sequence[NewJob]]
    ) -> Sequence[Sequence[Receipt]]:
        """The same on a connection that blocks."""
        return enqueue_on_blocking(connection, self._enqueuing(groups))

    def _enqueuing(self, groups: Sequence[Sequence[NewJob]]) -> Enqueuing:
        return Enqueuing(self.namespace, groups, database=self._database, now=self._namespace.now())

    async def settle_on(self, connection: Any, settlement: Settlement) -> Answer:
        """Settle a lease as done in the transaction that is open on a connection of `transaction`."""
        call = Completing(self.namespace, settlement, now=self._namespace.now())
        try:
            async with psycopg.AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
                await cursor.execute(call.statement, call.arguments)
                (row,) = await cursor.fetchall()
        except TROUBLE as error:
            raise in_words(error, self._location) from error
        return call.answer(row)

    @asynccontextmanager
    async def transaction(self, ttl: Micros) -> AsyncGenerator[psycopg.AsyncConnection[Any], None]:
        """Lend a connection with an open transaction, for a job's own writes and its settlement.

        It is rolled back if it is idle for longer than the session's TTL: a stopped process holds up nobody.
        """
        async with self._pool.lent_for_long() as connection, connection.transaction():
            await connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', %s, true)",
                [str(max(1, ttl // 1_000))],
            )
            yield connection
        self._bell.ring()

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        return await self._store.run(verbs.claim(ask))

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        return await self._store.run(verbs.settle(items, ask))

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        return await self._store.run(verbs.beat(beats))

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        return await self._store.run(verbs.end_session(session, cause, started))

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        return await self._store.run(verbs.annotate(notes))

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        return await self._store.run(verbs.sweep(limit, every, keep_dead=keep_dead))

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        told = self._listener.told

        async def claimable() -> bool:
            # Told, it goes to claim without asking first: a round trip less before a job starts.
            return self._listener.told != told or await self._store.run(verbs.claimable(queues))

        with self._listener.listening(queues):
            await self._polling.until(claimable, bool, timeout, _WAIT_FLOOR, self._listener)

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        check_items("jobs", jobs)
        return await self._finish_waits.watch(jobs, timeout)

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        reached = after

        async def logged() -> Events:
            nonlocal reached
            page = await self._store.run(verbs.events(reached, limit))
            reached = page.cursor
            return page

        return await self._polling.until(logged, lambda page: bool(page.items or page.gap), timeout, FLOOR)

    # intakes

    async def take(self, take: Take) -> Taken:
        return await self._store.run(offset_verbs.take(take))

    async def offsets(self, after: str = "", limit: int = 100) -> Sequence[Offset]:
        return await self._store.run(offset_verbs.offsets(after, limit))

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        return await self._store.run(verbs.declare_schedule(schedule))

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return await self._store.run(verbs.override_schedule(name, spec, next_at, expect))

    async def delete_schedule(self, name: str) -> bool:
        return await self._store.run(verbs.delete_schedule(name))

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return await self._store.run(verbs.pause_schedule(name, paused=paused))

    async def fire(self, fire: Fire) -> Fired:
        return await self._store.run(verbs.fire(fire))

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        return await self._store.run(verbs.schedules(after, limit))

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("cancel", targets))

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("replay", targets))

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("discard", targets))

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._store.run(verbs.operate("prune", targets))

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        return await self._store.run(verbs.edit(edits))

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        return await self._store.run(verbs.purge(queue, state, limit))

    async def unhold(self, key: str, limit: int) -> Purged:
        return await self._store.run(verbs.unhold(key, limit))

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return await self._store.run(verbs.pause(queue, lane, paused=True))

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return await self._store.run(verbs.pause(queue, lane, paused=False))

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        return await self._store.run(verbs.declare(declarations))

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        return await self._store.run(verbs.override(subject, body, expect))

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        return await self._store.run(verbs.documents(kind, after, limit))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        return await self._store.run(verbs.get(jobs))

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        return await self._store.run(verbs.list_jobs(query, after, limit))

    async def counts(self) -> Counts:
        return await self._store.run(verbs.counts())

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        return await self._store.run(verbs.flows(after, limit))

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        return await self._store.run(verbs.lanes(queue, after, limit))

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        return await self._store.run(verbs.sessions(after, limit))

    async def explain(self, job: JobId) -> Explanation:
        return await self._store.run(verbs.explain(job))
