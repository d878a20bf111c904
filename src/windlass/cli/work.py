"""`windlass worker`, `windlass dev` and `windlass demo`: thin doors to those who do the work."""

import os
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from windlass.admin.service import Service
from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.cli.opening import with_service
from windlass.core.duration import micros
from windlass.observe.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, begin_logging

if TYPE_CHECKING:
    from windlass.worker.options import WorkerOptions

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
Processes = Annotated[int, Parameter(help="Worker processes.", show_default=True)]
Concurrency = Annotated[int | None, Parameter(help="Jobs that one process runs at once; 16 unless said.")]
Queues = Annotated[
    str | None,
    Parameter(
        help="The queues to serve, name[=weight],...: high=5,default=2 shares the slots by weight; without "
        "weights the queues are emptied in their order. By default all queues that the app declares share "
        "the slots, by the weights it gives them."
    ),
]
Groups = Annotated[
    tuple[str, ...],
    Parameter(
        name="--group",
        help="Slots that serve these queues alone, SLOTS:queue,...; give it again for more. "
        "Instead of --concurrency and --queues.",
    ),
]
Grace = Annotated[
    str | None,
    Parameter(help='How long running jobs may go on when the worker stops: 30, "2m". By default the app\'s.'),
]
MaxJobs = Annotated[int | None, Parameter(help="Replace a process after so many jobs.")]
MaxMemory = Annotated[int | None, Parameter(help="Replace a process that holds more MiB.")]
Reload = Annotated[bool, Parameter(name="--reload", help="Start anew when the code changes.")]
Level = Annotated[
    LogLevel | None, Parameter(help="The least that is logged; by default $WINDLASS_LOG_LEVEL, else info.")
]
Format = Annotated[
    LogFormat | None,
    Parameter(
        help="text, or json: an object a line, with the job that was running; "
        "by default $WINDLASS_LOG_FORMAT, else text."
    ),
]
Metrics = Annotated[
    str | None,
    Parameter(
        help="Serve metrics for Prometheus at HOST:PORT, such as 127.0.0.1:9464. Another address than a "
        "loopback one needs a token in $WINDLASS_METRICS_TOKEN."
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
    reload: Reload = False,
    metrics: Metrics = None,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Run jobs until stopped. The first Ctrl-C or SIGTERM lets running jobs end, the second ends at once."""
    from windlass.worker.command import supervise  # noqa: PLC0415
    from windlass.worker.options import WorkerOptions, check_options  # noqa: PLC0415 - only this command needs it

    if group and concurrency is not None:
        raise UsageError("--group says how many slots there are, instead of --concurrency: leave that out")
    options = check_options(
        WorkerOptions(
            processes=processes,
            concurrency=SLOTS if concurrency is None else concurrency,
            queues=_names(queues),
            groups=group,
            grace=None if grace is None else micros(grace, name="--grace"),
            max_jobs=max_jobs,
            max_memory=max_memory,
            reload=reload,
            metrics=metrics,
        )
    )
    if not reload:  # which waits for a mistake to be put right
        load_app(app)
        if queues is not None or group:
            _check_queues(app, options)
    _log_from(log_level, log_format)
    return supervise(app, options)


def _check_queues(app: str, options: "WorkerOptions") -> None:
    """Refuse queues that nobody declared: a worker would wait for their jobs for ever."""
    from windlass.worker.options import groups_of  # noqa: PLC0415 - only this command needs it

    async def work(service: Service) -> None:
        for group in groups_of(options, {}):
            for queue in group.queues:
                place = service.app if "@" in app else service.app.place_of(queue)
                await (await Service.of(place)).queues.check(queue)

    with_service(app, work, quiet=True)


def _log_from(level: LogLevel | None, form: LogFormat | None) -> None:
    """Worker processes are started, not forked: the variables tell them."""
    if level is not None:
        os.environ[LEVEL_VARIABLE] = level.upper()
    if form is not None:
        os.environ[FORMAT_VARIABLE] = form
    begin_logging()


def run_dev(
    app: given.App,
    /,
    *,
    concurrency: Concurrency = None,
    queues: Queues = None,
    port: Annotated[
        int, Parameter(help="The port of the HTTP API, on this machine alone; 0: no API.", show_default=True)
    ] = 8700,
    log_level: Level = None,
) -> int:
    """Run jobs while you write them: one process that starts anew when the code changes, and
    the dashboard with the HTTP API.
    """
    from windlass.cli.dev import api_beside  # noqa: PLC0415 - only this command needs it

    with api_beside(app, port):
        return run_worker(
            app,
            processes=1,
            concurrency=concurrency,
            queues=queues,
            grace="1s",
            reload=True,
            log_level=log_level,
        )


def run_demo() -> int:
    """Watch two workers run several hundred jobs, crashes included, and an account of every one of them."""
    from windlass.demo import main  # noqa: PLC0415 - only this command needs it

    return main()


def _names(queues: str | None) -> tuple[str, ...]:
    return () if queues is None else tuple(name.strip() for name in queues.split(","))
