"""Lanes as operators see them."""

from windlass.broker.sqlite import filing
from windlass.broker.sqlite.records import Lane, Queue
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.core.limits import tokens
from windlass.core.query import Lanes, LaneView, lane_in
from windlass.core.state import State
from windlass.core.units import Cursor

SQL = statements("queries")


def lanes(tx: Snapshot, queue_name: str, after: Cursor, limit: int) -> Lanes:
    """The lanes of a queue that there is something to say of."""
    last = lane_in(after)
    queue = tx.queue(queue_name)
    if queue is None:
        return Lanes()
    rows = tx.all(SQL["lane_names"], (queue.q, queue.name, last, limit + 1))
    names = [name for (name,) in rows]
    if not queue.laned and last is None and "" not in names and _ready(tx, queue, "") + queue.running:
        names.insert(0, "")
    views = tuple(_view(tx, queue, tx.lane(queue, name)) for name in names[:limit])
    return Lanes(lanes=views, cursor=Cursor(f">{names[limit - 1]}") if len(names) > limit else None)


def _ready(tx: Snapshot, queue: Queue, name: str) -> int:
    """Ready jobs of a lane. A queue that never had a lane keeps one count for both."""
    if queue.laned:
        return tx.lane(queue, name).ready
    return tx.counted(queue, State.READY) if name == "" else 0


def _view(tx: Snapshot, queue: Queue, lane: Lane) -> LaneView:
    policy = lane.policy
    ready = _ready(tx, queue, lane.name)
    bucket = None if policy.rate is None else filing.bucket_of(lane, policy.rate, tx.now)
    return LaneView(
        queue=queue.name,
        lane=lane.name,
        weight=policy.weight,
        ready=ready,
        running=tx.running_in(queue, lane),
        lag=tx.value(SQL["lag"], (queue.q, lane.name)),
        concurrency=policy.concurrency,
        tokens=None if bucket is None or policy.rate is None else tokens(bucket, policy.rate, tx.now),
        parked=filing.parked(tx, queue, lane) if ready else None,
        paused=lane.paused,
    )
