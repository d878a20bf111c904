"""The short way of a settle: many runs that are done, in a few statements.

What it writes of a lease beside the head is in memory since the claim. The file alone judges: the statement
that ends a lease does so only if its fence is live and no other table knows of the job. If that is not so
for each of them, nothing has happened, and all of them go the long way.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from windlass.broker.sqlite import filing
from windlass.broker.sqlite.handle import Handed
from windlass.broker.sqlite.handout import FEW
from windlass.broker.sqlite.records import DONE, RUNNING, as_json, done_record
from windlass.broker.sqlite.sessions import session_id
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.writing import Writing
from windlass.core.event import Emit, Event
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.state import Move, State
from windlass.core.units import Fence, JobId

SQL = statements("bulk")
JOBS = statements("jobs")


_Run: TypeAlias = tuple[Settlement, Handed]
_place_of = itemgetter(2, 7)
"""Queue and lane."""


def settle_done(tx: Writing, items: Sequence[Settlement]) -> Collection[JobId]:
    """Settle those that are done and simple, and say which; the others need the long way."""
    runs = _simple(tx, items)
    if not runs or not _end(tx, runs):
        return ()
    _record(tx, runs)
    leases = tx.handle.leases
    return {item.job: leases.pop(item.job) for item, _ in runs}


def _simple(tx: Writing, items: Sequence[Settlement]) -> list[_Run]:
    """The runs whose end concerns nobody else, as far as memory can say."""
    leases, done = tx.handle.leases, Outcome.DONE
    runs: list[_Run] = []
    places: dict[tuple[int, int | None], tuple[bool, bool, bool]] = {}
    for item in items:
        job = item.job
        lease = leases.get(job)
        if lease is None or item.outcome is not done or item.spawn or item.error is not None:
            continue
        place = lease[2], lease[6]
        kept = places.get(place)
        if kept is None:
            kept = places[place] = _kept(tx, *place)
        if lease[0] == item.fence and kept[item.result is not None]:
            runs.append((item, lease))
    # Two words on one job are heard in their order; and so are all words that the event log tells of.
    if len({item.job for item in items}) < len(items):
        return []
    emits = any(kept[2] for kept in places.values())
    return [] if emits and len(runs) < len(items) else runs


def _kept(tx: Writing, q: int, s: int | None) -> tuple[bool, bool, bool]:
    """Whether a done job of a queue and a session is kept as it is: without a result, with a result; and
    whether its end is written to the event log.
    """
    queue = tx.queue_of(q)
    policy = queue.policy
    alive = s is None or tx.one(JOBS["session_alive"], (s,)) is not None
    plain = alive and not policy.sequence
    kept, with_result = bool(policy.retention), bool(policy.retention or policy.result_ttl)
    return plain and kept, plain and with_result, policy.emit is not Emit.NONE


def _end(tx: Writing, runs: Sequence[_Run]) -> bool:
    """End the leases: all of them, or none."""
    claims: dict[int, dict[int, Fence]] = {}
    sizes: list[tuple[int, Fence, int]] = []
    for item, lease in runs:
        if item.result is None:
            claims.setdefault(lease[9], {})[lease[1]] = lease[0]
        else:
            sizes.append((lease[1], lease[0], len(item.result)))
    tx.run("SAVEPOINT done")
    ended = 0
    fences: dict[int, Fence] = {}
    for number, part in claims.items():
        between = _without_gap(tx, number, part)
        if between is None:
            fences |= part
        else:
            ended += tx.changed(SQL["end_stretch"], (*between, tx.now))
    fences, alike = _by_fence(fences)
    for fence, numbers in alike.items():
        ended += tx.changed(SQL["end_alike"], (as_json(numbers), fence, tx.now))
    if fences:
        ended += tx.changed(SQL["end_done"], (as_json(fences), tx.now))
    if sizes:
        ended += tx.changed(SQL["end_done_with_result"], (as_json(sizes), tx.now))
    whole = ended == len(runs)
    if not whole:
        tx.run("ROLLBACK TO done")
    tx.run("RELEASE done")
    return whole


def _by_fence(fences: dict[int, Fence]) -> tuple[dict[int, Fence], dict[Fence, list[int]]]:
    """The numbers of jobs under fences that many of them have, as those of a claim nearly always do; the rest
    is returned as it came.
    """
    by: dict[Fence, list[int]] = {}
    for n, fence in fences.items():
        numbers = by.get(fence)
        if numbers is None:
            by[fence] = [n]
        else:
            numbers.append(n)
    alike = {fence: sorted(numbers) for fence, numbers in by.items() if len(numbers) >= FEW}
    return {n: fence for n, fence in fences.items() if fence not in alike}, alike


def _without_gap(tx: Writing, number: int, part: Mapping[int, Fence]) -> tuple[int, int, int, Fence] | None:
    """The first and the last of some jobs of a claim, and their lease, if all that lies between them are
    these: the claim's lease number was given to nothing else, so a statement over that stretch ends no other.
    """
    stretch = tx.handle.stretches.get(number)
    if stretch is None or len(part) < FEW:
        return None
    fence, claimed = stretch
    numbers = sorted(part)
    begin = bisect_left(claimed, numbers[0])
    if claimed[begin : begin + len(numbers)] != numbers:
        return None
    return numbers[0], numbers[-1], number, fence


def _record(tx: Writing, runs: Sequence[_Run]) -> None:
    """Write down what was done, beside the heads."""
    tx.forget()
    now = tx.now
    sessions = {s: session_id(tx, s) for s in {lease[6] for _, lease in runs}}
    deliveries: list[tuple[int, int, bytes]] = []
    results: list[tuple[int, int, int, bytes]] = []
    for item, (fence, n, q, _, attempt, claimed_at, s, _, _, _) in runs:
        record = done_record(fence, attempt, sessions[s], claimed_at, now, item.runtime)
        deliveries.append((n, fence, record))
        if item.result is not None:
            tx.bytes += len(item.result)
            results.append((n, q, now, item.result))
    tx.many(JOBS["add_delivery"], deliveries)
    if results:
        tx.many(JOBS["save_result"], results)
    for t in {lease[3] for item, lease in runs if item.runtime is not None}:
        tx.time_task(t)
    ended: dict[int, dict[str, int]] = {}
    for (q, t), count in Counter([lease[2:4] for _, lease in runs]).items():
        tx.count(q, t, RUNNING, -count)
        tx.count(q, t, DONE, count)
        ended[q] = {}
    for (q, lane), count in Counter([_place_of(lease) for _, lease in runs]).items():
        ended[q][lane] = count
    for q, lanes in ended.items():
        filing.vacate_done(tx, tx.queue_of(q), lanes)
    _log(tx, runs)
    tx.rung = True


def _log(tx: Writing, runs: Sequence[_Run]) -> None:
    """Write the ends to the event log, those of queues that ask for it."""
    loud = {q: tx.queue_of(q) for q in {lease[2] for _, lease in runs}}
    loud = {q: queue for q, queue in loud.items() if queue.policy.emit is not Emit.NONE}
    if not loud:
        return
    for item, (fence, _, q, t, attempt, _, _, lane, waited, _) in runs:
        queue = loud.get(q)
        if queue is not None:
            tx.log(
                Event(
                    at=tx.now,
                    job=item.job,
                    task=tx.task_name(t),
                    queue=queue.name,
                    lane=lane,
                    move=Move.DONE,
                    before=State.RUNNING,
                    after=State.DONE,
                    outcome=Outcome.DONE,
                    attempt=attempt,
                    fence=fence,
                    runtime=item.runtime,
                    waited=waited,
                )
            )
