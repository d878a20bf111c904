"""The server: the routes of every module, behind the gate, with the store swept while it runs."""

from pathlib import Path

from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler

from windlass import Windlass
from windlass.api.access import declared
from windlass.api.background import serving
from windlass.api.body import JsonRequest
from windlass.api.context import SERVER_STATE, route_context
from windlass.api.gate import Gate
from windlass.api.openapi import configuration
from windlass.api.options import ServeOptions
from windlass.api.problems import HANDLERS
from windlass.api.query import refuse_unknown
from windlass.api.routes.all_routes import all_routes
from windlass.api.server_state import ServerState
from windlass.observe.traces import traced


def build(app: Windlass, options: ServeOptions | None = None, *, folder: Path | None = None) -> Litestar:
    """Make the application that serves an app's namespace over HTTP. Processes of one server share a
    folder.
    """
    server_state = ServerState(app, options or ServeOptions(), folder)
    server = Litestar(
        route_handlers=list(all_routes()),
        dependencies={"context": Provide(route_context)},
        exception_handlers=dict(HANDLERS),
        request_class=JsonRequest,
        before_request=refuse_unknown,
        lifespan=[lambda _: serving(server_state)],
        openapi_config=configuration(),
        request_max_body_size=None,  # the gate knows the limit of each route
        logging_config=None,
    )
    server.state[SERVER_STATE] = server_state
    check_routes(server)
    server.asgi_handler = Gate(traced(server.asgi_handler), server_state)
    return server


def check_routes(server: Litestar) -> None:
    """Refuse to serve a route that does not say what it requires."""
    for path, handler in handlers(server):
        if declared(handler) is None:
            raise ValueError(f"route {path} declares no scope: guards=[requires(Scope.READ)], or [OPEN]")


def handlers(server: Litestar) -> list[tuple[str, HTTPRouteHandler]]:
    """Every route handler with its path, except for those that the framework adds for OPTIONS."""
    found: list[tuple[str, HTTPRouteHandler]] = []
    for route in server.routes:
        own = getattr(route, "route_handlers", ())
        found += [(route.path, handler) for handler in own if handler.http_methods != {"OPTIONS"}]
    return found
