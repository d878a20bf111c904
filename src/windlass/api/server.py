"""The server: the routes of every module, behind the gate, with the store swept while it runs."""

from litestar import Litestar, Router
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, License, SecurityScheme

from windlass import Windlass, __version__
from windlass.admin.keys import Scope
from windlass.api.access import declared, requires
from windlass.api.body import JsonRequest
from windlass.api.desk import RUNNING, at_desk
from windlass.api.gate import Gate
from windlass.api.options import ServeOptions
from windlass.api.problems import HANDLERS
from windlass.api.routes.gathered import all_routes
from windlass.api.running import Running
from windlass.api.services import serving
from windlass.observe.traces import traced


def build(app: Windlass, options: ServeOptions = ServeOptions()) -> Litestar:
    """Make the application that serves an app's namespace over HTTP."""
    running = Running(app, options)
    server = Litestar(
        route_handlers=list(all_routes()),
        dependencies={"desk": Provide(at_desk)},
        exception_handlers=dict(HANDLERS),
        request_class=JsonRequest,
        lifespan=[lambda _: serving(running)],
        openapi_config=_openapi(),
        request_max_body_size=None,  # the gate knows the limit of each route
        logging_config=None,
    )
    server.state[RUNNING] = running
    check_routes(server)
    server.asgi_handler = Gate(traced(server.asgi_handler), running)
    return server


def check_routes(server: Litestar) -> None:
    """Refuse to serve a route that does not say what it requires."""
    for path, handler in handlers(server):
        if declared(handler) is None:
            raise ValueError(f"route {path} declares no scope: guards=[requires(Scope.READ)], or [OPEN]")


def handlers(server: Litestar) -> list[tuple[str, HTTPRouteHandler]]:
    """Every route handler with its path, but for those that the framework adds for OPTIONS."""
    found: list[tuple[str, HTTPRouteHandler]] = []
    for route in server.routes:
        for handler in getattr(route, "route_handlers", ()):
            if handler.http_methods != {"OPTIONS"}:
                found.append((route.path, handler))
    return found


def _openapi() -> OpenAPIConfig:
    return OpenAPIConfig(
        title="Windlass",
        version=__version__,
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        description="The task API: enqueue, work, operate. Errors are RFC 9457 problems that name the field.",
        components=Components(
            security_schemes={"key": SecurityScheme(type="http", scheme="bearer", bearer_format="windlass_…")}
        ),
        security=[{"key": []}],
        use_handler_docstrings=True,
        openapi_router=Router("/v1/openapi", route_handlers=[], guards=[requires(*Scope)], include_in_schema=False),
        render_plugins=[JsonRenderPlugin(path="/openapi.json")],
    )


