"""An intake of a log of numbers, in a process of its own that may be killed at any moment:
`python -m tests.broker.takes.intake <url> <namespace> <end of the log>`. It prints each offset that it has
reached.

Its jobs have new ids whenever they are made: that none comes twice rests on the offset alone.
"""

import asyncio
import os
import random
import sys
import time

from windlass.broker.contract import Options
from windlass.broker.registry import open_broker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.take import Source, Take, TakeStatus

LOG = Source("numbers", "first")


def message(number: int) -> tuple[NewJob, ...]:
    """The job of one message."""
    identity = new_job_id(time.time_ns() // 1_000_000, os.urandom(10))
    return (NewJob(id=identity, task="t", payload=str(number).encode()),)


async def main(url: str, namespace: str, end: int) -> None:
    """Take the log to its end, beside others."""
    broker = await open_broker(url, options=Options(namespace=namespace))
    at = next((offset.at for offset in await broker.offsets()), None)
    while (first := int(at or 0)) < end:
        then = str(min(end, first + random.randint(1, 20)))
        groups = [message(number) for number in range(first, int(then))]
        taken = await broker.take(Take(source=LOG, expect=at, then=then, groups=groups))
        assert taken.offset is not None, taken
        at = taken.offset.at
        if taken.status is TakeStatus.TAKEN:
            sys.stdout.write(f"{at}\n")
            sys.stdout.flush()
    await broker.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
