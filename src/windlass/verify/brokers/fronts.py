"""A message broker of the run's own as the front door of its producers."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from windlass.errors import InvalidOption
from windlass.verify.brokers.kafka import OwnKafka
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter
from windlass.verify.stores.own import Server

PLACE: Final = "front"
PARTITIONS: Final = 4
WINDOW: Final = 120.0
"""Seconds in which NATS knows a message again: as its own default."""


class Front(NamedTuple):
    """The server, started, and where jobs go."""

    server: Server
    url: str


def own_front(kind: str, starter: Starter, folder: Path) -> Front:
    """Start a message broker and make what takes the jobs. `InvalidOption`: it cannot be had here."""
    try:
        return FRONTS[kind](starter, folder / "front")
    except Missing as missing:
        raise InvalidOption(f"--front {kind}: {missing}") from None


def _kafka(starter: Starter, folder: Path) -> Front:
    server = OwnKafka(starter, folder)
    server.start()
    server.make_topic(PLACE, PARTITIONS)
    return Front(server, f"{server.url()}/{PLACE}")


def _nats(starter: Starter, folder: Path) -> Front:
    server = OwnNats(starter, folder)
    server.start()
    asyncio.run(_make_stream(server.url()))
    return Front(server, f"{server.url()}/{PLACE}")


async def _make_stream(url: str) -> None:
    nats: Any = import_module("nats")  # an extra, whose types are not whole
    client = await nats.connect(url, allow_reconnect=False)
    try:
        await client.jetstream().add_stream(name=PLACE, subjects=[f"{PLACE}.jobs"], duplicate_window=WINDOW)
    finally:
        await client.close()


FRONTS: Final[Mapping[str, Callable[[Starter, Path], Front]]] = {"kafka": _kafka, "nats": _nats}
