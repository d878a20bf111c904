"""`windlass verify`: test every promise on your own store while faults happen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windlass.cli.failure import UsageError
from windlass.cli.output import progress, say, say_aside
from windlass.errors import InvalidOption, WindlassError

if TYPE_CHECKING:
    from windlass.verify.report import Report

Url = Annotated[
    str | None,
    Parameter(
        help="Your store. The run injects faults into workers and the network, not into the store. It uses "
        "a temporary namespace and removes it afterwards."
    ),
]
Own = Annotated[
    Literal["sqlite", "redis", "postgres", "cluster"] | None,
    Parameter(
        help="Instead of --url: the run starts a store itself, then kills, fills, freezes and restores it."
    ),
]
Front = Annotated[
    Literal["kafka", "nats"] | None,
    Parameter(
        help="The run starts this message broker and hurts it. Producers enqueue through it, and an intake "
        "takes the jobs into the store."
    ),
]
Minutes = Annotated[float, Parameter(help="For how many minutes jobs are enqueued. By default 2.")]
Seed = Annotated[
    int, Parameter(help="The seed of the random jobs and faults. The same seed gives the same plan.")
]
Jobs = Annotated[int | None, Parameter(help="How many jobs to enqueue; by default 150 a second.")]
Folder = Annotated[
    Path | None,
    Parameter(
        help="Write report.txt, report.json, report.html, the histories and the logs into this folder. With "
        "--simulate: the histories of the seeds that failed; of a single seed, its history."
    ),
]
Faults = Annotated[
    str | None,
    Parameter(help='Inject only these faults, named as in a report: "kill child,slow,store restored".'),
]
PowerCuts = Annotated[
    int | None, Parameter(help="With --own, as root: only cut the store's power, this many times.")
]
Simulate = Annotated[
    int | None,
    Parameter(help="Instead of real processes: run this many seeds in the simulator, from --seed on."),
]
Json = Annotated[bool, Parameter(name="--json", help="Print the report as one JSON object.")]

COULD_NOT_RUN = 2


def run_verify(
    *,
    url: Url = None,
    own: Own = None,
    front: Front = None,
    minutes: Minutes = 2.0,
    seed: Seed = 1,
    jobs: Jobs = None,
    report: Folder = None,
    faults: Faults = None,
    power_cuts: PowerCuts = None,
    simulate: Simulate = None,
    json: Json = False,
) -> int:
    """Run producers and workers as real processes, inject faults, and check that every promise held.

    The exit code is 0 if every promise held, 1 if one was broken, 2 if the run could not be made.
    """
    if simulate is not None:
        return _simulate(simulate, seed, report, json=json)
    from windlass.verify.report import as_json, as_text  # noqa: PLC0415 - only this command needs it
    from windlass.verify.verify import verify  # noqa: PLC0415
    from windlass.verify.wanted import Wanted  # noqa: PLC0415

    wanted = Wanted(
        url=url,
        own=own,
        front=front,
        minutes=minutes,
        seed=seed,
        jobs=jobs,
        report=report,
        faults=_names(faults),
    )
    try:
        found: Report = verify(wanted, power_cuts=power_cuts, quiet=json)
    except (InvalidOption, UsageError):
        raise
    except (WindlassError, OSError) as error:
        say_aside(f"windlass: the run could not be made: {error}")
        return COULD_NOT_RUN
    if json:
        say(as_json(found).decode())
    else:
        say(as_text(found).rstrip())
        if report is not None:
            say_aside(f"windlass: the report is in {report.absolute()}; open report.html")
    return found.code


def _names(faults: str | None) -> tuple[str, ...]:
    return () if faults is None else tuple(name.strip() for name in faults.split(","))


def _simulate(seeds: int, first: int, report: Path | None, *, json: bool) -> int:
    from windlass.verify.simulated import (  # noqa: PLC0415 - only this needs it
        as_json,
        as_text,
        keep_histories,
        run_seeds,
    )

    if seeds < 1:
        raise UsageError(f"--simulate must be at least 1 seed, not {seeds}")
    with progress("seeds", seeds, shown=not json) as told:
        found = run_seeds(first, seeds, told)
    say(as_json(found).decode() if json else as_text(found).rstrip())
    if report is not None:
        for folder in keep_histories(found, range(first, first + seeds), report):
            say_aside(f"windlass: the history of a seed is in {folder.absolute()}")
    return 0 if found.ok else 1
