"""One process that takes the messages of a source, as users run it, and what a test sees of it."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from tests.bridges.killing import APP, NAMESPACE, PATIENCE, numbers_of

from windlass.broker.contract import Broker, Options
from windlass.broker.registry import open_broker
from windlass.core.bridging import decoded
from windlass.core.intake import IntakeStatus, status_of
from windlass.core.take import Offset, Take, TakeStatus
from windlass.worker.documents import document_of


class Taking:
    """The intake `orders`."""

    def __init__(self, store: str, log: Path) -> None:
        self._store = store
        self._log = log

    async def until_taken(self, *numbers: int) -> None:
        """Wait until there is a job for each, and for no other."""
        async with self._broker() as broker:

            async def there() -> bool:
                return sum(row.count for row in (await broker.counts()).rows) >= len(numbers)

            await self._until(there)
            assert sorted(await numbers_of(broker)) == sorted(numbers)

    async def until_told(self, holds: Callable[[IntakeStatus], bool]) -> IntakeStatus:
        """Wait until operators see it."""
        async with self._broker() as broker:

            async def status() -> IntakeStatus:
                document = await document_of(broker, status_of("orders"))
                found = None if document is None else decoded(document.override, IntakeStatus)
                return found or IntakeStatus()

            async def told() -> bool:
                return holds(await status())

            await self._until(told)
            return await status()

    async def offsets(self) -> Sequence[Offset]:
        """How far it is."""
        async with self._broker() as broker:
            return await broker.offsets()

    async def forget(self, partition: str) -> None:
        """Let a partition begin anew, as an operator does."""
        async with self._broker() as broker:
            offset = next(
                each for each in await broker.offsets() if each.source.name == f"orders/{partition}"
            )
            done = await broker.take(Take(source=offset.source, expect=offset.at, then=None))
            assert done.status is TakeStatus.TAKEN

    @contextlib.asynccontextmanager
    async def _broker(self) -> AsyncGenerator[Broker]:
        broker = await open_broker(self._store, options=Options(namespace=NAMESPACE))
        try:
            yield broker
        finally:
            await broker.close()

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        end = time.monotonic() + PATIENCE
        while not await holds():
            assert time.monotonic() < end, self._log.read_text()[-2_000:]
            await asyncio.sleep(0.05)


@contextlib.contextmanager
def taking(folder: Path, store: str, messages: str) -> Iterator[Taking]:
    """Run it."""
    (folder / "bridged.py").write_text(APP.format(namespace=NAMESPACE))
    log = folder / "intake.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "intake", "bridged:app"],
            cwd=folder,
            env={**os.environ, "STORE": store, "MESSAGES": messages},
            stdout=output,
            stderr=output,
        )
    try:
        yield Taking(store, log)
    finally:
        process.kill()
        process.wait()
