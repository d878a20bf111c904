"""Settle and annotate: words about a lease, judged by its fence."""

from collections import deque
from collections.abc import Sequence

from windlass.broker.contract import Settled
from windlass.broker.memory import lifecycle
from windlass.broker.memory.claim import claim
from windlass.broker.memory.enqueue import accept, refusals
from windlass.broker.memory.namespace import Job, Namespace
from windlass.core.bounds import check_items
from windlass.core.job import Held, Progress
from windlass.core.lease import Ask, check_ask
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, MEMO_BYTES, MEMOS, Note
from windlass.core.settlement import Ruling, Settlement, rule_settlement
from windlass.core.units import Fence, JobId
from windlass.errors import ContractError

_UNSTARTED = frozenset({Outcome.RELEASE, Outcome.HOLD})


def settle(ns: Namespace, items: Sequence[Settlement], ask: Ask | None) -> Settled:
    """End leases, then answer the ask."""
    _check(items)
    if ask is not None:
        check_ask(ask)
    answers = tuple(_settle_one(ns, item) for item in items)
    return Settled(answers=answers, claimed=None if ask is None else claim(ns, ask))


def _check(items: Sequence[Settlement]) -> None:
    check_items("settlements", items)
    check_items("children", [child for item in items for child in item.spawn])
    for item in items:
        if item.spawn and item.outcome is not Outcome.DONE:
            raise ContractError(f"children travel only with done, not with {item.outcome}")
        if (item.outcome is Outcome.HOLD) != (item.hold is not None):
            raise ContractError("a hold key goes with the outcome hold, and with no other")


def _settle_one(ns: Namespace, item: Settlement) -> Answer:
    job = ns.jobs.get(item.job)
    if job is None or not ns.is_live(job, item.fence):
        return _late(ns, item.job, item.fence)
    refused = refusals(ns, item.spawn, may_fill=True)
    if refused:
        return Answer(Verdict.REFUSED, why=next(iter(refused.values()))[1])
    ruling = rule_settlement(ns.facts(job), item)
    _record(ns, job, item, ruling)
    lifecycle.end_lease(
        ns,
        job,
        ruling,
        unstarted=item.outcome in _UNSTARTED and item.runtime is None,
        runtime=item.runtime,
        error=item.error,
    )
    # After the end, so that a job may spawn its successor under its own key.
    accept(ns, item.spawn, parent=job.id)
    answer = Answer(Verdict.APPLIED, ruling.outcome, job.state)
    lifecycle.drop_if_unkept(ns, job)
    return answer


def _record(ns: Namespace, job: Job, item: Settlement, ruling: Ruling) -> None:
    """Keep what the settlement brings besides its outcome."""
    if item.runtime is not None:
        ns.timed.add(job.asked.task)
    if ruling.outcome is Outcome.DONE:
        job.result = item.result
    if item.hold is not None and ruling.outcome is Outcome.HOLD:
        since, times = (ns.now(), 0) if job.held is None else (job.held.since, job.held.times)
        job.held = Held(item.hold.key, item.hold.reason, since, times + 1)


def _late(ns: Namespace, job_id: JobId, fence: Fence) -> Answer:
    """The answer to a word about a lease that is not live."""
    job = ns.jobs.get(job_id)
    if job is None:
        remembered = ns.remembered.get(job_id)
        if remembered is None or ns.now() >= remembered.until:
            return Answer(Verdict.GONE)
        if remembered.job.fence == fence and remembered.outcome is not None:
            return Answer(Verdict.ALREADY, remembered.outcome, remembered.job.state)
        return Answer(Verdict.STALE)
    for delivery in job.deliveries:
        if delivery.fence == fence and delivery.settled:
            return Answer(Verdict.ALREADY, delivery.outcome, job.state)
    return Answer(Verdict.STALE)


def annotate(ns: Namespace, notes: Sequence[Note]) -> tuple[Verdict, ...]:
    """Keep what running jobs say of themselves."""
    check_items("notes", notes)
    return tuple(_annotate_one(ns, note) for note in notes)


def _annotate_one(ns: Namespace, note: Note) -> Verdict:
    job = ns.jobs.get(note.job)
    if job is None or not ns.is_live(job, note.fence):
        return _late(ns, note.job, note.fence).verdict
    if note.memo is not None and not _fits(job, *note.memo):
        return Verdict.REFUSED
    if note.extend is not None and job.deadline is not None:
        job.deadline = ns.now() + note.extend
    if note.permille is not None:
        job.progress = Progress(note.permille, note.message)
    lines = [*job.logs, *(line[:LOG_LINE_CHARS] for line in note.logs)]
    job.logs = deque(lines[-LOG_LINES:])
    if note.memo is not None:
        job.memos[note.memo[0]] = note.memo[1]
    return Verdict.APPLIED


def _fits(job: Job, name: str, value: bytes) -> bool:
    """Whether a job may remember one memo more: so many, and so many bytes of them."""
    others = [len(memo) for known, memo in job.memos.items() if known != name]
    return len(others) < MEMOS and sum(others) + len(value) <= MEMO_BYTES
