"""What every request passes before its route: host, caller, origin, rate, size; and the headers of answers.

It stands around the whole application, so that what no route answers passes it as well.
"""

import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import unquote

from litestar.types import ASGIApp, Message, Receive, Send

from windlass.admin.keys import Key
from windlass.api.access import CALLER, LOCAL, Caller, caller_of
from windlass.api.arriving import Arriving
from windlass.api.hosts import LOCAL_NAMES, host_name, is_address, is_loopback
from windlass.api.problems import PROBLEM_JSON, Refusal, encoded
from windlass.api.rates import Rates
from windlass.api.running import Running
from windlass.core.job import GROUP_BYTES
from windlass.errors import StoreError

COOKIE = "windlass_session"
PROBES = frozenset(("/healthz", "/readyz"))
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
SLASH = "\x1f"
"""Stands for an escaped slash inside a segment of a path: no name may have a control character."""
ENVELOPE = 64 * 1024
"""What a body may have besides payloads."""
_CONTROL = re.compile(f"(?!{SLASH})[\x00-\x1f]")
_PROXIED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")
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

    def __init__(self, inner: ASGIApp, running: Running) -> None:
        self._inner = inner
        self._running = running
        self._options = running.options
        self._is_local = is_loopback(running.options.host)
        self._names = LOCAL_NAMES | {name.lower().rstrip(".") for name in running.options.hosts}
        self._callers = Rates(rate=running.options.rate, burst=running.options.rate)

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
                self._check_host(headers)
                caller = await self._caller(headers, scope)
                _check_origin(scope["method"], headers, caller)
                self._check_rate(caller)
                scope["state"][CALLER] = caller
            receive = self._limited(scope, headers, receive)
        except Refusal as refusal:
            await _answer(send, refusal)
        except StoreError as error:
            await _answer(send, Refusal(503, "store-unavailable", str(error), headers={"retry-after": "1"}))
        else:
            await self._inner(scope, receive, send)

    # --- host -----------------------------------------------------------------------------------------------

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Refuse names that are not ours: a page whose name was made to point here (DNS rebinding). An
        address is no such name.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
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
        given = headers.get(b"authorization")
        cookie = _cookie(headers.get(b"cookie", b""))
        key: Key | None = None
        if given is not None:
            kind, _, text = given.decode("latin-1").strip().partition(" ")
            if kind.lower() == "bearer":
                key = await self._running.sought(text.strip(), address_of(scope))
        elif cookie is not None:
            key = await self._by_login(cookie)
        if key is not None:
            return caller_of(key, by_cookie=given is None)
        # After the key: one that was just made may be the first, and its caller is not anybody any more.
        if self._is_local and await self._running.keys.is_empty():
            return _local(headers)
        if given is not None:  # a login that is over has been valid, and one that is made up asks no store
            self._running.failed(address_of(scope))
        return None

    async def _by_login(self, cookie: str) -> Key | None:
        keys = self._running.keys
        opened = (await self._running.seals()).open_login(cookie)
        return None if opened is None or opened[1] <= keys.now() else await keys.by_id(opened[0])

    # --- rate and size --------------------------------------------------------------------------------------

    def _check_rate(self, caller: Caller | None) -> None:
        if caller is not None and caller.key is not None:
            self._callers.take(caller.key, "requests")

    def _limited(self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive) -> Receive:
        return Arriving(
            receive,
            headers.get(b"content-length", b"0"),
            most=self._largest(scope["path"]),
            within=self._options.body_timeout,
        )

    def _largest(self, path: str) -> int:
        payload = self._running.app.config.max_payload
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


def named(segment: str) -> str:
    """A name from a path, with its slashes."""
    return segment.replace(SLASH, "/")


def _check_origin(method: str, headers: dict[bytes, bytes], caller: Caller | None) -> None:
    """Refuse what another site's page sends in the name of a person, or from inside of their machine."""
    if method in SAFE:
        return
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    foreign = site is not None and site not in (b"same-origin", b"none")
    if origin is not None:
        theirs = origin.decode("latin-1").lower().partition("://")[2]
        foreign = foreign or theirs != headers.get(b"host", b"").decode("latin-1").lower()
    unproven = caller is not None and caller.by_cookie and site is None and origin is None
    if foreign or unproven:
        raise Refusal(403, "cross-site", "this was sent by a page of another site; it is not done")


def _local(headers: dict[bytes, bytes]) -> Caller:
    """The caller of a server that has no keys: somebody on this machine, unless a proxy speaks for others."""
    if any(name in headers for name in _PROXIED):
        raise Refusal(
            403,
            "forbidden",
            "a proxy stands before this server, which has no keys and serves local callers only; "
            "make a key: windlass keys APP create",
        )
    return LOCAL


def _cookie(header: bytes) -> str | None:
    if COOKIE.encode() not in header:
        return None
    try:
        found = SimpleCookie(header.decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def address_of(scope: Any) -> str:
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
