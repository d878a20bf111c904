"""Connections: made from a URL, to the server that is in charge. Finding it (Sentinel, Cluster) blocks and is
rare, so coroutines do it in a thread.
"""

import asyncio
import contextlib
from importlib import metadata
from typing import Any, Final

from redis import connection as blocking
from redis import exceptions
from redis.asyncio import connection as on_loop
from redis.crc import key_slot

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.links import LoopLink, ThreadLink
from windlass.broker.redis.url import Address, Place
from windlass.errors import StoreError, StoreUnavailable
from windlass.forks import CONNECTING

_GOODBYE: Final = 1.0
"""Seconds."""

with contextlib.suppress(metadata.PackageNotFoundError):
    # The driver asks for it when it first connects, and Python imports then what it needs for that.
    metadata.version("redis")


def options_for(place: Place, address: Address | None) -> dict[str, Any]:
    """Arguments of a connection."""
    said: dict[str, Any] = {
        "socket_timeout": None,  # a call has one timeout, kept by the transport
        "socket_connect_timeout": place.timeout,
        "health_check_interval": 0,
        "client_name": "windlass",
        **place.options,
        "protocol": 2,  # the form of replies that is read here
    }
    said.pop("unix", None)
    if address is not None:
        said["host"], said["port"] = address
    return said


async def open_on_loop(place: Place, address: Address | None) -> LoopLink:
    """An open connection for coroutines. Who is cancelled meanwhile leaves nothing open."""
    made: Any = _kind(place, on_loop)(**options_for(place, address))
    try:
        async with CONNECTING.entered():
            await made.connect()
    except BaseException:
        await _abandon(made)
        raise
    return LoopLink(made, place.timeout)


async def _abandon(made: Any) -> None:
    """Cut a connection that could not be opened."""
    writer: asyncio.StreamWriter | None = made._writer  # noqa: SLF001 - `disconnect` forgets it
    try:
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(_GOODBYE):
                await made.disconnect(nowait=True)
    finally:  # also for who is cancelled meanwhile
        if writer is not None:
            writer.transport.abort()
    await asyncio.sleep(0)  # the socket is closed in the loop's next turn


def open_blocking(place: Place, address: Address | None) -> ThreadLink:
    """An open connection for threads."""
    made: Any = _kind(place, blocking)(**{**options_for(place, address), "socket_timeout": place.timeout})
    try:
        with CONNECTING:
            made.connect()
    except BaseException:
        made.disconnect()
        raise
    return ThreadLink(made)


def _kind(place: Place, module: Any) -> Any:
    if place.options.get("unix"):
        return module.UnixDomainSocketConnection
    return module.SSLConnection if place.tls else module.Connection


def find(place: Place, key: bytes) -> Address | None:
    """Which server is in charge of a namespace; None: the one of the URL."""
    if place.kind == "direct":
        return None
    ask = _ask_sentinel if place.kind == "sentinel" else _ask_cluster
    why = ""
    for node in place.nodes:
        try:
            found = ask(place, node, key)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            why = f"; {complaint(error, place, node)}"
            continue
        if found is not None:
            return found
    asked = ", ".join(f"{host}:{port}" for host, port in place.nodes)
    raise StoreUnavailable(f"no {place.kind} node knows the server in charge; asked {asked}{why}")


def named(place: Place, asked: Address | None, to: Address) -> Address:
    """The server that one which was asked (None: that of the URL) sends callers to."""
    if place.options.get("unix"):
        raise StoreError(
            "the Redis server of this socket is one of a cluster, and another has this namespace;"
            " the URL has to be redis+cluster://"
        )
    host, port = to
    if host in ("", "?"):  # its own
        host = asked[0] if asked is not None else str(place.options.get("host", "localhost"))
    return host, port


def _ask(place: Place, node: Address, *command: bytes | str) -> Any:
    options = options_for(place, node)
    if place.kind == "sentinel":  # Sentinel has users and databases of its own
        for own in ("db", "username", "password", "client_name"):
            options.pop(own, None)
    options["socket_timeout"] = place.timeout
    made: Any = _kind(place, blocking)(**options)
    try:
        with CONNECTING:
            made.connect()
        link = ThreadLink(made)
        reply = link.ask(link.pack(*command))
        if isinstance(reply, exceptions.RedisError):
            raise reply
        return reply
    finally:
        made.disconnect()


def _ask_sentinel(place: Place, node: Address, _key: bytes) -> Address | None:
    found = _ask(place, node, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", place.primary)
    return None if found is None else (found[0].decode(), int(found[1]))


def _ask_cluster(place: Place, node: Address, key: bytes) -> Address | None:
    slot = key_slot(key)
    for first, last, primary, *_ in _ask(place, node, b"CLUSTER", b"SLOTS"):
        if first <= slot <= last:
            # An empty host means: the one that was asked.
            return (primary[0].decode() if primary[0] else node[0], int(primary[1]))
    return None
