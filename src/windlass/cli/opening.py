"""Running a command: load the app, open its store, do the work, close the store."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from windlass import Windlass
from windlass.admin.doctor import store_file
from windlass.admin.service import Service
from windlass.cli.loading import load_app
from windlass.errors import WindlassError

_T = TypeVar("_T")


def with_service(name: str, work: Callable[[Service], Awaitable[int | None]], *, quiet: bool = False) -> int:
    """Load the app, open its store and do the work; returns the exit code. `quiet`: do not say that the store
    is new.
    """
    app = load_app(name)  # not inside the loop: a module may run one of its own when it is imported
    if not quiet:
        _mention_new_file(app)

    async def run() -> int:
        with _patience():
            service = await Service.of(app)
        service.check_shared("this command has one of its own")
        return await work(service) or 0

    return in_loop(app, run)


@contextmanager
def _patience() -> Generator[None]:
    """Print a note while the store does not answer: its file may be locked, or its server down."""

    def mention() -> None:
        if sys.stderr.isatty():
            print(f"windlass: the store has not answered for {_LONG:g} s; waiting for it", file=sys.stderr)  # noqa: T201

    timer = asyncio.get_running_loop().call_later(_LONG, mention)
    try:
        yield
    finally:
        timer.cancel()


_LONG = 2.0


def in_loop(app: Windlass, run: Callable[[], Awaitable[_T]]) -> _T:
    """Run async code and close the app."""

    async def closing() -> _T:
        try:
            return await run()
        finally:
            await app.aclose()

    return asyncio.run(closing())


def _mention_new_file(app: Windlass) -> None:
    """Say that the file is new: in the wrong folder a user would wonder where the jobs are."""
    try:
        path = store_file(app.config)
        is_new = path is not None and not path.exists() and os.access(path.parent, os.W_OK)
    except (WindlassError, OSError):
        return  # opening says what is wrong
    if path is not None and is_new:
        print(f"windlass: note: {path.absolute()} did not exist; it is created now", file=sys.stderr)  # noqa: T201
