"""What happened in a test, in lines that can be read from the top."""

from collections.abc import Sequence
from datetime import datetime

from windlass.testing.seen import Enqueued
from windlass.testing.times import as_datetime
from windlass.testing.worker import Ran


def story(enqueued: Sequence[Enqueued], runs: Sequence[Ran]) -> str:
    """Every job and every run, in order of time."""
    lines: list[tuple[datetime, int, str]] = []
    first = {run.job: run.at for run in reversed(runs)}
    for job in enqueued:
        at = as_datetime(job.detail.accepted_at) if job.detail is not None else first.get(job.id)
        if at is not None:
            lines.append((at, len(lines), f"enqueued  {job}"))
    lines += [(run.at, len(lines) + place, _told(run)) for place, run in enumerate(runs)]
    if not lines:
        return "nothing was enqueued"
    return "\n".join(f"{at:%Y-%m-%d %H:%M:%S}  {text}" for at, _, text in sorted(lines))


def _told(run: Ran) -> str:
    said = [f"attempt {run.attempt} of {run.max_attempts}", run.task, run.outcome]
    if run.delay is not None:
        said[-1] += f" in {run.delay:g} s"
    if run.exception is not None:
        said.append(f"{type(run.exception).__name__}: {run.exception}")
    elif run.why:
        said.append(run.why)
    return "  ".join(said)
