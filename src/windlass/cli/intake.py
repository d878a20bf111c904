"""`windlass intake`: the intakes of an app in a process of their own."""

from typing import Annotated

from cyclopts import Parameter

from windlass.cli import parameters as given
from windlass.cli.loading import load_app
from windlass.cli.work import ExitIfDown, Format, Level, Quiet, Verbose, log_as_told


def run_intake(
    app: given.App,
    /,
    *,
    celery: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="Take the messages of a queue of Celery's, too: amqp://host/queue, or "
            "redis://host/0?list=queue. They may name any task of the app. Repeat for more.",
        ),
    ] = (),
    exit_if_store_is_down: ExitIfDown = False,
    verbose: Verbose = 0,
    quiet: Quiet = 0,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Take messages from message brokers and make jobs of them, until stopped. It runs no jobs."""
    from windlass.worker.intake_command import programs_with_intakes, take_in  # noqa: PLC0415 - only this command

    log_as_told(log_level, log_format, verbose=verbose, quiet=quiet)
    loaded = load_app(app)
    for url in celery:
        loaded.intake(url, format="celery", tasks=sorted(loaded.tasks.keys() - loaded.celery_tasks))
    return take_in(programs_with_intakes(app, loaded), exit_if_store_is_down=exit_if_store_is_down)
