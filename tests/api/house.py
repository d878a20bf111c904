"""An application with its API, asked in the test's own process; no sockets, everything else is real.

def test_something(house):
    async def story() -> None:
        async with house.open() as client:                       # with the token of a server without keys
            answer = await client.get("/v1/session")
        async with house.open(await house.key("read")) as client:    # with a key of these scopes
            ...
    house.run(story)
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
from litestar import Litestar

from windlass import RetryPolicy, Windlass
from windlass.admin.keys import Keys, NewKey
from windlass.api.options import ServeOptions
from windlass.api.server import build

TOKEN = "the-token-of-this-house"
Test = TypeVar("Test", bound=Callable[..., object])


def on_every_store(test: Test) -> Test:
    """Of a test that is run on every store by `make test` already: the core of what routes ask of a store."""
    vars(test)["on_every_store"] = True
    return test


def is_for_every_store(test: object) -> bool:
    return bool(getattr(test, "on_every_store", False))


async def until(condition: Callable[[], Awaitable[bool]], *, within: float = 20.0) -> None:
    """Look again and again, until something holds."""
    async with asyncio.timeout(within):
        for pause in itertools.repeat(0.02):
            if await condition():
                return
            await asyncio.sleep(pause)


class House:
    """An app with tasks `add` (queue default), `send` (queue mail) and `resize` (external, queue images)."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = app = Windlass(url, resend_window=1, **settings)

        @app.task
        def add(a: int, b: int = 1) -> int:
            """Add two numbers."""
            return a + b

        @app.task(queue="mail", retry=RetryPolicy(max_attempts=3, base=0.01))
        def send(to: str, password: str = "") -> str:
            return f"sent to {to}"

        self.add, self.send = add, send
        app.queue("images")
        self.resize = app.external("resize", queue="images")

    def close(self) -> None:
        self.app.close()

    def run(self, story: Callable[[], Awaitable[None]], *, within: float = 60) -> None:
        """Run a story; what it opened is closed."""

        async def whole() -> None:
            try:
                async with asyncio.timeout(within):
                    await story()
            finally:
                await self.app.aclose()

        asyncio.run(whole())

    def server(self, **options: Any) -> Litestar:
        return build(self.app, ServeOptions(**{"token": TOKEN, **options}))

    @asynccontextmanager
    async def open(
        self,
        key: str | None = None,
        *,
        server: Litestar | None = None,
        host: str = "localhost",
        **options: Any,
    ) -> AsyncIterator[httpx.AsyncClient]:
        """A client of a server, with a key's text or the token of a server without keys; with "", neither."""
        server = server or self.server(**options)
        transport = httpx.ASGITransport(server, raise_app_exceptions=False, client=("127.0.0.1", 50_000))
        headers = {} if key == "" else {"authorization": f"Bearer {key or TOKEN}"}
        async with (
            server.lifespan(),
            httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=headers) as client,
        ):
            yield client

    async def key(
        self,
        *scopes: str,
        queues: tuple[str, ...] = (),
        lanes: tuple[str, ...] = (),
        expires: int | None = None,
    ) -> str:
        """The text of a new key."""
        broker = await self.app.connection.broker()
        wanted = NewKey(label="test", scopes=scopes, queues=queues, lanes=lanes, expires=expires)
        return (await Keys(broker).create(wanted))[0]
