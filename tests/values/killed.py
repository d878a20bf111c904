"""Processes that are killed halfway: `killed.py URL VALUES WHERE`.

`settle`: a worker, between the put of a result and its settlement. `enqueue`: a caller, between the put of a
payload and its enqueue. `forget`: an operator who forgets, between the end of the records and of the values.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from windlass import Windlass
from windlass.admin.forgetting import Forgetting
from windlass.broker.sqlite.broker import SqliteBroker
from windlass.core.settlement import Settlement
from windlass.values.values import Values

TAG = "user:42"


def app_on(url: str, values: str) -> Windlass:
    app = Windlass(url, values=values, beat=0.1, session_ttl=1, sweep=0.05, resend_window=1)

    @app.task(name="make")
    def make(count: int) -> str:
        return "m" * count

    @app.task(name="repeat")
    def repeat(text: str) -> str:
        return text * 2

    return app


async def die(*_: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def work(app: Windlass) -> None:
    settled = Values.settled

    async def put_and_die(self: Values, settlement: Settlement, **how: Any) -> Settlement:
        await settled(self, settlement, **how)
        return await die()

    Values.settled = put_and_die  # type: ignore[method-assign]
    async with app.worker(concurrency=1):
        await asyncio.Event().wait()


async def call(app: Windlass) -> None:
    SqliteBroker.enqueue = die  # type: ignore[method-assign]
    await app.tasks["repeat"].aenqueue("lost " * 20_000)


async def forget(app: Windlass) -> None:
    Values.remove_payload = die  # type: ignore[method-assign]
    async for _ in Forgetting(app, await app.broker(), TAG).steps():
        pass


if __name__ == "__main__":
    where = {"settle": work, "enqueue": call, "forget": forget}[sys.argv[3]]
    asyncio.run(where(app_on(*sys.argv[1:3])))
