"""A backlog of many chunks is handed out as by the model, in the same order, whatever leaves from the middle.

The state machine has few jobs, and a chunk has 64.
"""

import asyncio
import random

import pytest
from tests.broker.redis.both import Both
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.servers import Server

from windlass.broker.contract import Options
from windlass.broker.memory import MemoryBroker
from windlass.broker.redis import RedisBroker
from windlass.clock import ManualClock
from windlass.core.settings import QueueSettings
from windlass.core.units import SECOND

MANY = tuple(f"lane {number}" for number in range(40))


@pytest.mark.parametrize("seed", range(8))
def test_a_long_backlog_is_handed_out_as_the_model_does(redis_server: Server, seed: int) -> None:  # noqa: F811
    async def main() -> None:
        clock, options = ManualClock(), Options()
        store = await RedisBroker.open(redis_server.url, clock=clock, options=new_namespace(options))
        both = Both([MemoryBroker(clock=clock, options=options), store], clock, random.Random(seed))
        settings = QueueSettings(retention=0 if seed % 2 else 3600 * SECOND)
        if seed >= 4:
            settings = QueueSettings(retention=0 if seed % 2 else 3600 * SECOND, lane_concurrency=seed - 3)
        await both.start(settings)
        steps = [both.enqueue, both.enqueue, both.work, both.work, both.work, both.operate, both.sweep]
        for step in range(40):
            if step == 20 and seed >= 2:
                both.lanes = ("", "", "a", "b") if seed < 6 else MANY
            await both.chance.choice(steps)()
            await both.compare()
        await store.close()

    asyncio.run(main())
