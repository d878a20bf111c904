"""Connections: made from a URL, to the server that is in charge. Finding it (Sentinel, Cluster) blocks and is
rare, so coroutines do it in a thread.
"""

import asyncio
import contextlib
from typing import Any, Final, Protocol, cast

from redis import connection as blocking
from redis import exceptions
from redis.asyncio import connection as on_loop
from redis.crc import key_slot

from windlass.broker.redis.complaints import UNREACHABLE, complaint
from windlass.broker.redis.url import Address, Place
from windlass.errors import StoreUnavailable

_GOODBYE: Final = 1.0
"""Seconds."""


class LoopLink(Protocol):
    """What is used of a redis-py connection for coroutines."""

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = ...) -> None: ...  # noqa: FBT001 - as redis-py has it
    def pack_command(self, *parts: Any) -> list[bytes]: ...
    async def send_packed_command(self, command: list[bytes]) -> None: ...
    async def read_response(self) -> Any: ...


class ThreadLink(Protocol):
    """What is used of a redis-py connection for threads."""

    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def pack_command(self, *parts: Any) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self) -> Any: ...


def options_for(place: Place, address: Address | None) -> dict[str, Any]:
    """Arguments of a connection."""
    said: dict[str, Any] = {
        "socket_timeout": None,  # a call has one timeout, kept by the transport
        "socket_connect_timeout": place.timeout,
        "protocol": 2,
        "health_check_interval": 0,
        "client_name": "windlass",
        **place.options,
    }
    said.pop("unix", None)
    if address is not None:
        said["host"], said["port"] = address
    return said


def connect_on_loop(place: Place, address: Address | None) -> LoopLink:
    """A connection for coroutines, not yet open."""
    kind: Any = _kind(place, on_loop)
    return cast("LoopLink", kind(**options_for(place, address)))


async def open_on_loop(place: Place, address: Address | None) -> LoopLink:
    """An open connection for coroutines. Who is cancelled meanwhile leaves nothing open."""
    link = connect_on_loop(place, address)
    try:
        await link.connect()
    except BaseException:
        await hang_up(link, in_order=False)
        raise
    return link


async def hang_up(link: LoopLink, *, in_order: bool) -> None:
    """Close a connection for coroutines. In order: with TLS both sides say goodbye, and a loop that ends
    before would leave the socket open; a link that is broken is not waited for, but cut.
    """
    writer = cast("asyncio.StreamWriter | None", getattr(link, "_writer", None))
    said = False
    try:
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(_GOODBYE):
                await link.disconnect(nowait=not in_order)
                said = in_order
    finally:  # also for who is cancelled meanwhile
        if writer is not None and not said:
            writer.transport.abort()
    if not said:
        await asyncio.sleep(0)  # the socket is closed in the loop's next turn


def connect_blocking(place: Place, address: Address | None) -> ThreadLink:
    """A connection for threads, not yet open."""
    kind: Any = _kind(place, blocking)
    return cast("ThreadLink", kind(**{**options_for(place, address), "socket_timeout": place.timeout}))


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


def _ask(place: Place, node: Address, *command: bytes | str) -> Any:
    options = options_for(place, node)
    if place.kind == "sentinel":  # Sentinel has users and databases of its own
        for own in ("db", "username", "password", "client_name"):
            options.pop(own, None)
    options["socket_timeout"] = place.timeout
    kind: Any = _kind(place, blocking)
    link = cast("ThreadLink", kind(**options))
    try:
        link.connect()
        link.send_packed_command(link.pack_command(*command))
        return link.read_response()
    finally:
        link.disconnect()


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
