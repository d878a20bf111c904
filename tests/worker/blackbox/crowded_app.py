"""The app of workers whose slots are all taken; the environment says where messages go."""

import asyncio
import os
from pathlib import Path

from windlass import Windlass


def build(url: str | None = None) -> Windlass:
    """An app with a queue beside the default one, and an alert that is raised by twenty ready jobs."""
    made = Windlass(url, name="crowded", webhooks=True, webhook_allow=["127.0.0.1"])
    made.queue("high")

    @made.task
    async def gated(gate: str) -> None:
        while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.05)

    @made.task
    async def brief() -> None:
        await asyncio.sleep(0.02)

    if receiver := os.environ.get("BB_RECEIVER"):
        made.alert("deep", queue="default", depth=20, webhook=receiver)
    return made


app = build()
