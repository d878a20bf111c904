"""Invariants of the fleet: sessions, limits, fairness, recovery."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush

from windlass.verify.checker.book import Book
from windlass.verify.checker.life import HISTORY, last_word
from windlass.verify.checker.records import FAR, JobBook
from windlass.verify.checker.verdict import Check, Rules
from windlass.verify.history import Delivery, Limits

OUTAGE_STEP, OUTAGE_SHARE = 1_000_000, 5
"""A pass moves the liveness clock by the time since the last one; by a second if that is longer than this
part of the TTL.
"""


def the_living_are_not_reaped(book: Book, rules: Rules, check: Check) -> None:
    """A session is given up only when it was silent for longer than its TTL while somebody swept."""
    sweeps = sorted(book.sweeps.values())
    for name, session in book.sessions.items():
        if session.reaped >= FAR or not session.ttl:
            continue
        check.case()
        beats = zip(session.beats, session.answers, strict=True)
        heard = max(
            (at for at, answered in beats if at < session.reaped and not book.lost(at, answered)),
            default=session.opened,
        )
        step = max(OUTAGE_STEP, session.ttl // OUTAGE_SHARE)
        silence = _liveness(sweeps, heard, session.reaped, step)
        if silence < session.ttl - rules.clock_slack:
            check.broken(
                f"session {name} was given up, and was silent for {silence} µs of its {session.ttl} at most"
            )


def _liveness(sweeps: list[tuple[int, int]], since: int, until: int, step: int) -> int:
    """How far the liveness clock can have come, by passes that are at most a step apart; one that comes later
    moves it by a second.

    A pass happened at some time between its question and its answer, which may never have come: each counts
    from when that moves the clock most, those first that had to happen soonest.
    """
    left = [one for one in sweeps if one[0] <= until and one[1] >= since - step]
    left.reverse()  # the first asked for is taken from the end
    under_way: list[int] = []
    moved, before = 0, since
    while left or under_way:
        while left and (left[-1][0] <= before + step or not under_way):
            asked, answered = left.pop()
            if asked > before + step:
                moved += OUTAGE_STEP
                before = asked
            else:
                heappush(under_way, answered)
        if not under_way:
            break
        at = min(before + step, heappop(under_way), until)
        if at > before:
            moved += at - before
            before = at
    # The pass that gave it up was asked for some time before it was answered.
    return moved + min(until - before, step)


def the_silent_start_nothing(book: Book, rules: Rules, check: Check) -> None:
    """A worker whose last answered beat was sent more than a TTL less one beat ago starts nothing."""
    for name, job in book.jobs.items():
        for run in job.runs:
            session = book.sessions.get(run.session)
            if session is None or not session.ttl:
                continue
            check.case()
            place = bisect_right(session.beats, run.start)
            heard = session.beats[place - 1] if place else session.opened
            silent = run.start - heard
            if silent > session.ttl - rules.beat + rules.clock_slack:
                check.broken(
                    f"{name}: fence {run.fence} started {silent} µs after the last beat of its session"
                )


def deaths_are_told(book: Book, rules: Rules, check: Check) -> None:
    """A supervisor that sees its child die ends the child's session at once."""
    for name, session in book.sessions.items():
        if session.died >= FAR or session.opened > session.died or not session.heart:
            continue
        end = session.died + rules.told
        undisturbed = not book.away(session.died - rules.told, end) and end < book.last
        if not undisturbed or book.deaths.get(session.heart, FAR) < end:
            continue
        check.case()
        if not any(said < end for _, said, _ in session.ended):
            check.broken(f"session {name}: its process died, and nobody told the store for {rules.told} µs")


def leases_have_holders(book: Book, rules: Rules, check: Check) -> None:
    """Nobody holds a lease who is gone, or who does not know of it."""
    finished = book.finished
    if finished is None:
        return
    shift = book.shift
    for name, job in book.jobs.items():
        final = job.final
        if final is None:
            continue
        check.case()
        if shift is not None and not book.reborn(job):
            for delivery in final.deliveries:
                _unknown_to_holder(book, rules, name, job, delivery, shift, check)
        if final.state != "running":
            continue
        if finished.idle and final.session is not None:  # else it has a deadline, and comes back by itself
            check.broken(f"{name} is held under fence {final.fence}, and no worker is left")
        elif final.session is not None and final.session not in finished.sessions:
            check.broken(f"{name} is held by session {final.session}, which is over")


def _unknown_to_holder(
    book: Book, rules: Rules, name: str, job: JobBook, delivery: Delivery, shift: int, check: Check
) -> None:
    """A lease that the store had to end, and whose session lived on without it."""
    session = book.sessions.get(delivery.session or "")
    if delivery.settled or session is None:
        return
    words = [word for word in job.words if word.fence == delivery.fence]
    if words:  # until it is answered it is said again
        since = max(word.said if word.answered >= FAR else word.answered for word in words)
        what = "had said its last word of it"
    elif not any(lease.fence == delivery.fence for lease in job.leases):
        since, what = delivery.claimed_at + shift, "never heard of it"
    else:
        return
    until = min(delivery.ended_at + shift, session.gone)
    held = until - since - book.away(since, until)
    if held > rules.unknown:
        check.broken(f"{name}: fence {delivery.fence} was held for {held} µs by a session that {what}")


def limits_hold(book: Book, rules: Rules, check: Check) -> None:
    """Concurrency and rate, of queues and lanes, in every window."""
    lanes = {(each.queue, each.lane): each for each in book.limits if each.lane is not None}
    for each in book.limits:
        if each.lane is None:
            _limit(book, rules, each, None, check)
            names = sorted(
                {job.final.lane for job in book.jobs.values() if job.final and job.final.queue == each.queue}
            )
            for lane in names if each.lane_concurrency is not None else ():
                own = lanes.get((each.queue, lane))
                if own is None or own.concurrency is None:
                    limit = Limits(queue=each.queue, lane=lane, concurrency=each.lane_concurrency)
                    _limit(book, rules, limit, lane, check)
        else:
            _limit(book, rules, each, each.lane, check)


def _limit(  # noqa: C901 - two kinds of limits over the same leases
    book: Book, rules: Rules, limit: Limits, lane: str | None, check: Check
) -> None:
    leases: list[tuple[int, int]] = []
    runs: list[tuple[int, int]] = []
    claims: list[int] = []
    for job in book.jobs.values():
        final = job.final
        if final is None or final.queue != limit.queue or (lane is not None and final.lane != lane):
            continue
        for each in final.deliveries:
            leases.append((each.claimed_at, each.ended_at))
            if not (each.outcome in ("release", "hold") and not each.ran):
                claims.append(each.claimed_at)  # what never started gives its token back
        for run in job.runs:
            word = last_word(job, run.fence)
            if word is not None and word.verdict == "applied" and not book.blurred(job, run.fence):
                runs.append((run.start, min(run.end, word.said)))
    where = limit.queue if lane is None else f"{limit.queue}/{lane}"
    if limit.concurrency is not None:
        check.case(len(leases))
        for kind, most in (("leases", _most(leases)), ("runs with a live lease", _most(runs))):
            if most > limit.concurrency:
                check.broken(f"{where}: {most} {kind} at once, limit {limit.concurrency}")
    if limit.rate is not None:
        check.case(len(claims))
        over = _over_rate(sorted(claims), limit.rate, limit.burst, rules.clock_slack)
        if over:
            check.broken(f"{where}: {over}")


def _most(spans: Iterable[tuple[int, int]]) -> int:
    """The most of them at once; one that ends when another begins does not count with it."""
    edges = sorted(edge for begin, end in spans for edge in ((begin, 1), (end, -1)) if end > begin)
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most


def _over_rate(claims: list[int], rate: float, burst: int, slack: int) -> str | None:
    """A token bucket that is emptied by the claims: below nothing, some window had too many."""
    level, before = float(burst), claims[0] if claims else 0
    for at in claims:
        level = min(float(burst), level + (at - before) * rate / 1e6)
        before = at
        level -= 1.0
        if level < -(slack * rate / 1e6) - 1e-6:
            return f"more than {rate:g}/s with a burst of {burst} around {at}"
    return None


def lanes_share(book: Book, rules: Rules, check: Check) -> None:  # noqa: C901 - pairs of lanes in windows
    """While a lane waits with work, no other gets more than its share, by weight, and a few claims."""
    weights = {(each.queue, each.lane): each.weight for each in book.limits if each.lane is not None}
    for queue in sorted({queue for queue, _ in weights}):
        lanes = [lane for name, lane in weights if name == queue]
        claims: dict[str, list[int]] = defaultdict(list)
        backlog: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for job in book.jobs.values():
            final = job.final
            if (
                final is None
                or final.queue != queue
                or len(final.deliveries) >= HISTORY
                or not final.deliveries
            ):
                continue
            claims[final.lane] += [each.claimed_at for each in final.deliveries]
            if job.accepted < FAR and job.asked is not None and not book.lost(job.asked_at, job.accepted):
                first = final.deliveries[0].claimed_at
                backlog[final.lane].append((job.accepted + job.asked.delay, first))
        for at in claims.values():
            at.sort()
        for lane in lanes:
            for begin, end in _continuous(book, backlog[lane], claims[lane]):
                for other in lanes:
                    if other == lane:
                        continue
                    check.case()
                    mine = _within(claims[lane], begin, end + 1) / weights[queue, lane]
                    theirs = _within(claims[other], begin + 1, end) / weights[queue, other]
                    slack = rules.fairness_slack / min(weights[queue, lane], weights[queue, other])
                    if theirs > mine + slack:
                        check.broken(
                            f"{queue}: while {lane} waited, {other} got {theirs:.1f} shares and it {mine:.1f}"
                        )


def _within(claims: list[int], begin: int, end: int) -> int:
    """How many of them, which are in order, lie from `begin` on and before `end`."""
    return max(0, bisect_left(claims, end) - bisect_left(claims, begin))


def _continuous(book: Book, waits: list[tuple[int, int]], claims: list[int]) -> list[tuple[int, int]]:
    """The times, on the store's clock, in which a lane had work waiting without a break."""
    if not waits or not claims:
        return []
    # Acceptance is on the machine's clock, claims are on the store's: what is claimed was accepted before,
    # so the difference is at most the smallest that is seen.
    shift = min(claimed - accepted for accepted, claimed in waits)
    spans: list[tuple[int, int]] = []
    for accepted, claimed in sorted((accepted + shift, claimed) for accepted, claimed in waits):
        if spans and accepted <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], claimed))
        else:
            spans.append((accepted, claimed))
    return [(begin, end) for begin, end in spans if end > begin and not book.paused]


def work_resumes_and_drains(book: Book, rules: Rules, check: Check) -> None:
    """After healing, work goes on within a moment, and nothing is left that could run."""
    if "runaway" in book.phases:
        check.broken("the run went round in circles and did not come to rest")
    drained = book.phases.get("drained")
    if drained is None:
        return
    dead = {name for name, job in book.jobs.items() if job.final is not None and job.final.state == "dead"}
    held = {queue for _, end, queue, _ in book.paused if end >= FAR}
    for name, job in book.jobs.items():
        final = job.final
        if final is None or final.state in ("done", "dead", "cancelled", "absent"):
            continue
        if job.fired and _fired_after(job, drained):
            continue  # a schedule had a tick to catch up with while the workers were stopping
        check.case()
        waits = job.asked is not None and (
            job.due > drained or any(parent in dead for parent in job.asked.after)
        )
        blocked = final.state == "blocked" and (final.reason == "parent dead" or waits)
        if not (waits or blocked or final.queue in held):
            check.broken(f"{name} is {final.state} ({final.reason}) though everything was healed")
    _resumes(book, rules, check, book.phases.get("healed"))


def _fired_after(job: JobBook, drained: int) -> bool:
    """Whether a job came of a fire that was asked for, or under way, when the run had drained: a fire that is
    heard of later has not been seen in the store before. One that is never answered counts from its ask.
    """
    fired = job.accepted if job.accepted < FAR else job.asked_at
    return min([fired, *(lease.asked for lease in job.leases)]) > drained


def _resumes(book: Book, rules: Rules, check: Check, healed: int | None) -> None:
    if healed is None:
        return
    check.case()
    starts = sorted(run.start for job in book.jobs.values() for run in job.runs)
    place = bisect_right(starts, healed)
    ready = [
        name
        for name, job in book.jobs.items()
        if job.accepted < healed and job.due < healed and not job.leases and job.runs
    ]
    if ready and place < len(starts) and starts[place] - healed > rules.resume:
        check.broken(
            f"nothing ran for {starts[place] - healed} µs after healing, and {len(ready)} jobs waited"
        )
