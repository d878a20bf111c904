"""Invariants of runs that follow each other: overlaps, duplicates, due times, redelivery."""

import itertools
from bisect import bisect_left, bisect_right

from windlass.verify.checker.book import Book
from windlass.verify.checker.life import HISTORY, last_word
from windlass.verify.checker.records import FAR, JobBook, Run, Word
from windlass.verify.checker.verdict import Check, Rules


def live_runs_never_overlap(book: Book, _rules: Rules, check: Check) -> None:
    """While a lease lives no other of its job does. A lease whose settlement was applied lived until then."""
    for name, job in book.jobs.items():
        for run in job.runs:
            check.case()
            word = last_word(job, run.fence)
            if word is None or word.verdict != "applied":
                continue
            if word.said < run.end < FAR:
                check.broken(
                    f"{name}: fence {run.fence} was settled ({word.outcome}) {run.end - word.said} µs before "
                    f"its code had ended"
                )
            for other in () if book.blurred(job, run.fence) else job.runs:
                if other.fence > run.fence and other.start < word.said:
                    check.broken(
                        f"{name}: fence {other.fence} started {word.said - other.start} µs before the live "
                        f"fence {run.fence} was settled"
                    )


def duplicates_are_explained(book: Book, _rules: Rules, check: Check) -> None:
    """A job runs again only after a failure, a lost holder or settle, a stop, a snooze, a replay."""
    for name, job in book.jobs.items():
        runs = sorted(job.runs, key=lambda run: run.fence)
        for run, following in itertools.pairwise(runs):
            check.case()
            why = _why_again(book, job, run, following)
            if why is None:
                check.broken(
                    f"{name}: nothing explains that fence {following.fence} ran after {run.fence} "
                    f"({run.how or 'no end'})"
                )
            else:
                check.duplicates[why] += 1


def _why_again(book: Book, job: JobBook, run: Run, following: Run) -> str | None:
    if book.blurred(job, run.fence):
        return "the store was set back"
    if book.reborn(job):
        return "its id was used again"
    word = last_word(job, run.fence)
    if word is not None and word.applied:
        if word.stands == "done" or (not word.stands and word.outcome == "done"):
            return None
        if word.stands in ("dead", "cancelled"):
            return "replay" if job.did("replay") else None
        return word.stands or word.outcome
    if job.did("replay"):
        return "replay"
    return _why_taken_away(book, job, run, following, word)


def _why_taken_away(book: Book, job: JobBook, run: Run, following: Run, word: Word | None) -> str | None:
    """Its holder has not ended it, as far as is known."""
    deliveries = job.final.deliveries if job.final is not None else ()
    kept = next((each for each in deliveries if each.fence == run.fence), None)
    session = book.sessions.get(run.session or job.holder_of(run.fence))
    if session is not None and session.gone < following.start:
        return "holder crashed" if session.died < FAR else "holder lost"
    if kept is not None and kept.cause is not None:
        return f"holder ended ({kept.cause})"
    # The store has had so many leases since then that it tells no more of this one.
    untold = len(deliveries) >= HISTORY and run.fence < min(e.fence for e in deliveries)
    if word is None:
        ran_out = any(
            lease.fence == run.fence and 0 < lease.visibility <= following.start - lease.asked
            for lease in job.leases
        )
        return "holder ended (deadline)" if untold and ran_out else None
    if word.verdict == "stale" and untold:
        return "holder lost"
    settle_lost = word.verdict == "" and kept is not None and kept.outcome != "done"
    return "settle lost" if settle_lost else None


def a_healthy_run_has_no_duplicates(book: Book, _rules: Rules, check: Check) -> None:
    """Without a fault every rerun is one that the job itself, or an operator, asked for."""
    if book.faults or any(session.crashed for session in book.sessions.values()):
        return  # a job that kills its own process is a fault, too
    for name, job in book.jobs.items():
        check.case()
        deliveries = job.final.deliveries if job.final is not None else ()
        for delivery in deliveries:
            if delivery.cause is not None:
                check.broken(
                    f"{name}: nothing went wrong, and fence {delivery.fence} ended by {delivery.cause}"
                )
        settled = {word.fence for word in job.words if word.applied}
        for run in job.runs[:-1]:
            if run.fence not in settled:
                check.broken(f"{name}: nothing went wrong, and fence {run.fence} was never settled")


def nothing_starts_before_it_is_due(book: Book, rules: Rules, check: Check) -> None:
    """Neither before the delay of its call, nor before that of its retry or snooze."""
    for name, job in book.jobs.items():
        keyed = job.asked is not None and job.asked.key is not None and job.asked.mode == "replace"
        for run in job.runs:
            check.case()
            early = job.due - rules.clock_slack - run.start
            if job.asked is not None and early > 0 and not keyed:
                check.broken(f"{name} started {early} µs before it was due")
        _after_parents(book, name, job, check)
        if job.did("replay", "edit"):
            continue
        for word in job.words:
            if word.verdict != "applied" or word.stands not in ("retry", "snooze") or not word.delay:
                continue
            if book.blurred(job, word.fence):
                continue
            check.case()
            due = word.said + word.delay - rules.clock_slack
            early_run = next((run for run in job.runs if run.fence > word.fence and run.start < due), None)
            if early_run is not None:
                check.broken(f"{name}: fence {early_run.fence} started {due - early_run.start} µs too early")


def _after_parents(book: Book, name: str, job: JobBook, check: Check) -> None:
    """A job starts when its parents are done; if one never was, the edge's policy has let it go."""
    if job.asked is None or not job.runs:
        return
    first = min(run.start for run in job.runs)
    for parent in job.asked.after:
        check.case()
        words = book.jobs[parent].words
        done = {word.fence for word in words if word.applied and word.stands == "done"}
        # The first time that it was said counts: its answer may have been lost.
        ends = [word.said for word in words if word.fence in done]
        if ends and min(ends) > first:
            check.broken(f"{name} started {min(ends) - first} µs before its parent {parent} was done")


def redelivery_is_bounded(book: Book, rules: Rules, check: Check) -> None:
    """When a holder is known to be gone its jobs run again soon once there is room for them, or end."""
    for name, job in book.jobs.items():
        if book.reborn(job):
            continue
        fences = sorted({lease.fence for lease in job.leases} | {run.fence for run in job.runs})
        holders = {lease.fence: lease.session for lease in job.leases}
        holders |= {run.fence: run.session for run in job.runs if run.session}
        for fence in fences:
            session = book.sessions.get(holders.get(fence, ""))
            word = last_word(job, fence)
            later = [run.start for run in job.runs if run.fence > fence]
            if not later and fence == fences[-1]:
                _ends_or_runs(book, rules, name, job, fence, check)
            if session is None or session.gone >= FAR or (word is not None and word.applied):
                continue
            if not later or book.blurred(job, fence):
                continue
            check.case()
            gone, back = session.gone, min(later)
            earned = sum(each.cause in ("crash", "lost") for each in job.final.deliveries) if job.final else 0
            delay = min(60_000_000, 1_000_000 << earned) if earned > 1 else 0
            gap, most = _wait(book, job, gone, back), rules.redelivery + delay
            check.slowest = max(check.slowest, back - gone)
            if gap > most and (gap := _longest_wait(book, job, gone, back)) > most:
                check.broken(f"{name}: {gap} µs from the end of the holder of fence {fence} to the next run")


def _longest_wait(book: Book, job: JobBook, since: int, until: int) -> int:
    """The longest that a job waited while workers had room for it. Queues are served in order: as long as
    askers are told that there is more than they have room for, one of the last queues waits, given back or
    not, and no promise is broken. What the store has forgotten waits on when there is room again.
    """
    turns = book.crowded[bisect_right(book.crowded, since) : bisect_left(book.crowded, until)]
    return max(_wait(book, job, begin, end) for begin, end in itertools.pairwise([since, *turns, until]))


def _wait(book: Book, job: JobBook, since: int, until: int) -> int:
    return until - since - book.away(since, until) - _paused(book, job, since, until)


def _ends_or_runs(book: Book, rules: Rules, name: str, job: JobBook, fence: int, check: Check) -> None:
    """What was given back, by its holder or by the store, is not forgotten."""
    final, drained = job.final, book.phases.get("drained", 0)
    if final is None or final.state != "ready" or not final.deliveries:
        return
    given = final.deliveries[-1]
    if given.fence != fence or given.outcome not in ("release", "retry"):
        return
    back = given.ended_at + (book.shift or 0)
    gap = _wait(book, job, back, drained)
    if book.shift is not None and gap > rules.redelivery:
        check.broken(f"{name}: fence {fence} was given back {gap} µs before the end, and it never ran again")


def _paused(book: Book, job: JobBook, since: int, until: int) -> int:
    queue = job.final.queue if job.final is not None else ""
    return sum(
        max(0, min(until, end) - max(since, begin)) for begin, end, name, _ in book.paused if name == queue
    )
