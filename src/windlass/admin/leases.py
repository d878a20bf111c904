"""Leases of workers in any language, who speak HTTP.

This does for them what Python workers do for themselves: it holds jobs that an operator has struck, makes a
retry wait as the task's policy says, and takes secrets out of what a worker says about a job.
"""

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from windlass.broker.contract import Broker
from windlass.client.app import Windlass
from windlass.core.codec import Payload, is_reference, open_payload, size_of
from windlass.core.job import JobDetail
from windlass.core.lease import Ask, Asker, Claimed, Lease
from windlass.core.names import is_reserved, refuse_reserved
from windlass.core.outcome import Answer, Cause, CauseKind, Error, Outcome, Verdict
from windlass.core.retry import RetryPolicy
from windlass.core.secret import Cleaner
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, Beat, Note, Pulse, SessionInfo
from windlass.core.settlement import HoldKey, Settlement
from windlass.core.signature import Signature
from windlass.core.units import HOUR, SECOND, Fence, JobId, Micros, SessionId
from windlass.errors import (
    InvalidOption,
    UnreadablePayload,
    ValueConflict,
    ValueMissing,
    ValuesError,
    ValuesUnavailable,
)
from windlass.worker.conclude import given_back, kept_away
from windlass.worker.failure import MESSAGE_CHARS, clipped, said, shortened
from windlass.worker.holds import hold_key
from windlass.worker.strikes import Strikes

LEAST_VISIBILITY: Micros = SECOND
MOST_VISIBILITY: Micros = 12 * HOUR
MOST_HANDED = 64 * 2**20
"""Bytes of payloads that one answer has at the most, unless one alone is larger: they are all in memory."""
STRIKES_READ = 2.0
"""Seconds for which the strikes that were read are obeyed."""
_CLEANERS = 1_000
_TYPE_CHARS = 200
_NOT_KEPT = "(not kept: its secrets are in object storage, which does not answer)"


class Handed(msgspec.Struct, frozen=True):
    """A lease whose payload could be opened."""

    lease: Lease
    payload: Payload


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an ask."""

    session: Asker = Asker.ALIVE
    handed: tuple[Handed, ...] = ()
    more: bool = False
    next_in: Micros | None = None
    suspects: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong in a run, as its worker tells it."""

    type: str
    message: str = ""
    traceback: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's word on what became of its lease."""

    job: JobId
    fence: Fence
    outcome: Outcome
    result: object = None
    has_result: bool = False
    delay: Micros | None = None
    """For retry and snooze; None: as the task's policy says."""
    runtime: Micros | None = None
    error: Failure | None = None
    reason: str = ""
    """For hold."""


class Leases:
    """The leases of one namespace. Made once for a server: it remembers strikes, and the secrets of jobs."""

    def __init__(self, app: Windlass, broker: Broker) -> None:
        self._app = app
        self._broker = broker
        self._strikes = Strikes()
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._cleaners: OrderedDict[JobId, Cleaner] = OrderedDict()

    # --- claiming -------------------------------------------------------------------------------------------

    async def claim(self, ask: Ask) -> Work:
        """Hand out jobs, without those that are struck, that nobody could read, and Windlass's own. Those
        whose payloads are too much for one answer go back, and the worker is told that there are more.
        """
        check_work(ask.queues)
        await self._renew_strikes()
        claimed = await self._broker.claim(ask)
        if ask.visibility is not None and ask.limit == 1 and not claimed.leases and claimed.suspects:
            # A worker that asks for one job at a time runs it alone.
            claimed = await self._broker.claim(msgspec.structs.replace(ask, alone=True))
        return await self._handed(claimed)

    async def give_back(self, work: Work) -> None:
        """Return what was handed to a worker that is gone: no attempt is spent."""
        leases = [handed.lease for handed in work.handed]
        await self._broker.settle(
            [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.RELEASE) for lease in leases]
        )

    async def _handed(self, claimed: Claimed) -> Work:
        held: list[Settlement] = []
        handed: list[Handed] = []
        away: ValuesUnavailable | None = None
        room = MOST_HANDED
        for lease in claimed.leases:
            if is_reserved(lease.task):
                held.append(_hold(lease.job, lease.fence, lease.task, "it is run by Windlass's own workers"))
                continue
            is_large = self._app.values is not None and is_reference(lease.payload)
            if is_large and away is not None:
                held.append(kept_away(lease, away))  # each would wait until its time is over
                continue
            if is_large and handed and size_of(lease.payload) > room:
                held.append(given_back(lease))
                continue
            try:
                lease = await self._read(lease)
                struck = self._strikes.hold(lease)
                if struck is not None:
                    held.append(struck)
                    continue
                handed.append(Handed(lease, open_payload(lease.payload)))
                room -= len(lease.payload)
            except ValuesUnavailable as error:
                away = error
                held.append(kept_away(lease, error))
            except (ValueMissing, UnreadablePayload) as error:
                held.append(_hold(lease.job, lease.fence, lease.task, str(error)))
        if held:
            await self._broker.settle(held)
        return Work(
            session=claimed.session,
            handed=tuple(handed),
            more=claimed.more or bool(held),
            next_in=claimed.next_in,
            suspects=claimed.suspects,
        )

    async def _read(self, lease: Lease) -> Lease:
        """A lease with its payload, if that is in object storage."""
        values = self._app.values
        if values is None:
            return lease
        return msgspec.structs.replace(lease, payload=await values.payload(lease.job, lease.payload))

    async def _renew_strikes(self) -> None:
        async with self._reading:
            if self._read_at is None or time.monotonic() - self._read_at > STRIKES_READ:
                await self._strikes.read(self._broker)
                self._read_at = time.monotonic()

    # --- ending ---------------------------------------------------------------------------------------------

    async def settle(
        self, endings: Sequence[Ending], known: Mapping[JobId, JobDetail] | None = None
    ) -> list[Answer]:
        """End leases, each judged by itself. `known` are their jobs, if the caller has read them already.
        `InvalidOption`, `InvalidPayload`: one of them has no meaning, and none was sent.
        """
        details = known
        if details is None:
            wanting = [ending.job for ending in endings if _needs_job(ending)]
            found = await self._broker.get(wanting) if wanting else ()
            details = {job.id: job for job in found if job is not None}
        settlements = [await self._settlement(ending, details.get(ending.job)) for ending in endings]
        carried = [await self._carried(settlement) for settlement in settlements]
        settled = await self._broker.settle(
            [each or _back(asked) for each, asked in zip(carried, settlements, strict=True)]
        )
        for settlement, answer in zip(settlements, settled.answers, strict=True):
            if answer.verdict is not Verdict.REFUSED:
                self._cleaners.pop(settlement.job, None)
        return [
            answer if each is not None else Answer(Verdict.STALE, state=answer.state)
            for each, answer in zip(carried, settled.answers, strict=True)
        ]

    async def _carried(self, settlement: Settlement) -> Settlement | None:
        """A settlement with its result in object storage, if that is large. None: another result lies under
        this fence, so the job goes back, and its worker has lost the lease. Under its next fence the name is
        free.
        """
        values = self._app.values
        try:
            return settlement if values is None else await values.settled(settlement)
        except ValueConflict:
            return None

    async def _settlement(self, ending: Ending, job: JobDetail | None) -> Settlement:
        outcome = ending.outcome
        if outcome is Outcome.HOLD:
            task = "" if job is None else job.task
            return _hold(ending.job, ending.fence, task, (await self._cleaner(job))(ending.reason))
        return Settlement(
            job=ending.job,
            fence=ending.fence,
            outcome=outcome,
            delay=self._delay(ending, job),
            runtime=ending.runtime,
            error=await self._error(ending, job),
            result=self._result(ending),
        )

    def _delay(self, ending: Ending, job: JobDetail | None) -> Micros:
        if ending.outcome not in (Outcome.RETRY, Outcome.SNOOZE):
            return 0
        if ending.delay is not None:
            return ending.delay
        if ending.outcome is Outcome.SNOOZE:
            raise InvalidOption("a snooze needs a delay")
        task = None if job is None else self._app.tasks.get(job.task)
        policy = RetryPolicy() if task is None else task.options.retry
        attempt = 1 if job is None else max(1, job.attempt)
        draw = random.random()  # noqa: S311 - it spreads retries, and protects nothing
        try:
            return policy.delay(attempt, draw=draw)
        except InvalidOption:  # a backoff of the app's own
            return RetryPolicy().delay(attempt, draw=draw)

    async def _error(self, ending: Ending, job: JobDetail | None) -> Error | None:
        given = ending.error
        if given is None:
            return None
        clean = await self._cleaner(job)
        stops = ending.outcome is Outcome.DEAD
        error = said(
            clipped(clean(given.type), _TYPE_CHARS),
            clipped(clean(given.message), MESSAGE_CHARS),
            retryable=not stops,
        )
        return msgspec.structs.replace(error, traceback=shortened(clean(given.traceback)))

    def _result(self, ending: Ending) -> bytes | None:
        if ending.outcome is not Outcome.DONE or not ending.has_result:
            return None
        return Signature.untyped("result", max_payload=self._app.config.largest).encode_result(ending.result)

    # --- saying something about a run -----------------------------------------------------------------------

    async def note(
        self,
        job: JobId,
        fence: Fence,
        *,
        extend: Micros | None = None,
        fraction: float | None = None,
        message: str = "",
        logs: Sequence[str] = (),
        known: Mapping[JobId, JobDetail] | None = None,
    ) -> tuple[Verdict, bool]:
        """Keep what a worker says about its run. Returns the store's verdict, and whether the job is to be
        cancelled. `known` has the job, if the caller has read it already.
        """
        detail = (await self._broker.get([job]))[0] if known is None else known.get(job)
        clean = await self._cleaner(detail)
        note = Note(
            job=job,
            fence=fence,
            extend=extend,
            permille=None if fraction is None else round(fraction * 1_000),
            message=clipped(clean(message), LOG_LINE_CHARS),
            logs=tuple(clipped(clean(line), LOG_LINE_CHARS) for line in logs[-LOG_LINES:]),
        )
        verdict = (await self._broker.annotate([note]))[0]
        cancel = detail is not None and detail.fence == fence and detail.cancel_requested
        return verdict, cancel and verdict is Verdict.APPLIED

    async def _cleaner(self, job: JobDetail | None) -> Callable[[str], str]:
        """What takes the secrets of a job out of texts about it. If they cannot be told, because they are in
        object storage and that is away, no text is kept.
        """
        values = self._app.values
        if job is None or values is None or job.id in self._cleaners:
            return self._clean(job)
        try:
            payload = await values.payload(job.id, job.payload)
        except (ValuesError, UnreadablePayload):
            return lambda text: _NOT_KEPT if text else ""
        return self._clean(msgspec.structs.replace(job, payload=payload))

    def _clean(self, job: JobDetail | None) -> Cleaner:
        """What takes the secrets of a job out of texts about it."""
        if job is None:
            return Cleaner((), self._app.config.private_patterns)
        cleaner = self._cleaners.get(job.id)
        if cleaner is None:
            signature = self._app.signature_of(job.task) or Signature.untyped(job.task or "job")
            cleaner = self._cleaners[job.id] = Cleaner(
                signature.secrets_in(job.payload), self._app.config.private_patterns
            )
            if len(self._cleaners) > _CLEANERS:
                self._cleaners.popitem(last=False)
        return cleaner

    # --- waiting --------------------------------------------------------------------------------------------

    async def wait(self, queues: Sequence[str], seconds: float) -> None:
        """Wait until one of the queues may have a job, but no longer than so many seconds."""
        await self._broker.wait(queues, seconds)

    # --- sessions -------------------------------------------------------------------------------------------

    async def open(self, session: SessionId, info: SessionInfo) -> Pulse:
        """Open a session for a worker that beats."""
        return (await self._broker.beat([Beat(session=session, open=info)]))[0]

    async def beat(self, session: SessionId, memory: int) -> Pulse:
        """Take a sign of life."""
        return (await self._broker.beat([Beat(session=session, memory=memory)]))[0]

    async def end(self, session: SessionId) -> bool:
        """End a session: its jobs go back, and nobody is charged. Whether it was known."""
        known = False
        while True:
            ended = await self._broker.end_session(session, Cause(CauseKind.STOP, "its worker said so"))
            known = known or ended.known
            if not ended.more:
                return known


def check_work(queues: Iterable[str]) -> None:
    """Refuse queues of Windlass itself: what is done there is done in its name, by its own workers."""
    for queue in queues:
        refuse_reserved(queue, "queue")


def check_visibility(visibility: Micros, *, name: str) -> Micros:
    """A time for which a lease may stand."""
    if not LEAST_VISIBILITY <= visibility <= MOST_VISIBILITY:
        raise InvalidOption(
            f"{name} must be from {LEAST_VISIBILITY / SECOND:g} s to {MOST_VISIBILITY / HOUR:g} h, "
            f"not {visibility / SECOND:g} s"
        )
    return visibility


def _needs_job(ending: Ending) -> bool:
    by_policy = ending.outcome is Outcome.RETRY and ending.delay is None
    return by_policy or ending.error is not None or ending.outcome is Outcome.HOLD


def _back(settlement: Settlement) -> Settlement:
    return Settlement(job=settlement.job, fence=settlement.fence, outcome=Outcome.RELEASE)


def _hold(job: JobId, fence: Fence, task: str, why: str) -> Settlement:
    hold = HoldKey(hold_key(task), clipped(why, 500))
    return Settlement(job=job, fence=fence, outcome=Outcome.HOLD, hold=hold)
