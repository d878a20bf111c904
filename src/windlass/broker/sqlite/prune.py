"""Pruning: finished jobs and results that are to be kept no longer, and small records whose time is over."""

from collections.abc import Iterator
from heapq import merge

from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.budget import Budget
from windlass.broker.sqlite.records import RESULT, Job, Queue
from windlass.broker.sqlite.sessions import SQL as SESSIONS
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.session import ENDED_KEPT, OVERDUE
from windlass.core.state import Move
from windlass.core.units import JobId, Micros

SQL = statements("sweep")
PAGE = 100
"""Rows that are read at once; most passes need none."""
_ALWAYS: Micros = 2**62


def prune(tx: Transaction, budget: Budget, *, keep_dead: bool) -> int:
    """Remove finished jobs that are to be kept no longer, and results before them."""
    pruned = 0
    for queue in tx.queues():
        for n in _overdue(tx, queue, budget, keep_dead=keep_dead):
            job = tx.find(n)
            if budget.left and job is not None and _is_kept(job) and not lifecycle.is_needed(tx, job):
                lifecycle.drop(tx, job, Move.PRUNE)
                pruned += budget.spend(1)
    for queue in tx.queues():
        for _, n in _pages(
            tx, "old_results", queue.q, before=tx.now - queue.policy.result_ttl, budget=budget
        ):
            job = tx.numbered(n)
            if budget.left and not lifecycle.is_needed(tx, job):
                lifecycle.drop_result(tx, job)
                budget.spend(1)
    return pruned


def overdue_letters(tx: Transaction) -> tuple[JobId, ...]:
    """Of each queue, the oldest dead letters that are to be kept no longer, as far as nothing needs them."""
    found: list[JobId] = []
    for queue in tx.queues():
        before, left = tx.now - queue.policy.dead_retention, OVERDUE
        for _, n in _finished(tx, queue, 1, 0, before, Budget(1)):
            job = tx.find(n)
            if job is not None and _is_kept(job) and not lifecycle.is_needed(tx, job):
                found.append(job.id)
                left -= 1
            if not left:
                break
    return tuple(found)


def _is_kept(job: Job) -> bool:
    return job.finished_at is not None and job.pruned_until is None


def _overdue(tx: Transaction, queue: Queue, budget: Budget, *, keep_dead: bool) -> Iterator[int]:
    """Of a queue's finished jobs, oldest first, those that are to go: too many, or too old."""
    policy, now = queue.policy, tx.now
    if policy.retention_count is not None:
        yield from _too_many(tx, queue, policy.retention_count, budget)
    kept_results = max(policy.retention, policy.result_ttl)
    classes = ((0, 0, policy.retention), (0, RESULT, kept_results), (1, 0, policy.dead_retention))
    for _, n in merge(
        *(
            _finished(tx, queue, dead, mark, now - kept, budget)
            for dead, mark, kept in classes
            if not (dead and keep_dead)
        )
    ):
        yield n


def _too_many(tx: Transaction, queue: Queue, count: int, budget: Budget) -> Iterator[int]:
    """The oldest of those that nothing needs, except for the newest so many."""
    over = tx.value(SQL["count_finished"], (queue.q,)) - count
    if over > 0:
        over -= tx.value(SQL["count_needed"], (queue.q,))
    oldest = merge(*(_finished(tx, queue, 0, mark, _ALWAYS, budget) for mark in (0, RESULT)))
    while over > 0 and (first := next(oldest, None)) is not None:
        if not lifecycle.is_needed(tx, tx.numbered(first[1])):
            over -= 1
            yield first[1]


def _finished(
    tx: Transaction, queue: Queue, dead: int, mark: int, before: Micros, budget: Budget
) -> Iterator[tuple[Micros, int]]:
    return _pages(tx, "finished_before", queue.q, dead, mark, before=before, budget=budget)


def _pages(
    tx: Transaction, statement: str, *place: int, before: Micros, budget: Budget
) -> Iterator[tuple[Micros, int]]:
    """Rows page by page, for as long as the budget lasts: those that are needed are passed over."""
    last: tuple[Micros, int] = (-1, -1)
    while budget.left:
        rows = tx.all(SQL[statement], (*place, before, *last, PAGE))
        yield from rows
        if len(rows) < PAGE:
            return
        last = rows[-1]


def forget(tx: Transaction, budget: Budget) -> None:
    """Drop small records whose time is over: keys, ids, ended sessions."""
    budget.spend(len(tx.all(SQL["free_keys"], (tx.now, budget.left))))
    for (n,) in budget.cut(tx.all(SQL["forgotten_jobs"], (tx.now, budget.left))):
        lifecycle.remove(tx, tx.numbered(n))
    if tx.absorbed:
        budget.spend(len(tx.all(SQL["forget_absorbed"], (tx.now, budget.left))))
        tx.absorbed = int(tx.one(SQL["any_absorbed"]) is not None)
    if tx.edges:
        tx.edges = int(tx.one(SQL["any_edge"]) is not None)
    for (s,) in budget.cut(tx.all(SESSIONS["forgotten"], (tx.now - ENDED_KEPT, budget.left))):
        tx.run(SESSIONS["forget"], (s,))
