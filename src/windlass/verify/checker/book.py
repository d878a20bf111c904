"""A history sorted by job and by session: what the invariants look at. One pass, compact records."""

# The table of handlers at the end is part of the class in all but its place.
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from windlass.verify import history as h
from windlass.verify.checker.records import FAR, JobBook, Lease, Operation, Run, Sending, SessionBook, Word

UNDER_WAY = 100_000
"""How long before a store's setback an event may have been written that tells of what was lost."""


class Book:
    """A whole history."""

    def __init__(self) -> None:
        self.jobs: defaultdict[str, JobBook] = defaultdict(JobBook)
        self.sessions: defaultdict[str, SessionBook] = defaultdict(SessionBook)
        self.limits: list[h.Limits] = []
        self.fires: list[h.Fired] = []
        self.rules: dict[str, h.Rule] = {}
        self.ticks: dict[tuple[str, int], h.Fire] = {}
        """Fires that may have happened, by who asked and its call."""
        self.gathered: list[h.Gathered] = []
        self.sweeps: dict[tuple[str, int], tuple[int, int]] = {}
        """Passes that may have happened: when they were asked for, and answered."""
        self.crowded: list[int] = []
        """When an asker was told that there was more to run than it had room for, in order."""
        self.outages: list[tuple[int, int]] = []
        self.rollbacks: list[tuple[int, int]] = []
        """Times of which the store has lost the writes: from, to."""
        self.faults: Counter[str] = Counter()
        self.phases: dict[str, int] = {}
        self.sendings: dict[tuple[str, int], Sending] = {}
        """By producer and call."""
        self.deaths: dict[str, int] = {}
        """When processes ended, by their names."""
        self.finished: h.Finished | None = None
        self.paused: list[tuple[int, int, str, str | None]] = []
        self.shift: int | None = None
        """What the machine's clock is ahead of the store's, as the quickest claim tells; None: no claim."""
        self.events = 0
        self.last = 0
        self._calls: dict[tuple[str, int], Any] = {}
        self._open_faults: dict[tuple[str, int], tuple[str, int]] = {}
        self._open_pauses: dict[tuple[str, str | None], int] = {}
        self._resumes: list[tuple[int, int, int, str, str | None]] = []
        """Pauses that were ended: since when, when that was said and answered, where."""
        self._setbacks: dict[tuple[str, int], int] = {}

    def lost(self, since: int, until: int) -> bool:
        """Whether the store may have forgotten a call that was under way, or a state that held, then."""
        return any(since <= end and until >= begin for begin, end in self.rollbacks)

    def blurred(self, job: JobBook, fence: int) -> bool:
        """Whether the store was set back while this lease lived: its end may be another than was heard."""
        return bool(self.rollbacks) and self.lost(*job.life_of(fence))

    def reborn(self, job: JobBook) -> bool:
        """Whether its id may have been used again after the store had forgotten it."""
        return job.calls - job.refused > 1

    def away(self, since: int, until: int) -> int:
        """How much of a time the store was away, as far as faults say so."""
        return sum(max(0, min(until, end) - max(since, begin)) for begin, end in self.outages)

    def conclude(self) -> None:
        """The history is complete."""
        for session in self.sessions.values():
            session.conclude(self.lost)
        for since, said, answered, queue, lane in self._resumes:
            place = (since, queue, lane)
            later = any((each[0], *each[3:]) == place and each[1] > said for each in self._resumes)
            forgotten = self.lost(said, answered)
            if not (forgotten and later):
                self.paused.append((since, FAR if forgotten else answered, queue, lane))
        for (queue, lane), since in self._open_pauses.items():
            self.paused.append((since, FAR, queue, lane))

        self.shift = min((gap for name in self.jobs for gap in self._gaps(name)), default=None)

    def _gaps(self, name: str) -> Iterator[int]:
        """From the claims of a job, on the store's clock, to when their answers were heard."""
        job = self.jobs[name]
        heard = {lease.fence: lease.heard for lease in job.leases}
        for each in job.final.deliveries if job.final is not None else ():
            if each.fence in heard:
                yield heard[each.fence] - each.claimed_at

    # --- reading --------------------------------------------------------------------------------------------

    def take(self, line: h.Line) -> None:
        """Sort one event in."""
        event = line.event
        self.events += 1
        self.last = max(self.last, event.at)
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event, line.source.name)

    def _enqueue(self, event: h.Enqueue, source: str) -> None:
        self._calls[source, event.call] = event
        self.sendings[source, event.call] = Sending(source, event.at)
        for asked in event.jobs:
            job = self.jobs[asked.job]
            job.calls += 1
            if job.asked is None:
                job.asked, job.asked_at = asked, event.at
            job.due = min(job.due, event.at + asked.delay)

    def _enqueued(self, event: h.Enqueued, source: str) -> None:
        self._calls.pop((source, event.call), None)
        self._sent(event, source, answered=True)
        for receipt in event.receipts:
            job = self.jobs[receipt.job]
            if receipt.status == "created" or (receipt.status == "duplicate" and receipt.of == receipt.job):
                # A duplicate of itself is a resend whose first try had arrived.
                job.created += 1
                job.accepted = min(job.accepted, event.at)
            elif receipt.status == "refused":
                job.refused += 1
            else:
                job.absorbed = True

    def _failed(self, event: h.Fail, source: str) -> None:
        call = self._calls.pop((source, event.call), None)
        self._sent(event, source, answered=True)
        if isinstance(call, h.Enqueue):
            for asked in call.jobs:
                self.jobs[asked.job].refused += 1
        elif isinstance(call, list):
            for word in cast("list[Word]", call):
                word.failed = True
        elif isinstance(call, h.Sweep):
            del self.sweeps[source, event.call]
        elif isinstance(call, h.Fire):
            del self.ticks[source, event.call]
            for name in call.jobs:
                self.jobs[name].fired = False

    def _unknown(self, event: h.Info, source: str) -> None:
        self._calls.pop((source, event.call), None)
        self._sent(event, source, answered=False)

    def _sent(self, event: h.Enqueued | h.Fail | h.Info, source: str, *, answered: bool) -> None:
        sending = self.sendings.get((source, event.call))
        if sending is not None:
            sending.ended, sending.answered = event.at, answered

    def _start(self, event: h.Start, source: str) -> None:
        job = self.jobs[event.job]
        job.fired = job.fired or event.schedule is not None
        job.runs.append(Run(event.fence, event.attempt, event.session, event.at, source))

    def _end(self, event: h.End, _source: str) -> None:
        for run in reversed(self.jobs[event.job].runs):
            if run.fence == event.fence:
                run.end, run.how = event.at, event.how
                return

    def _claim(self, event: h.Claim, source: str) -> None:
        self._calls[source, event.call] = event

    def _claimed(self, event: h.Claimed, source: str) -> None:
        claim = self._calls.pop((source, event.call), None)
        asked = claim.at if isinstance(claim, h.Claim) else event.at
        if event.more:
            self.crowded.append(event.at)
        for one in event.leases:
            job = self.jobs[one.job]
            lease = Lease(one.fence, event.session, event.number, asked, event.at, one.attempt)
            lease.visibility = claim.visibility if isinstance(claim, h.Claim) else 0
            job.leases.append(lease)

    def _settle(self, event: h.Settle, source: str) -> None:
        words: list[Word] = []
        for said in event.words:
            word = Word(said.job, said.fence, said.outcome, said.delay, said.ran, event.at)
            words.append(word)
            job = self.jobs[said.job]
            job.words.append(word)
            for child in said.spawn:
                self.jobs[child].spawned_by.append(word)
        self._calls[source, event.call] = words

    def _annotate(self, event: h.Annotate, source: str) -> None:
        more = event.extend
        words = [Word(job, fence, "note", more, ran=True, said=event.at) for job, fence in event.notes]
        for word in words:
            self.jobs[word.job].notes.append(word)
        self._calls[source, event.call] = words

    def _judged(self, event: h.Settled | h.Annotated, source: str) -> None:
        words: list[Word] = self._calls.pop((source, event.call), None) or []
        for word, answer in zip(words, event.answers, strict=True):
            word.answered, word.verdict = event.at, answer.verdict
            word.stands, word.state = answer.outcome or "", answer.state or ""

    def _beat(self, event: h.Beat, source: str) -> None:
        self._calls[source, event.call] = event
        for session in event.opens:
            book = self.sessions[session]
            book.opened, book.ttl = min(book.opened, event.at), event.ttl
            book.heart = source

    def _beaten(self, event: h.Beaten, source: str) -> None:
        beat = self._calls.pop((source, event.call), None)
        if isinstance(beat, h.Beat):
            for session in beat.sessions:
                if session not in event.lost:
                    self.sessions[session].beats.append(beat.at)
                    self.sessions[session].answers.append(event.at)

    def _end_session(self, event: h.EndSession, source: str) -> None:
        self._calls[source, event.call] = event
        book = self.sessions[event.session]
        book.ended.append((event.cause, event.at, FAR))
        book.started |= set(event.started)

    def _session_ended(self, event: h.SessionEnded, source: str) -> None:
        said = self._calls.pop((source, event.call), None)
        if isinstance(said, h.EndSession):
            self.sessions[event.session].ended.append((said.cause, said.at, event.at))

    def _sweep(self, event: h.Sweep, source: str) -> None:
        self._calls[source, event.call] = event
        self.sweeps[source, event.call] = (event.at, FAR)

    def _swept(self, event: h.Swept, source: str) -> None:
        sweep = self._calls.pop((source, event.call), None)
        asked = sweep.at if isinstance(sweep, h.Sweep) else event.at
        self.sweeps[source, event.call] = (asked, event.at)
        for session in event.reaped:
            self.sessions[session].reapings.append((asked, event.at))

    def _fire(self, event: h.Fire, source: str) -> None:
        self._calls[source, event.call] = event
        self.ticks[source, event.call] = event
        for name in event.jobs:
            job = self.jobs[name]
            job.fired, job.asked_at = True, min(job.asked_at, event.at)

    def _fired(self, event: h.Fired, source: str) -> None:
        call = self._calls.pop((source, event.call), None)
        self.fires.append(event)
        if isinstance(call, h.Fire):
            for name in call.jobs:
                self.jobs[name].fired = False
        for name in event.jobs:
            job = self.jobs[name]
            job.fired = True
            if event.asked:
                job.asked_at = min(job.asked_at, event.asked)
                job.created, job.accepted = job.created + 1, min(job.accepted, event.at)

    def _rule(self, event: h.Rule, _source: str) -> None:
        self.rules[event.schedule] = event

    def _gathered(self, event: h.Gathered, _source: str) -> None:
        self.gathered.append(event)

    def _operate(self, event: h.Operate, source: str) -> None:
        done = [Operation(event.verb, event.at) for _ in event.jobs]
        for job, operation in zip(event.jobs, done, strict=True):
            self.jobs[job].operations.append(operation)
        self._calls[source, event.call] = ("operate", event, done)
        if event.verb == "pause":
            self._open_pauses.setdefault((event.queue, event.lane), event.at)

    def _operated(self, event: h.Operated, source: str) -> None:
        kept = self._calls.pop((source, event.call), None)
        if kept is None:
            return
        _, asked, done = kept
        for operation, answer in zip(done, event.answers, strict=False):
            operation.answer, operation.answered = answer, event.at
        if asked.verb == "resume":
            self._resumed(asked, event.at)

    def _resumed(self, asked: h.Operate, answered: int) -> None:
        """A pause has ended; if the store may have forgotten that, it ends with the next word."""
        place = (asked.queue, asked.lane)
        since = self._open_pauses.pop(place, None)
        if since is None:
            forgotten = [
                begin
                for begin, said, end, queue, lane in self._resumes
                if (queue, lane) == place and self.lost(said, end)
            ]
            since = forgotten[-1] if forgotten else None
        if since is not None:
            self._resumes.append((since, asked.at, answered, *place))

    def _limits(self, event: h.Limits, _source: str) -> None:
        self.limits.append(event)

    def _phase(self, event: h.Phase, _source: str) -> None:
        self.phases[event.name] = event.at

    def _nemesis(self, event: h.Nemesis, source: str) -> None:
        if event.action == "begin":
            self.faults[event.kind] += 1
            self._open_faults[source, event.number] = (event.kind, event.at)
            lost = event.details.get("lost_seconds")
            if lost is not None:
                self._setbacks[source, event.number] = len(self.rollbacks)
                self.rollbacks.append((event.at - round(float(lost) * 1e6) - UNDER_WAY, event.at))
            return
        setback = self._setbacks.get((source, event.number))
        if setback is not None:  # what was answered until the older copy was in its place is lost as well
            self.rollbacks[setback] = (self.rollbacks[setback][0], event.at)
        kind, since = self._open_faults.pop((source, event.number), (event.kind, event.at))
        if (
            "store" in kind
            or "messages" in kind
            or "freeze" in kind
            or " cut" in kind
            or event.details.get("outage")
        ):
            self.outages.append((since, event.at))

    def _process(self, event: h.Process, _source: str) -> None:
        if event.action == "ended":
            self.deaths[event.name] = event.at
        if event.action == "ended" and event.session:
            book = self.sessions[event.session]
            book.died = min(book.died, event.at)
            book.crashed = event.code not in (None, 0, -9)

    def _final(self, event: h.Final, _source: str) -> None:
        self.jobs[event.job].final = event

    def _finished(self, event: h.Finished, _source: str) -> None:
        self.finished = event


_Handler = Callable[[Book, Any, str], None]
_HANDLERS: dict[type, _Handler] = {
    h.Enqueue: Book._enqueue,
    h.Enqueued: Book._enqueued,
    h.Fail: Book._failed,
    h.Info: Book._unknown,
    h.Start: Book._start,
    h.End: Book._end,
    h.Claim: Book._claim,
    h.Claimed: Book._claimed,
    h.Settle: Book._settle,
    h.Settled: Book._judged,
    h.Annotate: Book._annotate,
    h.Annotated: Book._judged,
    h.Beat: Book._beat,
    h.Beaten: Book._beaten,
    h.EndSession: Book._end_session,
    h.SessionEnded: Book._session_ended,
    h.Sweep: Book._sweep,
    h.Swept: Book._swept,
    h.Fire: Book._fire,
    h.Fired: Book._fired,
    h.Rule: Book._rule,
    h.Gathered: Book._gathered,
    h.Operate: Book._operate,
    h.Operated: Book._operated,
    h.Limits: Book._limits,
    h.Phase: Book._phase,
    h.Nemesis: Book._nemesis,
    h.Process: Book._process,
    h.Final: Book._final,
    h.Finished: Book._finished,
}


def write_up(lines: Iterable[h.Line]) -> Book:
    """Read a history."""
    book = Book()
    for line in lines:
        book.take(line)
    book.conclude()
    return book
