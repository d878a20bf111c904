"""The namespaces of a server or cluster, and in which of them a job is.

A set outside of all namespaces lists them; nothing else depends on it. A namespace enters it when it is
opened; no script touches it, since it may live in another slot. The tag of an id (`core/ids.py`) says which
namespace to ask first, so that no job needs an entry in an index.
"""

import asyncio
from typing import Any, Final

from redis import exceptions

from windlass.broker.contract import Options
from windlass.broker.redis import verbs
from windlass.broker.redis.complaints import UNREACHABLE
from windlass.broker.redis.connections import ask_blocking, find, open_blocking
from windlass.broker.redis.conversation import Send, Talk
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import Location, read_url
from windlass.core.ids import namespace_tag, tag_of
from windlass.core.units import JobId
from windlass.errors import StoreError

REGISTRY: Final = b"windlass:namespaces"
MOST: Final = 100
"""Namespaces that are asked for a job, those whose tag it bears first."""


async def enlist(store: Store) -> None:
    """Add a namespace to the list. One whose user may not is not listed: it is nobody else's business."""
    command = (b"SADD", REGISTRY, store.options.namespace)
    if store.location.kind == "cluster":  # another node may have the list
        await asyncio.to_thread(_ask, store.location, *command)
    else:
        await store.on_this_loop().wire.hold(_said(command))


def _said(command: tuple[bytes | str, ...]) -> Talk[None]:
    yield Send((command,))


async def find_namespace(url: str, here: str, job: JobId) -> str | None:
    """The namespace of this server, other than `here`, that keeps a job; None if none says so."""
    location = read_url(url)
    listed = await asyncio.to_thread(_ask, location, b"SMEMBERS", REGISTRY)
    names = {name.decode() for name in listed or ()} - {here}
    tag = tag_of(job)
    in_order = sorted(names, key=lambda name: (namespace_tag(name) != tag, name))
    for name in in_order[:MOST]:
        if await _keeps(location, name, job):
            return name
    return None


async def _keeps(location: Location, namespace: str, job: JobId) -> bool:
    store = Store(location, Options(namespace=namespace), None)
    try:
        return (await store.run(verbs.get([job])))[0] is not None
    except StoreError:  # this user may not read it
        return False
    finally:
        await store.close()


def _ask(location: Location, *command: bytes | str) -> Any:
    """One command to the server that has the list; None if it does not answer, or not to this user."""
    try:
        opened = open_blocking(location, find(location, REGISTRY))
        try:
            reply = ask_blocking(opened, [command])
        finally:
            opened.disconnect()
    except (*UNREACHABLE, exceptions.RedisError, StoreError):
        return None
    return None if isinstance(reply, exceptions.RedisError) else reply
