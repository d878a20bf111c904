"""Keeping a service of a worker going, whatever happens to it."""

import logging
from collections.abc import Awaitable, Callable

from windlass.errors import StoreReplaced
from windlass.pace import Pace

_log = logging.getLogger("windlass.worker")


async def guarded(name: str, service: Callable[[], Awaitable[None]], pace: Pace) -> None:
    """Run a service, and again when it has failed. `StoreReplaced`: it never works again."""
    while True:
        try:
            return await service()
        except StoreReplaced:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the other services go on
            _log.exception("the %s failed; it goes on in a second", name)
            await pace.sleep(1.0)
