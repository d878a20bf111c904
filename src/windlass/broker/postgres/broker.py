"""The face of the PostgreSQL broker: the contract's verbs, each one call of one function, one transaction."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

from windlass.broker.contract import BlockingProduce, Capabilities, Options, Pacing, Settled, Transact
from windlass.broker.postgres import answers, checks
from windlass.broker.postgres.arrays import (
    ask_of,
    beats_of,
    jobs_of,
    notes_of,
)
from windlass.broker.postgres.bells import Bell
from windlass.broker.postgres.blocking import BlockingProducer
from windlass.broker.postgres.driver import Connection, Refused, Row, code_of
from windlass.broker.postgres.health import Health, health_of
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.listening import Listener
from windlass.broker.postgres.looking import Looking
from windlass.broker.postgres.migrating import up_to_date
from windlass.broker.postgres.pool import Pool, spares_one
from windlass.broker.postgres.producing import Producing
from windlass.broker.postgres.records import CODES, pack, pack_body, state_of, uuid_of
from windlass.broker.postgres.settling import settle
from windlass.broker.postgres.statements import statement
from windlass.broker.postgres.transactional import Enqueuing, enqueue_on, enqueue_on_blocking, settle_on
from windlass.broker.postgres.trouble import Refusal, in_words
from windlass.broker.postgres.url import Place
from windlass.broker.postgres.watching import FLOOR, Watching
from windlass.broker.postgres.ways import Ways
from windlass.clock import Clock
from windlass.core.bounds import CALL_ITEMS, check_items
from windlass.core.event import FROM_NOW, FROM_START, Events
from windlass.core.group import refused_whole, too_large
from windlass.core.job import Finished, JobDetail, NewJob, Receipt
from windlass.core.lease import Ask, Claimed, check_ask
from windlass.core.operate import Edit, Effect, Operated, Purged, Target
from windlass.core.outcome import Answer, Cause, Verdict
from windlass.core.query import (
    AHEAD_LIMIT,
    FIRST_PAGE,
    PAGE_ROWS,
    Counts,
    Explanation,
    JobQuery,
    Lanes,
    Page,
    UnfinishedFlows,
    flow_in,
    lane_in,
    number_in,
    schedule_in,
)
from windlass.core.session import (
    END_LEASES,
    ENDED_KEPT,
    LOG_LINE_CHARS,
    LOG_LINES,
    MEMO_BYTES,
    MEMOS,
    Beat,
    Ended,
    Note,
    Pulse,
    SessionView,
    Swept,
)
from windlass.core.settings import Body, Change, Changed, Declaration, Document, Kind, Retention, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import FIRES_KEPT, Fire, Fired, FireStatus, NewSchedule, Schedules
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
_PAUSED = True
_INSISTS = True
_TAKE_IN_FIRST = "WL002"
"""What `_sees_all` says."""
_WAIT_FLOOR = 1.0
"""Seconds between two looks at what other processes have done, at the most."""


class PostgresBroker:
    """A broker whose store is a schema of a PostgreSQL database. It belongs to the loop that opened it."""

    def __init__(self, place: Place, *, clock: Clock | None, options: Options) -> None:
        self._place = place
        self._pool = Pool(place)
        self._clock = clock
        self._options = options
        self._schema = quoted(options.namespace)
        self._bell = Bell()
        self._listener = Listener(place, self._schema, self._bell)
        self._looking = Looking(self._bell)
        self._watching = Watching(self._finished, self._bell)
        self._ways = Ways(self._step)
        self._producing = Producing(self._step, self._ways)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocking: BlockingProducer | None = None
        if spares_one(place) and not are_greenlets():
            self._blocking = BlockingProducer(
                place, self._schema, self._now, self._tell, self._pool, self._bell
            )
        self._database: str | None = None  # a caller's connection must lead to the same

    @classmethod
    async def open(
        cls, place: Place, *, clock: Clock | None = None, options: Options | None = None
    ) -> "PostgresBroker":
        """Connect, and bring the namespace up to date."""
        broker = cls(place, clock=clock, options=options or Options())
        try:
            await broker._prepare()
        except BaseException:
            await broker.close()
            raise
        return broker

    async def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._pool.use(lambda connection: up_to_date(connection, self._options.namespace))
        self._database = (await self._pool.call("SELECT current_database()"))[0][0]
        kept = self._options.retention or Retention()
        said = self._options
        times = (kept.retention, kept.retention_count, kept.result_ttl, kept.dead_retention)
        await self._call(
            "open_with", said.session_ttl, said.resend_window, *times, said.events_kept, said.max_size
        )

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
        return health_of((await self._call("health"))[0], (await self._call("health_of_tables"))[0])

    async def warnings(self) -> Sequence[str]:
        """What an operator should know of this store."""
        return (await self.health()).warnings()

    async def close(self) -> None:
        """Let everybody who waits go, and let go of the connections."""
        self._watching.close()
        self._looking.close()
        await self._listener.close()
        if self._blocking is not None:
            await asyncio.to_thread(self._blocking.close)  # somebody may be in the middle of a call
        await self._pool.close()

    def _tell(self, call: Callable[[], None]) -> None:
        """Have something called on the loop that this belongs to, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(call)

    def _now(self) -> Micros | None:
        return None if self._clock is None else self._clock.now()

    async def _call(self, function: str, *arguments: Any) -> Sequence[Row]:
        return await self._pool.call(statement(self._schema, function, len(arguments)), *arguments)

    async def _step(self, function: str, *arguments: Any) -> Sequence[Any]:
        """Call a function that may make something claimable or finish something, at the present time."""
        rows = await self._call(function, self._now(), *arguments)
        self._bell.ring()
        return rows

    async def _read(self, function: str, *arguments: Any) -> Sequence[Row]:
        """Call a function that reads jobs, once what came by callers' own transactions is among them."""
        try:
            return await self._call(function, _INSISTS, *arguments)
        except Refusal as error:
            if code_of(error) != _TAKE_IN_FIRST:
                raise
        await self._step("take_in")
        return await self._call(function, not _INSISTS, *arguments)

    # produce

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        return await self._producing.enqueue(groups)

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
        return Enqueuing(self._options.namespace, groups, database=self._database, now=self._now())

    async def settle_on(self, connection: Any, settlement: Settlement) -> Answer:
        """Settle a lease as done in the transaction that is open on the caller's own connection."""
        try:
            return await settle_on(connection, self._options.namespace, settlement, now=self._now())
        except Refused as error:
            raise in_words(error, self._place) from error

    @asynccontextmanager
    async def transaction(self, ttl: Micros) -> AsyncGenerator[Connection, None]:
        """Lend a connection with an open transaction, for a job's own writes and its settlement.

        It is rolled back if it is idle for longer than the session's TTL: a stopped process holds up nobody.
        """
        async with self._pool.lent_for_long() as connection, connection.transaction():
            await connection.execute(
                "SELECT set_config('idle_in_transaction_session_timeout', $1, true)",
                str(max(1, ttl // 1_000)),
            )
            yield connection
        self._bell.ring()

    # consume

    async def claim(self, ask: Ask) -> Claimed:
        check_ask(ask)
        return answers.claimed(await self._ways.beside("claim", ask.queues, *ask_of(ask)))

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        checks.check_settlements(items, ask)
        return await settle(self._ways, items, ask)

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        check_items("beats", beats)
        rows = await self._call("beat", self._now(), *beats_of(beats))
        return tuple(
            Pulse(
                session=beat.session,
                alive=row["alive"],
                cancel=tuple(zip(map(str, row["jobs"] or ()), row["fences"] or (), strict=True)),
                settings=row["settings"],
            )
            for beat, row in zip(beats, rows, strict=True)
        )

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        jobs, fences = [uuid_of(job) for job, _ in started], [fence for _, fence in started]
        rows = await self._step(
            "end_session", session, pack(cause), cause.kind.value, jobs, fences, END_LEASES
        )
        moved = tuple(answers.moved(row) for row in rows[1:])
        return Ended(known=rows[0]["known"], moved=moved, more=rows[0]["more"])

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        check_items("notes", notes)
        columns = notes_of(notes, LOG_LINE_CHARS)
        rows = await self._call("annotate", self._now(), *columns, MEMOS, MEMO_BYTES, LOG_LINES)
        return tuple(map(Verdict, rows[0]["annotate"]))

    async def sweep(self, *, limit: int, every: Micros = 0) -> Swept:
        rows = await self._step("sweep", limit, every, ENDED_KEPT)
        head = rows[0]
        return Swept(
            promoted=head["promoted"],
            reaped=tuple(head["reaped"]),
            moved=tuple(answers.moved(row) for row in rows[1:]),
            pruned=head["pruned"],
            more=head["more"],
            schedules_due=head["schedules_due"],
            early=head["early"],
            since=head["since"],
            stepped_back=head["stepped_back"],
        )

    async def wait(self, queues: Sequence[str], timeout: float) -> None:
        told = self._listener.told

        async def claimable() -> bool:
            # Told, it goes to claim without asking first: a round trip less before a job starts.
            if self._listener.told != told:
                return True
            return (await self._call("claimable", self._now(), queues))[0]["claimable"]

        with self._listener.listening(queues):
            await self._looking.until(claimable, bool, timeout, _WAIT_FLOOR, self._listener)

    async def watch(self, jobs: Sequence[JobId], timeout: float) -> Sequence[Finished]:
        check_items("jobs", jobs)
        return await self._watching.watch(jobs, timeout)

    async def _finished(self, jobs: Sequence[UUID]) -> dict[UUID, Finished]:
        return answers.finished(jobs, await self._call("finished", self._now(), jobs))

    async def events(self, after: Cursor, limit: int, timeout: float) -> Events:
        checks.check_page(limit)
        place: Cursor = after

        async def logged() -> Events:
            nonlocal place
            start = {FROM_START: None, FROM_NOW: -1}.get(place, 0)
            start = number_in(place) if start == 0 else start
            page = answers.events(await self._call("events", start, limit))
            place = page.cursor
            return page

        return await self._looking.until(logged, lambda page: bool(page.items or page.gap), timeout, FLOOR)

    # schedules

    async def declare_schedule(self, schedule: NewSchedule) -> Changed:
        columns = (schedule.name, schedule.spec, schedule.next_at, schedule.app, schedule.revision)
        return _changed((await self._step("declare_schedule", *columns))[0])

    async def override_schedule(
        self, name: str, spec: bytes | None, next_at: Micros | None, expect: int
    ) -> Changed:
        return _changed((await self._step("override_schedule", name, spec, next_at, expect))[0])

    async def delete_schedule(self, name: str) -> bool:
        return (await self._call("delete_schedule", name))[0]["delete_schedule"]

    async def pause_schedule(self, name: str, *, paused: bool) -> bool:
        return (await self._call("pause_schedule", name, paused))[0]["pause_schedule"]

    async def fire(self, fire: Fire) -> Fired:
        large = too_large(fire.jobs)
        ticks = fire.missed + len(fire.jobs)
        wish = (fire.name, fire.version, fire.expect, fire.then, ticks, fire.unless_waiting)
        rows = await self._step("fire", *wish, FIRES_KEPT, bool(large), *jobs_of(() if large else fire.jobs))
        status = FireStatus(rows[0]["status"])
        if large and status is FireStatus.REFUSED:
            return Fired(status, refused_whole(fire.jobs, large))
        receipts = zip(fire.jobs, rows[1:], strict=False)
        return Fired(status, tuple(answers.receipt(job.id, row) for job, row in receipts))

    async def schedules(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> Schedules:
        checks.check_page(limit)
        return answers.schedules(
            await self._call("schedules", self._now(), schedule_in(after), limit + 1), limit
        )

    # operate

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._operate("cancel", targets)

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._operate("replay", targets)

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        return await self._operate("discard", targets)

    async def edit(self, edits: Sequence[Edit]) -> Sequence[Operated]:
        return await self._operate(
            "edit",
            edits,
            [edit.payload for edit in edits],
            [None if edit.headers is None else pack(edit.headers) for edit in edits],
            [None if edit.tags is None else pack(edit.tags) for edit in edits],
            [edit.priority for edit in edits],
            [edit.max_attempts for edit in edits],
        )

    async def _operate(
        self, verb: str, items: Sequence[Target] | Sequence[Edit], *columns: Sequence[Any]
    ) -> Sequence[Operated]:
        check_items("jobs", items)
        expected = [None if item.expect is None else CODES[item.expect] for item in items]
        rows = await self._step("operate", verb, [uuid_of(item.job) for item in items], expected, *columns)
        return tuple(
            Operated(
                item.job,
                Effect(row["effect"]),
                state_of(row["state"]),
                None if row["held_by"] is None else str(row["held_by"]),
            )
            for item, row in zip(items, rows, strict=True)
        )

    async def purge(self, queue: str, state: State, limit: int) -> Purged:
        checks.check_purge(state)
        row = (await self._step("purge", queue, CODES[state], min(limit, CALL_ITEMS)))[0]
        return Purged(row["count"], row["more"])

    async def unhold(self, key: str, limit: int) -> Purged:
        row = (await self._step("unhold", key, min(limit, CALL_ITEMS)))[0]
        return Purged(row["count"], row["more"])

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return (await self._step("set_paused", queue, lane, _PAUSED))[0]["set_paused"]

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return (await self._step("set_paused", queue, lane, not _PAUSED))[0]["set_paused"]

    # settings

    async def declare(self, declarations: Sequence[Declaration]) -> Sequence[Changed]:
        check_items("declarations", declarations)
        rows = await self._step(
            "declare",
            [each.subject.kind.value for each in declarations],
            [each.subject.name for each in declarations],
            [each.subject.lane for each in declarations],
            [pack_body(each.body) for each in declarations],
            [each.app for each in declarations],
            [each.revision for each in declarations],
        )
        return tuple(map(_changed, rows))

    async def override(self, subject: Subject, body: Body | None, expect: int) -> Changed:
        place = (subject.kind.value, subject.name, subject.lane)
        return _changed((await self._step("override", *place, pack_body(body), expect))[0])

    async def documents(
        self, kind: Kind, after: Subject | None = None, limit: int = 100
    ) -> Sequence[Document]:
        checks.check_page(limit)
        name, lane = (None, None) if after is None else (after.name, after.lane)
        return tuple(map(answers.document, await self._call("documents", kind.value, name, lane, limit)))

    # read

    async def get(self, jobs: Sequence[JobId]) -> Sequence[JobDetail | None]:
        check_items("jobs", jobs)
        rows = await self._read("get", self._now(), [uuid_of(job) for job in jobs])
        found = {row["place"]: answers.detail(row) for row in rows}
        return tuple(found.get(place) for place in range(1, len(jobs) + 1))

    async def list(self, query: JobQuery, after: Cursor = FIRST_PAGE, limit: int = 100) -> Page:
        checks.check_page(limit)
        states = sorted(CODES[state] for state in query.states)
        last = number_in(after) if after else None
        return answers.page(
            await self._read(
                "list", query.queue, states, query.task, query.lane, query.flow, last, limit, PAGE_ROWS
            )
        )

    async def flows(self, after: Cursor = FIRST_PAGE, limit: int = 100) -> UnfinishedFlows:
        checks.check_page(limit)
        return answers.flows(await self._read("unfinished_flows", flow_in(after), limit + 1), limit)

    async def counts(self) -> Counts:
        return answers.counts(await self._read("counts", self._now()))

    async def lanes(self, queue: str, after: Cursor = FIRST_PAGE, limit: int = 100) -> Lanes:
        checks.check_page(limit)
        rows = await self._call("lanes", self._now(), queue, lane_in(after), limit)
        return answers.lanes(queue, rows, limit)

    async def sessions(self, after: SessionId = "", limit: int = 1_000) -> Sequence[SessionView]:
        checks.check_page(limit)
        return tuple(map(answers.session, await self._call("sessions", after, limit)))

    async def explain(self, job: JobId) -> Explanation:
        row = (await self._read("explain", self._now(), uuid_of(job), AHEAD_LIMIT))[0]
        return answers.explanation(job, row)


def _changed(row: Any) -> Changed:
    return Changed(Change(row["change"]), row["version"])
