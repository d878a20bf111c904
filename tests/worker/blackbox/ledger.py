"""What tasks and producers write down of themselves: one JSON line per event, appended in one write.

It knows nothing of a store. Times are the machine's monotonic clock, which all processes share.
"""

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass import current

LEDGER = "BB_LEDGER"
"""The environment variable that names the file."""


def write(kind: str, **fields: Any) -> None:
    """Append one line. O_APPEND: lines of any number of processes do not mix."""
    line = json.dumps({"kind": kind, "at": time.monotonic(), "pid": os.getpid(), **fields}) + "\n"
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@contextlib.contextmanager
def recorded(**more: Any) -> Iterator[None]:
    """The run that a task is in: a line at its start and one at its end."""
    who = {"job": current.job.id, "task": current.job.task, "fence": current.fence}
    write("start", **who, attempt=current.attempt, **more)
    try:
        yield
    except BaseException as error:
        write("end", **who, how=type(error).__name__)
        raise
    write("end", **who, how="ok")


@dataclass
class Run:
    """A run as the ledger saw it."""

    job: str
    task: str
    fence: int
    attempt: int
    pid: int
    start: float
    more: dict[str, Any]
    end: float | None = None
    how: str | None = None


@dataclass
class Ledger:
    """Everything that was written."""

    runs: list[Run] = field(default_factory=list)
    """In the order of their starts."""
    accepted: list[str] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    def of(self, job: str) -> list[Run]:
        """The runs of a job, by fence."""
        return sorted((run for run in self.runs if run.job == job), key=lambda run: run.fence)

    def by_job(self) -> dict[str, list[Run]]:
        """All runs, by job and fence."""
        found: defaultdict[str, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.fence):
            found[run.job].append(run)
        return found

    def said(self, kind: str) -> list[dict[str, Any]]:
        """Lines of another kind."""
        return [line for line in self.others if line["kind"] == kind]


def read(path: Path) -> Ledger:
    """Read a ledger, also while it is written."""
    ledger = Ledger()
    runs: dict[tuple[str, int], Run] = {}
    for text in path.read_text().splitlines() if path.exists() else []:
        line: dict[str, Any] = json.loads(text)
        match line.pop("kind"):
            case "start":
                run = Run(
                    line.pop("job"),
                    line.pop("task"),
                    line.pop("fence"),
                    line.pop("attempt"),
                    line.pop("pid"),
                    line.pop("at"),
                    line,
                )
                assert (run.job, run.fence) not in runs, f"one lease was started twice: {run}"
                runs[run.job, run.fence] = run
                ledger.runs.append(run)
            case "end":
                run = runs[line["job"], line["fence"]]
                run.end, run.how = line["at"], line["how"]
            case "accepted":
                ledger.accepted += line["jobs"]
            case kind:
                ledger.others.append({"kind": kind, **line})
    ledger.runs.sort(key=lambda run: run.start)
    return ledger
