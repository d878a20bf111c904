"""What the ledger shows besides the account: order, fairness, punctuality, a lease that was kept."""

from collections.abc import Mapping, Sequence

from windlass.core.job import JobDetail
from windlass.core.units import SECOND, JobId
from windlass.demo import tasks
from windlass.demo.jobs import FIRST, LARGE, MAILS, SMALL
from windlass.demo.ledger import Line


def findings(jobs: Mapping[JobId, JobDetail], ledger: Sequence[Line]) -> list[str]:
    """In sentences, with the numbers of this run."""
    starts = [line for line in ledger if not line.ended]
    found = (_priority(starts), _fairness(starts), _blocking(starts), _punctual(jobs, starts), _crash(jobs))
    return [sentence for sentence in found if sentence]


def _priority(starts: Sequence[Line]) -> str:
    places = [place for place, line in enumerate(starts, 1) if line.task == "urgent"]
    if not places:
        return ""
    return (
        f"Priority: the {len(places)} urgent jobs were enqueued last of {FIRST}; "
        f"they started as numbers {min(places)} to {max(places)}."
    )


def _fairness(starts: Sequence[Line]) -> str:
    lanes = [line.lane for line in starts if line.task == "mail"]
    if SMALL not in lanes:
        return ""
    last = len(lanes) - lanes[::-1].index(SMALL)
    return (
        f"Fairness: {SMALL} enqueued {MAILS[SMALL]} mails behind {MAILS[LARGE]} of {LARGE}; "
        f"the last of the {MAILS[SMALL]} was sent as number {last} of {len(lanes)}."
    )


def _blocking(starts: Sequence[Line]) -> str:
    runs = sum(line.task == "blocking" for line in starts)
    times = "once: the heart beats in another process" if runs == 1 else f"{runs} times"
    return (
        f"A blocked loop: {tasks.BLOCKED} s, where silence of {tasks.SESSION_TTL} s means lost. "
        f"Its job ran {times}."
    )


def _punctual(jobs: Mapping[JobId, JobDetail], starts: Sequence[Line]) -> str:
    delayed = [line for line in starts if line.task == "delayed" and line.job in jobs]
    late = [1_000 * (line.at - jobs[line.job].due_at / SECOND) for line in delayed]
    if not late:
        return ""
    return f"Delays: {len(late)} jobs started {min(late):.0f} to {max(late):.0f} ms after they were due."


def _crash(jobs: Mapping[JobId, JobDetail]) -> str:
    gaps = [
        (job.deliveries[1].claimed_at - job.deliveries[0].ended_at) / SECOND
        for job in jobs.values()
        if job.task == "killer" and len(job.deliveries) > 1
    ]
    if not gaps:
        return ""
    return (
        f"A killed worker: its job was given to another {max(gaps):.2f} s after its death. "
        "No timeout had to pass."
    )
