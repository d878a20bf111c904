"""A watch: all that one process counts of one namespace, and the page that shows it."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.broker.contract import Broker
from windlass.broker.observed import observe
from windlass.observe.exposition import Registry, exposed
from windlass.observe.measures import registry
from windlass.observe.meter import Meter
from windlass.observe.stock import Stock
from windlass.observe.together import EVERY, Together
from windlass.version import __version__


class Watch:
    """The metrics of a namespace."""

    def __init__(self, namespace: str, *, folder: Path | None = None) -> None:
        """`folder` is for several processes that answer on one port: each writes its counts there."""
        self.namespace = namespace
        self.registry: Registry = registry()
        self._together = None if folder is None else Together(self.registry, folder)
        self.meter = Meter(self.registry)
        self._stock = Stock(self.registry, version=__version__)
        self.looks: list[Callable[[], None]] = [self.meter.refresh]
        """Called before the metrics are read, for values that are read and not counted."""

    def over(self, broker: Broker) -> Broker:
        """Wrap a broker, so that its calls are counted."""
        return observe(broker, [self.meter])

    async def refresh(self, broker: Broker) -> None:
        """Read the values that are not counted, such as the depth of queues."""
        for look in self.looks:
            look()
        await self._stock.refresh(broker)

    @property
    def shown(self) -> Registry:
        """The metrics to show: of all processes, if there are several."""
        return self.registry if self._together is None else self._together.whole()

    async def keep_telling(self) -> None:
        """Write the counts for the other processes, for ever. Return at once if there are no other
        processes.
        """
        while self._together is not None:
            self._together.tell()
            await asyncio.sleep(EVERY)


async def page(watched: Sequence[tuple[Watch, Broker]]) -> str:
    """The metrics of all namespaces, for Prometheus."""
    for watch, broker in watched:
        await watch.refresh(broker)
    return exposed([({"namespace": watch.namespace}, watch.shown) for watch, _ in watched])
