"""The checker: reads histories only, and knows nothing of brokers.

One function for each invariant. Each says how many cases it has looked at, so that "holds" can be told from
"there was nothing to see". To add one: write the function, and name it in `INVARIANTS`.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from windlass.verify import history
from windlass.verify.checker import again, deadlines, fleet, flows, life
from windlass.verify.checker.book import Book, write_up
from windlass.verify.checker.verdict import Check, Finding, Rules, Verdict

__all__ = ["INVARIANTS", "Finding", "Rules", "Verdict", "check", "check_folder"]

Invariant = Callable[[Book, Rules, Check], None]

INVARIANTS: dict[str, Invariant] = {
    function.__name__: function
    for function in (
        life.accepted_is_kept,
        life.enqueues_are_answered,
        life.runs_were_enqueued,
        life.one_terminal_state,
        life.stale_fences_change_nothing,
        life.fences_grow,
        life.attempts_add_up,
        life.done_has_run,
        life.dead_letters_are_explained,
        again.live_runs_never_overlap,
        again.duplicates_are_explained,
        again.a_healthy_run_has_no_duplicates,
        again.nothing_starts_before_it_is_due,
        again.redelivery_is_bounded,
        deadlines.deadlines_are_kept,
        fleet.the_living_are_not_reaped,
        fleet.the_silent_start_nothing,
        fleet.deaths_are_told,
        fleet.leases_have_holders,
        fleet.limits_hold,
        fleet.lanes_share,
        flows.ticks_fire_once,
        flows.ticks_are_not_missed,
        flows.joins_read_their_parents,
        fleet.work_resumes_and_drains,
    )
}


def check(lines: Iterable[history.Line], rules: Rules | None = None) -> Verdict:
    """Check a history."""
    rules = rules or Rules()
    book = write_up(lines)
    findings: dict[str, Finding] = {}
    duplicates: Counter[str] = Counter()
    slowest = 0
    for name, invariant in INVARIANTS.items():
        one = Check()
        invariant(book, rules, one)
        findings[name] = one.finding
        duplicates += one.duplicates
        slowest = max(slowest, one.slowest)
    finals = [job.final for job in book.jobs.values() if job.final is not None]
    return Verdict(
        findings=findings,
        events=book.events,
        jobs=len(book.jobs),
        runs=sum(len(job.runs) for job in book.jobs.values()),
        faults=dict(book.faults),
        duplicates=dict(duplicates),
        slowest_redelivery=slowest,
        states=dict(Counter(final.state for final in finals)),
    )


def check_folder(folder: Path, rules: Rules | None = None) -> Verdict:
    """Check the history of a run, by its folder."""
    return check(history.read(folder), rules)
