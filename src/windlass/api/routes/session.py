"""Logging in with a key, for the dashboard: a cookie that scripts cannot read, and other sites cannot use."""

from typing import Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.params import JSONBody

from windlass.admin.keys import Scope
from windlass.api.access import OPEN, present, requires
from windlass.api.context import SERVER_STATE, prefix_of
from windlass.api.gate import COOKIE, address_of, cookie_of
from windlass.api.options import ServeOptions
from windlass.api.problems import Refusal
from windlass.api.server_state import ServerState


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who wants to log in."""

    key: str
    """An API key; on a server without keys, its token."""


class Who(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what it may do."""

    name: str
    """`key <id>`; `local` for who has shown the token of a server without keys."""
    label: str
    scopes: list[str]
    queues: list[str] | None
    """Those that the key is bound to; none: all."""
    lanes: list[str] | None
    namespace: str
    app: str
    logged_in: bool
    """Whether it is by a login that the caller can end here."""


def _who(request: Request[Any, Any, Any]) -> Who:
    caller = present(request.scope)
    app = _server_state(request).app
    return Who(
        name=caller.name,
        label=caller.label,
        scopes=sorted(caller.scopes),
        queues=None if caller.queues is None else sorted(caller.queues),
        lanes=None if caller.lanes is None else sorted(caller.lanes),
        namespace=app.config.namespace,
        app=app.name,
        logged_in=caller.by_cookie,
    )


@post("/v1/session", guards=[OPEN], status_code=204, tags=["session"])
async def log_in(request: Request[Any, Any, Any], data: JSONBody[Login]) -> Response[None]:
    """Log in: the answer carries a session cookie."""
    server_state = _server_state(request)
    login = await server_state.callers.log_in(data.key, address_of(request.scope))
    if login is None:
        raise Refusal(401, "unauthorized", "this key is not valid", field="key")
    return Response(
        None, status_code=204, cookies=[login_cookie(request.scope, server_state.options, *login)]
    )


@get("/v1/session", guards=[requires(*Scope)], tags=["session"])
async def who(request: Request[Any, Any, Any]) -> Who:
    """The caller: who it is, and what it may do."""
    return _who(request)


@delete("/v1/session", guards=[OPEN], status_code=204, tags=["session"])
async def log_out(request: Request[Any, Any, Any]) -> Response[None]:
    """Log out: no server accepts the cookie any more."""
    server_state = _server_state(request)
    cookie = cookie_of(request.headers.get("cookie", "").encode("latin-1", "replace"))
    if cookie is not None:
        await server_state.callers.log_out(cookie)
    return Response(None, status_code=204, cookies=[login_cookie(request.scope, server_state.options, "", 0)])


def login_cookie(scope: Any, options: ServeOptions, value: str, seconds: int) -> Cookie:
    """A cookie that scripts cannot read, and pages of other sites cannot send."""
    return Cookie(
        key=COOKIE,
        value=value,
        max_age=seconds,
        path=prefix_of(scope) or "/",
        httponly=True,
        samesite="strict",
        secure=options.secure,
    )


def _server_state(request: Request[Any, Any, Any]) -> ServerState:
    return request.app.state[SERVER_STATE]


ROUTES = (log_in, who, log_out)
