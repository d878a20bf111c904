"""The worker of a test: claims one job, takes it through the real steps of a run, and settles it."""

import contextlib
import os
import uuid
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from datetime import datetime

import msgspec

from windlass.client.app import Windlass
from windlass.clock import ManualClock
from windlass.core.bounds import ASK_QUEUES
from windlass.core.lease import Ask, Claimed, Lease
from windlass.core.operate import Target
from windlass.core.order import next_draw
from windlass.core.outcome import Cause, CauseKind, Verdict
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND, JobId, SessionId
from windlass.errors import EnqueueRefused, InvalidPayload
from windlass.observe.runs import run_ends, run_listeners, run_starts
from windlass.pace import MachinePace
from windlass.signals import Signal
from windlass.testing.fates import Fate, Fates
from windlass.testing.invoking import Invoke
from windlass.testing.store import TestStore, at_once
from windlass.testing.times import as_datetime
from windlass.worker.conclude import Concluder, unknown
from windlass.worker.executor import Executor, Performer
from windlass.worker.failure import RunTimedOut
from windlass.worker.local_leases import LocalLeases, Ticket
from windlass.worker.run import Run
from windlass.worker.strikes import Strikes
from windlass.worker.table import Table, table_path

__tracebackhide__ = True  # a test that fails is shown without these frames


def all_queues(app: Windlass) -> tuple[str, ...]:
    """The queues of an app in all of its namespaces, which share the store of a test."""
    return tuple(queue for place in app.namespaces.values() for queue in place.queues)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job: JobId
    task: str
    attempt: int
    max_attempts: int
    at: datetime
    outcome: str
    """`done`, `retry`, `snooze`, `dead`, `cancelled`, `hold` or `release`; `crash` or `lost` where the test
    asked for it.
    """
    state: State | None
    """What the job is in now."""
    delay: float | None = None
    """Seconds until it is run again; None: at once, or never."""
    result: object = None
    """What the code returned."""
    exception: BaseException | None = None
    """What the code raised."""
    why: str = ""
    """Why it was held, where it was."""

    @property
    def failed(self) -> bool:
        """True if the code raised an error. `Retry`, `Snooze`, `GiveUp` and `Cancelled` do not count as
        errors.
        """
        said = self.exception is None or isinstance(self.exception, Signal)
        return not said and self.outcome in ("retry", "dead")


class SteadyPace(MachinePace):
    """The machine's clock, because timeouts of tasks are real; and a jitter that is always the same."""

    def __init__(self, jitter: float) -> None:
        self._jitter = jitter

    def jitter(self) -> float:
        """The same each time."""
        return self._jitter


class _Reporter:
    """What a run says of itself goes to the store at once."""

    def __init__(self, store: TestStore) -> None:
        self._store = store

    def note(self, note: Note) -> None:
        at_once(self._store.annotate([note]))

    def confirm(self, note: Note) -> Future[Verdict]:
        answer: Future[Verdict] = Future()
        answer.set_result(at_once(self._store.annotate([note]))[0])
        return answer


class _Session:
    """One boot of the worker."""

    def __init__(self) -> None:
        self.id: SessionId = uuid.uuid4().hex
        self.seq = 0


class TestWorker:
    """Runs the jobs of an app, one at a time, under a session that the test can let die."""

    __test__ = False

    def __init__(
        self, app: Windlass, store: TestStore, clock: ManualClock, invoke: Invoke, *, jitter: float
    ) -> None:
        self._app = app
        self._store = store
        self._clock = clock
        self._invoke = invoke
        self._table = Table.create(table_path(uuid.uuid4().hex), capacity=1)
        self._table.path.unlink()  # nobody else opens it, and so it cannot be left behind
        self._pace = SteadyPace(jitter)
        self._conclude = Concluder(self._pace)
        self._performer = Performer(self._conclude)
        self._listeners = run_listeners()
        self._executor = Executor(
            LocalLeases(self._table, [1]),
            _Reporter(store),
            self._pace,
            ended=lambda _ended: None,  # this worker settles by itself
            is_lost=lambda: False,
            program=app,
        )
        self._strikes = Strikes()
        self._draw = 0
        self._session = self._opened()
        self._alone: _Session | None = None
        self.next_in: int | None = None
        """When the store last said that something could become claimable."""
        self.fates = Fates()

    def close(self) -> None:
        """Let go of the table."""
        self._table.close()

    @contextlib.contextmanager
    def calling(self, invoke: Invoke) -> Generator[None]:
        """Call tasks in another way for a while."""
        before, self._invoke = self._invoke, invoke
        try:
            yield
        finally:
            self._invoke = before

    # --- sessions -------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Stay alive, except for sessions that were lost."""
        mine = [one for one in (self._session, self._alone) if one is not None]
        pulses = at_once(self._store.beat([Beat(session=one.id) for one in mine]))
        if not pulses[0].alive:
            self._session = self._opened()
        if self._alone is not None and not pulses[-1].alive:
            self._alone = None

    @property
    def sessions(self) -> set[SessionId]:
        """Those that are beating."""
        return {one.id for one in (self._session, self._alone) if one is not None}

    def _opened(self) -> _Session:
        session = _Session()
        info = SessionInfo(
            host="test",
            pid=os.getpid(),
            app=self._app.name,
            queues=all_queues(self._app),
            slots=1,
            ttl=self._app.config.session_ttl,
        )
        at_once(self._store.beat([Beat(session=session.id, open=info)]))
        return session

    def _replaced(self, session: _Session) -> None:
        """Go on under another one."""
        if session is self._alone:
            self._alone = None
        else:
            self._session = self._opened()

    # --- claiming -------------------------------------------------------------------------------------------

    async def next(self) -> Ran | None:
        """Run the next job; None: there is none to be had now."""
        self.next_in = None
        for queues in _chunks(all_queues(self._app)):
            claimed = await self._claim(self._session, queues)
            session = self._session
            if not claimed.leases and claimed.suspects:
                session = self._alone = self._alone or self._opened()
                claimed = await self._claim(session, queues, alone=True)
            if claimed.leases:
                return await self._run(session, claimed.leases[0])
        return None

    async def _claim(self, session: _Session, queues: tuple[str, ...], *, alone: bool = False) -> Claimed:
        session.seq += 1
        claimed = await self._store.claim(
            Ask(
                queues=queues,
                slots=1,
                limit=1,
                session=session.id,
                seq=session.seq,
                alone=alone,
                draw=self._draw,
            )
        )
        self._draw = next_draw(self._draw, len(claimed.leases))
        if claimed.next_in is not None:
            self.next_in = min(claimed.next_in, claimed.next_in if self.next_in is None else self.next_in)
        return claimed

    # --- running --------------------------------------------------------------------------------------------

    async def _run(self, session: _Session, lease: Lease) -> Ran:
        task = self._app.runnable.get(lease.task)
        if task is None:
            return await self._settled(lease, unknown(lease), None)
        await self._strikes.read(self._store)
        if (held := self._strikes.hold(lease)) is not None:
            return await self._settled(lease, held, None)
        ticket = Ticket(lease, task, 0, 0, self._pace.now())
        if (refused := self._executor.refuse(ticket)) is not None:
            return await self._settled(lease, refused, None)
        self._table.file(0, lease.job, lease.fence)
        run = self._executor.start(ticket)
        assert run is not None  # no supervisor takes it back
        try:
            fate = self.fates.of(lease)
            if fate is not None and fate.what == "cancel":
                await self._store.cancel([Target(lease.job)])
                run.cancelled, fate = True, None
            if fate is not None and not fate.after_run:
                return await self._struck(session, lease, fate)
            settlement, value, error = await self._execute(ticket, run)
            if fate is not None:
                return await self._struck(session, lease, fate, value, error)
            return await self._settled(lease, settlement, run, ticket, value, error)
        finally:
            self._table.clear(0)

    async def _execute(self, ticket: Ticket, run: Run) -> tuple[Settlement, object, BaseException | None]:
        """The steps between start and settle. Listeners are around them, as in a worker: what one of them
        keeps for a run, such as Sentry's breadcrumbs, must not get into the next.
        """
        at_end = run_starts(self._listeners, run.lease, run.clean)
        performed = await self._perform(ticket, run)
        run_ends(at_end, run.lease, performed[0])
        return performed

    async def _perform(self, ticket: Ticket, run: Run) -> tuple[Settlement, object, BaseException | None]:
        read = self._performer.read(run, ticket.task)
        if isinstance(read, Settlement):
            return read, None, None
        value, error = await self._invoke(run, ticket.task, read)
        if error is None:
            settlement = self._conclude.returned(run, ticket.task, value)
            if settlement.error is not None:
                error = InvalidPayload(settlement.error.message)
        else:
            settlement = _rounded(self._conclude.raised(run, ticket.task, error))
            if run.timed_out and settlement.error is not None:
                error = RunTimedOut(settlement.error.message)
        return settlement, value, error

    async def _settled(
        self,
        lease: Lease,
        settlement: Settlement,
        run: Run | None,
        ticket: Ticket | None = None,
        value: object = None,
        error: BaseException | None = None,
    ) -> Ran:
        answer = (await self._store.settle([settlement])).answers[0]
        if answer.verdict is Verdict.REFUSED and run is not None and ticket is not None:
            error = EnqueueRefused(f"what the run spawned was refused: {answer.why}")
            settlement = self._conclude.refused(run, ticket.task, answer.why)
            await self._store.settle([settlement])
        return self._ran(
            lease,
            outcome=str(settlement.outcome),
            value=value,
            error=error,
            why=_why(settlement),
        )

    async def _struck(
        self,
        session: _Session,
        lease: Lease,
        fate: Fate,
        value: object = None,
        error: BaseException | None = None,
    ) -> Ran:
        """Let the worker die: seen by its supervisor, or by nobody."""
        if fate.what == "crash":
            started = [(lease.job, lease.fence)]
            await self._store.end_session(session.id, Cause(CauseKind.CRASH, "killed by the test"), started)
        self._replaced(session)
        return self._ran(lease, outcome=fate.what, value=value, error=error)

    def _ran(
        self, lease: Lease, *, outcome: str, value: object, error: BaseException | None, why: str = ""
    ) -> Ran:
        now = self._clock.now()
        found = at_once(self._store.get([lease.job]))[0]
        state = None if found is None else found.state
        due_at = now if found is None or state is not State.SCHEDULED else found.due_at
        return Ran(
            job=lease.job,
            task=lease.task,
            attempt=lease.attempt,
            max_attempts=lease.max_attempts,
            at=as_datetime(now),
            outcome="dead" if state is State.DEAD and outcome == "retry" else outcome,
            state=state,
            delay=(due_at - now) / SECOND if due_at > now else None,
            result=value,
            exception=error,
            why=why,
        )


def _rounded(settlement: Settlement) -> Settlement:
    """A draw lies below 1, so that the longest wait is a microsecond short of what the policy says."""
    return msgspec.structs.replace(settlement, delay=round(settlement.delay, -1))


def _why(settlement: Settlement) -> str:
    """What a run said instead of failing."""
    return "" if settlement.hold is None else settlement.hold.reason


def _chunks(queues: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for at in range(0, len(queues), ASK_QUEUES):
        yield queues[at : at + ASK_QUEUES]
