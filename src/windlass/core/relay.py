"""Relays: what an app declares of one, and what the store keeps of it.

A relay reads the event log and publishes a message for each end of a job. Its document has what was declared
and an operator's pause; another has its cursor, whose turn it is, and how it goes.
"""

from string import Formatter
from typing import Literal

import msgspec

from windlass.core.option import shown
from windlass.core.reading import Reading
from windlass.core.settings import Kind, Subject
from windlass.core.units import Micros
from windlass.errors import InvalidOption

ENDS = ("done", "dead", "cancelled")
_PLACES = ("queue", "task", "lane", "state")


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A relay as an app declares it. It is kept where operators see it, so it has no secrets."""

    name: str
    url: str
    """Without user, password and options."""
    queues: tuple[str, ...] = ()
    """Empty: all of the namespace that write to the event log, as those of the app do."""
    tasks: tuple[str, ...] = ()
    """Empty: all."""
    on: tuple[str, ...] = ("dead",)
    to: str = ""
    """Routing key, subject or topic, with `{queue}`, `{task}`, `{lane}` and `{state}`; empty: the URL's."""
    payload: bool = True
    """Whether the message carries the job's arguments."""
    start: Literal["first", "last"] = "first"
    """Where the event log is begun: with the oldest event that is kept, or behind the newest."""


class RelayReading(Reading, frozen=True, kw_only=True, omit_defaults=True):
    """How far a relay has read, whose turn it is, and how it goes."""

    host: str = ""
    pid: int = 0
    sent: int = 0
    """Messages, ever."""
    refused: int = 0
    """Messages, ever, that the message broker would not take for what they are: they were left out."""
    refused_job: str = ""
    """The job that the last of them told of."""
    gaps: int = 0
    """How often events were dropped from the log before they were read."""
    gap_at: str = ""
    """The cursor of the last gap, so that a page that is read again counts it once."""
    behind: Micros | None = None
    """The age of the event that it read last, when it read it; while it cannot publish, of the one that
    waits. 0 once it has caught up after that."""
    error: str = ""
    """Why it does not publish, if it does not."""
    warnings: tuple[str, ...] = ()
    """What its message broker's settings do not promise, and which queues never tell it anything."""
    as_of: Micros = 0


def check_to(to: str) -> str:
    """Return a routing key, subject or topic with places for what a job has, or refuse it."""
    try:
        used = {name for _, name, form, conversion in Formatter().parse(to) if name or form or conversion}
    except ValueError:
        used = {""}
    if strange := sorted(str(name) for name in used if name not in _PLACES):
        places = ", ".join(f"{{{name}}}" for name in _PLACES)
        raise InvalidOption(f"to={shown(to)}: {{{strange[0]}}} is no place; there are {places}")
    return to


def addressed(to: str, *, queue: str, task: str, lane: str, state: str) -> str:
    """Where the message about one job goes."""
    return to.format(queue=queue, task=task, lane=lane, state=state) if "{" in to else to


def declared_as(name: str) -> Subject:
    """The document of a relay: declared by the app, overridden by operators."""
    return Subject(Kind.RELAY, name)


def reading_of(name: str) -> Subject:
    """The document of how far it has read."""
    return Subject(Kind.READER, f"relay {name}")
