"""What a supervisor and a child say to each other, over a socket that only they hold.

Each message is a msgpack document with its length in front. The end of the stream is a message, too: to a
child it means that its supervisor is dead.
"""

import asyncio
from typing import TypeAlias

import msgspec

from windlass.core.units import Fence, JobId, SessionId
from windlass.observe.exposition import Taken
from windlass.worker.options import Group

MOST_BYTES = 16 * 1024 * 1024


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message to a child: what it is to run. It imports the app and answers `Ready`."""

    app: str
    """`module:name`"""
    session: SessionId
    groups: tuple[Group, ...]
    table: str
    """The path of its table of leases."""
    alone: bool = False
    """It runs suspects, one at a time, and ends when there are none."""
    max_jobs: int | None = None
    """It tells its supervisor as soon as it has run so many."""
    measures: bool = False
    """Whether metrics are read: then it sends what it counts."""


class Go(msgspec.Struct, frozen=True, tag=True):
    """Its session is open: claim."""


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """These leases are to be cancelled."""

    leases: tuple[tuple[JobId, Fence], ...]


class Reread(msgspec.Struct, frozen=True, tag=True):
    """The settings of the namespace have changed: read strikes again."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Claim no more, give back what has not started, let the rest end, and end. Said again, the last grace
    counts.
    """

    grace: float
    """Seconds; then what still runs is stopped where it can be, and released."""
    why: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The app is imported."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The child cannot work, and why, in a line."""

    why: str
    passes: bool = False
    """What keeps it from working may pass: the next child may be able to."""


class Suspects(msgspec.Struct, frozen=True, tag=True):
    """Suspects wait in the queues of this child: another child has to run them alone."""

    waiting: int


class Lost(msgspec.Struct, frozen=True, tag=True):
    """The store told the child that its session is over."""


class Tally(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How many jobs the child has run so far."""

    jobs: int


class Measured(msgspec.Struct, frozen=True, tag=True):
    """What the child has counted since it last said so. If it is killed, the counts of about a second are
    lost.
    """

    taken: Taken


ToChild: TypeAlias = Begin | Go | Cancel | Reread | Drain
ToSupervisor: TypeAlias = Ready | Failed | Suspects | Lost | Tally | Measured

_encode = msgspec.msgpack.Encoder().encode
_to_child = msgspec.msgpack.Decoder[ToChild](ToChild)
_to_supervisor = msgspec.msgpack.Decoder[ToSupervisor](ToSupervisor)


def framed(message: ToChild | ToSupervisor) -> bytes:
    """The bytes of a message."""
    body = _encode(message)
    return len(body).to_bytes(4, "big") + body


async def read_to_child(stream: asyncio.StreamReader) -> ToChild | None:
    """The next word of the supervisor; None: it is dead."""
    body = await _frame(stream)
    return None if body is None else _to_child.decode(body)


async def read_to_supervisor(stream: asyncio.StreamReader) -> ToSupervisor | None:
    """The next message of a child. None: there will be no more."""
    body = await _frame(stream)
    return None if body is None else _to_supervisor.decode(body)


async def _frame(stream: asyncio.StreamReader) -> bytes | None:
    try:
        size = int.from_bytes(await stream.readexactly(4), "big")
        if size > MOST_BYTES:
            return None
        return await stream.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
