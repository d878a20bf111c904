"""The keys that the server knows, read again often enough that a revoked one opens nothing after 5 s.

A server that has seen a key needs keys from then on. A store that was emptied, or came back empty, opens
nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from windlass.admin.keys import Key, fits, split_key
from windlass.admin.service import Service
from windlass.core.units import SECOND, Micros
from windlass.errors import StoreError

_log = logging.getLogger("windlass.api")

FRESH = 2.0
"""Seconds after which the keys are read again, while requests go on with those at hand."""
NEW = 0.2
"""Seconds after which a key that is not known is looked for: one that was just made is good at once."""
REMIND = 60.0
"""Seconds between two lines in the log about keys that are lost."""
STALE = 4.5
"""Seconds after which nothing is decided by them: the request waits for the store."""


class KeyRing:
    """What is known of the keys of a namespace."""

    def __init__(
        self, service: Callable[[], Awaitable[Service]], *, required: bool, mark: Path | None
    ) -> None:
        """`mark` is a file that the processes of one server share: it is there once one of them has seen a
        key.
        """
        self._service = service
        self._required = required
        self._mark = mark
        self._warned_at: float | None = None
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

    async def are_required(self) -> bool:
        """Whether a key is needed: there are keys, there have been some, or the operator said so."""
        await self.renew()
        # Asked at every request: once one process has seen a key, none of them lets anybody in by the token.
        self._required = self._required or (self._mark is not None and self._mark.exists())
        return self._required

    async def are_lost(self) -> bool:
        """Whether a key is needed and the store has none. The log says so when a caller is refused."""
        lost = await self.are_required() and not self._keys
        if lost:
            self._warn()
        return lost

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
        service = await self._service()
        now = await service.now()
        keys = {key.id: key async for key in service.keys.all()}
        self._keys, self._store_time, self._read_at = keys, now, began
        self._remember()

    def _remember(self) -> None:
        """From the first key on, keys are needed, in every process of this server."""
        is_first, self._required = not self._required and bool(self._keys), self._required or bool(self._keys)
        if is_first and self._mark is not None:
            try:
                self._mark.touch()
            except OSError as error:  # something has tidied up the folder of temporary files
                _log.error("other processes of this server are not told that keys are needed: %s", error)
        if self._keys:
            self._warned_at = None
        elif self._required:
            self._warn()

    def _warn(self) -> None:
        """Say that keys are lost, at most once in `REMIND` seconds."""
        if self._warned_at is not None and time.monotonic() - self._warned_at < REMIND:
            return
        self._warned_at = time.monotonic()
        _log.error(
            "this server needs API keys and its store has none: nobody is let in until one is made "
            "(windlass keys APP create); was the store emptied, or is it another one?"
        )


def _ignore(reading: "asyncio.Task[None]") -> None:
    """Who waits for it is told; that nobody does is no fault."""
    if not reading.cancelled() and isinstance(reading.exception(), StoreError):
        return
