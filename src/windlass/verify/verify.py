"""`windlass verify` from beginning to end: run, check, report."""

import asyncio
import shutil
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from windlass.verify import cuts, timeline
from windlass.verify.faults.all import named
from windlass.verify.ground import TIMES
from windlass.verify.judge import judge
from windlass.verify.progress import Progress
from windlass.verify.report import Report, write
from windlass.verify.run import Outline, Run, perform
from windlass.verify.stage import Stage
from windlass.verify.wanted import Wanted, check
from windlass.version import __version__


def verify(wanted: Wanted, *, power_cuts: int | None = None, quiet: bool = False) -> Report:
    """Run and report. `WindlassError` or `OSError`: it could not run."""
    check(wanted)
    named(wanted.faults)
    make = Run
    if power_cuts is not None:
        cuts.check_possible(wanted)
        make = partial(cuts.CutRun, cuts=power_cuts)
    stage = Stage(wanted)
    try:
        with Progress(quiet=quiet) as progress:
            outline = asyncio.run(perform(wanted, stage, progress, make))
            progress.phase("checking")
            report = reported(wanted, stage, outline)
        if wanted.report is not None:
            write(report, wanted.report)
    finally:
        if wanted.report is not None:
            keep(stage, wanted.report)
        stage.remove()
    return report


def reported(wanted: Wanted, stage: Stage, outline: Outline) -> Report:
    """What the run and the checker say, together."""
    drawn, runs = timeline.draw_up(stage.history)
    report = Report(
        store=outline.store if wanted.front is None else f"{outline.store} behind {wanted.front}",
        durability=outline.durability,
        own=wanted.own is not None,
        seed=wanted.seed,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%MZ"),
        version=__version__,
        settings=dict(TIMES),
        seconds=outline.seconds,
        accepted=outline.accepted,
        runs=runs,
        injected=outline.injected,
        missed=outline.missed,
        skipped=outline.skipped,
        troubles=outline.troubles,
        complete=outline.complete,
        timeline=drawn,
    )
    judge(stage.history, report)
    return report


def keep(stage: Stage, folder: Path) -> None:
    """Histories and logs stay with the report: who doubts it can check them again."""
    for name in ("history", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
        if (stage.folder / name).exists():
            shutil.copytree(stage.folder / name, folder / name, ignore=shutil.ignore_patterns("programs"))
