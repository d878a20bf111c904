"""Invariants of what makes jobs of its own accord: schedules, and flows."""

from collections import defaultdict
from itertools import pairwise

from windlass.verify.checker.book import Book
from windlass.verify.checker.records import JobBook
from windlass.verify.checker.verdict import Check, Rules
from windlass.verify.history import Fire, Gathered

NEVER_AGAIN = 0


def ticks_fire_once(book: Book, _rules: Rules, check: Check) -> None:
    """One job per schedule and tick, however many fire."""
    fired: dict[tuple[str, int], tuple[str, ...]] = {}
    for event in book.fires:
        if event.asked and book.lost(event.asked, event.at):
            continue  # forgotten, and so fired again
        check.case()
        if fired.setdefault((event.schedule, event.tick), event.jobs) != event.jobs:
            check.broken(f"tick {event.tick} of {event.schedule} fired twice")


def ticks_are_not_missed(book: Book, _rules: Rules, check: Check) -> None:
    """Each fire takes the ticks up to the next one, makes the jobs that its policy owes, and the next fire
    begins where it ended.
    """
    if book.rollbacks:
        return  # ticks that were forgotten are fired again, and others by nobody who is known
    answered = {(event.schedule, event.tick) for event in book.fires if event.asked}
    by_schedule: defaultdict[str, dict[int, list[Fire]]] = defaultdict(lambda: defaultdict(list))
    for fire in book.ticks.values():
        by_schedule[fire.schedule][fire.tick].append(fire)
    for name, fires in by_schedule.items():
        known = sorted(tick for schedule, tick in answered if schedule == name)
        for tick, following in pairwise(known):
            check.case()
            # A fire whose answer was lost may stand between two that were answered.
            reached, ends = set[int](), {fire.then for fire in fires[tick]}
            while ends - reached and following not in ends:
                reached |= ends
                ends = {
                    fire.then for end in ends if (name, end) not in answered for fire in fires.get(end, ())
                }
            if following not in ends:
                check.broken(f"{name}: no fire leads from tick {tick} to {following}, which fired next")
        for tick in known:
            _owed(book, name, [fire for fire in fires[tick] if fire.then], check)


def _owed(book: Book, name: str, fires: list[Fire], check: Check) -> None:
    rule = book.rules.get(name)
    for fire in fires if rule is not None else ():
        assert rule is not None
        check.case()
        owed = 1 if rule.catch_up == "one" else (fire.then - fire.tick) // rule.every
        if len(fire.jobs) != owed or (fire.then - fire.tick) % rule.every:
            check.broken(
                f"{name}: the fire of tick {fire.tick}, before {fire.then}, made {len(fire.jobs)} jobs, not "
                f"{owed}"
            )


def joins_read_their_parents(book: Book, _rules: Rules, check: Check) -> None:
    """A job that has waited for others reads what each of them returned, and not before they had."""
    for event in book.gathered:
        job = book.jobs[event.job]
        if job.asked is None or not job.asked.after or book.blurred(job, event.fence):
            continue
        check.case()
        read = tuple(parent for parent, _ in event.parents)
        if read != job.asked.after:
            check.broken(f"{event.job} waited for {len(job.asked.after)} jobs, and read others: {len(read)}")
            continue
        for parent, result in event.parents:
            _compare(book, event, parent, book.jobs[parent], result, check)


def _compare(
    book: Book, event: Gathered, name: str, parent: JobBook, result: int | None, check: Check
) -> None:
    final = parent.final
    if final is None or final.state != "done" or final.pruned or book.reborn(parent):
        return  # it failed, and the edge's policy has let the job go; or nothing of it is kept
    done = [word for word in parent.words if word.applied and word.stands == "done"]
    if any(book.blurred(parent, word.fence) for word in done):
        return
    if result is None or (final.result is not None and result != final.result):
        check.broken(f"{event.job} read {result} from {name}, which returned {final.result}")
