"""The keys that the server knows, read again often enough that a revoked one opens nothing after 5 s."""

import asyncio
import time
from collections.abc import Mapping

from windlass import Windlass
from windlass.admin.insight import Insight
from windlass.admin.keys import Key, Keys, fits, split_key
from windlass.core.units import SECOND, Micros
from windlass.errors import StoreError

FRESH = 2.0
"""Seconds after which the keys are read again, while requests go on with those at hand."""
NEW = 0.2
"""Seconds after which a key that is not known is looked for: one that was just made is good at once."""
STALE = 4.5
"""Seconds after which nothing is decided by them: the request waits for the store."""


class KeyRing:
    """What is known of the keys of a namespace."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._keys: Mapping[str, Key] = {}
        self._read_at: float | None = None
        self._store_time: Micros = 0
        self._reading: asyncio.Task[None] | None = None

    async def find(self, text: str, *, look: bool = True) -> Key | None:
        """The key of this text, if it is one and valid; with `look`, the store is asked for one that is not
        known.
        """
        await self.renew()
        parts = split_key(text)
        if look and parts is not None and parts[0] not in self._keys:
            await self.renew(after=NEW)  # it may have been made since
        key = None if parts is None else self._keys.get(parts[0])
        secret = "" if parts is None else parts[1]
        return key if fits(key, secret) and key is not None and key.is_valid(self.now()) else None

    async def by_id(self, key_id: str) -> Key | None:
        """The key of this id, if it is valid: of somebody who has logged in with it."""
        await self.renew()
        key = self._keys.get(key_id)
        return key if key is not None and key.is_valid(self.now()) else None

    async def is_empty(self) -> bool:
        """Whether no key was ever made."""
        await self.renew()
        return not self._keys

    def now(self) -> Micros:
        """The store's time, as far as can be told without asking."""
        passed = 0.0 if self._read_at is None else time.monotonic() - self._read_at
        return self._store_time + int(passed * SECOND)

    async def renew(self, after: float = FRESH) -> None:
        """Read the keys again if it is time: so many seconds after they were read."""
        age = None if self._read_at is None else time.monotonic() - self._read_at
        if age is not None and age < after:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(_ignore)
        if age is None or age >= STALE or after < FRESH:
            # One caller that leaves must not take the answer away from the others.
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        began = time.monotonic()
        broker = await self._app.connection.broker()
        now = await Insight(broker).now()
        keys = {key.id: key async for key in Keys(broker).all()}
        self._keys, self._store_time, self._read_at = keys, now, began


def _ignore(reading: "asyncio.Task[None]") -> None:
    """Who waits for it is told; that nobody does is no fault."""
    if not reading.cancelled() and isinstance(reading.exception(), StoreError):
        return
