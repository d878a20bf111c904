"""How the intakes and relays of a namespace go, read from their documents. Pure.

Metrics, alerts and operators read the same: what those who run them have reported.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from windlass.core.intake import IntakeStatus
from windlass.core.intake import status_of as intake_status
from windlass.core.relay import RelayReading
from windlass.core.relay import reading_of as relay_reading
from windlass.core.settings import Document
from windlass.core.units import SECOND, Micros

_T = TypeVar("_T")
SILENT: Micros = 60 * SECOND
"""After so long without a report nobody runs an intake: its owners report every ten seconds."""
SOME = 3
"""Partitions that are named in a sentence."""


class Bridging(msgspec.Struct, frozen=True, kw_only=True):
    """What was reported, by name."""

    intakes: Mapping[str, IntakeStatus] = {}
    relays: Mapping[str, RelayReading] = {}


NOTHING = Bridging()


def bridging(readers: Iterable[Document]) -> Bridging:
    """What the documents of kind READER say; those of other readers, and what this code cannot read, are left
    out.
    """
    intakes: dict[str, IntakeStatus] = {}
    relays: dict[str, RelayReading] = {}
    for document in readers:
        name = document.subject.name.partition(" ")[2]
        if document.subject == intake_status(name):
            status = decoded(document.override, IntakeStatus)
            if status is not None:
                intakes[name] = status
        elif document.subject == relay_reading(name):
            reading = decoded(document.override, RelayReading)
            if reading is not None:
                relays[name] = reading
    return Bridging(intakes=intakes, relays=relays)


def lag_of(status: IntakeStatus) -> int | None:
    """How many messages wait; None: no message broker has said. Readers of a queue all see the same queue."""
    known = [(key == each.owner, each.lag) for key, each in status.partitions.items() if each.lag is not None]
    logs = [lag for is_queue, lag in known if not is_queue]
    queue = [lag for is_queue, lag in known if is_queue]
    return sum(logs) + max(queue, default=0) if logs or queue else None


def stopped_in(status: IntakeStatus, now: Micros) -> int:
    """How many partitions do not go on by themselves; 1 if nobody has reported for a while."""
    waiting = sum(each.stopped for each in status.partitions.values())
    return waiting or int(is_silent(status, now))


def why_stopped(status: IntakeStatus) -> str:
    """What is to be said of an intake that does not go on by itself."""
    stopped = sorted(partition for partition, each in status.partitions.items() if each.stopped)
    if not stopped:
        return "is run by nobody"
    named = ", ".join(stopped[:SOME]) + (", …" if len(stopped) > SOME else "")
    return f"has stopped in partition {named} and waits for an operator"


def is_silent(status: IntakeStatus, now: Micros) -> bool:
    """Whether nobody has reported for so long that nobody runs the intake. Who has just begun to run it may
    know of no partitions yet.
    """
    return bool(status.partitions) and now - last_report(status) > SILENT


def last_report(status: IntakeStatus) -> Micros:
    """When somebody last reported how the intake goes."""
    return max((each.as_of for each in status.partitions.values()), default=0)


def is_unread(reading: RelayReading, now: Micros) -> bool:
    """Whether nobody runs a relay: nobody has had the turn to read for a while."""
    return now - max(reading.until, reading.as_of) > SILENT


def decoded(body: object, kind: type[_T]) -> _T | None:
    """What a store has kept as bytes; None for what this code cannot read."""
    try:
        return msgspec.json.decode(body, type=kind) if isinstance(body, bytes) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
