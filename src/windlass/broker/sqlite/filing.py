"""Filing: where a waiting job stands, and which one is next.

A lane is in a ring exactly while it has a job to hand out there and is not parked. `refresh` brings that
about after every change; nothing else touches a ring's members. A queue that never had a lane has no rings:
its jobs are in one line per band, and none of the rows of lanes and rings is ever touched.
"""

from collections.abc import Iterator

from windlass.broker.sqlite.records import READY, UNPLACED, Job, Lane, Queue
from windlass.broker.sqlite.snapshot import Snapshot
from windlass.broker.sqlite.statements import statements
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.limits import Bucket, Rate, full, has_slot, returned, taken, token_in
from windlass.core.order import LaneClock, band_of
from windlass.core.query import Parked
from windlass.core.settings import lane_policy
from windlass.core.units import Micros

SQL = statements("filing")
ONE_RING = 0
"""The band under which the only ring of a queue is kept that puts lanes before bands."""
LANES_WOKEN = 1_000
"""Parked lanes that one claim brings back."""


# where a job stands


def file(tx: Transaction, job: Job, *, keeps_place: bool = False) -> None:
    """Put a job that has just become ready in its place, and ring for its queue."""
    queue = tx.queue_of(job.q)
    if not keeps_place:
        set_band(job, queue)
        if not queue.policy.sequence:
            job.sequence = tx.number()
    tx.touch(job)
    if queue.laned:
        lane = tx.lane(queue, job.lane)
        lane.ready += 1
        tx.touch_lane(lane)
        refresh(tx, queue, lane)
    tx.armed.add(queue.name)


def set_band(job: Job, queue: Queue) -> None:
    """Fix the band of a job, by what its queue says now."""
    job.band = band_of(job.priority, job.due_at, queue.policy.bands, queue.policy.age_step)


def unfile(tx: Transaction, job: Job) -> None:
    """Take a ready job out of its place."""
    queue = tx.queue_of(job.q)
    if not queue.laned:
        return
    lane = tx.lane(queue, job.lane)
    lane.ready -= 1
    tx.touch_lane(lane)
    if queue.policy.sequence:
        return  # it stays in its line, and its lane in the ring, until it is known what becomes of it
    job.state_code = UNPLACED
    tx.touch(job)
    refresh(tx, queue, lane)
    job.state_code = READY
    tx.touch(job)


def line_up(tx: Transaction, job: Job) -> None:
    """Give a job of a queue with `sequence` its number, for good: accepted, unblocked or replayed."""
    queue = tx.queue_of(job.q)
    if not queue.policy.sequence:
        return
    job.sequence = job.line = tx.number()
    tx.touch(job)
    refresh(tx, queue, tx.lane(queue, job.lane))


def leave_line(tx: Transaction, job: Job) -> None:
    """A job is finished, so the next of its lane may go."""
    if job.line is None:
        return
    queue = tx.queue_of(job.q)
    job.line = None
    tx.touch(job)
    refresh(tx, queue, tx.lane(queue, job.lane))
    wake_if_claimable(tx, queue)


# rings


def become_laned(tx: Transaction, queue: Queue) -> None:
    """The first lane of a queue: from here on it has rings, and counts by lane."""
    if queue.laned:
        return
    lane = tx.lane(queue, "")
    # What waits took its turn before the setting that has perhaps made the queue laned.
    lane.policy = lane_policy(None, queue.policy)
    lane.running = queue.running
    lane.ready = tx.value(_READY_OF_QUEUE, (queue.q,))
    queue.laned = True
    tx.touch_lane(lane)
    tx.touch_queue(queue)
    tx.stale()
    refresh(tx, queue, lane)


_READY_OF_QUEUE = statements("jobs")["count_ready"]


def parked(tx: Snapshot, queue: Queue, lane: Lane) -> Parked | None:
    """Why a lane may not hand anything out."""
    if lane.paused:
        return Parked.PAUSED
    if not has_slot(tx.running_in(queue, lane), lane.policy.concurrency):
        return Parked.CONCURRENCY
    if wait_for_token(lane, lane.policy.rate, tx.now):
        return Parked.RATE
    return None


def refresh(tx: Transaction, queue: Queue, lane: Lane) -> None:
    """Let a lane enter and leave rings as it now has, or has not, something to hand out there."""
    if not queue.laned:
        return
    wanted = set(_bands(tx, queue, lane)) if parked(tx, queue, lane) is None else set[int]()
    places = {band: LaneClock(clock, due) for band, clock, due in tx.all(SQL["places"], (queue.q, lane.name))}
    present = {band for band, place in places.items() if place.due is not None}
    for band in wanted - present:
        time = tx.value(SQL["ring_time"], (queue.q, band)) or 0
        place = places.get(band) or LaneClock(time)
        place.enter(time, lane.policy.weight)
        tx.run(SQL["save_place"], (queue.q, lane.name, band, place.clock, place.due))
        tx.run(SQL["fill_ring"], (queue.q, band))
    for band in present - wanted:
        tx.run(SQL["leave"], (queue.q, lane.name, band))
        tx.run(SQL["empty_ring"], (queue.q, band, tx.now))
    wait = wait_for_token(lane, lane.policy.rate, tx.now) if lane.ready else 0
    wake_at = tx.now + wait if wait else None
    if wake_at != lane.wake_at:
        lane.wake_at = wake_at
        tx.touch_lane(lane)


def refresh_all(tx: Transaction, queue: Queue) -> None:
    """Settings have changed."""
    if queue.laned:
        for (name,) in tx.all(SQL["lanes_of"], (queue.q,)):
            refresh(tx, queue, tx.lane(queue, name))


def refresh_due(tx: Transaction, queue: Queue, *, stepped_back: bool) -> None:
    """Time has passed: bring back lanes that have a token again. If the clock was found behind, some that had
    one have none.
    """
    if not queue.laned:
        return
    if stepped_back:
        names = tx.all(SQL["rated_lanes"], (queue.q,))
    else:
        names = tx.all(SQL["due_lanes"], (queue.q, tx.now, LANES_WOKEN))
    for (name,) in names:
        refresh(tx, queue, tx.lane(queue, name))


def clear_rings(tx: Transaction, queue: Queue) -> None:
    """The layout of an unused queue changes: clocks of another layout mean nothing."""
    tx.run(SQL["clear_places"], (queue.q,))
    tx.run(SQL["clear_rings"], (queue.q,))


def forget_idle(tx: Transaction, queue: Queue, limit: int) -> None:
    """Drop what only says that lanes were here: clocks that the ring has passed, and rings empty for long."""
    if not queue.laned:
        return
    tx.run(SQL["forget_idle"], (queue.q, limit))
    since = tx.now - tx.options.resend_window
    for (band,) in tx.all(SQL["empty_rings"], (queue.q, since)):
        tx.run(SQL["clear_ring"], (queue.q, band))
        tx.run(SQL["drop_ring"], (queue.q, band))


def _bands(tx: Snapshot, queue: Queue, lane: Lane) -> Iterator[int]:
    """The rings in which a lane has something to hand out."""
    if queue.policy.sequence:
        if head_of_line(tx, queue, lane.name) is not None:
            yield ONE_RING
    elif queue.policy.one_ring:
        if tx.one(SQL["has_ready"], (queue.q, lane.name)) is not None:
            yield ONE_RING
    else:
        yield from bands_of(tx, queue, lane.name)


def bands_of(tx: Snapshot, queue: Queue, lane: str) -> Iterator[int]:
    """The bands in which a lane has a ready job, first to last."""
    band = tx.value(SQL["next_band"], (queue.q, lane, None))
    while band is not None:
        yield band
        band = tx.value(SQL["next_band"], (queue.q, lane, band))


def rings_of(tx: Snapshot, queue: Queue) -> Iterator[int]:
    band = tx.value(SQL["next_ring"], (queue.q, None))
    while band is not None:
        yield band
        band = tx.value(SQL["next_ring"], (queue.q, band))


def head_of_line(tx: Snapshot, queue: Queue, lane: str) -> Job | None:
    """With `sequence`: the first job of a lane, if it can be handed out to anyone."""
    n = tx.value(SQL["head_of_line"], (queue.q, lane))
    job = None if n is None else tx.numbered(n)
    return job if job is not None and job.state_code == READY and not job.suspect else None


# who is next


def queue_open(queue: Queue, now: Micros) -> bool:
    """Whether a queue as a whole may hand out a job."""
    return (
        not queue.paused
        and has_slot(queue.running, queue.policy.concurrency)
        and not wait_for_token(queue, queue.policy.rate, now)
    )


def next_suspect(tx: Snapshot, queue: Queue) -> Job | None:
    """The suspect that a queue hands out next: first in first out, over the lanes that may."""
    if not queue_open(queue, tx.now):
        return None
    for n, name in tx.all(SQL["suspects"], (queue.q,)):
        if parked(tx, queue, tx.lane(queue, name)) is not None:
            continue
        if not queue.policy.sequence or tx.value(SQL["head_of_line"], (queue.q, name)) == n:
            return tx.numbered(n)
    return None


def has_claimable(tx: Snapshot, queue: Queue) -> bool:
    """Whether a queue has something to hand out."""
    if queue.unlimited and not tx.lane(queue, "").paused:
        return not queue.paused and tx.one(SQL["any_ready"], (queue.q,)) is not None
    return has_next(tx, queue) or next_suspect(tx, queue) is not None


def has_next(tx: Snapshot, queue: Queue) -> bool:
    """Whether a queue has a job to hand out next. Suspects do not count: no ring has them."""
    if not queue_open(queue, tx.now):
        return False
    if queue.laned:
        return tx.one(SQL["any_place"], (queue.q,)) is not None
    lane = tx.lane(queue, "")
    return parked(tx, queue, lane) is None and next(_bands(tx, queue, lane), None) is not None


def wake_if_claimable(tx: Transaction, queue: Queue) -> None:
    """Ring for a queue if it has something to hand out."""
    if queue.name not in tx.armed and has_claimable(tx, queue):
        tx.armed.add(queue.name)


# what a claim takes, and an end gives back


def occupy(tx: Transaction, queue: Queue, lane: Lane) -> None:
    """Count a lease, and take a token, of a queue and of a lane, for a job that leaves its place."""
    queue.running += 1
    tx.touch_queue(queue)
    if queue.laned:
        lane.running += 1
        lane.ready -= 1
        tx.touch_lane(lane)
    if queue.policy.rate is not None:
        queue.bucket = taken(queue.bucket or full(queue.policy.rate, tx.now), queue.policy.rate, tx.now)
    if lane.policy.rate is not None:
        lane.bucket = taken(lane.bucket or full(lane.policy.rate, tx.now), lane.policy.rate, tx.now)
        tx.touch_lane(lane)


def rebase(tx: Transaction, queue: Queue, band: int, base: int) -> None:
    """Set back the clocks of a ring that have become large."""
    tx.run(SQL["rebase_places"], (queue.q, band, base))
    tx.run(SQL["rebase_ring"], (queue.q, band))


def vacate(tx: Transaction, queue: Queue, name: str, count: int, *, unstarted: Micros | None = None) -> None:
    """Count fewer leases of a lane; for work that never started, with the time of its claim, what is left of
    the token.
    """
    lane = tx.lane(queue, name)
    was_parked = parked(tx, queue, lane) is not None
    queue.running -= count
    tx.touch_queue(queue)
    if queue.laned:
        lane.running -= count
        tx.touch_lane(lane)
    if unstarted is not None:
        _return_tokens(tx, queue, lane, unstarted)
    if was_parked:
        refresh(tx, queue, lane)
    if not queue.unlimited or lane.paused:
        wake_if_claimable(tx, queue)


def _return_tokens(tx: Transaction, queue: Queue, lane: Lane, claimed_at: Micros) -> None:
    if queue.policy.rate is not None and queue.bucket is not None:
        queue.bucket = returned(queue.bucket, queue.policy.rate, tx.now, claimed_at)
        tx.touch_queue(queue)
    if lane.policy.rate is not None and lane.bucket is not None:
        lane.bucket = returned(lane.bucket, lane.policy.rate, tx.now, claimed_at)
        tx.touch_lane(lane)


def wait_for_token(place: Queue | Lane, rate: Rate | None, now: Micros) -> Micros:
    """How long until a queue or lane has a token; 0 if it has one or needs none."""
    if rate is None or place.bucket is None:
        return 0
    return token_in(place.bucket, rate, now)


def next_lane_token(tx: Snapshot, queue: Queue) -> Micros:
    """How long until the first parked lane has a token; 0 if none waits for one."""
    row = tx.one(SQL["next_token"], (queue.q,))
    if row is None:
        return 0
    name, wake_at = row
    first = tx.lane(queue, name)
    if first.bucket is None or first.bucket.at <= tx.now:
        return max(1, wake_at - tx.now)
    # The clock was set back behind the buckets, and `wake_at` is of the time before: ask each lane.
    lanes = (tx.lane(queue, lane) for (lane,) in tx.all(SQL["lanes_of"], (queue.q,)))
    waits = (wait_for_token(lane, lane.policy.rate, tx.now) for lane in lanes)
    return min((wait for wait in waits if wait), default=0)


def bucket_of(place: Queue | Lane, rate: Rate, now: Micros) -> Bucket:
    """The bucket of a queue or lane; full if it was never used."""
    return place.bucket or full(rate, now)
