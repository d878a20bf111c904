"""What every request passes before its route: host, caller, origin, rate, size; and the headers of answers.

It stands around the whole application, so that what no route answers passes it as well.
"""

import logging
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import unquote

from litestar.types import ASGIApp, Message, Receive, Send

from windlass.api.access import THE_TOKEN, VISITOR, WANTED, Caller, Visitor
from windlass.api.hosts import LOCAL_NAMES, host_name, is_address
from windlass.api.incoming_body import IncomingBody
from windlass.api.problems import CALLER, PROBLEM_JSON, STORE_AWAY, Refusal, encoded
from windlass.api.rates import Rates
from windlass.api.server_state import ServerState
from windlass.core.job import GROUP_BYTES
from windlass.errors import StoreError

_log = logging.getLogger("windlass.api")

COOKIE = "windlass_session"
PROBES = frozenset(("/healthz", "/readyz"))
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
SLASH = "\x1f"
"""Stands for an escaped slash inside a segment of a path: no name may have a control character."""
ENVELOPE = 64 * 1024
"""What a body may have besides payloads."""
_CONTROL = re.compile(f"(?!{SLASH})[\x00-\x1f]")
_PROXIED = re.compile(
    rb"forwarded|via|x-forwarded-.*|x-real-ip|x-original-.*|.*client-ip|cf-.*|.*connecting-ip"
)
"""Headers that proxies add. One that adds none cannot be told from a local caller."""
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
)


class Gate:
    """Lets requests pass, with their caller, or answers them itself."""

    def __init__(self, inner: ASGIApp, server_state: ServerState) -> None:
        self._inner = inner
        self._server_state = server_state
        self._options = server_state.options
        self._names = LOCAL_NAMES | {name.lower().rstrip(".") for name in server_state.options.hosts}
        self._callers = Rates(rate=server_state.options.rate, burst=server_state.options.rate)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        send = _with_headers(send)
        try:
            headers = dict(scope["headers"])
            scope["path"] = path_of(scope)
            if scope["path"] not in PROBES:
                self._check_host([value for name, value in scope["headers"] if name == b"host"])
                visits = VISITOR in scope["state"]
                caller = _visiting(scope, headers) if visits else await self._caller(headers, scope)
                _check_origin(scope["method"], headers, caller)
                self._check_rate(caller)
                scope["state"][CALLER] = caller
                if caller is None and visits:
                    scope["state"][WANTED] = Refusal(403, "forbidden", _NOT_LET_IN)
                elif caller is None and await self._server_state.callers.wants_token():
                    scope["state"][WANTED] = THE_TOKEN
            receive = self._limited(scope, headers, receive)
        except Refusal as refusal:
            await _answer(send, refusal)
        except StoreError as error:
            _log.warning("the store does not answer: %s", error)
            await _answer(send, Refusal(503, "store-unavailable", STORE_AWAY, headers={"retry-after": "1"}))
        else:
            await self._inner(_as_get(scope), receive, send)

    # --- host -----------------------------------------------------------------------------------------------

    def _check_host(self, hosts: list[bytes]) -> None:
        """Refuse names that are not ours: a page whose name was made to point here (DNS rebinding). An
        address is no such name.
        """
        name = host_name(hosts[0].decode("latin-1")) if len(hosts) == 1 else None
        if name is None:
            raise Refusal(
                400, "invalid", "a request has one Host header: a name or an address, and perhaps a port"
            )
        if "*" in self._names or name in self._names or is_address(name):
            return
        raise Refusal(
            421,
            "wrong-host",
            f'this server does not answer for the host "{name[:100]}"; --allow-host would change that',
        )

    # --- caller ---------------------------------------------------------------------------------------------

    async def _caller(self, headers: dict[bytes, bytes], scope: dict[str, Any]) -> Caller | None:
        """Who sends a request; None: nobody who is known."""
        callers = self._server_state.callers
        given, cookie = headers.get(b"authorization"), cookie_of(headers.get(b"cookie", b""))
        caller: Caller | None = None
        if given is not None:
            kind, _, text = given.decode("latin-1").strip().partition(" ")
            if kind.lower() == "bearer":
                caller = await callers.with_key(text.strip(), address_of(scope))
        elif _is_foreign(headers):
            pass  # whatever the browser of this person may do, a page of another site may not
        elif cookie is not None:
            caller = await callers.with_cookie(cookie)
        if caller is None and given is None and not _is_foreign(headers):
            caller = await callers.without()
            if caller is not None:
                _check_direct(headers)
        if caller is None and await self._server_state.keys.are_lost():
            raise Refusal(
                503,
                "keys-missing",
                "this server lets in holders of API keys alone, and its store has no keys; an operator can "
                "make one: windlass keys APP create",
            )
        return caller

    # --- rate and size --------------------------------------------------------------------------------------

    def _check_rate(self, caller: Caller | None) -> None:
        if caller is not None and caller.key is not None:
            self._callers.take(caller.key, "requests")

    def _limited(self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive) -> Receive:
        return IncomingBody(
            receive,
            headers.get(b"content-length", b"0"),
            most=self._largest(scope["path"]),
            within=self._options.body_timeout,
        )

    def _largest(self, path: str) -> int:
        payload = self._server_state.app.config.largest
        return max(GROUP_BYTES, payload) * 2 if path.startswith(_BATCHES) else payload + ENVELOPE


_BATCHES = ("/v1/jobs/batch", "/v1/leases/settle")


# --- reading a request --------------------------------------------------------------------------------------


def path_of(scope: dict[str, Any]) -> str:
    """The path, with slashes inside a segment (`%2F`, in a queue's name) told apart from those between."""
    raw = scope.get("raw_path") or b""
    path = scope["path"]
    if b"%2F" in raw or b"%2f" in raw:
        segments = raw.split(b"?")[0].decode("latin-1").split("/")
        path = "/".join(unquote(segment, errors="replace").replace("/", SLASH) for segment in segments)
    if _CONTROL.search(path) is not None:
        raise Refusal(404, "not-found", "there is nothing here: the path has control characters")
    return path


def _as_get(scope: Any) -> Any:
    """A HEAD is answered as a GET is: the connection leaves out the body."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope


def named(segment: str) -> str:
    """A name from a path, with its slashes."""
    return segment.replace(SLASH, "/")


def _is_foreign(headers: dict[bytes, bytes]) -> bool:
    """Whether a page of another site sends this, as far as its browser says. Another port is another site."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None and site not in (b"same-origin", b"none"):
        return True
    if origin is None:
        return False
    theirs = origin.decode("latin-1").lower().partition("://")[2]
    return theirs != headers.get(b"host", b"").decode("latin-1").lower()


def _visiting(scope: dict[str, Any], headers: dict[bytes, bytes]) -> Caller | None:
    """The caller that the host application has let in. None for a request from a page of another site."""
    visitor: Visitor | None = scope["state"][VISITOR]
    return None if visitor is None or _is_foreign(headers) else visitor.caller


_NOT_LET_IN = (
    "the application in which this is mounted does not let you in here; log in there, as somebody who may"
)


def _check_origin(method: str, headers: dict[bytes, bytes], caller: Caller | None) -> None:
    """Refuse changes that another site's page sends in the name of a person, or from inside of their
    machine.
    """
    if method in SAFE:
        return
    unproven = (
        caller is not None
        and (caller.by_cookie or (caller.is_visitor and b"cookie" in headers))
        and headers.get(b"sec-fetch-site") is None
        and headers.get(b"origin") is None
    )
    if unproven or _is_foreign(headers):
        raise Refusal(403, "cross-site", "this was sent by a page of another site; it is not done")


def _check_direct(headers: dict[bytes, bytes]) -> None:
    """Refuse what a proxy says it passes on, where everybody on this machine is trusted."""
    if any(_PROXIED.fullmatch(name) for name in headers):
        raise Refusal(
            403,
            "forbidden",
            "a proxy stands before this server, which has no keys and serves local callers only; "
            "make a key: windlass keys APP create",
        )


def cookie_of(header: bytes) -> str | None:
    """The cookie of a login."""
    if COOKIE.encode() not in header:
        return None
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def address_of(scope: Any) -> str:
    """The address of a client."""
    client = scope.get("client")
    return "" if client is None else client[0]


# --- answering ----------------------------------------------------------------------------------------------


async def _answer(send: Send, refusal: Refusal) -> None:
    body = encoded(refusal)
    headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        *((name.encode(), value.encode("latin-1", "replace")) for name, value in refusal.headers.items()),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _with_headers(send: Send) -> Send:
    """Add what every answer says, where a route has not said it."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            said: Iterable[tuple[bytes, bytes]] = message.get("headers", ())
            names = {name.lower() for name, _ in said}
            added = [header for header in _HEADERS if header[0] not in names]
            message["headers"] = [*said, *added]
        await send(message)

    return sending
