"""Connections: made from a URL, to the server that is in charge. Finding it (Sentinel, Cluster) blocks and is
rare, so coroutines do it in a thread.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, Protocol

import redis
import redis.asyncio
from redis import exceptions
from redis.crc import key_slot

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.url import Address, Place
from windlass.errors import StoreError, StoreUnavailable
from windlass.forks import CONNECTING

Command = tuple[bytes | str | int, ...]


class LoopConnection(Protocol):
    """What is used of the driver's connections for event loops."""

    async def connect(self) -> None: ...
    async def send_command(self, *command: bytes | str | int) -> None: ...
    async def read_response(self, *, disable_decoding: bool, disconnect_on_error: bool) -> Any: ...
    async def can_read(self) -> bool: ...
    async def disconnect(self) -> None: ...


class BlockingConnection(Protocol):
    """What is used of the driver's connections for threads."""

    def connect(self) -> None: ...
    def send_command(self, *command: bytes | str | int) -> None: ...
    def read_response(self, *, disable_decoding: bool, disconnect_on_error: bool) -> Any: ...
    def disconnect(self) -> None: ...


_GOODBYE: Final = 1.0
"""Seconds."""
_READ: Final = 1 << 17
"""Bytes that are read at once, at the most."""

with contextlib.suppress(metadata.PackageNotFoundError):
    # The driver asks for it when it first connects, and Python imports then what it needs for that.
    metadata.version("redis")


def options_for(place: Place, address: Address | None) -> dict[str, Any]:
    """Arguments of a connection."""
    said: dict[str, Any] = {
        "socket_timeout": None,  # a call has one timeout, kept by the transport
        "socket_connect_timeout": place.timeout,
        "socket_read_size": _READ,
        "health_check_interval": 0,
        "client_name": "windlass",
        **place.options,
        "protocol": 2,  # the form of replies that is read here
    }
    said.pop("unix", None)
    if address is not None:
        said["host"], said["port"] = address
    return said


async def open_on_loop(place: Place, address: Address | None) -> LoopConnection:
    """An open connection for coroutines. A caller that is cancelled meanwhile leaves nothing open."""
    made: LoopConnection = _kind(place, redis.asyncio)(**options_for(place, address))
    try:
        async with CONNECTING.entered():
            await made.connect()
    except BaseException:
        await close_on_loop(made)
        raise
    return made


async def ask_on_loop(opened: LoopConnection, commands: Sequence[Command]) -> Any:
    """Send commands and give back the reply to the last, be it an error. A caller that is cancelled meanwhile
    must not use the connection again.
    """
    for command in commands:
        await opened.send_command(*command)
    reply: Any = None
    for _ in commands:
        try:
            reply = await opened.read_response(disable_decoding=True, disconnect_on_error=False)
        except (exceptions.ResponseError, exceptions.BusyLoadingError) as error:
            reply = error
    return reply


async def close_on_loop(opened: LoopConnection) -> None:
    """Close a connection. With TLS both sides say goodbye; that is not waited for long."""
    with contextlib.suppress(*UNREACHABLE):
        async with asyncio.timeout(_GOODBYE):
            await opened.disconnect()
    await asyncio.sleep(0)  # the socket is closed in the loop's next turn


def open_blocking(place: Place, address: Address | None) -> BlockingConnection:
    """An open connection for threads."""
    return _opened({**options_for(place, address), "socket_timeout": place.timeout}, place)


def ask_blocking(opened: BlockingConnection, commands: Sequence[Command]) -> Any:
    """Send commands and give back the reply to the last, be it an error."""
    for command in commands:
        opened.send_command(*command)
    reply: Any = None
    for _ in commands:
        try:
            reply = opened.read_response(disable_decoding=True, disconnect_on_error=False)
        except (exceptions.ResponseError, exceptions.BusyLoadingError) as error:
            reply = error
    return reply


def _opened(options: dict[str, Any], place: Place) -> BlockingConnection:
    made: BlockingConnection = _kind(place, redis)(**options)
    try:
        with CONNECTING:
            made.connect()
    except BaseException:
        made.disconnect()
        raise
    return made


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
    options = {**options_for(place, node), "socket_timeout": place.timeout}
    if place.kind == "sentinel":  # Sentinel has users and databases of its own
        for own in ("db", "username", "password", "client_name"):
            options.pop(own, None)
    opened = _opened(options, place)
    try:
        reply = ask_blocking(opened, [command])
    finally:
        opened.disconnect()
    if isinstance(reply, exceptions.RedisError):
        raise reply
    return reply


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
