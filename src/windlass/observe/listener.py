"""The pages of a worker, `GET /metrics` and its health: as much of HTTP as Prometheus and probes speak.

A worker needs no web framework for a few lines. On a loopback address it serves metrics to every client that
uses a loopback name, so that no web page can read them through a name of its own (DNS rebinding). Any other
address needs a token, `WINDLASS_METRICS_TOKEN`, which Prometheus sends as `authorization: Bearer`. Health
needs no token: its page has a word or two, which reveal nothing.
"""

import asyncio
import contextlib
import errno
import hmac
import ipaddress
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import NamedTuple

from windlass.errors import InvalidOption
from windlass.observe.measures import CONTENT_TYPE

_log = logging.getLogger("windlass.observe")

TOKEN_VARIABLE = "WINDLASS_METRICS_TOKEN"
LONGEST_HEAD = 8_192
PATIENCE = 5.0
"""Seconds for a request and its answer."""
CALLERS = 128
"""Whose request has not come yet; beyond that, the one that has been waited for longest is closed. More than
the 100 that may be accepted at once, so that a caller can say what it wants before others take its place.
"""
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


class Answer(NamedTuple):
    """What a page says."""

    body: str
    type: str = f"{CONTENT_TYPE}; charset=utf-8"
    status: str = "200 OK"


Page = Callable[[], Awaitable[Answer]]


def host_and_port(text: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`; None if it is no such thing."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        return None
    return host, int(port)


def address_of(text: str, *, token: str | None) -> tuple[str, int]:
    """Where metrics are served; `InvalidOption` says what is wrong with the address."""
    found = host_and_port(text)
    if found is None:
        raise InvalidOption(f'metrics are served at HOST:PORT, such as 127.0.0.1:9464, not "{text}"')
    host, _ = found
    if not is_loopback(host) and not token:
        raise InvalidOption(
            f"metrics on {host} could be read by anybody: set {TOKEN_VARIABLE} to a token that Prometheus "
            "sends as a bearer, or use 127.0.0.1"
        )
    return found


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def why_not_listening(error: OSError) -> str:
    """Why an address cannot be listened at, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            return "another program listens there; choose another port, or end that program"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address; 127.0.0.1 is itself, 0.0.0.0 all it has"
        case errno.EACCES:
            return "this user may not listen there; choose a port above 1023"
        case _:
            return f"{error.strerror or error}; choose another address"


class Listener:
    """Serves pages, by their paths, until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Page],
        *,
        what: str = "metrics",
        token: str | None = None,
        to_all: bool = False,
    ) -> None:
        """`what` is served, for the log. `to_all`: every client that reaches the address may read it."""
        self._host = host
        self._port = port
        self._pages = pages
        self._what = what
        self._token = token.encode() if token else None
        self._to_all = to_all
        self._server: asyncio.Server | None = None
        self._silent: dict[asyncio.StreamWriter, str] = {}
        """Callers whose request has not come yet, in the order in which they came, with their addresses."""

    async def open(self) -> None:
        """Listen. `InvalidOption`: the address is not to be had."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=LONGEST_HEAD)
        except OSError as error:
            raise InvalidOption(
                f"{self._what} cannot be served at {self._host}:{self._port}: {why_not_listening(error)}"
            ) from None
        self._port = self._server.sockets[0].getsockname()[1]
        _log.info("%s: %s", self._what, self.url)

    @property
    def url(self) -> str:
        """Where the first page is read."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{next(iter(self._pages))}"

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(await self._answer(reader, writer))
                await writer.drain()
        except (TimeoutError, OSError):
            pass  # who does not speak, or hangs up, is owed nothing
        finally:
            writer.close()

    @contextlib.contextmanager
    def _silence_of(self, caller: asyncio.StreamWriter) -> Generator[None]:
        """A caller is waited for meanwhile. If there are too many of them, one gives up its place: of the
        address with the most of them, the one that has been waited for longest.
        """
        if len(self._silent) >= CALLERS:
            most, _ = Counter(self._silent.values()).most_common(1)[0]
            victim = next(each for each, address in self._silent.items() if address == most)
            del self._silent[victim]
            victim.transport.abort()
        self._silent[caller] = (caller.get_extra_info("peername") or ("",))[0]
        try:
            yield
        finally:
            self._silent.pop(caller, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            with self._silence_of(writer):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", "the request is too long\n")
        except asyncio.IncompleteReadError:
            return _response("400 Bad Request", "not a request\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        if refused := self._refused(headers):
            return refused
        page = self._pages.get(path)
        if page is None:
            return _response("404 Not Found", f"there is {' and '.join(self._pages)}\n")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "only GET\n")
        body, kind, status = await page()
        answer = _response(status, body, kind)
        return answer if method == "GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _refused(self, headers: dict[str, str]) -> bytes | None:
        if self._to_all:
            return None
        if self._token is not None:
            kind, _, said = headers.get("authorization", "").partition(" ")
            if kind.lower() == "bearer" and hmac.compare_digest(said.strip().encode(), self._token):
                return None
            return _response("401 Unauthorized", "a token is needed\n", more="WWW-Authenticate: Bearer\r\n")
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.removeprefix("[").removesuffix("]").lower() in {*_LOCAL, self._host}:
            return None
        return _response("421 Misdirected Request", "ask for it by a loopback name\n")


def _response(status: str, body: str, kind: str = "text/plain; charset=utf-8", more: str = "") -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        f"{more}X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + content
