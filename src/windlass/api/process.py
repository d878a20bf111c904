"""A process of the server: it answers until it is told to stop, or its parent is gone."""

import asyncio
import gc
import multiprocessing
import resource
import signal
import socket
from pathlib import Path

from litestar import Litestar

from windlass import Windlass
from windlass.api.context import SERVER_STATE
from windlass.api.options import ProcessArguments
from windlass.api.server import build
from windlass.api.server_state import ServerState
from windlass.api.socket_server import serve_socket
from windlass.errors import InvalidOption
from windlass.loading import load_app
from windlass.observe.logs import begin_logging
from windlass.worker.leaving import leave_soon

OTHER_FILES = 200
"""Files that a process has open besides its connections."""


def run_process(arguments: ProcessArguments, listening: socket.socket) -> None:
    """Answer requests that come in at a socket, until stopped."""
    app = load_app(arguments.app)
    begin_logging()  # by now the app has set up what it wants
    if not isinstance(app, Windlass):
        raise InvalidOption(f"{arguments.app} is no Windlass app")
    server = build(app, arguments.options, folder=Path(arguments.folder))
    asyncio.run(_until_stopped(server, listening, room_for(arguments.options.connections)))
    leave_soon(0)  # a thread of the module of the app would keep this process


def room_for(connections: int) -> int:
    """How many connections the process may have, after it has raised its limit on open files as far as
    needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(connections, soft - OTHER_FILES))


async def _until_stopped(server: Litestar, listening: socket.socket, room: int) -> None:
    server_state: ServerState = server.state[SERVER_STATE]
    _stop_when_told(server_state.stopping)
    async with server.lifespan():
        # What is there by now stays: the collector would take 20 ms to look through it again, now and then,
        # in which nobody is answered.
        gc.collect()
        gc.freeze()
        async with serve_socket(server, listening, most=room):
            await server_state.stopping.wait()


def _stop_when_told(stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopping.set)
    parent = multiprocessing.parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, stopping.set)
