"""Rules for workers: asking, settling, beating, ending; and what time brings about."""

from collections.abc import Awaitable, Callable

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from windlass.broker.contract import Broker
from windlass.conformance.machine import draws
from windlass.conformance.machine.base import MANY, Machine, ask_for
from windlass.conformance.machine.ledger.lease import annotated
from windlass.conformance.machine.universe import (
    FIRST,
    HOLD_KEYS,
    MOMENTS,
    QUEUES,
    STRANGER,
    STRETCHES,
    End,
    Round,
    Want,
    Wish,
    Word,
    job_id,
    session_id,
)
from windlass.conformance.machine.violated import require
from windlass.core.lease import Ask
from windlass.core.outcome import CauseKind, Error, Outcome
from windlass.core.session import Note
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, MILLISECOND, SECOND, Micros
from windlass.errors import ContractError

_sessions = draws.of_machine(draws.sessions)
_words = draws.of_machine(draws.words)
_ends = draws.of_machine(draws.ends)
_visibilities = st.sampled_from((SECOND, 5 * SECOND, HOUR))
_NONSENSE = (
    Ask(queues=QUEUES, slots=1, limit=1),
    Ask(queues=QUEUES, slots=2, limit=1, visibility=SECOND),
    Ask(queues=QUEUES, slots=1, limit=1, session="session-1"),
    Ask(queues=QUEUES, slots=1, limit=1, session="session-1", seq=0),
    Ask(queues=QUEUES, slots=1, limit=1, visibility=SECOND, draw=2**32),
    Ask(queues=QUEUES, slots=1, limit=1, soon=2, visibility=SECOND),
)
_EAGER = Want(slots=100, max_bytes=1_000_000)


class Claim(Machine):
    """Ask for work: anew, again, too late, with or without a session."""

    @rule(session=_sessions, want=draws.wants)
    def claim_some(self, session: int, want: Want) -> None:
        """Ask for session leases."""
        self.claim(self.next_ask(session, want))

    @rule()
    def claim_everything(self) -> None:
        """The busiest session asks for whatever there is."""
        self.claim(self.next_ask(self.busiest(), _EAGER))

    @rule(session=_sessions)
    def claim_a_suspect(self, session: int) -> None:
        """Ask for a job to run alone."""
        self.claim(self.next_ask(session, Want(alone=True)))

    @rule(session=draws.of_machine(draws.askers), later=st.sampled_from((0, 0, -1, 2)))
    def ask_again(self, session: int, later: int) -> None:
        """Repeat the last ask of a session, as after a lost reply; or come with one too old, or too new."""
        seat = self.ledger.seats.get(session_id(session))
        if seat is not None and seat.ask is not None:
            assert seat.ask.seq is not None
            seq = max(1, seat.ask.seq + later)
            self.claim(ask_for(Want(queues=seat.ask.queues), session=session_id(session), seq=seq))

    @rule(want=draws.wants, visibility=_visibilities)
    def claim_until(self, want: Want, visibility: Micros) -> None:
        """Ask for deadline leases."""
        self.claim(ask_for(want, visibility=visibility))

    @rule(session=_sessions, queues=st.sampled_from((QUEUES, *((queue,) for queue in QUEUES))))
    def wait_for_the_next_chance(self, session: int, queues: tuple[str, ...]) -> None:
        """When told to wait, there is nothing to be had until then."""
        want = msgspec.structs.replace(_EAGER, queues=queues)
        answer = self.claim(self.next_ask(session, want))
        if answer.leases or answer.more or not self.alive(session) or answer.next_in == 0:
            return
        self.everything_holds()
        was_behind = self.ledger.time.behind
        self.clock.advance((HOUR if answer.next_in is None else answer.next_in) - 1)
        # A clock that nobody's pass saw step back, near the mark again: the store's time leaps there.
        leapt = was_behind and not self.ledger.time.behind
        early = self.claim(self.next_ask(session, want))
        require("next_in is never late", leapt or not early.leases, answer, early)


class Settle(Claim):
    """Settle, in time or not, once or again, and with an ask."""

    def __init__(self) -> None:
        super().__init__()
        self._last_call: tuple[list[Settlement], Ask | None] | None = None

    @rule(end=_ends)
    def settle_one(self, end: End) -> None:
        """Settle a lease."""
        self._settle([end], None)

    @rule(ends=st.lists(_ends, min_size=2, max_size=3), session=_sessions, want=draws.wants)
    def settle_and_claim(self, ends: list[End], session: int, want: Want) -> None:
        """Settle leases and ask for more in the same step."""
        self._settle(ends, self.next_ask(session, want))

    @rule(
        session=draws.of_machine(draws.askers),
        first=draws.wants,
        rounds=st.lists(draws.rounds, min_size=1, max_size=3),
    )
    def work(self, session: int, first: Want, rounds: list[Round]) -> None:
        """A session is done with some of its jobs, and again; if it has none, it asks first."""
        if not self.ledger.held_by(session_id(session)):
            self.claim(self.next_ask(session, first))
        self._work(session, rounds)

    @precondition(lambda self: len(self.numbers) < MANY)
    @rule(
        wishes=draws.of_machine(draws.alike),
        session=_sessions,
        spared=draws.mostly(1, 0, 3),
        rounds=st.lists(draws.rounds, min_size=1, max_size=2),
    )
    def work_off(self, wishes: tuple[Wish, ...], session: int, spared: int, rounds: list[Round]) -> None:
        """Jobs that are alike come, before all others; a session takes most and is done with some."""
        self.enqueue([[msgspec.structs.replace(wish, priority=FIRST) for wish in wishes]])
        want = Want(queues=(wishes[0].queue,), slots=max(1, len(wishes) - spared))
        self.claim(self.next_ask(session, want))
        self._work(session, rounds)

    def _work(self, session: int, rounds: list[Round]) -> None:
        for each in rounds:
            self.everything_holds()
            held = self.ledger.held_by(session_id(session))
            words = [self.word(lent.job) for nth, lent in enumerate(held) if nth not in each.left]
            ends = [End(word=word, outcome=Outcome.DONE, result=each.result) for word in words]
            if each.odd is not None and ends:
                ends[-1] = End(word=words[-1], outcome=each.odd)
            self._settle(ends, None if each.want is None else self.next_ask(session, each.want))

    @precondition(lambda self: any(True for _ in self.ledger.live()))
    @rule(outcome=draws.outcomes, ran=st.booleans())
    def settle_all(self, outcome: Outcome, *, ran: bool) -> None:
        """Settle whatever runs."""
        self._settle([End(word=word, outcome=outcome, ran=ran) for word in self.live_words()], None)

    @rule(
        session=_sessions,
        slots=st.integers(1, 3),
        outcomes=st.lists(draws.outcomes, min_size=3, max_size=3),
    )
    def run_some(self, session: int, slots: int, outcomes: list[Outcome]) -> None:
        """Claim some jobs and settle them."""
        leases = self.claim(self.next_ask(session, Want(slots=slots))).leases
        words = [self.word(lease.job) for lease in leases]
        self._settle([End(word=word, outcome=end) for word, end in zip(words, outcomes, strict=False)], None)

    @precondition(lambda self: self._last_call is not None)
    @rule(changed=draws.mostly(None, *Outcome))
    def settle_again(self, changed: Outcome | None) -> None:
        """Repeat the last call, as after a lost reply; or change one's mind, too late."""
        assert self._last_call is not None
        items, ask = self._last_call
        if changed is not None:
            hold = HoldKey(HOLD_KEYS[0], "unknown task") if changed is Outcome.HOLD else None
            items = [msgspec.structs.replace(item, outcome=changed, spawn=(), hold=hold) for item in items]
        self.settle(items, ask)

    def _settle(self, ends: list[End], ask: Ask | None) -> None:
        items = [self._settlement(end) for end in ends]
        self._last_call = (items, ask)
        self.settle(items, ask)

    def _settlement(self, end: End) -> Settlement:
        job, fence = job_id(end.word.job), self.fence(end.word)
        failed = end.outcome in (Outcome.RETRY, Outcome.DEAD)
        return Settlement(
            job=job,
            fence=fence,
            outcome=end.outcome,
            delay=end.delay,
            runtime=MILLISECOND if end.ran else None,
            error=Error(type="Failed", message=f"{end.word.job}") if failed else None,
            result=f"{job}/{fence}".encode() if end.outcome is Outcome.DONE and end.result else None,
            hold=HoldKey(end.hold, "unknown task") if end.outcome is Outcome.HOLD else None,
            spawn=self.new_jobs(end.spawn),
        )

    @rule(word=_words, outcome=st.sampled_from([each for each in Outcome if each is not Outcome.DONE]))
    def be_refused(self, word: Word, outcome: Outcome) -> None:
        """Calls without meaning are errors, before anything happens."""
        hold = HoldKey(HOLD_KEYS[0], "unknown task") if outcome is Outcome.HOLD else None
        spawn = (Wish(job=STRANGER).new_job(self.clock.now(), 0),)
        child = Settlement(
            job=job_id(word.job), fence=self.fence(word), outcome=outcome, spawn=spawn, hold=hold
        )
        self._refused("children come only with done", "settle", lambda broker: broker.settle([child]))
        purge = "running jobs are not purged"
        self._refused(purge, "purge", lambda broker: broker.purge(QUEUES[0], State.RUNNING, 1))
        for ask in _NONSENSE:
            self._refused("an ask without meaning is refused", "claim", lambda broker, a=ask: broker.claim(a))

    def _refused(self, invariant: str, verb: str, call: Callable[[Broker], Awaitable[object]]) -> None:
        try:
            answer = self.on(verb, call)
        except ContractError:
            return
        require(invariant, None, answer)


class Annotate(Settle):
    """Notes of running jobs."""

    @rule(
        word=_words,
        extend=st.sampled_from((None, MILLISECOND, HOUR)),
        permille=st.sampled_from((None, 500)),
        memo=st.sampled_from((None, "m", "n")),
    )
    def report(self, word: Word, extend: Micros | None, permille: int | None, memo: str | None) -> None:
        """A running job asks for more time, tells how far it is, writes a log line, keeps a memo."""
        fence = self.fence(word)
        note = Note(
            job=job_id(word.job),
            fence=fence,
            extend=extend,
            permille=permille,
            message="so far",
            logs=(f"line of {fence}",),
            memo=None if memo is None else (memo, f"{memo}{fence}".encode()),
        )
        annotated(self.ledger, [note], self.on("annotate", lambda broker: broker.annotate([note])))


class Live(Annotate):
    """Sessions come and go, and time passes."""

    @rule(ttl=st.sampled_from((2 * SECOND, 30 * SECOND)))
    def open_session(self, ttl: Micros) -> None:
        """A worker starts."""
        assume(sum(map(self.alive, self.sessions)) < 4)
        self.beat([len(self.sessions) + 1], ttl=ttl)

    @rule(sessions=st.lists(_sessions, min_size=1, max_size=3), ttl=draws.mostly(None, 2 * SECOND))
    def beat_some(self, sessions: list[int], ttl: Micros | None) -> None:
        """Signs of life; also by opening again: who lives stays as it is, who ended never returns."""
        self.beat(sessions, ttl)

    @rule(
        session=_sessions,
        kind=st.sampled_from((CauseKind.CRASH, CauseKind.STOP, CauseKind.LOST)),
        started=st.lists(_words, max_size=3),
    )
    def end_session(self, session: int, kind: CauseKind, started: list[Word]) -> None:
        """A session ends; some of the leases that it held, or did not, had started."""
        self.end(session, kind, started)

    @rule(
        kind=st.sampled_from((CauseKind.CRASH, CauseKind.CRASH, CauseKind.LOST, CauseKind.STOP)),
        every=st.sampled_from((1, 2)),
    )
    def crash_and_restart(self, kind: CauseKind, every: int) -> None:
        """The busiest session ends, every (other) job of it started, and its supervisor starts another."""
        self.end(self.busiest(), kind, self.live_words()[::every])
        self.beat([len(self.sessions) + 1], ttl=30 * SECOND)

    @rule(
        limit=st.sampled_from((1, 2, 1_000, 1_000)),
        every=draws.mostly(0, 300 * MILLISECOND),
        keep_dead=st.booleans(),
    )
    def sweep_once(self, limit: int, every: Micros, *, keep_dead: bool) -> None:
        """One pass."""
        self.sweep(limit, every, keep_dead=keep_dead)

    @rule(
        passes=st.sampled_from((4, 1, 2)),
        step=st.sampled_from((SECOND, 10 * SECOND)),
        limit=draws.mostly(1_000, 1),
        beating=_sessions,
    )
    def sweep_for_a_while(self, passes: int, step: Micros, limit: int, beating: int) -> None:
        """Passes on end, with one session that beats."""
        for _ in range(passes):
            self.clock.advance(step)
            self.beat([beating])
            self.sweep(limit)
            self.everything_holds()

    @rule(by=st.sampled_from((*MOMENTS, *MOMENTS, *STRETCHES)))
    def advance(self, by: Micros) -> None:
        """Time passes."""
        self.clock.advance(by)

    @rule(by=st.sampled_from((SECOND, 10 * SECOND, HOUR)))
    def step_back(self, by: Micros) -> None:
        """The clock is set back. A sweep has seen it ahead, as there are four a second: what was decided by a
        time that none has seen, such as a lane's place in its ring, stands until somebody looks at it again.
        """
        self.sweep(1_000)
        self.everything_holds()
        self.clock.advance(-by)
