"""The ground that every rule stands on: brokers, clock, ledger, and what is checked after each step."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import chain, islice
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from windlass.broker.contract import Broker
from windlass.clock import ManualClock
from windlass.conformance.harness import OpenBroker
from windlass.conformance.machine import compare, draws, invariants
from windlass.conformance.machine.ledger.enqueue import enqueued
from windlass.conformance.machine.ledger.lease import claimed, settled
from windlass.conformance.machine.ledger.records import Ledger
from windlass.conformance.machine.ledger.session import beaten, ended, swept
from windlass.conformance.machine.snapshot import Snapshot, read_everything
from windlass.conformance.machine.universe import (
    APPS,
    QUEUES,
    SCHEDULES,
    STRANGER,
    Want,
    Wish,
    Word,
    job_id,
    job_number,
    session_id,
)
from windlass.conformance.machine.violated import Differs, require
from windlass.core.job import NewJob, Receipt
from windlass.core.lease import Ask, Claimed, Lease
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.session import Beat, SessionInfo, Swept
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.timetable import NewSchedule
from windlass.core.units import HOUR, SECOND, JobId, Micros
from windlass.errors import ContractError

_T = TypeVar("_T")
MANY = 30
"""Jobs, as bulk calls go: all of them are read after each step."""


class Machine(RuleBasedStateMachine):
    """One broker that is checked, or several that are compared as well; the first is the model."""

    opens: ClassVar[tuple[OpenBroker, ...]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.numbers: list[int] = []
        """The jobs that were ever enqueued, or tried to."""
        self.sessions: list[int] = []
        self._runner = asyncio.Runner()
        self._brokers: list[Broker] = []
        self._ledger: Ledger | None = None
        self._read: list[Snapshot] = []
        self._verbs: set[str] = set()
        self._calls = 0

    @property
    def ledger(self) -> Ledger:
        """What was accepted, given out and said."""
        assert self._ledger is not None
        return self._ledger

    @property
    def compared(self) -> bool:
        """Whether there is more than one broker."""
        return len(self._brokers) > 1

    @initialize(
        world=draws.worlds,
        backlog=draws.backlogs,
        taken=st.sampled_from((0, 5, 8)),
        done=st.frozensets(st.integers(0, 7), max_size=4),
    )
    def open(
        self,
        world: draws.World,
        backlog: tuple[Wish, ...],
        taken: int = 0,
        done: frozenset[int] = frozenset(),
    ) -> None:
        """Open every broker; declare queues and a schedule, open two sessions, enqueue jobs. One session
        takes some of them and is `done` with the nth of these, from 0.
        """
        options = world.options()
        self._brokers = [self.run(_opened(broker(self.clock, options))) for broker in self.opens]
        self._read = [Snapshot() for _ in self._brokers]
        self._ledger = Ledger(self.clock, options)
        queues = dict(zip(QUEUES, (world.plain, world.laned, world.ordered), strict=True))
        self.declare([(Subject(Kind.QUEUE, name), QueueSettings(**said)) for name, said in queues.items()])
        self.declare(
            [(Subject(Kind.LANE, "laned", lane), LaneSettings(**said)) for lane, said in world.lanes.items()]
        )
        # Before the first pass the liveness clock has nothing to count from.
        self.sweep(1_000)
        self.beat([1], ttl=30 * SECOND)
        self.beat([2], ttl=2 * SECOND)
        schedule = NewSchedule(name=SCHEDULES[0], spec=b"x", next_at=self.clock.now(), app=APPS[0])
        self.on("declare_schedule", lambda broker: broker.declare_schedule(schedule))
        self.enqueue([[wish] for wish in backlog])
        if taken:
            leases = self.claim(self.next_ask(1, Want(slots=taken))).leases
            self.finish([lease for nth, lease in enumerate(leases) if nth in done])

    @invariant()
    def everything_holds(self) -> None:
        """Read everything and check it."""
        if not self._brokers:
            return
        jobs = [job_id(number) for number in (*self.numbers, STRANGER)]
        self._read = [
            self.run(read_everything(broker, jobs, last.cursor))
            for broker, last in zip(self._brokers, self._read, strict=True)
        ]
        for other in self._read[1:]:
            compare.snapshots(self._read[0], other)
        invariants.check(self.ledger, self._read[0], self._verbs)
        self._verbs.clear()
        self.ledger.begin_step()

    def teardown(self) -> None:
        """After a run without a failure: heal everything, and what was accepted must come to its end."""
        try:
            if sys.exc_info()[0] is None and self._brokers:
                self._drain()
        finally:
            for broker in self._brokers:
                self.run(broker.close())
            self._runner.close()

    # calling

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on this machine's loop; `Runner.run` installs signal handlers for every call."""
        return self._runner.get_loop().run_until_complete(coroutine)

    def on(self, verb: str, call: Callable[[Broker], Awaitable[_T]]) -> _T:
        """Call a verb of every broker, compare the answers and return the first."""
        self._verbs.add(verb)
        return self._compared(verb, [self._answer(call, broker) for broker in self._brokers])

    def to_the_end(self, verb: str, call: Callable[[Broker], Awaitable[_T]]) -> list[_T]:
        """Call a bounded verb: once; compared, until each has done all, since each may divide it."""
        if not self.compared:
            return [self.on(verb, call)]
        self._verbs.add(verb)
        passes = [self.run(_until_done(broker, call)) for broker in self._brokers]
        self._compared(verb, [compare.total(each) for each in passes])
        return passes[0]

    def _answer(self, call: Callable[[Broker], Awaitable[_T]], broker: Broker) -> _T | ContractError:
        try:
            return self.run(_opened(call(broker)))
        except ContractError as error:
            return error

    def _compared(self, verb: str, answers: Sequence[_T | ContractError]) -> _T:
        first = answers[0]
        for other in answers[1:]:
            if isinstance(first, ContractError) != isinstance(other, ContractError):
                raise Differs(f"what {verb} refuses", first, other)
            if not isinstance(first, ContractError):
                compare.answers(verb, first, other)
        if isinstance(first, ContractError):
            raise first
        return first

    # what rules have in common

    def new_jobs(self, wishes: Iterable[Wish]) -> tuple[NewJob, ...]:
        """The jobs of one call; their numbers are known from now on."""
        self._calls += 1
        jobs: list[NewJob] = []
        for nth, wish in enumerate(wishes):
            if wish.job not in self.numbers:
                self.numbers.append(wish.job)
            jobs.append(wish.new_job(self.clock.now(), self._calls, nth))
        return tuple(jobs)

    def enqueue(self, groups: Sequence[Sequence[Wish]], *, blocking: bool = False) -> None:
        """Enqueue groups; `blocking` by the other face of a store that has one."""
        of_all = iter(self.new_jobs(chain.from_iterable(groups)))
        jobs = [list(islice(of_all, len(group))) for group in groups]
        call = _enqueue_blocking if blocking else _enqueue
        enqueued(self.ledger, jobs, self.on("enqueue", lambda broker: call(broker, jobs)))

    def declare(
        self,
        said: Sequence[tuple[Subject, QueueSettings | LaneSettings | bytes]],
        app: str = APPS[0],
        revision: int = 0,
    ) -> None:
        """Declare documents."""
        declarations = [Declaration(subject=s, body=body, app=app, revision=revision) for s, body in said]
        answers = self.on("declare", lambda broker: broker.declare(declarations))
        require("each declaration is answered", len(answers) == len(declarations), answers)
        for declaration, changed in zip(declarations, answers, strict=True):
            if self.ledger.settings.declared(declaration, changed):
                self.restated(declaration.subject)

    def restated(self, subject: Subject) -> None:
        """Settings changed: jobs that are filed keep their place, which need not be that of a new one."""
        if subject.kind in (Kind.QUEUE, Kind.LANE):
            self.ledger.restated.add(subject.name)
            for entry in self.ledger.entries.values():
                entry.pristine = entry.pristine and entry.job.queue != subject.name

    def beat(self, numbers: Sequence[int], ttl: Micros | None = None) -> None:
        """Beat; with a TTL, open."""
        info = None if ttl is None else SessionInfo(ttl=ttl, queues=QUEUES, host="here", slots=3)
        beats = [Beat(session=session_id(number), open=info, memory=number) for number in numbers]
        for number in numbers if info else ():
            if number not in self.sessions:
                self.sessions.append(number)
        beaten(self.ledger, beats, self.on("beat", lambda broker: broker.beat(beats)))

    def next_ask(self, session: int, want: Want, *, later: int = 1) -> Ask:
        """The next ask of a session; `later` less than 1 asks again."""
        seat = self.ledger.seats.get(session_id(session))
        seq = max(1, (0 if seat is None else seat.seq) + later)
        return ask_for(want, session=session_id(session), seq=seq)

    def claim(self, ask: Ask) -> Claimed:
        """Claim."""
        answer = self.on("claim", lambda broker: broker.claim(ask))
        claimed(self.ledger, ask, answer)
        return answer

    def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> None:
        """Settle, and claim in the same step."""
        verb = "settle" if ask is None else "settle and claim"
        answer = self.on(verb, lambda broker: broker.settle(items, ask))
        settled(self.ledger, items, answer.answers)
        require("an ask is answered if there is one", (answer.claimed is None) == (ask is None), answer)
        if ask is not None and answer.claimed is not None:
            claimed(self.ledger, ask, answer.claimed)

    def finish(self, leases: Iterable[Lease]) -> None:
        """Settle leases: they are done."""
        self.settle([Settlement(job=each.job, fence=each.fence, outcome=Outcome.DONE) for each in leases])

    def sweep(self, limit: int, every: Micros = 0, *, keep_dead: bool = False) -> list[Swept]:
        """Sweep."""
        passes = self.to_the_end(
            "sweep", lambda broker: broker.sweep(limit=limit, every=every, keep_dead=keep_dead)
        )
        for each in passes:
            swept(self.ledger, every, each)
        return passes

    def end(self, session: int, kind: CauseKind, started: Sequence[Word] = ()) -> None:
        """End a session."""
        cause = Cause(kind, "for a test")
        had_started = [(job_id(word.job), self.fence(word)) for word in started]
        answer = self.on(
            "end_session", lambda broker: broker.end_session(session_id(session), cause, had_started)
        )
        ended(self.ledger, session_id(session), cause, had_started, answer)

    # what there is

    def alive(self, session: int) -> bool:
        """Whether a session is open."""
        seat = self.ledger.seats.get(session_id(session))
        return seat is not None and seat.alive

    def holds_its_reply(self, session: int) -> bool:
        """Whether something of a session's last reply is still held."""
        seat = self.ledger.seats.get(session_id(session))
        return seat is not None and any(lent.outcome is None for lent in seat.reply)

    def busiest(self) -> int:
        """The open session with the most leases; if none is open, one that never was."""
        alive = [number for number in self.sessions if self.alive(number)]
        return max(alive, key=lambda number: len(self.ledger.held_by(session_id(number))), default=STRANGER)

    def words(self) -> list[Word]:
        """Every delivery ever made."""
        made = self.ledger.fences.items()
        return [Word(job_number(job), 1 + nth) for job, fences in made for nth in range(len(fences))]

    def live_words(self) -> list[Word]:
        """The deliveries that are live."""
        return [self.word(lent.job) for lent in self.ledger.live()]

    def word(self, job: JobId) -> Word:
        """The last delivery of a job."""
        return Word(job_number(job), len(self.ledger.fences[job]))

    def fence(self, word: Word) -> int:
        """The fence of a delivery; of one that was never made, a small number."""
        fences = self.ledger.fences.get(job_id(word.job), [])
        return fences[word.delivery - 1] if 1 <= word.delivery <= len(fences) else 1

    # the end

    def _drain(self) -> None:
        """Nothing is left waiting without a reason: with everything healed, the backlog drains."""
        for session in self.sessions:
            self.end(session, CauseKind.STOP)
        for queue, lane in list(self.ledger.settings.paused):
            self.on("resume", lambda broker, q=queue, at=lane: broker.resume(q, at))
        self.ledger.settings.paused.clear()
        fresh = max(self.sessions) + 1
        self.beat([fresh], ttl=30 * SECOND)
        self.everything_holds()
        for _ in range(10 + len(self.numbers)):
            self.clock.advance(2 * HOUR)
            self.beat([fresh])
            while self.sweep(1_000)[-1].more:
                pass
            while self._run_everything(fresh):
                pass
            self.everything_holds()
            if not self._left():
                return
        require("with everything healed, the backlog drains", not self._left(), self._left())

    def _run_everything(self, session: int) -> bool:
        for alone in (False, True):
            ask = self.next_ask(session, Want(slots=100, alone=alone, max_bytes=1_000_000))
            leases = self.claim(ask).leases
            if leases:
                self.finish(leases[::2])
                self.finish(leases[1::2])
                return True
        return False

    def _left(self) -> list[object]:
        """What is unfinished, except for what waits for a dead letter to be replayed or discarded."""
        views = [view for view in self.ledger.last.jobs.values() if view is not None]
        stuck = {view.id for view in views if view.state is State.DEAD}
        while True:
            more = {
                view.id
                for view in views
                if view.state is State.BLOCKED and any(edge.parent in stuck for edge in view.after)
            } - stuck
            if not more:
                break
            stuck |= more
        unfinished = (State.BLOCKED, State.SCHEDULED, State.READY, State.RUNNING)
        return [view for view in views if view.state in unfinished and view.id not in stuck]


def ask_for(want: Want, **who: Any) -> Ask:
    return Ask(
        queues=want.queues,
        slots=want.slots,
        limit=want.slots + want.prefetch,
        soon=want.slots + min(want.soon, want.prefetch) if want.soon else 0,
        alone=want.alone,
        max_bytes=want.max_bytes,
        draw=want.draw,
        **who,
    )


async def _opened(awaitable: Awaitable[_T]) -> _T:
    return await awaitable


async def _enqueue(broker: Broker, jobs: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
    return await broker.enqueue(jobs)


async def _enqueue_blocking(broker: Broker, jobs: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
    return await broker.enqueue(jobs) if broker.blocking is None else broker.blocking.enqueue(jobs)


async def _until_done(broker: Broker, call: Callable[[Broker], Awaitable[_T]]) -> list[_T]:
    answers = [await call(broker)]
    while getattr(answers[-1], "more", False):
        answers.append(await call(broker))
    return answers
