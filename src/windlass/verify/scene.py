"""The scene that faults act on: programs, network, store, and the history they are written down in."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.verify import history
from windlass.verify.brokers.fronts import Front
from windlass.verify.disk import Disk
from windlass.verify.fleet import Fleet, Producers
from windlass.verify.ground import SESSION_TTL
from windlass.verify.history import Journal
from windlass.verify.http_part import HttpPart
from windlass.verify.network import Network
from windlass.verify.reader import Reader
from windlass.verify.stores.own import OwnStore


class Scene:
    """Everything of a run that can be hurt."""

    def __init__(
        self,
        *,
        folder: Path,
        journal: Journal,
        fleet: Fleet,
        producers: Producers,
        reader: Reader,
        network: Network | None,
        http: HttpPart | None = None,
        own: OwnStore | None,
        disk: Disk | None,
        front: Front | None = None,
        seed: int,
    ) -> None:
        self.folder = folder
        self.journal = journal
        self.fleet = fleet
        self.producers = producers
        self.reader = reader
        self.network = network
        self.http = http
        self.own = own
        self.disk = disk
        self.front = front
        self.draw = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self.ttl = SESSION_TTL
        self.keeping = True
        """Whether programs that end are started again."""
        self.injected: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Faults that found nothing to hurt."""
        self.news: list[str] = []
        self._numbers = 0
        self.others = asyncio.Lock()
        """Held by every fault of workers and producers, and by those of the store that touch the machine."""

    @asynccontextmanager
    async def fault(self, kind: str, target: str, **details: str) -> AsyncGenerator[dict[str, str]]:
        """Write down that a fault begins and ends; what the dictionary says then is written with its end."""
        self._numbers += 1
        number, said = self._numbers, dict(details)
        self.journal.write(history.Nemesis(number=number, kind=kind, target=target, details=dict(details)))
        self.injected[kind] += 1
        self.news.append(f"{kind}: {target}")
        try:
            yield said
        finally:
            self.journal.write(
                history.Nemesis(number=number, kind=kind, action="end", target=target, details=said)
            )

    def miss(self, kind: str) -> None:
        """There was nothing to hurt."""
        self.missed[kind] += 1
