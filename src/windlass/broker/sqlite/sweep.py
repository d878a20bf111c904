"""Sweep: what only time brings about, in bounded steps."""

from windlass.broker.sqlite import filing, flows, lifecycle, prune
from windlass.broker.sqlite.budget import Budget
from windlass.broker.sqlite.claim import promote_due
from windlass.broker.sqlite.sessions import SQL as SESSIONS
from windlass.broker.sqlite.sessions import mark_ended, read_end, return_leases, session_id
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Swept, is_early
from windlass.core.settlement import rule_deadline
from windlass.core.state import Move
from windlass.core.units import SECOND, Micros, SessionId

SQL = statements("sweep")
IDLE_LANES = 1_000
"""Records of idle lanes that one pass drops per queue."""


def sweep(tx: Transaction, limit: int, every: Micros, keep_dead: bool = False) -> Swept:  # noqa: FBT001, FBT002
    """One pass: at most `limit` items."""
    early = _early(tx.swept_at, tx.left_work, tx.now, every)
    if early is not None:
        return early
    since = 0 if tx.swept_at is None else max(0, tx.now - tx.swept_at)
    stepped_back = _move_clocks(tx)
    budget = Budget(limit)
    fates = flows.take_fates(tx, limit + 1)
    # Ends that this pass brings about are told within its limit, not each with a fan-out of its own.
    tx.telling = fates
    with tx.recorded() as moves:
        reaped = _reap(tx, budget)
        _end_deadlines(tx, budget)
        promoted = budget.spend(promote_due(tx, tx.queues(), budget.left))
        _expire(tx, budget)
        budget.spend(flows.resolve_fates(tx, fates, budget.left))
        pruned = prune.prune(tx, budget, keep_dead=keep_dead)
    tx.telling = None
    flows.keep_fates(tx, fates)
    prune.forget(tx, budget)
    for queue in tx.queues():
        filing.refresh_due(tx, queue, stepped_back=stepped_back > 0)
        filing.forget_idle(tx, queue, IDLE_LANES)
    tx.left_work = int(budget.left == 0 or flows.any_fate(tx))
    return Swept(
        promoted=promoted,
        reaped=tuple(reaped),
        moved=tuple(moved for moved in moves if moved.move is not Move.DUE),
        pruned=pruned,
        overdue=prune.overdue_letters(tx) if keep_dead else (),
        more=bool(tx.left_work),
        schedules_due=_schedules_due(tx),
        since=since,
        stepped_back=stepped_back,
    )


def comes_early(tx: Snapshot, every: Micros) -> Swept | None:
    """The answer of a pass that comes too early, found by a read alone; None: the pass may be made."""
    return _early(tx.stored.swept_at, tx.stored.left_work, tx.now, every)


def _early(swept_at: Micros | None, left_work: int, now: Micros, every: Micros) -> Swept | None:
    if swept_at is None or not is_early(now - swept_at, every, left_work=bool(left_work)):
        return None
    return Swept(early=True, since=now - swept_at)


def _move_clocks(tx: Transaction) -> Micros:
    """Write the mark, move the liveness clock. Returns how far the clock was set back, if it is followed."""
    stepped_back = max(0, tx.mark - tx.now)
    tx.live = tx.liveness()
    tx.mark = tx.swept_at = tx.now
    return stepped_back


def _reap(tx: Transaction, budget: Budget) -> list[SessionId]:
    """End silent sessions as lost, and go on returning the leases of ended ones."""
    reaped: list[SessionId] = []
    for s, session, seen in budget.cut(tx.all(SESSIONS["silent"], (tx.live,))):
        cause = Cause(CauseKind.LOST, f"silent for {(tx.live - seen) // SECOND} s")
        mark_ended(tx, s, seen, cause)
        reaped.append(session)
    for s, cause, started in tx.all(SESSIONS["ended_with_leases"]):
        if budget.left:
            why, had_started = read_end(cause, started)
            budget.spend(return_leases(tx, s, session_id(tx, s), why, had_started, budget.left))
    return reaped


def _end_deadlines(tx: Transaction, budget: Budget) -> None:
    for (n,) in budget.cut(tx.all(SQL["deadlines"], (tx.now, budget.left))):
        job = tx.numbered(n)
        cause = Cause(CauseKind.DEADLINE, "not extended in time")
        ruling = rule_deadline(lifecycle.facts(tx, job))
        lifecycle.end_lease(tx, job, ruling, None, unstarted=False, cause=cause)
        lifecycle.drop_if_unkept(tx, job)


def _expire(tx: Transaction, budget: Budget) -> None:
    for (n,) in sorted(budget.cut(tx.all(SQL["expired"], (tx.now, budget.left)))):
        lifecycle.expire(tx, tx.numbered(n))


def _schedules_due(tx: Transaction) -> bool:
    return tx.one(SQL["schedules_due"], (tx.now,)) is not None
