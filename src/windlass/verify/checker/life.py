"""Invariants of single jobs: that they are kept, why they run, how they end, what they are charged for."""

from windlass.verify.checker.book import Book
from windlass.verify.checker.records import FAR, JobBook, Word
from windlass.verify.checker.verdict import Check, Rules
from windlass.verify.history import Delivery, Final

TERMINAL = frozenset({"done", "dead", "cancelled"})
GIVEN_BACK = frozenset({"release", "snooze", "hold"})
HISTORY = 10
"""Deliveries that a store keeps of a job."""


def accepted_is_kept(book: Book, _rules: Rules, check: Check) -> None:
    """Every accepted job ends terminal or is present. Spawned ones are accepted with their parent's end."""
    for name, job in book.jobs.items():
        accepted = job.created and not book.lost(job.asked_at, job.accepted)
        spawned = any(
            word.verdict == "applied" and not book.lost(word.said, word.answered) for word in job.spawned_by
        )
        if not (accepted or spawned):
            continue
        check.case()
        gone = job.final is None or job.final.state == "absent"
        if gone and not job.did("discard", "purge") and not _seen_to_end(job):
            check.broken(f"{name} was accepted, and nothing is left of it")


def _seen_to_end(job: JobBook) -> bool:
    ended = any(word.applied and word.state in TERMINAL for word in job.words)
    return ended or job.did("cancel")


def enqueues_are_answered(book: Book, _rules: Rules, check: Check) -> None:
    """Once everything is healed the store answers every enqueue, and no producer hangs in an earlier one."""
    healed = book.phases.get("healed")
    if healed is None:
        return
    for sending in book.sendings.values():
        if book.deaths.get(sending.producer, FAR) < healed:
            continue
        if sending.began > healed:
            check.case()
            if not sending.answered:
                check.broken(f"a call of {sending.producer} failed though everything was healed")
        elif sending.ended == FAR:
            check.case()
            check.broken(f"a call of {sending.producer} never came back")


def runs_were_enqueued(book: Book, _rules: Rules, check: Check) -> None:
    """Nothing runs that nobody asked for: refused calls and children of stale runs included."""
    for name, job in book.jobs.items():
        if not job.runs:
            continue
        check.case()
        first = min(run.start for run in job.runs)
        if job.asked is not None:
            if job.asked_at > first:
                check.broken(f"{name} ran before it was enqueued")
            elif job.refused and not job.created and not job.absorbed and not _is_unknown(job):
                check.broken(f"{name} was refused, and ran")
        elif job.spawned_by:
            if all(word.verdict in ("stale", "gone", "refused") for word in job.spawned_by):
                check.broken(f"{name} ran, and every run that spawned it was stale")
        elif not job.fired:
            check.broken(f"{name} ran, and nobody had enqueued it")


def _is_unknown(job: JobBook) -> bool:
    return job.refused == 0


def one_terminal_state(book: Book, _rules: Rules, check: Check) -> None:
    """A job ends once. Only a replay lets a dead one end again."""
    for name, job in book.jobs.items():
        ends = [
            word
            for word in job.words
            if word.verdict == "applied" and word.state in TERMINAL and not book.blurred(job, word.fence)
        ]
        if not ends or book.reborn(job):
            continue
        check.case()
        if len(ends) > 1 and not job.did("replay"):
            check.broken(f"{name} ended {len(ends)} times: {', '.join(word.state for word in ends)}")
        final = job.final
        if final is None or final.pruned or final.state == "absent":
            continue
        if job.did("replay"):
            if any(word.state == "done" for word in ends) and final.state != "done":
                check.broken(f"{name} was done, and is {final.state}")
        elif final.state != ends[-1].state:
            check.broken(f"{name} ended as {ends[-1].state}, and is {final.state}")
        done = [each for each in final.deliveries if each.outcome == "done"]
        if final.state == "done" and len(done) != 1:
            check.broken(f"{name} is done, by {len(done)} leases")


def stale_fences_change_nothing(book: Book, _rules: Rules, check: Check) -> None:
    """A word about a lease that was taken away is not applied, and nobody else's is taken for it."""
    for name, job in book.jobs.items():
        said = job.words + job.notes
        if not said:
            continue
        newer = sorted((lease.heard, lease.fence) for lease in job.leases)
        newer += [(run.start, run.fence) for run in job.runs]
        for word in said:
            check.case()
            if word.verdict != "applied" or book.blurred(job, word.fence):
                continue
            if any(at < word.said and fence > word.fence for at, fence in newer):
                check.broken(f"{name}: {word.outcome} of fence {word.fence} was applied after a newer lease")
            elif (over := _over(book, job, word.fence)) < word.said:
                check.broken(
                    f"{name}: {word.outcome} of fence {word.fence} was applied {word.said - over} µs after "
                    f"its session was over"
                )
        if job.final is not None and not book.reborn(job):
            _compare(book, name, job, job.final, check)


def _over(book: Book, job: JobBook, fence: int) -> int:
    holder = job.holder_of(fence)
    return book.sessions[holder].over if holder in book.sessions else 1 << 62


def _compare(book: Book, name: str, job: JobBook, final: Final, check: Check) -> None:
    """What the store remembers of each lease is what its holder was told."""
    applied = {
        word.fence: word
        for word in job.words
        if word.verdict == "applied" and not book.blurred(job, word.fence)
    }
    spoken = {word.fence for word in job.words if not word.failed}
    for delivery in final.deliveries:
        word = applied.get(delivery.fence)
        if word is not None and not delivery.settled:
            check.broken(f"{name}: fence {delivery.fence} was settled, and the store says it was lost")
        if word is not None and word.stands and word.stands != delivery.outcome:
            check.broken(f"{name}: fence {delivery.fence} ended as {word.stands}, kept as {delivery.outcome}")
        if delivery.settled and spoken and delivery.fence not in spoken:
            check.broken(f"{name}: fence {delivery.fence} is settled, and nobody said so")


def fences_grow(book: Book, _rules: Rules, check: Check) -> None:
    """Every lease has a fence of its own, higher than those before it; also after prune and failover."""
    for name, job in book.jobs.items():
        started: set[int] = set()
        for run in job.runs:
            check.case()
            if run.fence in started:
                check.broken(f"{name}: fence {run.fence} started twice")
            started.add(run.fence)
        holders: dict[int, str] = {}
        for lease in job.leases:
            check.case()
            if holders.setdefault(lease.fence, lease.session) != lease.session:
                check.broken(f"{name}: fence {lease.fence} was handed to two sessions")
        _compare_claims(name, job, check)
        if job.final is not None:
            fences = [delivery.fence for delivery in job.final.deliveries]
            if fences != sorted(set(fences)):
                check.broken(f"{name}: the fences of its history do not grow: {fences}")


def _compare_claims(name: str, job: JobBook, check: Check) -> None:
    highest = heard = asked = 0
    for lease in job.leases:  # in the order in which they were heard of
        if lease.asked > heard and lease.fence < highest:
            check.broken(f"{name}: fence {lease.fence} was handed out after {highest}")
        if lease.asked > asked and lease.fence > highest:
            highest, heard, asked = lease.fence, lease.heard, lease.asked


def attempts_add_up(book: Book, rules: Rules, check: Check) -> None:
    """Attempts are claims less give-backs, and within bounds; a crash is charged to what had started."""
    unseen: list[str] = []
    for name, job in book.jobs.items():
        final = job.final
        if final is None or final.pruned or book.reborn(job):
            continue
        check.case()
        if final.attempt > final.max_attempts:
            check.broken(f"{name} is at attempt {final.attempt} of {final.max_attempts}")
        replayed = job.did("replay") or final.replays > 0
        expected = 1 if len(final.deliveries) < HISTORY else None
        for delivery in final.deliveries:
            if delivery.attempt > final.max_attempts:
                check.broken(f"{name}: fence {delivery.fence} was attempt {delivery.attempt}")
            fresh = replayed and delivery.attempt == 1
            if expected is not None and delivery.attempt != expected and not fresh:
                check.broken(
                    f"{name}: fence {delivery.fence} was attempt {delivery.attempt}, not {expected} "
                    f"({_short(final)})"
                )
            expected = delivery.attempt + (not _is_given_back(delivery))
            _compare_run(book, rules, name, job, delivery, check, unseen)
    if not rules.exact_starts and len(unseen) > rules.unseen_starts:
        for text in unseen:
            check.broken(text)


def _compare_run(
    book: Book, rules: Rules, name: str, job: JobBook, delivery: Delivery, check: Check, unseen: list[str]
) -> None:
    run = next((run for run in job.runs if run.fence == delivery.fence), None)
    if run is not None and run.attempt != delivery.attempt:
        check.broken(f"{name}: fence {delivery.fence} ran as attempt {run.attempt}, not {delivery.attempt}")
    crashed = delivery.cause == "crash"
    if crashed and delivery.outcome in ("retry", "dead") and run is None:
        text = f"{name}: fence {delivery.fence} was charged for a crash, and had not started"
        started = book.sessions[delivery.session or ""].started
        if rules.exact_starts or (started and (name, delivery.fence) not in started):
            check.broken(text)
        else:
            unseen.append(text)
    if crashed and delivery.outcome == "release" and run is not None and run.end > book.last:
        check.broken(f"{name}: fence {delivery.fence} had started in a crash, and was not charged")
    crashed = book.sessions[delivery.session or ""].crashed
    if delivery.cause == "stop" and crashed and run is not None and run.end > book.last:
        check.broken(f"{name}: fence {delivery.fence} had started in a crash that was called a stop")
    if delivery.cause is None and delivery.settled and run is None and _is_end_of_run(delivery):
        text = f"{name}: fence {delivery.fence} ended as {delivery.outcome}, and never ran"
        if rules.exact_starts or delivery.outcome != "retry":
            check.broken(text)
        else:
            unseen.append(text)  # a process of its own can die before the first line, and its worker goes on


def _is_given_back(delivery: Delivery) -> bool:
    return delivery.outcome in GIVEN_BACK


def _is_end_of_run(delivery: Delivery) -> bool:
    return delivery.ran and delivery.outcome in ("done", "retry", "snooze")


def done_has_run(book: Book, _rules: Rules, check: Check) -> None:
    """Done means that the run of that fence came to its end; and its result is the one that is kept."""
    for name, job in book.jobs.items():
        final = job.final
        if final is None or final.state != "done" or final.pruned or book.reborn(job):
            continue
        check.case()
        by = next((each.fence for each in final.deliveries if each.outcome == "done"), None)
        run = next((run for run in job.runs if run.fence == by), None)
        if run is None or run.how != "ok":
            check.broken(f"{name} is done by fence {by}, and that run did not come to its end")
        if final.result is not None and final.result != by:
            check.broken(f"{name} is done by fence {by}, and has the result of {final.result}")


def dead_letters_are_explained(book: Book, _rules: Rules, check: Check) -> None:
    """No dead letter without a start, or a stated reason that needs none."""
    for name, job in book.jobs.items():
        final = job.final
        if final is None or final.state != "dead" or final.pruned:
            continue
        check.case()
        charged = sum(not _is_given_back(each) for each in final.deliveries)
        if final.reason is None:
            check.broken(f"{name} is dead without a reason")
        elif final.reason in ("attempts exhausted", "crashed its worker", "worker lost"):
            complete = len(final.deliveries) < HISTORY and not final.replays
            if complete and charged != final.max_attempts:
                check.broken(
                    f"{name} is dead ({final.reason}) after {charged} of {final.max_attempts} attempts"
                )
            if final.reason != "worker lost" and not job.runs:
                check.broken(f"{name} is dead ({final.reason}) and never ran")
        elif final.reason == "gave up" and not job.runs and not _refused_to_start(job):
            check.broken(f"{name} gave up and never ran")


def _refused_to_start(job: JobBook) -> bool:
    return any(word.outcome == "dead" and not word.ran for word in job.words)


def _short(final: Final) -> str:
    ends = [
        f"{each.attempt}:{each.outcome}{'/' + each.cause if each.cause else ''}" for each in final.deliveries
    ]
    return ", ".join(ends)


def last_word(job: JobBook, fence: int) -> Word | None:
    """The word on a lease that tells most."""
    words = [word for word in job.words if word.fence == fence]
    return next((word for word in words if word.applied), words[-1] if words else None)
