"""The dashboard and the API inside of another application, under a path of its own.

    queue = Mounted(jobs, visitor=Visitor("staff"))
    web = FastAPI(lifespan=lambda _: queue.lifespan())
    web.mount("/queue", queue)

The application decides who gets there. Its middleware, host names, TLS and limits on connections hold, in the
place of those of `windlass serve`.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote

from litestar import Litestar

from windlass import Windlass
from windlass.api.access import VISITOR, Visitor
from windlass.api.background import serving
from windlass.api.context import PREFIX, SERVER_STATE
from windlass.api.options import ServeOptions
from windlass.api.server import build

WhoVisits = Callable[[Mapping[str, Any]], Visitor | None | Awaitable[Visitor | None]]
"""Reads the ASGI scope of a request, with what the application has left there; None: somebody who may not."""


class Mounted:
    """An ASGI application with the dashboard and the HTTP API of an app. Enter its `lifespan` before it
    serves requests.
    """

    def __init__(self, app: Windlass, *, visitor: Visitor | WhoVisits | None = None) -> None:
        """`visitor` says what those may do whom the application has let in: the same for all, or a function
        that says it of each request. Without it callers show API keys, as with `windlass serve`.
        """
        self._app = app
        self._visitor = visitor
        # The application that this is mounted in has checked the host.
        self._options = ServeOptions(hosts=("*",), require_keys=visitor is None)
        self._server: Litestar | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Serve requests, sweep the store and check alerts until the block ends."""
        if self._server is not None:
            raise RuntimeError("this is mounted and runs already: enter its lifespan once")
        server = build(self._app, self._options)
        async with serving(server.state[SERVER_STATE]):  # not the framework's: it would wrap errors of others
            self._server = server
            try:
                yield
            finally:
                self._server = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _live(self.lifespan(), receive, send)
        elif self._server is None:
            raise RuntimeError(
                "it is mounted, but its lifespan was not entered: write `async with queue.lifespan()` in the "
                "lifespan of the application"
            )
        else:
            inside = _inside(scope)
            if self._visitor is not None:
                inside["state"][VISITOR] = await self._who(scope)
            await self._server(inside, receive, send)

    async def _who(self, scope: Mapping[str, Any]) -> Visitor | None:
        if self._visitor is None or isinstance(self._visitor, Visitor):
            return self._visitor
        found = self._visitor(scope)
        return await found if inspect.isawaitable(found) else found


def _inside(scope: Mapping[str, Any]) -> Any:
    """A request as if nothing were outside: without the path of the mount, and with a state of its own."""
    raw: bytes = (scope.get("raw_path") or quote(scope["path"]).encode()).partition(b"?")[0]
    root: str = scope.get("root_path", "").rstrip("/")
    path: str = scope["path"]
    if root and f"{path}/".startswith(f"{root}/"):  # Starlette leaves it there, Litestar takes it away
        path = path.removeprefix(root)
    whole, inner = unquote(raw.decode("latin-1")).rstrip("/"), path.rstrip("/")
    prefix = whole.removesuffix(inner) if whole.endswith(inner) else root
    # One slash before each part: a browser would take what follows two for a host.
    prefix = "".join(f"/{part}" for part in prefix.split("/") if part)
    return {
        **scope,
        "path": path or "/",
        "raw_path": raw.removeprefix(quote(prefix).encode()) or b"/",
        "root_path": "",
        "state": {PREFIX: prefix},
    }


async def _live(lifespan: AbstractAsyncContextManager[None], receive: Any, send: Any) -> None:
    """Speak the protocol of servers, which tell an application when they start and when they stop."""
    await receive()
    try:
        await lifespan.__aenter__()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await lifespan.__aexit__(None, None, None)
    await send({"type": "lifespan.shutdown.complete"})
