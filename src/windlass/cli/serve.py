"""`windlass serve`: the dashboard, and the HTTP API for producers, operators and workers in any language."""

import importlib.util
import os
import re
import sys
from typing import Annotated

from cyclopts import Parameter

from windlass.cli import parameters as given
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.cli.output import say, say_aside, say_json
from windlass.cli.work import Format, Level
from windlass.observe.logs import FORMAT_VARIABLE, LEVEL_VARIABLE, begin_logging

PORT = 8700
Host = Annotated[
    str,
    Parameter(help="The address to listen on. Another than loopback needs an API key.", show_default=True),
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
    connections: Annotated[
        int,
        Parameter(
            help="Connections that a process keeps at once. When all are taken, a new one takes the place of "
            "one that waits.",
            show_default=True,
        ),
    ] = 2_000,
    require_keys: Annotated[
        bool,
        Parameter(
            name="--require-keys",
            negative="",
            help="Let nobody in while the store has no API key, also if it was emptied.",
        ),
    ] = False,
    token: Annotated[
        str | None,
        Parameter(
            env_var=TOKEN_VARIABLE,
            help=f"What callers show while there is no API key; by default ${TOKEN_VARIABLE}, else a token "
            "that belongs to the namespace.",
        ),
    ] = None,
    trust_local: Annotated[
        bool,
        Parameter(
            name="--trust-local",
            negative="",
            help="While there is no API key, let everything in that reaches the loopback address, without a "
            "token: every user and program of this machine, and the callers of any proxy on it.",
        ),
    ] = False,
    json: given.Json = False,
    log_level: Level = None,
    log_format: Format = None,
) -> int:
    """Serve the dashboard and the HTTP API until stopped.

    It prints the address for a browser first, with a token while there are no API keys.
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
    from windlass.api.serving import Found, serve  # noqa: PLC0415

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

    def tell(found: Found) -> None:
        if json:
            say_json(found)
        else:
            say(f"Serving {app} on {found.url}")
        if found.token is not None and not json:
            say(
                "There are no API keys: callers show the token in this address (Authorization: Bearer TOKEN)."
            )
        if trust_local and not found.needs_keys:
            say_aside(_TRUSTING)
        sys.stdout.flush()  # the program that started this reads it while the server runs

    loaded = load_app(app)
    _log_from(log_level, log_format)
    return serve(app, loaded, options, workers=workers, tell=tell)


_TRUSTING = (
    "windlass: warning: --trust-local: while there is no API key, every user and program of this machine, "
    "and everybody for whom a proxy on it speaks, may do everything without a key or a token"
)


def _checked_token(token: str | None, *, trust_local: bool) -> str | None:
    if not token:
        return None
    if trust_local:
        raise UsageError(f"--token (or ${TOKEN_VARIABLE}) and --trust-local exclude each other")
    if len(token) < SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        raise UsageError(
            f"--token (or ${TOKEN_VARIABLE}) needs at least {SHORTEST_TOKEN} characters, of letters, digits "
            "and -._~ alone; make one with: openssl rand -hex 16"
        )
    return token


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
            f"the server needs {' and '.join(missing)}, not installed here: "
            "pip install 'windlass-queue[serve]'"
        )
