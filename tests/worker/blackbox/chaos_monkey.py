"""Kills workers at random, and remembers when."""

import itertools
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.worker.blackbox.fleet import Fleet, Supervisor, send
from tests.worker.blackbox.ledger import Ledger

from windlass.core.job import JobDetail
from windlass.core.outcome import CauseKind


@dataclass
class Monkey:
    """Its choices come from a seed, so that a run can be told from another."""

    fleet: Fleet
    options: str
    seed: int
    killed: dict[int, float] = field(default_factory=dict)
    """Children, and when."""
    supervisors: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def shuffled(self, acts: list[Callable[[], object]]) -> list[Callable[[], object]]:
        """In an order of its own."""
        return self._random.sample(acts, len(acts))

    def kill_a_child(self) -> bool:
        """Kill one child that has jobs running; whether there was one."""
        busy = {run.pid for run in self.fleet.ledger.runs if run.end is None}
        children = [child for each in self._alive() for child in each.children if child in busy]
        if not children:
            return False
        child = self._random.choice(children)
        self.killed[child] = time.monotonic()
        return send(child, signal.SIGKILL)

    def kill_a_supervisor(self) -> None:
        """Kill one alone; its children notice. Another takes its place."""
        supervisor = self._random.choice(self._alive())
        supervisor.process.kill()
        supervisor.process.wait()
        self.supervisors += 1
        self.fleet.start(self.options, wait=False)

    def kill_a_tree(self) -> None:
        """Kill one with all its children, at once. Another takes its place."""
        self._random.choice(self._alive()).kill_tree()
        self.supervisors += 1
        self.fleet.start(self.options, wait=False)

    def _alive(self) -> list[Supervisor]:
        return [each for each in self.fleet.supervisors if each.process.poll() is None]


def restarts(monkey: Monkey, ledger: Ledger, jobs: dict[str, JobDetail]) -> list[float]:
    """How long after the kill of its child each job that had started began again, after its first crash."""
    found: list[float] = []
    for job, runs in ledger.by_job().items():
        for before, after in itertools.pairwise(runs):
            at = monkey.killed.get(before.pid)
            if at is None or before.end is not None:
                continue
            crashes = [
                each
                for each in jobs[job].deliveries
                if each.fence <= before.fence
                and each.cause is not None
                and each.cause.kind is not CauseKind.STOP
            ]
            if len(crashes) == 1 and crashes[0].fence == before.fence:
                found.append(after.start - at)
    return found
