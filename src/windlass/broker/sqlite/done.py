"""Runs that are done and concern nobody else, ended many at a time.

This is the second code path of settle, beside `settle.settle_one`. It ends by one statement what most workers
send: jobs that are done, without children, of which no other table knows. What it cannot end it leaves alone.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from windlass.broker.sqlite import filing
from windlass.broker.sqlite.handle import Row
from windlass.broker.sqlite.records import DONE, RESULT, RUNNING, as_json, delivery_record, state_of
from windlass.broker.sqlite.sessions import session_id
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.event import Emit
from windlass.core.job import Delivery
from windlass.core.lease import is_live
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.units import JobId

SQL = statements("jobs")
MANY: Final = 8
"""Fewer are not worth a statement of their own."""


def end_many(tx: Transaction, items: Sequence[Settlement]) -> Collection[JobId]:
    """End those of the leases that are done and concern nobody else. Returns their jobs."""
    plain = {item.job: item for item in items if _is_plain(item)}
    # Two words about one job are heard in their order.
    if len(plain) < MANY or len({item.job for item in items}) < len(items):
        return ()
    rows = [row for row in tx.all(SQL["plain_leases"], (as_json(plain),)) if _may_end(tx, row, plain[row[1]])]
    _write(tx, [(row, plain[row[1]]) for row in rows])
    for (q, t), count in Counter([row[2:4] for row in rows]).items():
        tx.count(q, t, RUNNING, -count)
        tx.count(q, t, DONE, count)
    for (q, lane), count in Counter([(row[2], row[4]) for row in rows]).items():
        filing.vacate(tx, tx.queue_of(q), lane, count)
    tx.rung = tx.rung or bool(rows)
    return {row[1] for row in rows}


def _is_plain(item: Settlement) -> bool:
    return item.outcome is Outcome.DONE and not item.spawn and item.error is None


def _may_end(tx: Transaction, row: Row, item: Settlement) -> bool:
    """Whether the lease is live, and its job stays where it is when it is done, and no event tells of it."""
    _, _, q, _, _, state, fence, _, s, _ = row
    alive = s is None or tx.session(s)[1]
    policy = tx.queue_of(q).policy
    kept = policy.retention > 0 and policy.emit is Emit.NONE
    return kept and is_live(state_of(state), fence, item.fence, session_alive=alive)


def _write(tx: Transaction, ends: Sequence[tuple[Row, Settlement]]) -> None:
    """Write the ends of leases: heads, deliveries, results."""
    heads: list[tuple[int, int, int]] = []
    results: list[Row] = []
    for (n, job, q, t, _, _, fence, attempt, s, claimed_at), item in ends:
        result = item.result
        if result is None:
            heads.append((n, 0, 0))
        else:
            heads.append((n, len(result), RESULT))
            results.append((n, q, tx.now, result))
            tx.bytes += len(result)
        tx.reread(n, job)
        delivery = Delivery(
            fence=fence,
            attempt=attempt,
            session=session_id(tx, s),
            claimed_at=claimed_at,
            ended_at=tx.now,
            outcome=Outcome.DONE,
            settled=True,
            runtime=item.runtime,
        )
        tx.deliver(n, fence, delivery_record(delivery))
        if item.runtime is not None:
            tx.time_task(t)
    tx.run(SQL["end_done"], (as_json(heads), tx.now))
    tx.many(SQL["save_result"], results)
