"""Invariants of deadline leases, which those hold who speak HTTP: they have no session, and a time."""

from collections.abc import Iterator

from windlass.verify.checker.book import Book
from windlass.verify.checker.records import FAR, JobBook
from windlass.verify.checker.verdict import Check, Rules
from windlass.verify.history import Delivery, Final


def deadlines_are_kept(book: Book, rules: Rules, check: Check) -> None:
    """A deadline lease stands until its time is over, not for much longer; and to miss it is no crash."""
    for name, job in book.jobs.items():
        final, shift = job.final, book.shift
        if final is None or book.reborn(job):
            continue
        _no_crash(name, final, check)
        for delivery in final.deliveries:
            if delivery.cause == "deadline" and shift is not None and not book.blurred(job, delivery.fence):
                check.case()
                _in_time(book, rules, name, job, delivery, shift, check)


def _no_crash(name: str, final: Final, check: Check) -> None:
    if not any(each.cause == "deadline" for each in final.deliveries):
        return
    check.case()
    if final.crashes and not any(each.cause in ("crash", "lost") for each in final.deliveries):
        check.broken(f"{name} has {final.crashes} crashes, and its leases ran out")


def _in_time(
    book: Book, rules: Rules, name: str, job: JobBook, delivery: Delivery, shift: int, check: Check
) -> None:
    """Neither before the last deadline that its holder was promised, nor long after any that it may have."""
    ended = delivery.ended_at + shift
    promised = max(_deadlines(job, delivery.fence, certain=True), default=0)
    if ended < promised - rules.clock_slack:
        check.broken(
            f"{name}: fence {delivery.fence} was taken away {promised - ended} µs before its deadline"
        )
    latest = max(_deadlines(job, delivery.fence, certain=False), default=FAR)
    late = ended - latest - book.away(latest, ended)
    if late > rules.redelivery:
        check.broken(f"{name}: fence {delivery.fence} was held for {late} µs after its deadline")


def _deadlines(job: JobBook, fence: int, *, certain: bool) -> Iterator[int]:
    """When a lease runs out, on the machine's clock: by its claim and by what moved it. A promise counts from
    when it was asked for, what is possible from when it was answered.
    """
    for lease in job.leases:
        if lease.fence == fence and lease.visibility:
            yield (lease.asked if certain else lease.heard) + lease.visibility
    for note in job.notes:
        if note.fence != fence or not note.delay or note.failed:
            continue
        if certain and note.verdict == "applied":
            yield note.said + note.delay
        elif not certain:
            yield (note.answered if note.answered < FAR else note.said) + note.delay
