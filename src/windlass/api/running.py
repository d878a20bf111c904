"""A server as it runs: its application, its options, and what it keeps in memory."""

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from litestar import Request

from windlass import Windlass
from windlass.admin.service import Service
from windlass.api.callers import Callers
from windlass.api.keyring import KeyRing
from windlass.api.options import ServeOptions
from windlass.api.patience import Patience
from windlass.api.problems import Refusal
from windlass.api.seals import Seals
from windlass.observe.together import folder_from_environment
from windlass.observe.watch import Watch


class Running:
    """What all requests of a server process share."""

    def __init__(self, app: Windlass, options: ServeOptions, folder: Path | None = None) -> None:
        """`folder` is where the processes of one server tell each other that keys are needed."""
        self.app = app
        self.options = options
        self.keys = KeyRing(
            self.service,
            required=options.require_keys,
            mark=None if folder is None else folder / "keys-are-needed",
        )
        self.callers = Callers(options, self.keys, self.seals, self.service)
        self.watch = Watch(app.config.namespace, folder=folder_from_environment())
        app.observe(self.watch.meter)
        self.waiting: Counter[str] = Counter()
        """Long polls under way, by caller."""
        self.stopping = asyncio.Event()
        self._seals: Seals | None = None
        self._services: list[Service] = []
        """The last one serves; those before it may still have operations in the background."""

    @property
    def is_stopping(self) -> bool:
        """Whether the server was told to stop."""
        return self.stopping.is_set()

    async def service(self) -> Service:
        """The service of the namespace; a new one if the app has opened its store anew."""
        service = await (self._services[-1].renewed() if self._services else Service.of(self.app))
        if service not in self._services:
            self._services.append(service)
        return service

    async def close(self) -> None:
        """Stop operations that run in the background of this server."""
        for service in self._services:
            await service.operations.close()

    async def seals(self) -> Seals:
        """The seals of the namespace."""
        if self._seals is None:
            service = await self.service()
            self._seals = Seals(await service.secret(), self.app.config.namespace)
        return self._seals

    def patience(self, request: Request[Any, Any, Any]) -> Patience:
        """For a request that waits: `async with running.patience(request) as patience`."""
        return Patience(request, self.stopping)

    @contextmanager
    def long_poll(self, caller: str) -> Generator[None]:
        """A place for a request that waits; 429 when all are taken, or when a caller has as many as are left:
        one that takes all it can get leaves places to the others.
        """
        own, free = self.waiting[caller], self.options.waiting - self.waiting.total()
        if own >= free:
            raise Refusal(
                429,
                "too-many-requests",
                f"{own:,} of your requests wait already, and {free:,} places are left for all; ask again "
                "later, or without waiting",
                headers={"retry-after": "1"},
            )
        self.waiting[caller] += 1
        try:
            yield
        finally:
            self.waiting[caller] -= 1
            if not self.waiting[caller]:
                del self.waiting[caller]
