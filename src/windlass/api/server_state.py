"""A server as it runs: its application, its options, and what it keeps in memory."""

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from litestar import Request

from windlass import Windlass
from windlass.admin.service import Service
from windlass.api.callers import Callers
from windlass.api.keyring import KeyRing
from windlass.api.options import ServeOptions
from windlass.api.problems import Refusal
from windlass.api.seals import Seals
from windlass.api.waiting_request import WaitingRequest
from windlass.errors import StoreError
from windlass.observe.together import folder_from_environment
from windlass.observe.watch import Watch

SECRET_FRESH: Final = 2.0
"""Seconds after which the secret of the namespace is read again."""


class ServerState:
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
        self.long_polls: Counter[str] = Counter()
        """Long polls under way, by caller."""
        self.stopping = asyncio.Event()
        self._seals: Seals | None = None
        self._sealed_at = 0.0
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
        """The seals of the namespace. The secret is read again now and then: a store that was emptied gets
        another from the first server that asks, and all have to seal with the same one.
        """
        if self._seals is not None and time.monotonic() - self._sealed_at < SECRET_FRESH:
            return self._seals
        self._sealed_at = time.monotonic()  # the other requests go on with the seals at hand
        try:
            secret = await (await self.service()).secret()
        except StoreError:
            if self._seals is None:
                raise
        else:
            self._seals = Seals(secret, self.app.config.namespace)
        return self._seals

    def waiting_request(self, request: Request[Any, Any, Any]) -> WaitingRequest:
        """For a request that waits: `async with server_state.waiting_request(request) as waiting`."""
        return WaitingRequest(request, self.stopping)

    @contextmanager
    def long_poll(self, caller: str) -> Generator[None]:
        """A place for a request that waits; 429 when all are taken, or when a caller has as many as are left:
        one that takes all it can get leaves places to the others.
        """
        own, free = self.long_polls[caller], self.options.waiting - self.long_polls.total()
        if own >= free:
            raise Refusal(
                429,
                "too-many-requests",
                f"{own:,} of your requests wait already, and {free:,} places are left for all; ask again "
                "later, or without waiting",
                headers={"retry-after": "1"},
            )
        self.long_polls[caller] += 1
        try:
            yield
        finally:
            self.long_polls[caller] -= 1
            if not self.long_polls[caller]:
                del self.long_polls[caller]
