"""`windlass worker`, `windlass dev` and `windlass demo`: read the options and start the work."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windlass import Windlass
from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.core.duration import micros
from windlass.observe.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, check_logging

if TYPE_CHECKING:
    from windlass.worker.options import WorkerOptions

LogLevel = Literal["debug", "run", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Processes = Annotated[int, Parameter(help="Number of worker processes.", show_default=True)]
Concurrency = Annotated[int | None, Parameter(help="Jobs that one process runs at once; by default 16.")]
Queues = Annotated[
    str | None,
    Parameter(
        help="The queues to serve, name[=weight],...: high=5,default=2 shares the slots by weight. Without "
        "weights the worker serves the first queue until it is empty, then the next. By default it serves "
        "all queues that the app declares, by their declared weights."
    ),
]
Groups = Annotated[
    tuple[str, ...],
    Parameter(
        name="--group",
        help="Slots that serve only these queues, SLOTS:queue,...; repeat for more. "
        "Instead of --concurrency and --queues.",
    ),
]
Grace = Annotated[
    str | None,
    Parameter(help='How long a stopping worker waits for running jobs: 30, "2m". By default the app\'s.'),
]
MaxJobs = Annotated[int | None, Parameter(help="Replace a process after this many jobs.")]
MaxMemory = Annotated[int | None, Parameter(help="Replace a process that uses more MiB of memory than this.")]
Reload = Annotated[bool, Parameter(name="--reload", help="Restart when the code changes.")]
Level = Annotated[
    LogLevel | None,
    Parameter(
        help="The lowest level that is logged; by default $WINDLASS_LOG_LEVEL, else info. "
        "run: also the start and the end of every run."
    ),
]
Verbose = Annotated[
    int,
    Parameter(
        name=("--verbose", "-v"),
        count=True,
        help="Log more: -v starts and ends of runs (--log-level run), -vv everything (debug).",
    ),
]
Quiet = Annotated[
    int,
    Parameter(
        name=("--quiet", "-q"),
        count=True,
        help="Log less: -q warnings and errors, -qq errors alone.",
    ),
]
Format = Annotated[
    LogFormat | None,
    Parameter(
        help="text, or json: one object per line, with the job that was running; "
        "by default $WINDLASS_LOG_FORMAT, else text."
    ),
]
NoIntakes = Annotated[
    bool,
    Parameter(
        name="--no-intakes",
        negative="",
        help="Leave the intakes of the app to other workers, or to windlass intake.",
    ),
]
Metrics = Annotated[
    str | None,
    Parameter(
        help="Serve metrics for Prometheus at HOST:PORT, such as 127.0.0.1:9464. An address that other "
        "machines reach needs a token in $WINDLASS_METRICS_TOKEN."
    ),
]
Health = Annotated[
    str | None,
    Parameter(
        help="Answer probes at PORT of this machine, or at HOST:PORT, such as 0.0.0.0:8701: /healthz says "
        "whether the worker should be restarted, /readyz whether it may start jobs."
    ),
]
ExitIfDown = Annotated[
    bool,
    Parameter(
        name="--exit-if-store-is-down",
        negative="",
        help="Exit with code 1 if the store does not answer at the start, instead of waiting for it.",
    ),
]

SLOTS = 16


def run_worker(
    app: given.App,
    /,
    *,
    processes: Processes = 2,
    concurrency: Concurrency = None,
    queues: Queues = None,
    group: Groups = (),
    grace: Grace = None,
    max_jobs: MaxJobs = None,
    max_memory: MaxMemory = None,
    no_intakes: NoIntakes = False,
    reload: Reload = False,
    metrics: Metrics = None,
    health: Health = None,
    exit_if_store_is_down: ExitIfDown = False,
    verbose: Verbose = 0,
    quiet: Quiet = 0,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Run jobs until stopped. The first Ctrl-C or SIGTERM lets running jobs end; the second does not wait."""
    from windlass.worker.command import supervise  # noqa: PLC0415
    from windlass.worker.options import WorkerOptions, check_options  # noqa: PLC0415 - only this command needs it

    if group and concurrency is not None:
        raise UsageError("--group and --concurrency both set the number of slots: leave --concurrency out")
    options = check_options(
        WorkerOptions(
            processes=processes,
            concurrency=SLOTS if concurrency is None else concurrency,
            queues=_names(queues),
            groups=group,
            grace=None if grace is None else micros(grace, name="--grace"),
            max_jobs=max_jobs,
            max_memory=max_memory,
            intakes=not no_intakes,
            reload=reload,
            metrics=metrics,
            health=health,
            exit_if_store_is_down=exit_if_store_is_down,
        )
    )
    log_as_told(log_level, log_format, verbose=verbose, quiet=quiet)
    once_open = None
    if not reload:  # which waits for a mistake to be put right
        loaded = load_app(app)
        if queues is not None or group:
            once_open = partial(_check_queues, app, loaded, options)
    return supervise(app, options, once_open=once_open)


async def _check_queues(name: str, app: Windlass, options: "WorkerOptions") -> None:
    """Refuse queues that are not declared: a worker would wait for their jobs for ever."""
    from windlass.worker.options import groups_of  # noqa: PLC0415 - only this command needs it

    try:
        for group in groups_of(options, {}):
            for queue in group.queues:
                place = app if "@" in name else app.place_of(queue)
                await (await Service.of(place)).queues.check(queue)
    finally:
        await app.aclose()


def log_as_told(level: LogLevel | None, form: LogFormat | None, *, verbose: int = 0, quiet: int = 0) -> None:
    """Set environment variables: worker processes are started, not forked, and read them from there."""
    asked = [name for name in (level, verbose and "-v", quiet and "-q") if name]
    if len(asked) > 1:
        raise UsageError("--log-level, -v and -q say the same in different words: give one of them")
    if verbose:
        level = "run" if verbose == 1 else "debug"
    elif quiet:
        level = "warning" if quiet == 1 else "error"
    if level is not None:
        os.environ[LEVEL_VARIABLE] = level.upper()
    if form is not None:
        os.environ[FORMAT_VARIABLE] = form
    check_logging()


def run_dev(
    app: given.App,
    /,
    *,
    concurrency: Concurrency = None,
    queues: Queues = None,
    port: Annotated[
        int,
        Parameter(
            help="The port of the HTTP API, which only this machine can reach; 0: no API.", show_default=True
        ),
    ] = 8700,
    verbose: Verbose = 0,
    quiet: Quiet = 0,
    log_level: Level = None,
) -> int:
    """Run a worker for development: one process that restarts when the code changes, with
    the dashboard and the HTTP API.
    """
    from windlass.cli.dev import api_beside  # noqa: PLC0415 - only this command needs it

    log_as_told(log_level, None, verbose=verbose, quiet=quiet)  # before the server starts, which inherits it
    with api_beside(app, port):
        return run_worker(
            app,
            processes=1,
            concurrency=concurrency,
            queues=queues,
            grace="1s",
            reload=True,
        )


def run_demo() -> int:
    """Watch two workers run several hundred jobs, some of which crash, and see what became of each job."""
    from windlass.demo import main  # noqa: PLC0415 - only this command needs it

    return main()


def _names(queues: str | None) -> tuple[str, ...]:
    return () if queues is None else tuple(name.strip() for name in queues.split(","))
