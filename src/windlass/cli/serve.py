"""`windlass serve`: the dashboard, and the HTTP API for clients, operators and workers in any language."""

import importlib.util
import re
import sys
from typing import Annotated

from cyclopts import Parameter

from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.cli.output import say, say_aside, say_json
from windlass.cli.work import ExitIfDown, Format, Level, Quiet, Verbose, log_as_told
from windlass.observe.logs import begin_logging

PORT = 8700
Host = Annotated[
    str,
    Parameter(
        help="The address to listen on. An address that other machines reach needs an API key.",
        show_default=True,
    ),
]
Port = Annotated[int, Parameter(help="The port to listen on.", show_default=True)]
NEEDED = ("httptools", "litestar")
TOKEN_VARIABLE = "WINDLASS_TOKEN"
SHORTEST_TOKEN = 8
_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")


def run_serve(
    app: given.App,
    /,
    *,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    workers: Annotated[int, Parameter(help="Number of server processes.", show_default=True)] = 1,
    allow_host: Annotated[
        tuple[str, ...],
        Parameter(
            name="--allow-host",
            help='A host name that requests may use besides localhost; repeat for more. "*" allows all.',
        ),
    ] = (),
    tls: Annotated[
        bool,
        Parameter(
            name="--tls", help="A proxy handles TLS for this server: browsers send cookies over TLS only."
        ),
    ] = False,
    rate: Annotated[
        int, Parameter(help="Requests per second that one API key may send to a process.", show_default=True)
    ] = 2_000,
    connections: Annotated[
        int,
        Parameter(
            help="Connections that a process keeps open at once. When all are taken, a new connection "
            "replaces an idle one.",
            show_default=True,
        ),
    ] = 2_000,
    require_keys: Annotated[
        bool,
        Parameter(
            name="--require-keys",
            negative="",
            help="Refuse all requests while the store has no API key, even if it lost its data.",
        ),
    ] = False,
    token: Annotated[
        str | None,
        Parameter(
            env_var=TOKEN_VARIABLE,
            help=f"The token that requests carry while there is no API key; by default ${TOKEN_VARIABLE}, "
            "else a token that belongs to the namespace.",
        ),
    ] = None,
    trust_local: Annotated[
        bool,
        Parameter(
            name="--trust-local",
            negative="",
            help="While there is no API key, accept requests to the loopback address without a token, from "
            "every user and program of this machine and through any proxy on it.",
        ),
    ] = False,
    exit_if_store_is_down: ExitIfDown = False,
    json: given.Json = False,
    verbose: Verbose = 0,
    quiet: Quiet = 0,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Serve the dashboard and the HTTP API until stopped.

    It first prints the address for a browser. While there are no API keys, the address contains a token.
    """
    check_installed()
    if not 1 <= port <= 65_535:
        raise UsageError(f"--port must be from 1 to 65535, not {port}")
    if not 1 <= workers <= 64:
        raise UsageError(f"--workers must be from 1 to 64, not {workers}")
    if rate < 1:
        raise UsageError(f"--rate must be at least 1, not {rate}")
    if not 10 <= connections <= 100_000:
        raise UsageError(f"--connections must be from 10 to 100,000, not {connections}")
    from windlass.api.options import ServeOptions  # noqa: PLC0415 - only this command needs it
    from windlass.api.serving import ServerAddress, serve  # noqa: PLC0415

    options = ServeOptions(
        host=host,
        port=port,
        hosts=allow_host,
        secure=tls,
        rate=rate,
        connections=connections,
        require_keys=require_keys,
        token=_checked_token(token, trust_local=trust_local),
        trust_local=trust_local,
    )

    def tell(found: ServerAddress) -> None:
        if json:
            say_json(found)
        else:
            say(f"Serving {app} on {found.url}")
        if found.token is not None and not json:
            say(
                "There are no API keys: callers send the token in this address (Authorization: Bearer TOKEN)."
            )
        if trust_local and not found.needs_keys:
            say_aside(_TRUSTING)
        sys.stdout.flush()  # the program that started this reads it while the server runs

    log_as_told(log_level, log_format, verbose=verbose, quiet=quiet)
    loaded = load_app(app)
    begin_logging()  # by now the app has set up what it wants
    return serve(app, loaded, options, workers=workers, tell=tell, waits=not exit_if_store_is_down)


_TRUSTING = (
    "windlass: warning: --trust-local: while there is no API key, every user and program of this machine, "
    "and everybody for whom a proxy on it speaks, may do everything without a key or a token"
)


def _checked_token(token: str | None, *, trust_local: bool) -> str | None:
    if not token:
        return None
    if trust_local:
        raise UsageError(f"--token (or ${TOKEN_VARIABLE}) and --trust-local cannot be used together")
    if len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--token (or ${TOKEN_VARIABLE}) needs at least {SHORTEST_TOKEN} characters, of letters, digits "
            "and -._~ alone; make one with: openssl rand -hex 16"
        )
    return token


def check_installed() -> None:
    """Refuse to start without the packages that the server needs."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"the server needs {' and '.join(missing)}, not installed here: "
            "pip install 'windlass-queue[serve]'"
        )
