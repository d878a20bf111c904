"""A process that runs the relay of an app. Its arguments are store and page, then either of these.

URL          its message broker
file hang    a message broker that is a file; while `hang` exists, it takes messages and never answers
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from windlass import Windlass
from windlass.bridges.addresses import Address, open_sink
from windlass.bridges.message import Outgoing
from windlass.bridges.sink import Sink
from windlass.core.units import SECOND
from windlass.pace import MachinePace
from windlass.worker import relays, turn


class File:
    """Takes a message by writing its id."""

    largest = 1_000_000

    def __init__(self, path: str, hang: str) -> None:
        self._path = Path(path)
        self._hang = Path(hang)

    async def publish(self, messages: Sequence[Outgoing]) -> None:
        with self._path.open("a") as file:
            for each in messages:
                file.write(f"{each.id}\n")
                file.flush()
                os.fsync(file.fileno())
        print(len(messages), flush=True)  # noqa: T201 - what it is waited for
        if self._hang.exists():
            await asyncio.Event().wait()

    async def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        pass


async def main(store: str, page: str, place: str, hang: str = "") -> None:
    # So that a successor need not wait for half a minute.
    turn.HELD, turn.SURE = SECOND, 0.5
    relays.PAGE, relays.LONGEST = int(page), 0.5
    app = Windlass(store)
    app.relay("kafka://nowhere/ends" if hang else place, name="ends", on="cancelled")

    async def opens(address: Address) -> Sink:
        if not hang:
            return await open_sink(address)
        relays.ANSWERING = 60.0
        return File(place, hang)

    broker = await app.broker()
    await relays.Relays(
        app.relays, broker, MachinePace(), "windlass", signature_of=app.signature_of, opens=opens
    ).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
