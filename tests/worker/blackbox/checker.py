"""Compares the ledger with what can be read of the jobs: it knows promises, not how they are kept."""

import itertools
from collections import Counter
from collections.abc import Iterator

from tests.worker.blackbox.ledger import Ledger, Run

from windlass.core.job import Delivery, JobDetail
from windlass.core.outcome import CauseKind, Outcome
from windlass.core.state import State

GIVEN_BACK = (Outcome.RELEASE, Outcome.SNOOZE, Outcome.HOLD)
HISTORY = 10
"""Deliveries that a store keeps of a job."""


class Checker:
    """One look at the end of a test."""

    def __init__(
        self,
        ledger: Ledger,
        jobs: dict[str, JobDetail],
        *,
        may_die: frozenset[str] = frozenset(),
        calm: bool = False,
    ) -> None:
        """`may_die`: jobs that may be dead letters. `calm`: nothing was killed, so nothing runs twice."""
        self.runs = ledger.by_job()
        self.jobs = jobs
        self.may_die = may_die
        self.calm = calm
        self.charged_unseen = 0
        """Charged for a crash, and its first line was not reached: killed in between, rare."""

    def check(self) -> None:
        """Fail with all that is wrong."""
        problems = list(self.problems())
        assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])

    def summary(self) -> str:
        """What happened, in a line."""
        ends = Counter(
            f"{delivery.outcome}" + (f" by {delivery.cause.kind}" if delivery.cause else "")
            for job in self.jobs.values()
            for delivery in job.deliveries
        )
        return (
            f"{len(self.jobs)} jobs, {sum(map(len, self.runs.values()))} runs, "
            f"{sum(len(runs) > 1 for runs in self.runs.values())} ran again, deliveries {dict(ends)}, "
            f"charged before their first line {self.charged_unseen}"
        )

    def problems(self) -> Iterator[str]:
        for job in self.runs.keys() - self.jobs.keys():
            yield f"ran without having been enqueued: {job}"
        for job, detail in self.jobs.items():
            runs = self.runs.get(job, [])
            for check in (self._end, self._duplicates, self._attempts, self._overlaps):
                yield from (
                    f"{problem}: {job} {detail.state} {_short(detail)}" for problem in check(detail, runs)
                )

    # --- what each job must be like -------------------------------------------------------------------------

    def _end(self, job: JobDetail, runs: list[Run]) -> Iterator[str]:
        if job.state is State.DEAD:
            if job.id not in self.may_die:
                yield f"dead without a reason of its own ({job.reason}, {job.error})"
            cause = job.deliveries[-1].cause if job.deliveries else None
            if not job.reason or not (job.error or cause):
                yield "dead without a stated cause"
        elif job.state is State.DONE:
            finals = [delivery for delivery in job.deliveries if delivery.outcome is Outcome.DONE]
            if len(finals) != 1 or not finals[0].settled:
                yield f"done {len(finals)} times"
                return
            mine = [run for run in runs if run.fence == finals[0].fence]
            if not mine or mine[0].how != "ok":
                yield "done, but the run of that fence did not complete"
            if job.result is not None and job.result.isdigit() and int(job.result) != finals[0].fence:
                yield "its result belongs to another run"
        elif job.state is not State.CANCELLED:
            yield "neither ended nor dead"

    def _duplicates(self, job: JobDetail, runs: list[Run]) -> Iterator[str]:
        history = {delivery.fence: delivery for delivery in job.deliveries}
        for run in runs[-HISTORY:]:
            delivery = history.get(run.fence)
            if delivery is None:
                yield f"no lease in its history explains the run {run.fence}"
            elif problem := self._problem_with(run, delivery):
                yield problem
        yield from self._leases_without_a_run(job, {run.fence for run in runs})

    def _problem_with(self, run: Run, lease: Delivery) -> str | None:
        by = _by(lease)
        if lease.outcome is Outcome.RELEASE and lease.runtime is None and by is None:
            return f"given back as not started, but run {run.fence} had started"
        if lease.outcome is Outcome.RELEASE and by is CauseKind.CRASH:
            return f"run {run.fence} had started in a crash and was not charged"
        if run.how == "ok" and lease.outcome is not Outcome.DONE and by is None:
            return f"run {run.fence} completed and was settled as {lease.outcome}"
        if self.calm and by is not None:
            return f"nobody was killed, and run {run.fence} ended by {lease.cause}"
        return None

    def _leases_without_a_run(self, job: JobDetail, started: set[int]) -> Iterator[str]:
        for delivery in job.deliveries:
            if delivery.fence in started or delivery.outcome in GIVEN_BACK:
                continue
            if _by(delivery) is CauseKind.CRASH:
                self.charged_unseen += 1
            elif _by(delivery) is not CauseKind.LOST:
                yield f"{delivery.outcome} without a run, fence {delivery.fence}"

    def _attempts(self, job: JobDetail, runs: list[Run]) -> Iterator[str]:
        if job.attempt > job.max_attempts:
            yield f"attempt {job.attempt} of {job.max_attempts}"
        if len(job.deliveries) == HISTORY:
            return
        for run in runs:
            before = [each for each in job.deliveries if each.fence < run.fence]
            spent = sum(each.outcome not in GIVEN_BACK for each in before)
            if run.attempt != spent + 1:
                yield f"run {run.fence} was attempt {run.attempt} after {spent} attempts that were spent"

    def _overlaps(self, job: JobDetail, runs: list[Run]) -> Iterator[str]:
        history = {delivery.fence: delivery for delivery in job.deliveries}
        for before, after in itertools.pairwise(runs):
            if before.end is not None and before.end > after.start:
                delivery = history.get(before.fence)
                if delivery is not None and _by(delivery) not in (CauseKind.LOST, CauseKind.CRASH):
                    yield f"runs {before.fence} and {after.fence} overlap"
            if after.start < before.start:
                yield f"run {after.fence} started before {before.fence}"


def _by(delivery: Delivery) -> CauseKind | None:
    return None if delivery.cause is None else delivery.cause.kind


def _short(job: JobDetail) -> str:
    ends = [
        f"{each.fence}#{each.attempt}:{each.outcome}"
        + (f"({each.cause.kind}: {each.cause.detail})" if each.cause else "")
        for each in job.deliveries
    ]
    return f"attempt {job.attempt}/{job.max_attempts} crashes {job.crashes} [{', '.join(ends)}]"
