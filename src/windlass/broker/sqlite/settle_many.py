"""The short way of a settle: many runs that are done, of queues without lanes and limits, in a few
statements.
"""

import json
from collections.abc import Sequence

from windlass.broker.sqlite.handle import Row
from windlass.broker.sqlite.records import DONE, RESULT, RUNNING, Queue, pack
from windlass.broker.sqlite.sessions import session_id
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.writing import Writing
from windlass.core.event import Emit
from windlass.core.job import Delivery
from windlass.core.outcome import Answer, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import JobId

SQL = statements("bulk")
JOBS = statements("jobs")
_APPLIED = Answer(Verdict.APPLIED, Outcome.DONE, State.DONE)
_DELIVERIES = 10


def settle_done(tx: Writing, items: Sequence[Settlement]) -> tuple[Answer, ...] | None:
    """Settle runs that are done, or say that the call needs the long way."""
    if not items or any(item.outcome is not Outcome.DONE or item.spawn or item.error for item in items):
        return None
    rows = {row[1]: row for row in tx.all(SQL["live"], (json.dumps([item.job for item in items]),))}
    if len(rows) != len(items):
        return None
    alive: dict[int | None, bool] = {None: True}
    for item in items:
        if not _is_simple(tx, item, rows[item.job], alive):
            return None
    _write(tx, items, rows)
    return (_APPLIED,) * len(items)


def _is_simple(tx: Writing, item: Settlement, row: Row, alive: dict[int | None, bool]) -> bool:
    """Whether a lease is live, and its end concerns nobody else."""
    _, _, q, _, state, fence, s, marks, ends, line, *_ = row
    if state != RUNNING or fence != item.fence or marks or ends >= _DELIVERIES or line is not None:
        return False
    queue = tx.queue_of(q)
    kept = queue.policy.retention or (item.result is not None and queue.policy.result_ttl)
    if not queue.unlimited or queue.policy.emit is not Emit.NONE or not kept:
        return False
    if s not in alive:
        alive[s] = tx.one(JOBS["session_alive"], (s,)) is not None
    return alive[s]


def _write(tx: Writing, items: Sequence[Settlement], rows: dict[JobId, Row]) -> None:
    now = tx.now
    sessions: dict[int | None, str | None] = {}
    deliveries: list[tuple[int, int, bytes]] = []
    results: list[tuple[int, int, int, bytes]] = []
    ends: list[tuple[int, int, int, int]] = []
    queues: dict[int, Queue] = {}
    for item in items:
        n, _, q, t, _, fence, s, _, _, _, attempt, claimed_at = rows[item.job]
        if s not in sessions:
            sessions[s] = session_id(tx, s)
        delivery = Delivery(
            fence=fence,
            attempt=attempt,
            session=sessions[s],
            claimed_at=claimed_at,
            ended_at=now,
            outcome=Outcome.DONE,
            settled=True,
            runtime=item.runtime,
        )
        deliveries.append((n, fence, pack(delivery)))
        size = 0
        if item.result is not None:
            size = len(item.result)
            results.append((n, q, now, item.result))
        ends.append((n, now, size, RESULT if item.result is not None else 0))
        tx.bytes += size
        tx.count(q, t, RUNNING, -1)
        tx.count(q, t, DONE, 1)
        queue = queues[q] = tx.queue_of(q)
        queue.running -= 1
        if item.runtime is not None:
            tx.time_task(t)
    for queue in queues.values():
        tx.touch_queue(queue)
    tx.forget()
    tx.many(SQL["end_done"], ends)
    tx.many(JOBS["add_delivery"], deliveries)
    if results:
        tx.many(JOBS["save_result"], results)
    tx.rung = True
