"""Looking at a job until it is as expected."""

import asyncio
import itertools
from collections.abc import Callable

from windlass import Windlass
from windlass.core.job import JobDetail


async def seen(app: Windlass, job: str, condition: Callable[[JobDetail], object]) -> JobDetail:
    """The job, when it is as expected."""
    async with asyncio.timeout(30):
        for pause in itertools.repeat(0.02):
            found = (await (await app.broker()).get([job]))[0]
            assert found is not None
            if condition(found):
                return found
            await asyncio.sleep(pause)
    raise AssertionError


def is_held(job: JobDetail) -> bool:
    return job.held is not None


async def unknown(_: str) -> bool:
    """Of a store that knows no job."""
    return False
