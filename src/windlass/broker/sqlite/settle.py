"""Settle and annotate: messages about a lease, checked by its fence."""

from collections.abc import Sequence

from windlass.broker.contract import Settled
from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.claim import claim
from windlass.broker.sqlite.done import end_many
from windlass.broker.sqlite.enqueue import accept, refusals
from windlass.broker.sqlite.records import LOGGED, MEMOS, SAID, Job, read_delivery
from windlass.broker.sqlite.sessions import session_id
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.bounds import check_items
from windlass.core.job import Held
from windlass.core.lease import Ask, check_ask
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.session import LOG_LINE_CHARS, LOG_LINES, MEMO_BYTES, Note
from windlass.core.session import MEMOS as MOST_MEMOS
from windlass.core.settlement import Ruling, Settlement, rule_settlement
from windlass.core.state import State
from windlass.core.units import Fence, JobId
from windlass.errors import ContractError

SQL = statements("jobs")
_DONE = Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
_UNSTARTED = frozenset({Outcome.RELEASE, Outcome.HOLD})


def settle(tx: Transaction, items: Sequence[Settlement], ask: Ask | None) -> Settled:
    """End leases, then answer the ask."""
    done = end_many(tx, items)
    tx.load(item.job for item in items if item.job not in done)
    answers = tuple(_DONE if item.job in done else settle_one(tx, item) for item in items)
    return Settled(answers=answers, claimed=None if ask is None else claim(tx, ask))


def check(items: Sequence[Settlement], ask: Ask | None) -> None:
    """Refuse a call that the contract forbids, before anything happens."""
    check_items("settlements", items)
    done = Outcome.DONE
    if any(item.outcome is not done or item.spawn or item.hold is not None for item in items):
        _check_each(items)
    if ask is not None:
        check_ask(ask)


def _check_each(items: Sequence[Settlement]) -> None:
    check_items("children", [child for item in items for child in item.spawn])
    for item in items:
        if item.spawn and item.outcome is not Outcome.DONE:
            raise ContractError(f"children travel only with done, not with {item.outcome}")
        if (item.outcome is Outcome.HOLD) != (item.hold is not None):
            raise ContractError("a hold key goes with the outcome hold, and with no other")


def settle_one(tx: Transaction, item: Settlement) -> Answer:
    job = tx.job(item.job)
    if job is None or not lifecycle.is_live(tx, job, item.fence):
        return late(tx, item.job, item.fence)
    if item.spawn and (refused := refusals(tx, item.spawn)):
        return Answer(Verdict.REFUSED, why=next(iter(refused.values()))[1])
    ruling = rule_settlement(lifecycle.facts(tx, job), item)
    _record(tx, job, item, ruling)
    lifecycle.end_lease(
        tx,
        job,
        ruling,
        session_id(tx, job.session),
        unstarted=item.outcome in _UNSTARTED and item.runtime is None,
        runtime=item.runtime,
        error=item.error,
    )
    if item.spawn:  # after the end, so that a job may spawn its successor under its own key
        accept(tx, item.spawn, parent=job.id)
    answer = Answer(Verdict.APPLIED, ruling.outcome, job.state)
    lifecycle.drop_if_unkept(tx, job)
    return answer


def _record(tx: Transaction, job: Job, item: Settlement, ruling: Ruling) -> None:
    """Keep what the settlement brings besides its outcome."""
    if item.runtime is not None:
        tx.time_task(job.t)
    if ruling.outcome is Outcome.DONE:
        lifecycle.set_result(tx, job, item.result)
    if item.hold is not None and ruling.outcome is Outcome.HOLD:
        held = job.held
        since, times = (tx.now, 0) if held is None else (held.since, held.times)
        job.held = Held(item.hold.key, item.hold.reason, since, times + 1)
        tx.touch(job)


def late(tx: Transaction, job_id: JobId, fence: Fence) -> Answer:
    """The answer to a message about a lease that is not live."""
    job = tx.job(job_id) or tx.remembered(job_id)
    if job is None:
        return Answer(Verdict.GONE)
    record = tx.value(SQL["delivery"], (job.n, fence))
    delivery = None if record is None else read_delivery(fence, record)
    if delivery is not None and delivery.settled:
        return Answer(Verdict.ALREADY, delivery.outcome, job.state)
    return Answer(Verdict.STALE)


def annotate(tx: Transaction, notes: Sequence[Note]) -> tuple[Verdict, ...]:
    """Keep what running jobs say of themselves."""
    return tuple(_annotate_one(tx, note) for note in notes)


def _annotate_one(tx: Transaction, note: Note) -> Verdict:
    job = tx.job(note.job)
    if job is None or not lifecycle.is_live(tx, job, note.fence):
        return late(tx, note.job, note.fence).verdict
    if note.memo is not None and not _fits(tx, job, *note.memo):
        return Verdict.REFUSED
    if note.extend is not None and job.deadline is not None:
        job.deadline = tx.now + note.extend
    if note.permille is not None:
        tx.run(SQL["say_progress"], (job.n, note.permille, note.message))
        job.marks |= SAID
    if note.logs:
        _write_lines(tx, job, note.logs[-LOG_LINES:])
    if note.memo is not None:
        _write_memo(tx, job, *note.memo)
    tx.touch(job)
    return Verdict.APPLIED


def _write_lines(tx: Transaction, job: Job, lines: Sequence[str]) -> None:
    last: int = tx.value(SQL["last_line"], (job.n,))
    rows = [(job.n, i, line[:LOG_LINE_CHARS]) for i, line in enumerate(lines, last + 1)]
    tx.many(SQL["add_line"], rows)
    tx.run(SQL["cut_lines"], (job.n, last + len(rows) - LOG_LINES))
    job.marks |= LOGGED


def _write_memo(tx: Transaction, job: Job, name: str, value: bytes) -> None:
    tx.run(SQL["save_memo"], (job.n, name, value))
    job.marks |= MEMOS


def _fits(tx: Transaction, job: Job, name: str, value: bytes) -> bool:
    """Whether a job may keep one memo more: their number and their bytes are limited."""
    count, size = tx.one(SQL["size_of_memos"], (job.n, name)) or (0, 0)
    return count < MOST_MEMOS and size + len(value) <= MEMO_BYTES
