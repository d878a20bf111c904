"""Sending one message to one URL, to no other address than was judged.

The name is resolved once, every address that it has is judged (`core.address`), and the connection goes to
one of those: a resolver that gives another answer the next time is not asked a next time. TLS is checked
against the name. Redirects are not followed, proxies of the environment not used, and of an answer only its
head is read. Whatever is not plainly allowed is refused.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import msgspec

from windlass.core.address import NOTHING_MORE, Allowed, why_refused
from windlass.core.webhook import Target

CONNECTING = 5.0
"""Seconds to resolve and connect, TLS included, for each address that is tried."""
ANSWERING = 15.0
"""Seconds for all of it."""
MOST_HEAD = 16 * 1024
"""Bytes of the head of an answer."""
MOST_ADDRESSES = 3
"""Addresses of a name that are tried."""
_MOST_INTERIM = 5

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |\r\n)")
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*([0-9]{1,6})[ \t]*\r\n", re.IGNORECASE)


class Forbidden(Exception):
    """It may not be sent there. The text names the origin at the most."""


class Undelivered(Exception):
    """It could not be sent, or nothing that makes sense was answered."""


class Answered(msgspec.Struct, frozen=True):
    """The head of an answer, as far as it matters."""

    status: int
    retry_after: int | None = None
    """Seconds, if it says so."""


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    more: Allowed = NOTHING_MORE,
    resolve: Resolver = addresses_of,
    answering: float = ANSWERING,
) -> Answered:
    """Send a body; what was answered. `Forbidden`, or `Undelivered`; nothing else is raised."""
    try:
        async with asyncio.timeout(answering):
            pinned = await _pinned(target, more, resolve)
            reader, writer = await _connected(target, pinned)
            try:
                writer.write(_request(target, body, headers))
                await writer.drain()
                return await _head(reader, target)
            finally:
                # Not closed politely: a receiver that does not read could keep it open for ever.
                writer.transport.abort()
    except TimeoutError:
        raise Undelivered(f"{target.origin} did not answer within {answering:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise Undelivered(f"{target.origin}: {_brief(error)}") from None


async def _pinned(target: Target, more: Allowed, resolve: Resolver) -> Sequence[str]:
    """The addresses that may be connected to. One that may not is enough to refuse: a name that means both
    the public and something else is not to be trusted.
    """
    try:
        async with asyncio.timeout(CONNECTING):
            found = list(await resolve(target.host, target.port))
    except TimeoutError:
        raise Undelivered(f"the name of {target.origin} was not resolved in time") from None
    except (OSError, UnicodeError) as error:
        raise Undelivered(f"the name of {target.origin} cannot be resolved: {_brief(error)}") from None
    if not found:
        raise Undelivered(f"the name of {target.origin} has no address")
    if more.names(target.host):
        return found[:MOST_ADDRESSES]
    for address in found:
        if why := why_refused(address, more):
            raise Forbidden(
                f"{target.origin} is not sent to: it has an address that is {why}; what is not on the public "
                "Internet must be allowed by webhook_allow"
            )
    if target.scheme != "https" and not all(why_is_allowed(address, more) for address in found):
        raise Forbidden(f"{target.origin} is not sent to: use https, or allow it by webhook_allow")
    return found[:MOST_ADDRESSES]


def why_is_allowed(address: str, more: Allowed) -> bool:
    """Whether an address is allowed by the configuration, not only by being public."""
    return bool(more.networks) and bool(why_refused(address)) and not why_refused(address, more)


async def _connected(
    target: Target, addresses: Sequence[str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    last: Exception | None = None
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECTING):
                return await asyncio.open_connection(
                    address,  # digits: nothing is resolved again
                    target.port,
                    ssl=_context() if target.scheme == "https" else None,
                    server_hostname=target.host if target.scheme == "https" else None,
                    limit=MOST_HEAD,
                )
        except (OSError, TimeoutError) as error:
            last = error
    why = "no connection in time" if isinstance(last, TimeoutError) else _brief(last)
    raise Undelivered(f"{target.origin}: {why}")


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Headers are ours, never a user's; a line break in one would be a bug, and is refused."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"host: {target.authority}",
        f"content-length: {len(body)}",
        "content-type: application/json",
        "connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise Forbidden("a header of the message has a line break")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _head(reader: asyncio.StreamReader, target: Target) -> Answered:
    try:
        for _ in range(_MOST_INTERIM):
            head = await reader.readuntil(b"\r\n\r\n")
            status = _STATUS.match(head)
            if status is None:
                break
            if int(status[1]) >= 200:
                later = _RETRY_AFTER.search(head)
                return Answered(int(status[1]), None if later is None else int(later[1]))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    raise Undelivered(f"{target.origin} did not answer in HTTP")


def _brief(error: BaseException | None) -> str:
    """What went wrong, without what the other side may have put into it."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {error.verify_message}"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or 'no reason given'}"
        case socket.gaierror():
            return error.strerror or "unknown name"
        case OSError(strerror=str(why)) if why and "Multiple exceptions" not in why:
            return why
        case _:
            return type(error).__name__
