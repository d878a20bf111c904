"""A group of new jobs: what can be said of it before any store is asked."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from windlass.core.job import GROUP_BYTES, GROUP_EDGES, GROUP_JOBS, NewJob, Receipt, Refusal, Status
from windlass.core.units import JobId

Refusals: TypeAlias = Mapping[JobId, tuple[Refusal, str]]
"""The jobs of a group that cannot be accepted, with the reason."""


def key_place(job: NewJob) -> tuple[str, str, str, str] | None:
    """Where the key of a job is unique; None without a key."""
    return None if job.key is None else (job.queue, job.lane, job.task, job.key)


def payload_bytes(group: Sequence[NewJob]) -> int:
    """How large a group is. Most are one job, for which a sum takes longer than all else that is asked."""
    return len(group[0].payload) if len(group) == 1 else sum([len(job.payload) for job in group])


def too_large(group: Sequence[NewJob]) -> Refusals:
    """Everything, if the group is larger than a step may be."""
    size = payload_bytes(group)
    edges = len(group[0].after) if len(group) == 1 else sum([len(job.after) for job in group])
    if len(group) <= GROUP_JOBS and size <= GROUP_BYTES and edges <= GROUP_EDGES:
        return {}
    why = (
        f"a group is at most {GROUP_JOBS} jobs, {GROUP_BYTES} bytes and {GROUP_EDGES} edges, "
        f"got {len(group)}, {size} and {edges}"
    )
    return {job.id: (Refusal.GROUP_TOO_LARGE, why) for job in group}


def in_cycle(group: Sequence[NewJob]) -> frozenset[JobId]:
    """Jobs that can never be free: in a cycle, or behind one. Calls under one key count as one job, and of an
    id that comes twice the first call is what is kept.
    """
    first: dict[object, JobId] = {}
    calls: dict[JobId, NewJob] = {}
    for job in group:
        calls.setdefault(job.id, job)
    stands = {job.id: first.setdefault(key_place(job) or job.id, job.id) for job in calls.values()}
    parents = {
        job.id: {stands[edge.parent] for edge in job.after if edge.parent in stands}
        for job in calls.values()
        if stands[job.id] == job.id  # an absorbed call waits for nobody
    }
    children: dict[JobId, list[JobId]] = {}
    for child, after in parents.items():
        for parent in after:
            children.setdefault(parent, []).append(child)
    free = [child for child, after in parents.items() if not after]
    while free:  # each job once: a long chain frees one at a time
        done = free.pop()
        del parents[done]
        for child in children.get(done, ()):
            parents[child].discard(done)
            if not parents[child]:
                free.append(child)
    return frozenset(call for call, stand in stands.items() if stand in parents)


def refused_whole(group: Sequence[NewJob], refused: Refusals) -> tuple[Receipt, ...]:
    """The receipts of a group that falls with some of its jobs."""
    guilty = next(iter(refused))
    neighbour = (Refusal.NEIGHBOUR, f"job {guilty} of its group was refused")
    return tuple(Receipt(Status.REFUSED, job.id, None, *refused.get(job.id, neighbour)) for job in group)
