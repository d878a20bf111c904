"""Writes down what worker processes ask of the store and what it answers, and lets them wait with opening it.

A worker opens its store by itself, in a process that this package only shares by the app that it loads. So
the table of openers is wrapped from there: the product has no hook for it, and needs none.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from windlass.broker import registry
from windlass.broker.contract import Broker, Options
from windlass.clock import Clock
from windlass.verify.history import Journal
from windlass.verify.simulator.recorded import Recorded

_LOOK = 0.05
"""Seconds."""


def wait_outside(closed: Path) -> None:
    """Let this process open no store while this file is there."""
    openers = registry._OPENERS  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for scheme, opener in list(openers.items()):

        async def waited(url: str, options: Options, clock: Clock | None, opener: Any = opener) -> Broker:
            await asyncio.to_thread(_wait_while, closed)
            return await opener(url, options, clock)

        openers[scheme] = waited


def _wait_while(closed: Path) -> None:
    while closed.exists():
        time.sleep(_LOOK)


def record(journal: Callable[[], Journal], wrap: type[Recorded] = Recorded) -> None:
    """Wrap every broker that this process opens from now on."""
    openers = registry._OPENERS  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for scheme, opener in list(openers.items()):

        async def recorded(url: str, options: Options, clock: Clock | None, opener: Any = opener) -> Broker:
            return cast("Broker", wrap(await opener(url, options, clock), journal()))

        openers[scheme] = recorded
