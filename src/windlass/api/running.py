"""A server as it runs: its application, its options, and what it keeps in memory."""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from litestar import Request

from windlass import Windlass
from windlass.admin.keys import Key
from windlass.admin.leasing import Leasing
from windlass.admin.server_secret import server_secret
from windlass.api.keyring import KeyRing
from windlass.api.options import ServeOptions
from windlass.api.patience import Patience
from windlass.api.problems import Refusal
from windlass.api.queues_known import KnownQueues
from windlass.api.rates import Rates
from windlass.api.seals import Seals
from windlass.observe.together import folder_from_environment
from windlass.observe.watch import Watch


class Running:
    """What all requests of a server process share."""

    def __init__(self, app: Windlass, options: ServeOptions) -> None:
        self.app = app
        self.options = options
        self.keys = KeyRing(app)
        self.failures = Rates(rate=10, burst=50)
        """Of callers without a valid key, by address."""
        self.leasing = Leasing(app)
        self.queues = KnownQueues()
        self.watch = Watch(app.config.namespace, folder=folder_from_environment())
        app.observe(self.watch.meter)
        self.waiting: Counter[str] = Counter()
        """Long polls under way, by caller."""
        self.stopping = asyncio.Event()
        self.on_start: Callable[[], None] = lambda: None
        """Called in the loop that the server runs in, before it answers."""
        self._seals: Seals | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the server was told to stop."""
        return self.stopping.is_set()

    async def seals(self) -> Seals:
        """The seals of the namespace."""
        if self._seals is None:
            secret = await server_secret(await self.app.connection.broker())
            self._seals = Seals(secret, self.app.config.namespace)
        return self._seals

    def patience(self, request: Request[Any, Any, Any]) -> Patience:
        """For a request that waits: `async with running.patience(request) as patience`."""
        return Patience(request, self.stopping)

    async def sought(self, text: str, address: str) -> Key | None:
        """The key of a text, None if it is not valid. An address that has sent too many that are not valid
        (`failed`) does not make the store be asked; a key that is known is let in from there, too: behind a
        proxy, or a NAT, all callers have one address.
        """
        key = await self.keys.find(text, look=False)
        if key is None and not self.failures.is_over(address):
            key = await self.keys.find(text)
        return key

    def failed(self, address: str) -> None:
        """Count a key that is not valid; 429 when there are too many."""
        self.failures.take(address, "keys that are not valid")

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
