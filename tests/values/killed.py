"""A worker that is killed between the put of a result and its settlement: `killed.py URL VALUES`."""

import asyncio
import os
import signal
import sys
from typing import Any

from windlass import Windlass
from windlass.core.settlement import Settlement
from windlass.values.values import Values


def app_on(url: str, values: str) -> Windlass:
    app = Windlass(url, values=values, beat=0.1, session_ttl=1, sweep=0.05)

    @app.task(name="make")
    def make(count: int) -> str:
        return "m" * count

    return app


async def work(url: str, values: str) -> None:
    settled = Values.settled

    async def put_and_die(self: Values, settlement: Settlement, **how: Any) -> Settlement:
        await settled(self, settlement, **how)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    Values.settled = put_and_die  # type: ignore[method-assign]
    async with app_on(url, values).worker(concurrency=1):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
