"""A reader of history that is killed: `dying_reader.py STORE SINK CLOCK POINT N BATCH`. It copies what the
log has; on the way it kills itself at a point: before the nth insert (`insert`), between the data and the
place (`place`), or never (`none`).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from windlass.broker.sqlite import SqliteBroker
from windlass.observe.history import reader as reading
from windlass.observe.history.places import StorePlaces
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink


def dies_at(kind: type, verb: str, number: int) -> None:
    """Let the process be killed when a method is called for the nth time, before it does anything."""
    method = getattr(kind, verb)
    calls = [0]

    async def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return await method(self, *args, **kwargs)

    setattr(kind, verb, dying)


async def main(store: str, sink_url: str, clock: str, point: str, number: str, batch: str) -> None:
    reading.BATCH = int(batch)
    broker = await SqliteBroker.open(Path(store))
    sink = await open_sink(sink_url, broker)
    if point == "place":
        dies_at(StorePlaces, "go_on", int(number))
    elif point == "insert":
        dies_at(type(sink._client), "insert", int(number))
    await HistoryReader(broker, sink, "s", clock=lambda: float(clock)).step()
    await sink.close()
    await broker.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
