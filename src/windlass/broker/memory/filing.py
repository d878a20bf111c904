"""Filing: where a waiting job stands, and which one is next.

A lane is in a ring exactly while it has a job to hand out there and is not parked. `refresh` brings that
about after every change; nothing else touches a ring's members.
"""

from bisect import bisect_left, insort

from windlass.broker.memory.namespace import Job, Lane, Namespace, Queue
from windlass.core.limits import Bucket, Rate, full, has_slot, returned, taken, token_in
from windlass.core.order import Ring, Turns, band_of, choose_band
from windlass.core.query import Parked
from windlass.core.settings import Kind, LaneSettings, Subject, lane_policy, overlay
from windlass.core.state import State
from windlass.core.units import Micros


def lane_of(ns: Namespace, queue: Queue, name: str) -> Lane:
    """The record of a lane, made when first needed."""
    if name not in queue.lanes:
        queue.lanes[name] = Lane(name, lane_policy(lane_settings(ns, queue, name), queue.policy))
    return queue.lanes[name]


def lane_settings(ns: Namespace, queue: Queue, name: str) -> LaneSettings | None:
    """What both layers say of a lane."""
    layers = ns.layers.get(Subject(Kind.LANE, queue.name, name))
    if layers is None:
        return None
    assert layers.declared is None or isinstance(layers.declared, LaneSettings)
    assert layers.override is None or isinstance(layers.override, LaneSettings)
    return overlay(layers.declared, layers.override)


# where a job stands


def file(ns: Namespace, job: Job, *, keeps_place: bool = False) -> None:
    """Put a job that has just become ready in its place, and wake somebody for it."""
    queue = ns.queues[job.asked.queue]
    lane = lane_of(ns, queue, job.asked.lane)
    if not keeps_place:
        set_band(ns, job)
        if not queue.policy.sequence:
            job.sequence = ns.number()
    if job.suspect:
        insort(lane.suspects, (job.sequence, job.id))
    else:
        insort(lane.ready, (job.band, job.sequence, job.id))
    refresh(ns, queue, lane)
    ns.bells.arm(queue.name)


def set_band(ns: Namespace, job: Job) -> None:
    """Fix the band of a job, by what its queue says now."""
    policy = ns.queues[job.asked.queue].policy
    job.band = band_of(job.asked.priority, job.due_at, policy.bands, policy.age_step)


def unfile(ns: Namespace, job: Job) -> None:
    """Take a ready job out of its place."""
    queue = ns.queues[job.asked.queue]
    lane = queue.lanes[job.asked.lane]
    if job.suspect:
        lane.suspects.remove((job.sequence, job.id))
    else:
        lane.ready.remove((job.band, job.sequence, job.id))
    refresh(ns, queue, lane)


def line_up(ns: Namespace, job: Job) -> None:
    """Give a job of a queue with `sequence` its number, for good: accepted, unblocked or replayed."""
    queue = ns.queues[job.asked.queue]
    if not queue.policy.sequence:
        return
    lane = lane_of(ns, queue, job.asked.lane)
    job.sequence = ns.number()
    insort(lane.line, (job.sequence, job.id))
    refresh(ns, queue, lane)


def leave_line(ns: Namespace, job: Job) -> None:
    """A job is finished, so the next of its lane may go."""
    queue = ns.queues[job.asked.queue]
    lane = lane_of(ns, queue, job.asked.lane)
    place = (job.sequence, job.id)
    if place in lane.line:
        lane.line.remove(place)
        refresh(ns, queue, lane)
        wake_if_claimable(ns, queue)


# rings


def parked(lane: Lane, now: Micros) -> Parked | None:
    """Why a lane may not hand anything out."""
    if lane.paused:
        return Parked.PAUSED
    if not has_slot(lane.running, lane.policy.concurrency):
        return Parked.CONCURRENCY
    if wait_for_token(lane, lane.policy.rate, now):
        return Parked.RATE
    return None


def refresh(ns: Namespace, queue: Queue, lane: Lane) -> None:
    """Let a lane enter and leave rings as it now has, or has not, something to hand out there."""
    wanted = _bands(ns, queue, lane) if parked(lane, ns.now()) is None else frozenset[int | None]()
    for band in wanted | set(queue.rings):
        ring = queue.rings.setdefault(band, Ring())
        if band in wanted and lane.name not in ring:
            ring.enter(lane.name, lane.policy.weight)
            ring.empty_since = None
        elif band not in wanted and lane.name in ring:
            ring.leave(lane.name)
            ring.empty_since = None if len(ring) else ns.now()


def become_laned(ns: Namespace, queue: Queue) -> None:
    """The first lane of a queue. What waits takes its place in the ring now, by the weight that it has now: a
    token may have come since anybody looked.
    """
    if not queue.laned:
        queue.laned = True
        if "" in queue.lanes:
            refresh(ns, queue, queue.lanes[""])


def refresh_all(ns: Namespace, queue: Queue) -> None:
    """Time has passed, or settings have changed."""
    for lane in queue.lanes.values():
        refresh(ns, queue, lane)


def forget_idle(ns: Namespace, queue: Queue) -> None:
    """Drop what only says that lanes were here: clocks that the ring has passed, and rings empty for long."""
    since = ns.now() - ns.options.resend_window
    for band, ring in list(queue.rings.items()):
        ring.forget_idle()
        if ring.empty_since is not None and ring.empty_since <= since:
            del queue.rings[band]


def _bands(ns: Namespace, queue: Queue, lane: Lane) -> frozenset[int | None]:
    """The rings in which a lane has something to hand out."""
    if queue.policy.one_ring:
        has_one = _head(ns, lane) is not None if queue.policy.sequence else bool(lane.ready)
        return frozenset([None] if has_one else [])
    return frozenset(band for band, _, _ in lane.ready)


def _head(ns: Namespace, lane: Lane) -> Job | None:
    """With `sequence`: the first job of a lane, if it can be handed out to anyone."""
    if not lane.line:
        return None
    job = ns.jobs[lane.line[0][1]]
    return job if job.state is State.READY and not job.suspect else None


# who is next


def queue_open(queue: Queue, now: Micros) -> bool:
    """Whether a queue as a whole may hand out a job."""
    return (
        not queue.paused
        and has_slot(queue.running, queue.policy.concurrency)
        and not wait_for_token(queue, queue.policy.rate, now)
    )


def next_job(ns: Namespace, queue: Queue, draw: int, turns: Turns) -> Job | None:
    """The job that a queue hands out next."""
    if not queue_open(queue, ns.now()):
        return None
    present = [band for band, ring in queue.rings.items() if len(ring)]
    if not present:
        return None
    bands = queue.policy.bands
    if queue.policy.one_ring:
        lane = queue.lanes[turns.lane(None, queue.rings[None])]
        if queue.policy.sequence:
            return _head(ns, lane)
        band = choose_band({band for band, _, _ in lane.ready}, bands, draw)
    else:
        band = choose_band([band for band in present if band is not None], bands, draw)
        lane = queue.lanes[turns.lane(band, queue.rings[band])]
    return ns.jobs[lane.ready[bisect_left(lane.ready, (band,))][2]]


def next_suspect(ns: Namespace, queue: Queue) -> Job | None:
    """The suspect that a queue hands out next: first in first out, over the lanes that may."""
    now = ns.now()
    if not queue_open(queue, now):
        return None
    waiting: list[tuple[int, str]] = []
    for lane in queue.lanes.values():
        if parked(lane, now) is None:
            heads = lane.line[:1] if queue.policy.sequence else lane.suspects
            waiting += [place for place in lane.suspects if place in heads]
    return ns.jobs[min(waiting)[1]] if waiting else None


def has_claimable(ns: Namespace, queue: Queue) -> bool:
    """Whether anybody could be handed something."""
    return next_job(ns, queue, 0, Turns(1)) is not None or next_suspect(ns, queue) is not None


def wake_if_claimable(ns: Namespace, queue: Queue) -> None:
    """Something may have come free: wake somebody if so."""
    if has_claimable(ns, queue):
        ns.bells.arm(queue.name)


# what a claim takes, and an end gives back


def occupy(ns: Namespace, job: Job, turns: Turns) -> None:
    """Take a ready job out of its place; count its lease, and take a token, of its queue and lane."""
    now = ns.now()
    queue = ns.queues[job.asked.queue]
    lane = queue.lanes[job.asked.lane]
    if queue.laned and not job.suspect:
        band = None if queue.policy.one_ring else job.band
        turns.take(band, queue.rings[band], lane.name, lane.policy.weight)
    for place in (queue, lane):
        place.running += 1
        rate = place.policy.rate
        if rate is not None:
            place.bucket = taken(place.bucket or full(rate, now), rate, now)
    unfile(ns, job)


def vacate(ns: Namespace, job: Job, *, unstarted: bool) -> None:
    """Count one lease less, and give back, for work that never started, what is left of the token."""
    now = ns.now()
    queue = ns.queues[job.asked.queue]
    lane = queue.lanes[job.asked.lane]
    for place in (queue, lane):
        place.running -= 1
        rate = place.policy.rate
        if rate is not None and unstarted and place.bucket is not None:
            place.bucket = returned(place.bucket, rate, now, job.claimed_at)
    refresh(ns, queue, lane)
    wake_if_claimable(ns, queue)


def wait_for_token(place: Queue | Lane, rate: Rate | None, now: Micros) -> Micros:
    """How long until a queue or lane has a token; 0 if it has one or needs none."""
    if rate is None or place.bucket is None:
        return 0
    return token_in(place.bucket, rate, now)


def bucket_of(place: Queue | Lane, rate: Rate, now: Micros) -> Bucket:
    """The bucket of a queue or lane; full if it was never used."""
    return place.bucket or full(rate, now)
