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
from windlass.broker.redis.url import Address, Location
from windlass.errors import InvalidOption, StoreError, StoreUnavailable
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


def options_for(location: Location, address: Address | None) -> dict[str, Any]:
    """Arguments of a connection."""
    said: dict[str, Any] = {
        "socket_timeout": None,  # a call has one timeout, kept by the transport
        "socket_connect_timeout": location.timeout,
        "socket_read_size": _READ,
        "health_check_interval": 0,
        "client_name": "windlass",
        **location.options,
        "protocol": 2,  # the form of replies that is read here
    }
    said.pop("unix", None)
    if address is not None:
        said["host"], said["port"] = address
    return said


async def open_on_loop(location: Location, address: Address | None) -> LoopConnection:
    """An open connection for coroutines. A caller that is cancelled meanwhile leaves nothing open."""
    made: LoopConnection = _made(location, redis.asyncio, options_for(location, address))
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


def open_blocking(location: Location, address: Address | None) -> BlockingConnection:
    """An open connection for threads."""
    return _opened({**options_for(location, address), "socket_timeout": location.timeout}, location)


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


def _opened(options: dict[str, Any], location: Location) -> BlockingConnection:
    made: BlockingConnection = _made(location, redis, options)
    try:
        with CONNECTING:
            made.connect()
    except BaseException:
        made.disconnect()
        raise
    return made


def _made(location: Location, module: Any, options: dict[str, Any]) -> Any:
    try:
        return _kind(location, module)(**options)
    except TypeError as error:  # it names the option, and does not quote its value
        _, _, name = str(error).rpartition("unexpected keyword argument ")
        raise InvalidOption(
            f"the Redis URL is not understood: such a connection has no option {name or error}"
        ) from error


def _kind(location: Location, module: Any) -> Any:
    if location.options.get("unix"):
        return module.UnixDomainSocketConnection
    return module.SSLConnection if location.tls else module.Connection


def find(location: Location, key: bytes) -> Address | None:
    """Which server is in charge of a namespace; None: the one of the URL."""
    if location.kind == "direct":
        return None
    ask = _ask_sentinel if location.kind == "sentinel" else _ask_cluster
    why = ""
    for node in location.nodes:
        try:
            found = ask(location, node, key)
        except (*UNREACHABLE, exceptions.RedisError) as error:
            why = f"; {complaint(error, location, node)}"
            continue
        if found is not None:
            return found
    asked = ", ".join(f"{host}:{port}" for host, port in location.nodes)
    raise StoreUnavailable(f"no {location.kind} node knows the server in charge; asked {asked}{why}")


def named(location: Location, asked: Address | None, to: Address) -> Address:
    """The server that one which was asked (None: that of the URL) sends callers to."""
    if location.options.get("unix"):
        raise StoreError(
            "the Redis server of this socket is one of a cluster, and another has this namespace;"
            " the URL has to be redis+cluster://"
        )
    host, port = to
    if host in ("", "?"):  # its own
        host = asked[0] if asked is not None else str(location.options.get("host", "localhost"))
    return host, port


def _ask(location: Location, node: Address, *command: bytes | str) -> Any:
    options = {**options_for(location, node), "socket_timeout": location.timeout}
    if location.kind == "sentinel":  # Sentinel has users and databases of its own
        for own in ("db", "username", "password", "client_name"):
            options.pop(own, None)
    opened = _opened(options, location)
    try:
        reply = ask_blocking(opened, [command])
    finally:
        opened.disconnect()
    if isinstance(reply, exceptions.RedisError):
        raise reply
    return reply


def _ask_sentinel(location: Location, node: Address, _key: bytes) -> Address | None:
    found = _ask(location, node, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", location.primary)
    return None if found is None else (found[0].decode(), int(found[1]))


def _ask_cluster(location: Location, node: Address, key: bytes) -> Address | None:
    slot = key_slot(key)
    for first, last, primary, *_ in _ask(location, node, b"CLUSTER", b"SLOTS"):
        if first <= slot <= last:
            # An empty host means: the one that was asked.
            return (primary[0].decode() if primary[0] else node[0], int(primary[1]))
    return None
