"""OpenAPI 3.1, from the types that the routes read and write.

The framework tells of paths, parameters and texts; the schemas of bodies are those of msgspec, which knows
what its own decoder accepts.
"""

import ast
import inspect
import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, License, SecurityScheme
from litestar.router import Router

from windlass import __version__
from windlass.admin.keys import Scope
from windlass.api.access import Open, declared, requires
from windlass.api.context import prefix_of
from windlass.api.problems import PROBLEM_JSON, Problem

TEMPLATE = "#/components/schemas/{name}"
_ABOUT = """\
Enqueue, work, operate. Requests carry an API key, `Authorization: Bearer windlass_…`; a server without any
key asks for the token that it printed when it started. Errors are problems (RFC 9457) that name the field.
Times are UTC, durations are seconds or text such as "5m"."""
_KEY = "key"


class _Same(JsonRenderPlugin):
    """The framework serves a description as well, at a path of its own: it is this one."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:  # noqa: ARG002
        """The description."""
        return described(request.app)


def configuration() -> OpenAPIConfig:
    """What the framework is told. Its own pages are not served: they load scripts from elsewhere. `/docs` is
    a page of the dashboard.
    """
    return OpenAPIConfig(
        title="Windlass",
        version=__version__,
        license=License(name="Apache-2.0", identifier="Apache-2.0"),
        description=_ABOUT,
        components=Components(security_schemes={_KEY: SecurityScheme(type="http", scheme="bearer")}),
        use_handler_docstrings=True,
        openapi_router=Router(
            "/v1/openapi", route_handlers=[], guards=[requires(*Scope)], include_in_schema=False
        ),
        render_plugins=[_Same(path="/openapi.json")],
    )


@get("/openapi.json", guards=[requires(*Scope)], include_in_schema=False)
async def openapi_json(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The description of this API."""
    told = described(request.app)
    if prefix := prefix_of(request.scope):
        told = msgspec.json.encode({**msgspec.json.decode(told), "servers": [{"url": prefix}]})
    return Response(told, media_type="application/json")


@lru_cache(maxsize=4)
def described(server: Litestar) -> bytes:
    """The description of a server."""
    document = cast(
        "dict[str, Any]", msgspec.json.decode(msgspec.json.encode(server.openapi_schema.to_schema()))
    )
    operations = list(_operations(server, document["paths"]))
    kinds = list(
        dict.fromkeys(kind for _, handler in operations for kind in _kinds(handler) if kind is not None)
    )
    schemas, components = msgspec.json.schema_components([Problem, *kinds], ref_template=TEMPLATE)
    by_kind = dict(zip([Problem, *kinds], schemas, strict=True))
    for operation, handler in operations:
        _complete(operation, handler, by_kind)
    _describe(components)
    # Parameters refer to schemas of the framework's own: of enumerations.
    others = document["components"]["schemas"]
    while missing := {
        name for name in _references([document["paths"], components]) if name not in components
    }:
        components.update({name: others[name] for name in missing})
    document["components"]["schemas"] = dict(sorted(components.items()))
    return msgspec.json.encode(document)


def _operations(
    server: Litestar, paths: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], HTTPRouteHandler]]:
    for route in server.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in getattr(handler, "http_methods", ()):
                operation = paths.get(route.path_format, {}).get(str(method).lower())
                if operation is not None and handler.resolve_include_in_schema():
                    yield operation, handler


def _kinds(handler: HTTPRouteHandler) -> tuple[Any, Any]:
    """The types of the body that a route reads, and of the one it answers with; None: none that is JSON."""
    field = handler.parsed_data_field
    return (None if field is None else field.annotation), _answered(handler)


def _answered(handler: HTTPRouteHandler) -> Any:
    kind: Any = handler.parsed_fn_signature.return_type.annotation
    if inspect.isclass(get_origin(kind)) and issubclass(get_origin(kind), Response):
        (kind,) = get_args(kind)
    if inspect.isclass(kind) and issubclass(kind, Response):
        return None
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return None if kind in (None, type(None), bytes, str) or bytes in parts else kind


def _complete(operation: dict[str, Any], handler: HTTPRouteHandler, schemas: Mapping[Any, Any]) -> None:
    """Put the schemas in, what else may be answered, and what a key needs."""
    taken, answered = _kinds(handler)
    if taken is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[taken]}},
        }
    responses = operation.setdefault("responses", {})
    for code in [code for code in responses if code.startswith(("4", "5"))]:
        del responses[code]
    success = responses.get(str(handler.status_code))
    if answered is not None and success is not None:
        success["content"] = {"application/json": {"schema": schemas[answered]}}
        for code in handler.opt.get("also", ()):
            responses[str(code)] = success
    elif success is not None and handler.status_code == 204:
        success.pop("content", None)
    problem = {
        "description": "It was refused.",
        "content": {PROBLEM_JSON: {"schema": schemas[Problem]}},
    }
    responses["4XX"] = problem
    responses["5XX"] = {**problem, "description": "It could not be done."}
    if text := operation.get("description"):
        first, stop, _ = text.partition(". ")
        operation["summary"] = first.rstrip(".") if stop else text.rstrip(".")
    guard = declared(handler)
    if guard is not None and not isinstance(guard, Open):
        operation["security"] = [{_KEY: []}]
        operation["x-scopes"] = [str(scope) for scope in guard.scopes]
    operation.pop("deprecated", None)


def _references(part: Any) -> Iterator[str]:
    """The names of the schemas that a part of the description refers to."""
    if isinstance(part, Mapping):
        for name, value in cast("Mapping[str, Any]", part).items():
            if name == "$ref":
                yield value.rpartition("/")[2]
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in cast("list[Any]", part):
            yield from _references(value)


# --- what the source says of fields -------------------------------------------------------------------------


def _describe(components: Mapping[str, Any]) -> None:
    """Add the texts that stand under the fields of a type in its source: msgspec does not know them."""
    kinds: dict[str, list[type[msgspec.Struct]]] = {}
    for kind in _structs(msgspec.Struct):
        if kind.__module__.startswith("windlass."):
            kinds.setdefault(kind.__name__, []).append(kind)
    for name, schema in components.items():
        for kind in kinds.get(name.partition("_")[0], ())[:1]:
            for field, text in _texts(kind).items():
                schema.get("properties", {}).get(field, {}).setdefault("description", text)


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


@lru_cache(maxsize=1_024)
def _texts(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("windlass."):
            found.update(_own_texts(each))
    return found


def _own_texts(kind: type) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return  # an installation without sources
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, text in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, " ".join(text.value.value.split())


ROUTES = (openapi_json,)
