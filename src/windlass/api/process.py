"""A process of the server: what it answers with, and how it hears that it is to stop."""

import asyncio
import gc
import os
import signal

import msgspec
from litestar import Litestar

from windlass import Windlass
from windlass.api.desk import RUNNING
from windlass.api.options import VARIABLE, Told
from windlass.api.running import Running
from windlass.api.server import build
from windlass.errors import InvalidOption
from windlass.loading import load_app
from windlass.observe.logs import begin_logging


def application() -> Litestar:
    """What a server process answers with."""
    told = msgspec.json.decode(os.environ[VARIABLE], type=Told)
    begin_logging()
    app = load_app(told.app)
    if not isinstance(app, Windlass):
        raise InvalidOption(f"{told.app} is no Windlass app")
    server = build(app, told.options)
    running: Running = server.state[RUNNING]
    running.on_start = lambda: begin(running)
    return server


def begin(running: Running) -> None:
    """Called before the first request."""
    on_signal(running.stopping)
    # What is there by now stays: the collector would take 20 ms to look through it again, now and then, in
    # which nobody is answered.
    gc.collect()
    gc.freeze()


def on_signal(stop: "asyncio.Event") -> None:
    """Let requests that wait be answered when the process is told to stop, not when their time is over.

    The loop keeps its own handler: it hears of signals through a file descriptor, whatever runs here.
    """
    loop = asyncio.get_running_loop()

    def told(*_: object) -> None:
        loop.call_soon_threadsafe(stop.set)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, told)
