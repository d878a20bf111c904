"""`windlass serve`: the HTTP API, for producers, operators and workers in any language."""

import importlib.util
import os
from typing import Annotated

from cyclopts import Parameter

from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.cli.work import Format, Level
from windlass.observe.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, begin_logging

PORT = 8700
Host = Annotated[
    str,
    Parameter(help="The address to listen on. Another than loopback needs an API key.", show_default=True),
]
Port = Annotated[int, Parameter(help="The port to listen on.", show_default=True)]
NEEDED = ("granian", "litestar")


def run_serve(
    app: given.App,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    workers: Annotated[int, Parameter(help="Server processes.", show_default=True)] = 1,
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(
            name="--allow-host",
            help="A name under which the server is asked, besides localhost; give it again for more. "
            '"*" allows all.',
        ),
    ] = (),
    tls: Annotated[
        bool, Parameter(name="--tls", help="A proxy speaks TLS for this server: cookies are for TLS alone.")
    ] = False,
    rate: Annotated[
        int, Parameter(help="Requests a second that one API key may send to a process.", show_default=True)
    ] = 2_000,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Serve the HTTP API until stopped. Without any API key it is open to this machine, and nobody else."""
    check_installed()
    if not 1 <= port <= 65_535:
        raise UsageError(f"--port must be from 1 to 65535, not {port}")
    if not 1 <= workers <= 64:
        raise UsageError(f"--workers must be from 1 to 64, not {workers}")
    if rate < 1:
        raise UsageError(f"--rate must be at least 1, not {rate}")
    from windlass.api.options import ServeOptions  # noqa: PLC0415 - only this command needs it
    from windlass.api.serving import serve  # noqa: PLC0415

    loaded = load_app(app)
    _log_from(log_level, log_format)
    options = ServeOptions(host=host, port=port, hosts=allow_host, secure=tls, rate=rate)
    return serve(app, loaded, options, workers=workers)


def _log_from(level: str | None, form: str | None) -> None:
    """Server processes are started, not forked: the variables tell them."""
    if level is not None:
        os.environ[LEVEL_VARIABLE] = level.upper()
    if form is not None:
        os.environ[FORMAT_VARIABLE] = form
    begin_logging()


def check_installed() -> None:
    """Say in a line what is missing."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"the server needs {' and '.join(missing)}, not installed here: pip install 'windlass[serve]'"
        )
