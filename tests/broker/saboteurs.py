"""Brokers that break a promise on purpose, each one: the state machine must notice every one of them."""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import msgspec

from windlass.broker.contract import Broker, Options
from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.conformance.machine.universe import job_number
from windlass.core.job import Receipt, Status
from windlass.core.operate import Effect, Operated
from windlass.core.outcome import Answer, Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat
from windlass.core.settings import Change
from windlass.core.state import State
from windlass.core.timetable import Fired, FireStatus
from windlass.core.units import SECOND

change = msgspec.structs.replace


class Saboteur:
    """A broker that passes every call on to the model, but for what a subclass breaks."""

    notices: ClassVar[str] = ""
    """What the machine says of it: a regular expression."""
    by_hand: ClassVar[bool] = False
    """Random steps seldom come to what it breaks: a test takes them."""
    blocking = None

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        self.inner = inner
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @classmethod
    def opener(cls) -> Callable[[ManualClock, Options], Awaitable[Broker]]:
        async def opened(clock: ManualClock, options: Options) -> Any:
            return cls(MemoryBroker(clock=clock, options=options), clock)

        return opened


class _ChangesJobs(Saboteur):
    """Changes jobs on their way in, and hides it from who reads them."""

    strips: ClassVar[dict[str, object]] = {}

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        super().__init__(inner, clock)
        self.asked: dict[str, Any] = {}

    async def enqueue(self, groups: Any) -> Any:
        for job in itertools.chain(*groups):
            self.asked.setdefault(job.id, job)
        return await self.inner.enqueue([[change(job, **self.strips) for job in group] for group in groups])


class _ChangesSettings(Saboteur):
    """Declares queues without their limits, and hides it from who reads them."""

    strips: ClassVar[tuple[str, ...]] = ()

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        super().__init__(inner, clock)
        self.said: dict[Any, Any] = {}

    async def declare(self, declarations: Any) -> Any:
        stripped = [change(each, body=self._stripped(each.body)) for each in declarations]
        answers = await self.inner.declare(stripped)
        for each, answer in zip(declarations, answers, strict=True):
            if answer.change is Change.APPLIED:
                self.said[each.subject] = each.body
        return answers

    async def override(self, subject: Any, body: Any, expect: int) -> Any:
        answer = await self.inner.override(subject, None if body is None else self._stripped(body), expect)
        if answer.change is Change.APPLIED:
            self.said[subject, "override"] = body
        return answer

    async def documents(self, *args: Any) -> Any:
        found = await self.inner.documents(*args)
        return [
            change(
                each,
                declared=self.said.get(each.subject) if each.declared is not None else None,
                override=self.said.get((each.subject, "override")) if each.override is not None else None,
            )
            for each in found
        ]

    def _stripped(self, body: Any) -> Any:
        if isinstance(body, bytes):
            return body
        names = [name for name in self.strips if name in body.__struct_fields__]
        return change(body, **dict.fromkeys(names, msgspec.UNSET))


class AcceptsHalfAGroup(Saboteur):
    """Takes what it can of a group."""

    notices = "a group is accepted whole or not at all|a refusal gives its reason"

    async def enqueue(self, groups: Any) -> Any:
        return [[(await self.inner.enqueue([[job]]))[0][0] for job in group] for group in groups]


class LosesJobs(Saboteur):
    """Says that every third job was created, and drops it."""

    notices = "an accepted job is there|an edge leads to a job|resending a known id is a no-op"

    async def enqueue(self, groups: Any) -> Any:
        answers = []
        for group in groups:
            lost = len(group) == 1 and job_number(group[0].id) % 3 == 0 and group[0].key is None
            if (
                lost
                and (await self.inner.get([group[0].id]))[0] is None
                and group[0].queue in ("plain", "laned")
            ):
                answers.append([Receipt(Status.CREATED, group[0].id)])
            else:
                answers.extend(await self.inner.enqueue([group]))
        return answers


class StartsEarly(_ChangesJobs):
    """Takes no notice of `delay`."""

    notices = "states change by|before it is due|is ready"
    strips: ClassVar = {"delay": 0, "run_at": None}


class StartsWhatExpired(_ChangesJobs):
    """Takes no notice of `expires`."""

    notices = "nothing starts first after it expired"
    strips: ClassVar = {"expires": None}


class ForgetsKeys(_ChangesJobs):
    """Takes no notice of unique keys."""

    notices = "one unfinished job per key"
    strips: ClassVar = {"key": None, "mode": "ignore", "window": 0}

    async def get(self, jobs: Any) -> Any:
        return [None if view is None else self._with_key(view) for view in await self.inner.get(jobs)]

    def _with_key(self, view: Any) -> Any:
        return change(view, key=self.asked[view.id].key) if view.id in self.asked else view


class GoesBackwards(Saboteur):
    """Last in, first out, within a call."""

    notices = "first in, first out|a sequence goes in order of enqueue"

    async def enqueue(self, groups: Any) -> Any:
        jobs = list(itertools.chain(*groups))
        if len({job.id for job in jobs}) < len(jobs) or any(job.key or job.after for job in jobs):
            return await self.inner.enqueue(groups)
        return list(await self.inner.enqueue(list(groups)[::-1]))[::-1]


class DropsTheFenceCheck(Saboteur):
    """Takes any word about a running job for its holder's."""

    notices = "nothing but the live lease changes anything|only a live lease with children is refused"

    async def settle(self, items: Any, ask: Any = None) -> Any:
        views = await self.inner.get([item.job for item in items])
        fences = [0 if view is None else view.fence for view in views]
        renamed = [change(item, fence=fence) for item, fence in zip(items, fences, strict=True)]
        return await self.inner.settle(renamed, ask)


class HandsOutNewJobs(Saboteur):
    """Answers a repeated ask with new jobs."""

    notices = "a repeated ask gets the leases of its reply"

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        super().__init__(inner, clock)
        self._last: dict[str, int] = {}
        self._ahead: Counter[str] = Counter()

    async def claim(self, ask: Any) -> Any:
        return await self.inner.claim(self._as_new(ask))

    async def settle(self, items: Any, ask: Any = None) -> Any:
        return await self.inner.settle(items, None if ask is None else self._as_new(ask))

    def _as_new(self, ask: Any) -> Any:
        if not ask.seq:
            return ask
        self._ahead[ask.session] += ask.seq == self._last.get(ask.session)
        self._last[ask.session] = max(ask.seq, self._last.get(ask.session, 0))
        return change(ask, seq=ask.seq + self._ahead[ask.session])


class LosesReplies(Saboteur):
    """Gives out jobs that nobody hears of."""

    notices = "no lease without a holder"

    async def claim(self, ask: Any) -> Any:
        claimed = await self.inner.claim(ask)
        return change(claimed, leases=claimed.leases[:1])


class NumbersAnew(Saboteur):
    """Counts deliveries from one for each session."""

    notices = "a fence is not below the clock|fences grow"

    async def claim(self, ask: Any) -> Any:
        claimed = await self.inner.claim(ask)
        return change(claimed, leases=tuple(change(each, fence=each.attempt) for each in claimed.leases))


class WakesLate(Saboteur):
    """Says `next_in` a second too late."""

    notices = "next_in is never late"

    async def claim(self, ask: Any) -> Any:
        claimed = await self.inner.claim(ask)
        return claimed if claimed.next_in is None else change(claimed, next_in=claimed.next_in + SECOND)


class WakesEarly(Saboteur):
    """Says `next_in` early and `more` for nothing, which is allowed."""

    async def claim(self, ask: Any) -> Any:
        claimed = await self.inner.claim(ask)
        if claimed.next_in is not None:
            return change(claimed, next_in=claimed.next_in // 2)
        return change(claimed, more=claimed.more or bool(claimed.leases))


class IgnoresConcurrency(_ChangesSettings):
    """Takes no notice of concurrency limits."""

    notices = "concurrency of a (queue|lane) holds"
    strips = ("concurrency", "lane_concurrency")


class IgnoresRates(_ChangesSettings):
    """Takes no notice of rates."""

    notices = "rates hold in every window|only what is free and timed is prefetched"
    strips = ("rate", "lane_rate")


class IgnoresPauses(Saboteur):
    """Says that a queue is paused, and goes on."""

    notices = "what is paused hands out nothing"

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        return await (self.inner.resume(queue) if lane is None else self.inner.pause(queue, lane))


class NeverResumes(Saboteur):
    """Says that a queue goes on, and leaves it paused."""

    notices = "with everything healed, the backlog drains"

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        return (
            queue in ("plain", "laned", "ordered") if lane is None else await self.inner.resume(queue, lane)
        )


class ForgetsToSettle(Saboteur):
    """Acknowledges what it does not do."""

    notices = "no lease without a holder"

    async def settle(self, items: Any, ask: Any = None) -> Any:
        settled = await self.inner.settle([item for item in items if item.outcome is not Outcome.DONE], ask)
        others = iter(settled.answers)
        done = Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
        answers = [done if item.outcome is Outcome.DONE else next(others) for item in items]
        return change(settled, answers=tuple(answers))


class SpendsAttempts(Saboteur):
    """Charges for a release."""

    notices = "attempts are claims less what was given back|a settlement leads to the state of its outcome"

    async def settle(self, items: Any, ask: Any = None) -> Any:
        released = [item.outcome is Outcome.RELEASE for item in items]
        changed = [
            change(item, outcome=Outcome.RETRY) if given_back else item
            for item, given_back in zip(items, released, strict=True)
        ]
        settled = await self.inner.settle(changed, ask)
        answers = [
            change(answer, outcome=Outcome.RELEASE)
            if given_back and answer.outcome is Outcome.RETRY
            else answer
            for answer, given_back in zip(settled.answers, released, strict=True)
        ]
        return change(settled, answers=tuple(answers))


class MixesResultsUp(Saboteur):
    """Keeps the result of another run."""

    notices = "a result belongs to the fence that finished"

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        super().__init__(inner, clock)
        self._result = b"of nobody"

    async def settle(self, items: Any, ask: Any = None) -> Any:
        changed = []
        for item in items:
            kept, self._result = self._result, item.result or self._result
            changed.append(item if item.result is None else change(item, result=kept))
        return await self.inner.settle(changed, ask)


class ChargesBystanders(Saboteur):
    """Takes every lease of a crashed session for started."""

    notices = "an ended lease is charged by its cause|attempts are claims less what was given back"

    async def end_session(self, session: str, cause: Cause, started: Any = ()) -> Any:
        return await self.inner.end_session(session, change(cause, kind=CauseKind.LOST), started)


class RevivesSessions(Saboteur):
    """Lets a session live again by a beat."""

    notices = "an ended one never returns"

    async def beat(self, beats: Any) -> Any:
        return [change(pulse, alive=True) for pulse in await self.inner.beat(beats)]


class ReapsAfterAnOutage(Saboteur):
    """Holds the time without a sweep against the sessions."""

    notices = "only a session silent for longer than its TTL is reaped"

    def __init__(self, inner: MemoryBroker, clock: ManualClock) -> None:
        super().__init__(inner, clock)
        self._last = clock.now()

    async def sweep(self, *, limit: int, every: int = 0, keep_dead: bool = False) -> Any:
        outage, self._last = self.clock.now() - self._last > 30 * SECOND, self.clock.now()
        lost = [view.id for view in await self.inner.sessions() if outage and view.state == "alive"]
        moved = [(await self.inner.end_session(each, Cause(CauseKind.LOST))).moved for each in lost]
        swept = await self.inner.sweep(limit=limit, every=every, keep_dead=keep_dead)
        return change(swept, reaped=(*lost, *swept.reaped), moved=(*itertools.chain(*moved), *swept.moved))


class NeverReaps(Saboteur):
    """Lets the sweeper beat for everybody."""

    notices = "a silent session is reaped|silence is counted on the liveness clock"

    async def sweep(self, *, limit: int, every: int = 0, keep_dead: bool = False) -> Any:
        await self.inner.beat([Beat(session=view.id) for view in await self.inner.sessions()])
        return await self.inner.sweep(limit=limit, every=every, keep_dead=keep_dead)


class ForgetsCancels(Saboteur):
    """Promises to cancel what runs, and forgets it."""

    notices = "to (be )?cancel|a settlement leads to the state of its outcome"

    async def cancel(self, targets: Any) -> Any:
        views = await self.inner.get([target.job for target in targets])
        running = [view is not None and view.state is State.RUNNING for view in views]
        rest = iter(
            await self.inner.cancel([t for t, runs in zip(targets, running, strict=True) if not runs])
        )
        answers = []
        for target, runs in zip(targets, running, strict=True):
            wrong = runs and target.expect not in (None, State.RUNNING)
            effect = Effect.WRONG_STATE if wrong else Effect.FLAGGED
            answers.append(next(rest) if not runs else Operated(target.job, effect, State.RUNNING))
        return answers


class ReplaysTwice(Saboteur):
    """Says that a dead letter was replayed as often as it is asked."""

    notices = "an operation respects the state|an operation on a fitting job"

    async def replay(self, targets: Any) -> Any:
        answers = await self.inner.replay(targets)
        done = {answer.job for answer in answers if answer.effect is Effect.APPLIED}
        return [change(answer, effect=Effect.APPLIED) if answer.job in done else answer for answer in answers]


class PrunesWhatIsNeeded(Saboteur):
    """Says of a job that another one needs that it is pruned."""

    notices = "a job stays while one that has not ended needs it"
    by_hand = True

    async def prune(self, targets: Any) -> Any:
        answers = await self.inner.prune(targets)
        return [Operated(each.job, Effect.APPLIED) for each in answers]


class FiresTwice(Saboteur):
    """Fires a tick for everybody who wishes."""

    notices = r"one job per \(schedule, tick\)|a tick fires when it is due and as it stands"

    async def fire(self, fire: Any) -> Any:
        fired = await self.inner.fire(fire)
        if fired.status is not FireStatus.RACED:
            return fired
        return Fired(FireStatus.FIRED, tuple((await self.inner.enqueue([fire.jobs]))[0]))


class FiresBesideOneThatWaits(Saboteur):
    """Makes a job of each tick, whether or not the one before has started."""

    notices = "a tick makes no job while a job waits"
    by_hand = True

    async def fire(self, fire: Any) -> Any:
        return await self.inner.fire(change(fire, unless_waiting=False))


class Miscounts(Saboteur):
    """Counts one too many."""

    notices = "counts are what is there"

    async def counts(self) -> Any:
        counts = await self.inner.counts()
        rows = [change(row, count=row.count + (nth == 0)) for nth, row in enumerate(counts.rows)]
        return change(counts, rows=tuple(rows))


class LosesSightOfFlows(Saboteur):
    """Leaves a flow out that stands behind a dead letter."""

    notices = "unfinished flows are listed"

    async def flows(self, *args: Any) -> Any:
        page = await self.inner.flows(*args)
        return change(page, flows=tuple(flow for flow in page.flows if flow.moving))


class ListsInDisorder(Saboteur):
    """Turns every page around, as nobody notices who reads all of it at once."""

    notices = "pages are the whole, in its order"

    async def list(self, *args: Any) -> Any:
        page = await self.inner.list(*args)
        return change(page, jobs=page.jobs[::-1])


class HidesReasons(Saboteur):
    """Does not say why a job is dead or cancelled."""

    notices = "without a reason"

    async def get(self, jobs: Any) -> Any:
        return [view if view is None else change(view, reason=None) for view in await self.inner.get(jobs)]


class SwallowsEvents(Saboteur):
    """Leaves every fourth event out."""

    notices = "events tell the whole story|pages of events are the whole"

    async def events(self, *args: Any) -> Any:
        events = await self.inner.events(*args)
        return change(events, items=tuple(event for nth, event in enumerate(events.items, 1) if nth % 4))
