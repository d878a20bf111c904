"""The metrics of a worker: what its supervisors see and its children say, on one page."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from windlass.broker.contract import Broker
from windlass.observe.listener import TOKEN_VARIABLE, Answer, Listener, address_of
from windlass.observe.measures import BUSY, PROCESSES, SLOTS
from windlass.observe.watch import Watch, page
from windlass.worker.supervisor import Supervisor


def look_at(watch: Watch, supervisor: Supervisor) -> None:
    """Let a watch show the slots of a supervisor's children, as they are when somebody reads."""

    def look() -> None:
        at_work = [
            supervised for supervised in supervisor.all_supervised if supervised.going and not supervised.dead
        ]
        watch.registry.set(PROCESSES, len(at_work))
        watch.registry.set(SLOTS, sum(supervised.info.slots for supervised in at_work))
        watch.registry.set(BUSY, sum(len(supervised.table.started()) for supervised in at_work))

    watch.looks.append(look)


@asynccontextmanager
async def metrics_served(
    address: str | None, watched: Sequence[tuple[Watch, Broker]]
) -> AsyncGenerator[str | None]:
    """Serve the page at `HOST:PORT`, if one was given; yields where it is read."""
    if address is None:
        yield None
        return
    token = os.environ.get(TOKEN_VARIABLE)

    async def metrics() -> Answer:
        return Answer(await page(watched))

    listener = Listener(*address_of(address, token=token), {"/metrics": metrics}, token=token)
    await listener.open()
    try:
        yield listener.url
    finally:
        await listener.close()
