"""A worker inside the process of a test, with real threads."""

import asyncio
from typing import Any

from windlass import Windlass


def embedded(app: Windlass, *calls: Any) -> list[Any]:
    """What the jobs of these calls return."""

    async def main() -> list[Any]:
        async with app.worker(concurrency=4):
            jobs = await app.aenqueue_many(calls)
            found = [await job.aresult(timeout=30) for job in jobs]
        await app.aclose()
        return found

    return asyncio.run(main())
