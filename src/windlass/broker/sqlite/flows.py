"""Flows: what the end of a parent does to the jobs that wait for it."""

from collections import deque

from windlass.broker.sqlite import lifecycle
from windlass.broker.sqlite.records import CODES, DEAD, HAS_CHILDREN, Job, state_of
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Fate, Transaction
from windlass.core.edge import EdgeRuling, rule_edge
from windlass.core.job import Edge, OnFailure
from windlass.core.state import Move, Reason, State
from windlass.core.units import JobId

SQL = statements("jobs")


def tie(tx: Transaction, child: Job, edge: Edge, *, waits: bool) -> None:
    """Keep a parent until a job has ended. One that is gone ties nobody, should its id come again."""
    parent = tx.job(edge.parent)
    if parent is None:
        return
    if not parent.marks & HAS_CHILDREN:
        tx.run(SQL["drop_edges_to"], (parent.id,))  # of those who depended on another job under its id
        parent.marks |= HAS_CHILDREN
        tx.touch(parent)
    tx.run(SQL["add_edge"], (parent.id, child.n, edge.on_failure.value, int(waits)))
    tx.edges = 1


def tell_dependents(tx: Transaction, parent: JobId, state: State) -> None:
    """Resolve the edges to a parent that has ended, a bounded number of them now and the rest by sweep.

    An end can cascade (a cancelled dependent has dependents): the work is a queue, not a recursion, and the
    bound is on the whole of it.
    """
    if not tx.edges or tx.one(SQL["next_edge"], (parent,)) is None:
        return
    if tx.telling is not None:
        tx.telling.append(Fate(parent, state))
        return
    fates = deque([Fate(parent, state)])
    tx.fan_out_left -= resolve_fates(tx, fates, tx.fan_out_left)
    keep_fates(tx, fates)


def keep_fates(tx: Transaction, fates: deque[Fate]) -> None:
    """Leave ends to sweep."""
    for fate in fates:
        tx.run(SQL["add_fate"], (fate.parent, CODES[fate.state]))


def resolve_fates(tx: Transaction, fates: deque[Fate], limit: int) -> int:
    """Resolve up to so many edges, oldest end first; what is not done stays in `fates`."""
    told = 0
    outer, tx.telling = tx.telling, fates
    while fates and told < limit:
        fate = fates[0]
        edge = _next_edge(tx, fate)
        if edge is None:
            fates.popleft()
            continue
        child, on_failure = edge
        tx.run(SQL["close_edge"], (fate.parent, child))
        told += 1
        _resolve(tx, tx.numbered(child), fate, OnFailure(on_failure))
    tx.telling = outer
    return told


def _next_edge(tx: Transaction, fate: Fate) -> tuple[int, str] | None:
    if fate.state is not State.DEAD:
        row = tx.one(SQL["next_edge"], (fate.parent,))
    else:
        parent = tx.job(fate.parent)
        if parent is not None and parent.state_code != DEAD:
            return None  # replayed meanwhile: its death is void for those who were not told
        row = tx.one(SQL["next_run_edge"], (fate.parent,))
    return None if row is None else (row[0], row[1])


def _resolve(tx: Transaction, child: Job, fate: Fate, on_failure: OnFailure) -> None:
    if rule_edge(on_failure, fate.state) is EdgeRuling.CANCEL:
        lifecycle.finish(tx, child, Move.PARENT_FAILED, State.CANCELLED, Reason.PARENT_FAILED)
        lifecycle.drop_if_unkept(tx, child)
        return
    child.waiting_for -= 1
    tx.touch(child)
    if not child.waiting_for:
        lifecycle.unblock(tx, child)


def take_fates(tx: Transaction, limit: int) -> deque[Fate]:
    """The oldest ends that dependents have yet to be told; they are put back by `keep_fates` if time runs
    out.
    """
    rows = tx.all(SQL["fates"], (limit,))
    if rows:
        tx.run(SQL["drop_fates"], (rows[-1][0],))
    return deque(Fate(parent, state_of(state)) for _, parent, state in rows)


def any_fate(tx: Transaction) -> bool:
    """Whether dependents have yet to be told of an end."""
    return tx.one(SQL["any_fate"]) is not None


def is_needed(tx: Transaction, job: Job) -> bool:
    """Whether an unfinished job, or an end that its dependents have yet to be told, depends on it.

    Those that wait for a dead parent have no claim on it: when it goes, their edges act.
    """
    if any(fate.parent == job.id for fate in tx.telling or ()):
        return True
    if tx.one(SQL["fate_of"], (job.id,)) is not None:
        return True
    return tx.one(SQL["needed"], (job.id, int(job.state_code == DEAD))) is not None


def has_dead_parent(tx: Snapshot, job: Job) -> bool:
    """Whether a blocked job waits for a dead parent."""
    return job.waiting_for > 0 and tx.one(SQL["dead_parent"], (job.n,)) is not None
