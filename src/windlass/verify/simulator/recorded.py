"""A broker that writes down what is asked of it and what it answers, as its process sees it.

It wraps any broker, the simulator's wire as well as a real store's client, and changes nothing. Calls that
the checker has no use for pass by.
"""

from collections.abc import Awaitable, Collection, Sequence
from typing import Any, TypeVar

from windlass.broker.contract import Broker, Settled
from windlass.core.lease import Ask, Claimed
from windlass.core.operate import Operated, Target
from windlass.core.outcome import Answer, Cause, Verdict
from windlass.core.session import Beat, Ended, Note, Pulse, Swept
from windlass.core.settlement import Settlement
from windlass.core.timetable import Fire, Fired, FireStatus
from windlass.core.units import Fence, JobId, Micros, SessionId
from windlass.errors import ContractError, WindlassError
from windlass.verify import history
from windlass.verify.history import Journal

T = TypeVar("T")


class Refused(Exception):
    """Mixed into the errors of a transport that knows that the store has not heard the call."""


class Recorded:
    """The verbs of workers and operators, recorded."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        """Verbs that are not recorded."""
        return getattr(self._broker, name)

    # --- workers --------------------------------------------------------------------------------------------

    async def claim(self, ask: Ask) -> Claimed:
        """Claim."""
        journal = self._journal
        call = journal.call()
        journal.write(_claim(call, ask))
        claimed = await self._answer(call, self._broker.claim(ask))
        journal.write(_claimed(call, ask, claimed))
        return claimed

    async def settle(self, items: Sequence[Settlement], ask: Ask | None = None) -> Settled:
        """Settle, and claim with it."""
        journal = self._journal
        call = journal.call()
        words = tuple(
            history.Word(
                job=item.job,
                fence=item.fence,
                outcome=item.outcome.value,
                delay=item.delay,
                ran=item.runtime is not None,
                spawn=tuple(child.id for child in item.spawn),
            )
            for item in items
        )
        session = "" if ask is None or ask.session is None else ask.session
        journal.write(history.Settle(call=call, words=words, session=session))
        asked = 0
        if ask is not None:
            asked = journal.call()
            journal.write(_claim(asked, ask))
        settled = await self._answer(call, self._broker.settle(items, ask))
        answers = tuple(judged(*each) for each in zip(items, settled.answers, strict=True))
        journal.write(history.Settled(call=call, answers=answers))
        if ask is not None and settled.claimed is not None:
            journal.write(_claimed(asked, ask, settled.claimed))
        return settled

    async def annotate(self, notes: Sequence[Note]) -> Sequence[Verdict]:
        """Say what jobs say."""
        journal = self._journal
        call = journal.call()
        journal.write(history.Annotate(call=call, notes=tuple((note.job, note.fence) for note in notes)))
        verdicts = await self._answer(call, self._broker.annotate(notes))
        answers = tuple(
            history.Judged(note.job, note.fence, verdict.value)
            for note, verdict in zip(notes, verdicts, strict=True)
        )
        journal.write(history.Annotated(call=call, answers=answers))
        return verdicts

    # --- supervisors ----------------------------------------------------------------------------------------

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        """Beat."""
        journal = self._journal
        call = journal.call()
        opens = tuple(beat.session for beat in beats if beat.open is not None)
        ttl = next((beat.open.ttl for beat in beats if beat.open is not None), 0)
        sessions = tuple(beat.session for beat in beats)
        journal.write(history.Beat(call=call, sessions=sessions, opens=opens, ttl=ttl))
        pulses = await self._answer(call, self._broker.beat(beats))
        lost = tuple(pulse.session for pulse in pulses if not pulse.alive)
        journal.write(history.Beaten(call=call, lost=lost))
        return pulses

    async def end_session(
        self, session: SessionId, cause: Cause, started: Collection[tuple[JobId, Fence]] = ()
    ) -> Ended:
        """End a session."""
        journal = self._journal
        call = journal.call()
        journal.write(
            history.EndSession(
                call=call, session=session, cause=cause.kind.value, started=tuple(sorted(started))
            )
        )
        ended = await self._answer(call, self._broker.end_session(session, cause, started))
        journal.write(history.SessionEnded(call=call, session=session, known=ended.known))
        return ended

    async def sweep(self, *, limit: int, every: Micros = 0, keep_dead: bool = False) -> Swept:
        """Sweep."""
        journal = self._journal
        call = journal.call()
        journal.write(history.Sweep(call=call))
        swept = await self._answer(call, self._broker.sweep(limit=limit, every=every, keep_dead=keep_dead))
        journal.write(history.Swept(call=call, reaped=swept.reaped))
        return swept

    async def fire(self, fire: Fire) -> Fired:
        """Fire a schedule."""
        journal = self._journal
        call, jobs = journal.call(), tuple(job.id for job in fire.jobs)
        then = 0 if fire.then is None else fire.then
        invoke = history.Fire(call=call, schedule=fire.name, tick=fire.expect, then=then, jobs=jobs)
        journal.write(invoke)
        fired = await self._answer(call, self._broker.fire(fire))
        if fired.status in (FireStatus.FIRED, FireStatus.MISSED):
            made = jobs if fired.status is FireStatus.FIRED else ()
            journal.write(
                history.Fired(schedule=fire.name, tick=fire.expect, jobs=made, asked=invoke.at, call=call)
            )
        else:
            journal.write(history.Fail(call=call, why=fired.status.value))
        return fired

    # --- operators ------------------------------------------------------------------------------------------

    async def cancel(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Cancel jobs."""
        return await self._operated("cancel", targets, self._broker.cancel(targets))

    async def replay(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Replay jobs."""
        return await self._operated("replay", targets, self._broker.replay(targets))

    async def discard(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Discard jobs."""
        return await self._operated("discard", targets, self._broker.discard(targets))

    async def prune(self, targets: Sequence[Target]) -> Sequence[Operated]:
        """Prune jobs by hand: to who reads the history it is a discard."""
        return await self._operated("discard", targets, self._broker.prune(targets))

    async def pause(self, queue: str, lane: str | None = None) -> bool:
        """Pause a queue or lane."""
        return await self._switched("pause", queue, lane, self._broker.pause(queue, lane))

    async def resume(self, queue: str, lane: str | None = None) -> bool:
        """Resume a queue or lane."""
        return await self._switched("resume", queue, lane, self._broker.resume(queue, lane))

    async def _operated(
        self, verb: str, targets: Sequence[Target], act: Awaitable[Sequence[Operated]]
    ) -> Sequence[Operated]:
        journal = self._journal
        call = journal.call()
        jobs = tuple(target.job for target in targets)
        journal.write(history.Operate(call=call, verb=verb, jobs=jobs))
        answers = await self._answer(call, act)
        effects = tuple(answer.effect.value for answer in answers)
        journal.write(history.Operated(call=call, answers=effects))
        return answers

    async def _switched(self, verb: str, queue: str, lane: str | None, act: Awaitable[bool]) -> bool:
        journal = self._journal
        call = journal.call()
        journal.write(history.Operate(call=call, verb=verb, queue=queue, lane=lane))
        known = await self._answer(call, act)
        journal.write(history.Operated(call=call, answers=("applied" if known else "not found",)))
        return known

    async def _answer(self, call: int, act: Awaitable[T]) -> T:
        try:
            return await act
        except WindlassError as error:
            certain = isinstance(error, Refused | ContractError)
            said = history.Fail if certain else history.Info
            self._journal.write(said(call=call, why=type(error).__name__))
            raise


def judged(item: Settlement, answer: Answer) -> history.Judged:
    """What became of a settlement."""
    return history.Judged(
        item.job,
        item.fence,
        answer.verdict.value,
        None if answer.outcome is None else answer.outcome.value,
        None if answer.state is None else answer.state.value,
    )


def _claim(call: int, ask: Ask) -> history.Claim:
    return history.Claim(call=call, session=ask.session or "", number=ask.seq or 0, limit=ask.limit)


def _claimed(call: int, ask: Ask, claimed: Claimed) -> history.Claimed:
    return history.Claimed(
        call=call,
        session=ask.session or "",
        asker=claimed.session.value,
        number=ask.seq or 0,
        leases=tuple(
            history.Leased(lease.job, lease.fence, lease.attempt, lease.queue, lease.lane)
            for lease in claimed.leases
        ),
        more=claimed.more,
    )
