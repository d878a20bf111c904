"""Queues: what is in them, and their settings; paused, resumed, overridden and reset."""

import time
from collections import defaultdict

from windlass.admin.overrides import override, reset
from windlass.admin.reading import documents
from windlass.admin.views import QueueShown, seconds, settings_shown
from windlass.broker.contract import Broker
from windlass.core.names import check_queue
from windlass.core.settings import Document, Kind, QueueSettings, Subject, overlay
from windlass.core.spelling import hint
from windlass.core.state import State
from windlass.core.units import Micros
from windlass.errors import InvalidOption

KNOWN_SECONDS = 10.0
"""Seconds for which `has` remembers the names of declared queues."""


class Queues:
    """The queues of one namespace."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._names: frozenset[str] = frozenset()
        self._known_until = 0.0

    # --- reads ----------------------------------------------------------------------------------------------

    async def all(self) -> list[QueueShown]:
        """Every declared queue, by name."""
        counts = await self._broker.counts()
        jobs: defaultdict[str, dict[str, int]] = defaultdict(lambda: {state.value: 0 for state in State})
        for row in counts.rows:
            jobs[row.queue][row.state] += row.count
        return [
            _shown(
                document,
                jobs[document.subject.name],
                counts.oldest.get(document.subject.name),
                paused=document.subject.name in counts.paused,
            )
            async for document in documents(self._broker, Kind.QUEUE)
        ]

    async def one(self, name: str) -> QueueShown:
        """One queue; `InvalidOption` names those that are declared."""
        await self.check(name)
        return next(queue for queue in await self.all() if queue.name == name)

    async def check(self, name: str) -> None:
        """Refuse a queue that is not declared; `InvalidOption` names those that are."""
        known: list[str] = []
        async for document in documents(self._broker, Kind.QUEUE):
            if document.subject.name == name:
                return
            known.append(document.subject.name)
        raise InvalidOption(f'queue "{name}" is not declared; {hint(name, sorted(known), "declared queues")}')

    async def has(self, name: str) -> bool:
        """Whether a queue is declared. Every claim over HTTP asks, so a queue that was found is remembered
        for some seconds; one that was not is looked for each time.
        """
        if name not in self._names or time.monotonic() > self._known_until:
            found = documents(self._broker, Kind.QUEUE)
            self._names = frozenset([document.subject.name async for document in found])
            self._known_until = time.monotonic() + KNOWN_SECONDS
        return name in self._names

    # --- writes ---------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> None:
        """Stop handing out the jobs of a queue; what runs goes on."""
        if not await self._broker.pause(check_queue(name), None):
            await self.check(name)

    async def resume(self, name: str) -> None:
        """Hand out the jobs of a queue again."""
        if not await self._broker.resume(check_queue(name), None):
            await self.check(name)

    async def override(self, name: str, settings: QueueSettings) -> None:
        """Override what these settings name until it is reset; other overrides stay."""
        await self.check(check_queue(name))
        await override(self._broker, Subject(Kind.QUEUE, name), settings)

    async def reset(self, name: str) -> bool:
        """Let the declared settings of a queue count again. Returns False if nothing was overridden."""
        await self.check(check_queue(name))
        return await reset(self._broker, Subject(Kind.QUEUE, name))


def _shown(document: Document, jobs: dict[str, int], oldest: Micros | None, *, paused: bool) -> QueueShown:
    declared = document.declared if isinstance(document.declared, QueueSettings) else None
    overridden = document.override if isinstance(document.override, QueueSettings) else None
    return QueueShown(
        name=document.subject.name,
        jobs=jobs,
        oldest=None if oldest is None else seconds(oldest),
        paused=paused,
        settings=settings_shown(overlay(declared, overridden)),
        declared=settings_shown(declared),
        override=settings_shown(overridden),
        app=document.app,
        revision=document.revision,
        version=document.version,
    )
