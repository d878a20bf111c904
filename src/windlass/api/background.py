"""What a server does to many jobs in the background, for those who asked for it."""

import asyncio
from weakref import WeakKeyDictionary

from windlass.admin.operations import Operations
from windlass.api.desk import Desk
from windlass.api.running import Running

_RUNNING: "WeakKeyDictionary[Running, Operations]" = WeakKeyDictionary()


def operations(desk: Desk) -> Operations:
    """The operations of a server: those that it was asked for run in it."""
    found = _RUNNING.get(desk.running)
    if found is None:
        found = _RUNNING[desk.running] = Operations(desk.broker)
    return found


async def run(running: Running) -> None:
    """Wait until the server stops, and stop what it runs."""
    try:
        await asyncio.Event().wait()
    finally:
        if (found := _RUNNING.pop(running, None)) is not None:
            await found.close()
