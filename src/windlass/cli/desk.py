"""A command at work: the app is loaded, its store opened, and closed in the end."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from windlass import Windlass
from windlass.admin.doctor import store_file
from windlass.admin.insight import Insight
from windlass.admin.operate import Operator
from windlass.admin.views import moment
from windlass.broker.contract import Broker
from windlass.cli.failure import UsageError
from windlass.cli.loading import load_app
from windlass.errors import WindlassError

_T = TypeVar("_T")


class Desk:
    """What a command works with."""

    def __init__(self, name: str, app: Windlass, broker: Broker) -> None:
        self.name = name
        self.app = app
        self.broker = broker
        self.insight = Insight(broker, not_known=app.not_known)
        self.operator = Operator(broker)

    async def now(self) -> datetime:
        """The store's time."""
        return moment(await self.insight.now())


def at_desk(name: str, work: Callable[[Desk], Awaitable[int | None]], *, quiet: bool = False) -> int:
    """Load the app, open its store and do the work; its exit code. `quiet`: a new store is what is wanted."""
    app = load_app(name)  # not inside the loop: a module may run one of its own when it is imported
    if not quiet:
        _mention_new_file(app)

    async def run() -> int:
        with _patience():
            broker = await app.connection.broker()
        if not broker.capabilities.shared:
            # What is enqueued here would be accepted, and gone with this command.
            raise UsageError(
                f"a {broker.capabilities.store} store lives inside one process: this command has one of its "
                "own; use one that is shared, such as sqlite:///windlass.db"
            )
        return await work(Desk(name, app, broker)) or 0

    return in_loop(app, run)


@contextmanager
def _patience() -> Generator[None]:
    """Say so when the store lets a person wait: another process may hold a file's lock, a server be away."""

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
    """Who reads in the wrong folder would otherwise find an empty store and wonder where the jobs are."""
    try:
        path = store_file(app.config)
        is_new = path is not None and not path.exists() and os.access(path.parent, os.W_OK)
    except (WindlassError, OSError):
        return  # opening says what is wrong
    if path is not None and is_new:
        print(f"windlass: note: {path.absolute()} did not exist; it is made now", file=sys.stderr)  # noqa: T201
