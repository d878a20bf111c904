"""Intakes: what an app declares of one, and what the store keeps of it.

An intake takes messages from a message broker and makes jobs of them. Three things of it are in the store:
the offset of each log (`core.take`), a document of what was declared, with an operator's pause over it, and
a document of how it goes. `windlass.bridges.mapping` says how a message becomes a job.
"""

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from windlass.core.settings import Kind, Subject
from windlass.core.units import DAY, Micros, SessionId

FRONT = "front"
"""The format of the messages of a front door, and the name of its intake."""
FORMATS = ("messages", FRONT, "celery")
UNREAD = "windlass.unread"
"""The task of a dead letter whose message was to name its task and did not. No worker has it."""
INTAKE_HEADER = "windlass-intake"
"""The header of a job that says which intake it came by."""
PLACE_HEADER = "windlass-message"
"""The header of a job that says where its message stood: partition and offset, or id."""
_RUNS = "intake "
"""How the mark of an intake begins among the queues of a session."""


IDS_KNOWN: Micros = DAY
"""For how long after the end of its job the id of a message of a queue is known."""


class Fields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the options of a job come from: a path into the message (`headers.tenant`), or a fixed value.

    A text that begins with `headers.`, `body.` or `message.` is a path; any other is the value itself.
    Empty: what the task says.
    """

    task: str = ""
    queue: str = ""
    lane: str = ""
    priority: str | int = ""
    key: str = ""
    delay: str | int = ""
    """Seconds."""
    headers: Mapping[str, str] = {}
    """Headers of the job; those of the message that are not named here are left behind."""
    arguments: str | Mapping[str, str] = "body"
    """The path of the JSON object whose fields are the keyword arguments, or a path for each of these."""


class IntakeSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An intake as an app declares it. It is kept where operators see it, so it has no secrets."""

    name: str
    url: str
    """Without user, password and options."""
    format: Literal["messages", "front", "celery"] = "messages"
    tasks: tuple[str, ...] = ()
    """The tasks that a message may name, or the one that is fixed; no other is ever enqueued. Empty: all
    (front doors, whose messages this app's own producers have written).
    """
    fields: Fields = Fields()
    start: Literal["first", "last"] = "first"
    """Where a log without an offset is begun."""
    window: Micros | None = None
    """For how long after the end of its job the `key` is known; where there is none, the id of a message of a
    queue. None: the key as its task says, the id for `IDS_KNOWN`.
    """
    tombstones: Literal["dead", "skip"] = "dead"
    """What becomes of a message of Kafka without a body, which says that what its key names is gone."""
    backlog: int = 10_000
    """Reading stops while the queues that it fills have so many ready jobs."""


class Control(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What operators have said of an intake or a relay; an override of its document."""

    paused: bool = False


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one log, or one reader of a queue, goes. Each is written by its owner."""

    owner: SessionId = ""
    host: str = ""
    pid: int = 0
    at: str = ""
    """The offset; empty for a queue."""
    place: str = ""
    """Of the last message that was taken."""
    lag: int | None = None
    taken: int = 0
    """Messages since its owner began."""
    dead: int = 0
    """Those of them that were born dead."""
    rate: float = 0.0
    """Messages a second, of late."""
    error: str = ""
    """What goes wrong, if something does."""
    waits_for: str = ""
    """Why it reads nothing although nothing is wrong with it: it is paused, or there is no room for jobs."""
    stopped: bool = False
    """It does not go on by itself: an operator has to say where to go on."""
    as_of: Micros = 0


class IntakeStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an intake goes."""

    partitions: Mapping[str, PartitionStatus] = {}
    """By the partition of a log. A queue has any number of readers: by the session of each."""
    warnings: tuple[str, ...] = ()
    """What its message broker's settings do not promise."""


def declared_as(name: str) -> Subject:
    """The document of an intake: declared by the app, overridden by operators."""
    return Subject(Kind.INTAKE, name)


def status_of(name: str) -> Subject:
    """The document of how an intake goes."""
    return Subject(Kind.READER, f"intake {name}")


def runs_intake(name: str) -> str:
    """What a session has among its queues if its process runs an intake. No queue is called so."""
    return f"{_RUNS}{name}"


def intakes_run_by(queues: Collection[str]) -> tuple[str, ...]:
    """The intakes that the process of a session runs. Such a session has no slots, and is no worker's."""
    return tuple(mark.removeprefix(_RUNS) for mark in queues if mark.startswith(_RUNS))


def source_name(intake: str, partition: str) -> str:
    """The name under which the offset of a log is kept."""
    return f"{intake}/{partition}"
