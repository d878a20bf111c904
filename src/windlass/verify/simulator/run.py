"""Running seeds: one, or as many as there is time for, on several processors."""

import contextlib
import hashlib
import itertools
import logging
import multiprocessing
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import msgspec

from windlass.verify import history
from windlass.verify.checker import Rules, Verdict, check
from windlass.verify.simulator.loop import SimLoop
from windlass.verify.simulator.plan import timetable
from windlass.verify.simulator.seeded import seeded
from windlass.verify.simulator.world import BEAT, World

RULES = Rules(
    exact_starts=True,
    redelivery=20_000_000,
    unknown=10_000_000,
    resume=8_000_000,
    beat=round(BEAT * 1_000_000),
)
"""What holds on virtual time, where nothing is slow by accident."""
SHARE = 25
"""Seeds that a process takes at a time."""


class Lived(msgspec.Struct, frozen=True):
    """A run that is over: its history, as files by name."""

    seed: int
    files: dict[str, bytes]

    @property
    def digest(self) -> str:
        """What two runs of a seed agree on."""
        sums = hashlib.sha256()
        for name, lines in sorted(self.files.items()):
            sums.update(name.encode() + b"\0" + lines)
        return sums.hexdigest()

    def write(self, folder: Path) -> None:
        """Leave the history in a folder, as real processes would have."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in self.files.items():
            (folder / f"{name}{history.SUFFIX}").write_bytes(lines)

    def lines(self) -> "list[history.Line]":
        """The events, merged."""
        return list(
            history.merge(
                history.read_file(text.splitlines(keepends=True), name)
                for name, text in sorted(self.files.items())
            )
        )


def live(seed: int) -> Lived:
    """Run a seed."""
    with _quiet():
        loop = SimLoop()
        with seeded(loop, random.Random(f"ids-{seed}")):  # noqa: S311 - drawn again on purpose
            world = World(timetable(seed), loop)
            try:
                loop.run_until_complete(world.run())
            finally:
                world.over = world.network.over = True
                loop.end(world.processes)
    return Lived(seed, {name: file.getvalue() for name, file in world.files.items()})


class Judged(msgspec.Struct, frozen=True):
    """What came of a seed."""

    seed: int
    digest: str
    """Of its history: the same whenever and wherever the seed is run."""
    verdict: Verdict


class Simulated(msgspec.Struct, kw_only=True):
    """What came of many seeds."""

    seeds: int = 0
    jobs: int = 0
    runs: int = 0
    events: int = 0
    seconds: float = 0.0
    faults: dict[str, int] = {}
    duplicates: dict[str, int] = {}
    checked: dict[str, int] = {}
    """By invariant."""
    failed: list[Judged] = []
    """Seeds in which something did not hold."""

    @property
    def ok(self) -> bool:
        """Whether everything held in every seed."""
        return not self.failed

    def add(self, judged: Judged) -> None:
        """Count one seed more."""
        verdict = judged.verdict
        self.seeds += 1
        self.jobs += verdict.jobs
        self.runs += verdict.runs
        self.events += verdict.events
        for total, more in ((self.faults, verdict.faults), (self.duplicates, verdict.duplicates)):
            for name, count in more.items():
                total[name] = total.get(name, 0) + count
        for name, finding in verdict.findings.items():
            self.checked[name] = self.checked.get(name, 0) + finding.holds_for
        if not verdict.ok:
            self.failed.append(judged)


def judge(seed: int, rules: Rules = RULES) -> Judged:
    """Run a seed and check its history."""
    lived = live(seed)
    return Judged(seed, lived.digest, check(lived.lines(), rules))


def simulate(
    seeds: Iterable[int],
    *,
    processes: int = 2,
    seconds: float | None = None,
    told: Callable[[Judged], None] | None = None,
) -> Simulated:
    """Run many seeds, at most for so many seconds. `told` hears of each as it is done, for progress.

    Same seeds, same histories, whatever the number of processes. A failed seed is run again with `judge`.
    """
    began = time.monotonic()
    total = Simulated(faults={}, duplicates={}, checked={}, failed=[])
    for judged in _judged(iter(seeds), processes):
        total.add(judged)
        if told is not None:
            told(judged)
        if seconds is not None and time.monotonic() - began > seconds:
            break
    total.seconds = time.monotonic() - began
    total.failed.sort(key=lambda judged: judged.seed)
    return total


def _judged(seeds: Iterator[int], processes: int) -> Iterator[Judged]:
    if processes <= 1:
        yield from map(judge, seeds)
        return
    # Fresh interpreters: a fork would take along whatever loops and threads its parent has.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        under_way: deque[Future[list[Judged]]] = deque()
        try:
            while True:
                while len(under_way) < 2 * processes and (share := list(itertools.islice(seeds, SHARE))):
                    under_way.append(pool.submit(_share, share))
                if not under_way:
                    return
                yield from under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _share(seeds: list[int]) -> list[Judged]:
    return [judge(seed) for seed in seeds]


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Workers that are killed on purpose would fill a terminal."""
    log = logging.getLogger("windlass")
    before = log.disabled, log.level
    log.setLevel(logging.CRITICAL + 1)
    loggers = [logging.getLogger(name) for name in ("windlass.worker", "asyncio")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.disabled, log.level = before
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)
