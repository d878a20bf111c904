"""`windlass serve`: the processes that answer, and what is checked before anybody reaches them."""

import asyncio
import logging
import multiprocessing
import os
import socket
import tempfile

import msgspec
from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.http import HTTP1Settings
from granian.log import LogLevels

from windlass import Windlass
from windlass.admin.keys import Keys
from windlass.api.hosts import is_address, is_loopback
from windlass.api.options import VARIABLE, ServeOptions, Told
from windlass.errors import InvalidOption
from windlass.observe.together import FOLDER_VARIABLE

_log = logging.getLogger("windlass.api")

STOPPING = 5
"""Seconds that requests under way are given when the server stops."""
HEADERS_WITHIN = 10_000
"""Milliseconds in which the headers of a request have to arrive."""


def serve(name: str, app: Windlass, options: ServeOptions, *, workers: int) -> int:
    """Answer requests until stopped; the exit code. `InvalidOption` says why it cannot start."""
    asyncio.run(_check(app, options))
    _check_port(options)
    told = Told(app=name, options=options)
    os.environ[VARIABLE] = msgspec.json.encode(told).decode()
    multiprocessing.set_start_method("spawn", force=True)
    server = Granian(
        "windlass.api.process:application",
        factory=True,
        address=options.host,
        port=options.port,
        interface=Interfaces.ASGI,
        workers=workers,
        loop=Loops.asyncio,
        http=HTTPModes.auto,
        websockets=False,
        backlog=2_048,
        # Requests beyond those that wait for jobs: a flood of long polls leaves room for the others.
        backpressure=options.waiting + 1_000,
        http1_settings=HTTP1Settings(header_read_timeout=HEADERS_WITHIN),
        workers_kill_timeout=STOPPING,
        respawn_failed_workers=True,
        log_level=LogLevels.warning,
    )
    _log.info("serving %s on %s", name, address_of(options))
    with tempfile.TemporaryDirectory(prefix="windlass-metrics-") as folder:
        if workers > 1:
            os.environ[FOLDER_VARIABLE] = folder  # its processes add up what they count
        server.serve()
    return 0


def address_of(options: ServeOptions) -> str:
    """Where a server is found."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{options.port}"


async def _check(app: Windlass, options: ServeOptions) -> None:
    """Refuse to be reached by everybody, and a store that only this process would have."""
    try:
        broker = await app.connection.broker()
        if not broker.capabilities.shared:
            raise InvalidOption(
                f"a {broker.capabilities.store} store lives inside one process: workers would not find what "
                "is enqueued here; use one that is shared, such as sqlite:///windlass.db"
            )
        if is_loopback(options.host):
            return
        if not [key async for key in Keys(broker).all()]:
            raise InvalidOption(
                f"without an API key this server is open to all who reach it, so it does not listen on "
                f"{options.host}; make a key first: windlass keys APP create --scope operate"
            )
    finally:
        await app.aclose()


def _check_port(options: ServeOptions) -> None:
    """Say so in a line if the port is taken: the server would start, and fail in each of its processes."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    if not is_address(options.host) and options.host != "localhost":
        raise InvalidOption(f'--host is an address, such as 127.0.0.1 or 0.0.0.0, not "{options.host}"')
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((options.host, options.port))
        except OSError as error:
            raise InvalidOption(
                f"cannot listen on {options.host}:{options.port}: {error.strerror}; choose another --port"
            ) from None
