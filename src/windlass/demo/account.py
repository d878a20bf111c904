"""The account: every job that was accepted, what became of it, and why each run more than one was needed.

Two books are compared: the store's, with the history of each job, and the ledger that the tasks kept.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from windlass.core.job import Delivery, JobDetail
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import TERMINAL, State
from windlass.core.units import Fence, JobId
from windlass.demo.ledger import Line


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the jobs."""

    accepted: int
    states: Mapping[State, int]
    dead: Mapping[str, int]
    """Dead letters by task and reason."""
    runs: int
    repeats: Mapping[str, int]
    """Runs that were not the last of their job, by why there was another."""
    problems: Sequence[str] = ()

    @property
    def closes(self) -> bool:
        """Whether nothing is missing and nothing is unexplained."""
        return not self.problems and self.accepted == sum(self.states[state] for state in TERMINAL)


def draw_up(accepted: Sequence[JobId], jobs: Sequence[JobDetail | None], ledger: Sequence[Line]) -> Account:
    """Hold what was accepted, what the store has and what was run against each other."""
    runs: defaultdict[JobId, list[Line]] = defaultdict(list)
    for line in ledger:
        if not line.ended:
            runs[line.job].append(line)
    states: Counter[State] = Counter()
    dead: Counter[str] = Counter()
    repeats: Counter[str] = Counter()
    problems: list[str] = [f"job {job} ran, and was never accepted" for job in runs.keys() - set(accepted)]
    for job_id, job in zip(accepted, jobs, strict=True):
        if job is None:
            problems.append(f"job {job_id} is lost: it was accepted, and the store does not have it")
            continue
        states[job.state] += 1
        if job.state is State.DEAD:
            dead[f"{job.task}: {job.reason}"] += 1
        problems += _problems(job, runs[job_id])
        repeats.update(_repeats(job, runs[job_id], problems))
    return Account(
        accepted=len(accepted),
        states=states,
        dead=dead,
        runs=sum(len(lines) for lines in runs.values()),
        repeats=repeats,
        problems=problems,
    )


def _problems(job: JobDetail, runs: Sequence[Line]) -> list[str]:
    """What is wrong with the end of a job."""
    who = f"job {job.id} ({job.task})"
    if job.state not in TERMINAL:
        return [f"{who} has not finished: it is {job.state}"]
    done = [delivery.fence for delivery in job.deliveries if delivery.outcome is Outcome.DONE]
    if job.state is State.DONE and len(done) != 1:
        return [f"{who} is done, and its history has {len(done)} runs that were"]
    if job.state is State.DONE and done[0] not in [run.fence for run in runs]:
        return [f"{who} is done, and nobody ran it"]
    if job.state is State.DEAD and not runs:
        return [f"{who} is dead, and nobody ran it"]
    return []


def _repeats(job: JobDetail, runs: Sequence[Line], problems: list[str]) -> list[str]:
    """Why there was another run after each but the last."""
    history = {delivery.fence: delivery for delivery in job.deliveries}
    last: Fence = max((run.fence for run in runs), default=0)
    found: list[str] = []
    for run in runs:
        delivery = history.get(run.fence)
        if delivery is None:
            problems.append(f"job {job.id} ({job.task}): the store knows nothing of a run of it")
        elif run.fence != last:
            found.append(_reason(job, delivery))
    return found


def _reason(job: JobDetail, delivery: Delivery) -> str:
    if delivery.cause is not None and delivery.cause.kind is CauseKind.CRASH:
        if job.task == "poison" or (job.task == "killer" and delivery.attempt == 1):
            return f"killed its own worker ({delivery.cause.detail})"
        return f"had started in a worker that was killed ({delivery.cause.detail})"
    if delivery.cause is not None:
        return f"its worker was gone ({delivery.cause.kind}: {delivery.cause.detail})"
    if delivery.error is not None:
        return f"failed, and was tried again ({delivery.error.type})"
    return f"was given back by its worker ({delivery.outcome})"
