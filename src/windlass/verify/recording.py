"""Writes down what worker processes ask of the store, and what it answers.

A worker opens its store by itself, in a process that this package only shares by the app that it loads. So
the table of openers is wrapped from there: the product has no hook for it, and needs none.
"""

from collections.abc import Callable
from typing import Any, cast

from windlass.broker import registry
from windlass.broker.contract import Broker, Options
from windlass.clock import Clock
from windlass.verify.history import Journal
from windlass.verify.simulator.recorded import Recorded


def record(journal: Callable[[], Journal], wrap: type[Recorded] = Recorded) -> None:
    """Wrap every broker that this process opens from now on."""
    openers = registry._OPENERS  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for scheme, opener in list(openers.items()):

        async def recorded(url: str, options: Options, clock: Clock | None, opener: Any = opener) -> Broker:
            return cast("Broker", wrap(await opener(url, options, clock), journal()))

        openers[scheme] = recorded
