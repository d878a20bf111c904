"""A web application with the dashboard under /queue, for a browser to look at."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from tests.browser.shop import app

from windlass.api import Mounted, Visitor

queue = Mounted(app, visitor=Visitor("ada"))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with queue.lifespan():
        yield


web = FastAPI(lifespan=lifespan)
web.mount("/queue", queue)
