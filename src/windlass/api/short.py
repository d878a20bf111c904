"""The short way: routes that many ask for, called straight behind the gate instead of by the framework.

The framework takes longer to find out what a request means than the store takes to keep a job. So a route
that says `opt={SHORT: True}` is called here when a request for it is a plain one: its path to the letter, no
query, a body of known length, and none of the headers that the route reads. Everything else goes the
framework's way, to the same function.

Nothing is declared twice: who may ask, the type of the body and the status are read from the route, and what
goes wrong is told by the framework's own handlers.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from litestar import Litestar, Response
from litestar.enums import ParamType
from litestar.handlers import HTTPRouteHandler
from litestar.params import ParameterKwarg
from litestar.types import ASGIApp, Receive, Send

from windlass.api.access import Open, Requires, declared
from windlass.api.body import JsonRequest, decoder, read
from windlass.api.desk import RUNNING, Desk, desk_of
from windlass.api.problems import told
from windlass.api.running import Running

SHORT = "short"
Headers = list[tuple[bytes, bytes]]


class ShortWay:
    """An ASGI application that answers some requests itself, and gives the others to the one inside."""

    def __init__(self, inner: ASGIApp, server: Litestar) -> None:
        self._inner = inner
        self._running: Running = server.state[RUNNING]
        self._routes = {
            route.path: _Route(route.path, handler)
            for route in server.routes
            for handler in getattr(route, "route_handlers", ())
            if handler.opt.get(SHORT)
        }

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        route = self._routes.get(scope["path"])
        if route is None or not route.is_plain(scope):
            await self._inner(scope, receive, send)
            return
        scope["path_template"] = scope["path"]  # for traces
        try:
            status, headers, body = await self._answer(route, scope, receive, send)
        except _Gone:
            return
        except Exception as error:  # noqa: BLE001 - told as the framework would
            status, headers, body = _problem(told(error))
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _answer(
        self, route: "_Route", scope: Any, receive: Receive, send: Send
    ) -> tuple[int, Headers, bytes]:
        caller = route.guard.passed(scope)
        desk = await desk_of(self._running, caller)
        data = read(route.decode, _content_type(scope), await _body(receive))
        request = JsonRequest(scope, receive, send) if route.takes_request else None
        return _written(await route.call(desk, data, request), route.status)


class _Route:
    """What a route declares, as far as a plain request needs it."""

    def __init__(self, path: str, handler: HTTPRouteHandler) -> None:
        guard, field = declared(handler), handler.parsed_data_field
        parameters = handler.parsed_fn_signature.parameters
        headers = {name: _header(each.kwarg_definition) for name, each in parameters.items()}
        rest = {name for name in parameters if headers[name] is None} - {"desk", "data", "request"}
        is_open = len(cast("Any", handler).resolve_guards()) != 1 or isinstance(guard, Open)
        if guard is None or field is None or rest or "{" in path or is_open:
            raise ValueError(f"route {path} cannot be called the short way: it needs more than a body")
        self.guard: Requires = guard
        self.decode = decoder(field.annotation)
        self.status = handler.status_code
        self.takes_request = "request" in parameters
        self._methods = handler.http_methods
        self._read: Sequence[bytes] = [name for name in headers.values() if name is not None]
        self._function: Callable[..., Any] = cast("Any", handler).fn

    def is_plain(self, scope: Any) -> bool:
        """Whether a request says nothing but what its body says."""
        if scope["query_string"] or scope["method"] not in self._methods:
            return False
        headers = dict(scope["headers"])
        return headers.get(b"content-length", b"0") != b"0" and not any(
            name in headers for name in self._read
        )

    async def call(self, desk: Desk, data: Any, request: JsonRequest | None) -> Any:
        """What the route answers."""
        if request is None:
            return await self._function(desk=desk, data=data)
        return await self._function(desk=desk, data=data, request=request)


def _header(kwarg: object) -> bytes | None:
    """The name of the header that a parameter is, if it is one."""
    if isinstance(kwarg, ParameterKwarg) and kwarg.param_type is ParamType.HEADER and kwarg.name:
        return kwarg.name.lower().encode()
    return None


def _content_type(scope: Any) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-type"), "")


class _Gone(Exception):
    """The caller has left: what it began to send is not to be taken for all of it."""


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _written(answer: Any, status: int) -> tuple[int, Headers, bytes]:
    """The answer of a route on the wire."""
    headers: Headers = [(b"content-type", b"application/json")]
    if isinstance(answer, Response):
        said = cast("Response[Any]", answer)
        headers += _latin(said.headers.items())
        answer, status = said.content, said.status_code or status
    return status, headers, msgspec.json.encode(answer)


def _problem(answer: Response[bytes]) -> tuple[int, Headers, bytes]:
    headers = [(b"content-type", str(answer.media_type).encode()), *_latin(answer.headers.items())]
    return cast("int", answer.status_code), headers, answer.content


def _latin(headers: Any) -> Headers:
    return [(name.lower().encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
