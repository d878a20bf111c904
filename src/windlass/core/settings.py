"""Settings: small documents in two layers, declared in code and overridden by operators.

An override wins field by field until it is reset; both layers are shown. A declaration replaces its whole
document and carries the app's name and an integer revision: a worker changes only its own app's and never a
newer revision's. Stores read queues and lanes; every other kind is bytes to them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from windlass.core.event import Emit
from windlass.core.limits import Rate, check_rate
from windlass.core.order import MAX_WEIGHT
from windlass.core.units import SECOND, Micros
from windlass.errors import InvalidOption

MAX_BANDS = 16


class Kind(StrEnum):
    """What a document is about."""

    QUEUE = "queue"
    LANE = "lane"
    TASK = "task"
    """The registry: which tasks exist, with their JSON Schema."""
    STRIKE = "strike"
    """Jobs that workers are to hold, matched by the worker after claim."""
    KEY = "key"
    """API keys, hashed."""
    SECRET = "secret"
    ALERT = "alert"
    AUDIT = "audit"
    """What operators did to many jobs at once."""
    REQUEST = "request"
    """What an `Idempotency-Key` of the HTTP API stands for, for a day."""
    LOGIN = "login"
    """Logins of the HTTP API that somebody has logged out of, until their cookies would have ended."""
    READER = "reader"
    """The stored cursor of a reader of the event log."""
    WEBHOOK = "webhook"
    """Whom to tell of the ends of jobs."""
    INTAKE = "intake"
    """From which message broker jobs are taken, and how its messages become jobs."""
    RELAY = "relay"
    """To which message broker the ends of jobs are told."""
    OPERATION = "operation"
    """What is being done to many jobs in the background, and how far it is."""


class Subject(msgspec.Struct, frozen=True, order=True):
    """The name of a document. For a lane: its queue's name, and the lane."""

    kind: Kind
    name: str
    lane: str = ""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said of a queue. UNSET: not said in this layer. None: said to have no limit."""

    concurrency: int | None | UnsetType = UNSET
    rate: Rate | None | UnsetType = UNSET
    lane_concurrency: int | None | UnsetType = UNSET
    lane_rate: Rate | None | UnsetType = UNSET
    order: Literal["band", "lane"] | UnsetType = UNSET
    bands: Mapping[int, int] | None | UnsetType = UNSET
    """Weights by priority; None: strict."""
    age_step: Micros | None | UnsetType = UNSET
    sequence: bool | UnsetType = UNSET
    emit: Emit | UnsetType = UNSET
    retention: Micros | UnsetType = UNSET
    retention_count: int | None | UnsetType = UNSET
    result_ttl: Micros | UnsetType = UNSET
    dead_retention: Micros | UnsetType = UNSET


class LaneSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said of one lane; a limit that is not said here is the queue's `lane_` limit."""

    weight: int | UnsetType = UNSET
    concurrency: int | None | UnsetType = UNSET
    rate: Rate | None | UnsetType = UNSET


Body: TypeAlias = QueueSettings | LaneSettings | bytes


class QueuePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue that are in force."""

    concurrency: int | None = None
    rate: Rate | None = None
    lane_concurrency: int | None = None
    lane_rate: Rate | None = None
    order: Literal["band", "lane"] = "band"
    bands: Mapping[int, int] | None = None
    age_step: Micros | None = None
    sequence: bool = False
    emit: Emit = Emit.NONE
    retention: Micros
    retention_count: int | None
    result_ttl: Micros
    dead_retention: Micros

    @property
    def one_ring(self) -> bool:
        """Whether lanes come before bands: asked for, or implied by aging and by sequence."""
        return self.order == "lane" or self.age_step is not None or self.sequence

    @property
    def layout(self) -> tuple[bool, Micros | None, bool]:
        """What decides where a waiting job is filed; it cannot change under jobs that are filed already."""
        return (self.one_ring, self.age_step, self.sequence)


class LanePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a lane that are in force."""

    weight: int = 1
    concurrency: int | None = None
    rate: Rate | None = None


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long finished jobs are kept where a queue says nothing; each store has its own defaults."""

    retention: Micros = 24 * 3600 * SECOND
    retention_count: int | None = None
    result_ttl: Micros = 3600 * SECOND
    dead_retention: Micros = 14 * 86_400 * SECOND


_S = TypeVar("_S", QueueSettings, LaneSettings)


def overlay(declared: _S | None, override: _S | None) -> _S | None:
    """The declared document with the fields that the override says."""
    if declared is None or override is None:
        return override if declared is None else declared
    return msgspec.structs.replace(declared, **_said(override))


def queue_policy(settings: QueueSettings | None, defaults: Retention) -> QueuePolicy:
    """The policy that a queue's settings amount to."""
    return msgspec.convert({**msgspec.structs.asdict(defaults), **_said(settings)}, QueuePolicy)


def lane_policy(settings: LaneSettings | None, queue: QueuePolicy) -> LanePolicy:
    """The policy of a lane: its own settings, else the queue's for its lanes. `sequence` implies one at a
    time.
    """
    said = _said(settings)
    policy = LanePolicy(
        weight=said.get("weight", 1),
        concurrency=said.get("concurrency", queue.lane_concurrency),
        rate=said.get("rate", queue.lane_rate),
    )
    return msgspec.structs.replace(policy, concurrency=1) if queue.sequence else policy


def _said(settings: QueueSettings | LaneSettings | None) -> dict[str, Any]:
    if settings is None:
        return {}
    return {
        name: value for name in settings.__struct_fields__ if (value := getattr(settings, name)) is not UNSET
    }


def check_queue_settings(settings: QueueSettings) -> QueueSettings:
    """Refuse settings that have no meaning. Called at every door, so stores need not."""
    for name in ("concurrency", "lane_concurrency", "retention_count"):
        _check_count(name, getattr(settings, name))
    for rate in (settings.rate, settings.lane_rate):
        if isinstance(rate, Rate):
            check_rate(rate)
    for name in ("retention", "result_ttl", "dead_retention"):
        value = getattr(settings, name)
        if value is not UNSET and value < 0:
            raise InvalidOption(f"{name} must not be negative, got {value} µs")
    if isinstance(settings.age_step, int) and settings.age_step < SECOND:
        raise InvalidOption(f"age_step must be at least 1 second, got {settings.age_step} µs")
    if isinstance(settings.bands, Mapping):
        _check_bands(settings.bands)
        if isinstance(settings.age_step, int):
            raise InvalidOption("bands and age_step cannot be used together")
    return settings


def check_lane_settings(settings: LaneSettings) -> LaneSettings:
    """Refuse settings that have no meaning."""
    _check_count("concurrency", settings.concurrency)
    if isinstance(settings.rate, Rate):
        check_rate(settings.rate)
    if isinstance(settings.weight, int) and not 1 <= settings.weight <= MAX_WEIGHT:
        raise InvalidOption(f"weight must be from 1 to {MAX_WEIGHT}, not {settings.weight}")
    return settings


def _check_count(name: str, value: object) -> None:
    if isinstance(value, int) and value < 1:
        raise InvalidOption(
            f"{name} must be at least 1, or None for no limit; got {value}. To stop work, pause"
        )


def _check_bands(bands: Mapping[int, int]) -> None:
    if len(bands) > MAX_BANDS:
        raise InvalidOption(f"bands can list at most {MAX_BANDS} priorities, got {len(bands)}")
    if not bands or any(not 1 <= weight <= MAX_WEIGHT for weight in bands.values()):
        raise InvalidOption(
            f"bands must give each priority a weight from 1 to {MAX_WEIGHT}, got {dict(bands)}"
        )


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """A document as code declares it."""

    subject: Subject
    body: Body
    app: str
    revision: int = 0


class Change(StrEnum):
    """What became of a declaration or an override."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    OTHER_APP = "other app"
    """It belongs to the app that declared it first."""
    NEWER_REVISION = "newer revision"
    """A newer revision of the app has declared it."""
    CONFLICT = "conflict"
    """Its version is not the expected one: read again."""
    IN_USE = "in use"
    """It would change the layout (order, age_step, sequence) of a queue with unfinished jobs: drain it first.
    """
    UNKNOWN_QUEUE = "unknown queue"


class Changed(msgspec.Struct, frozen=True):
    """The answer to a declaration or an override, with the version that stands now."""

    change: Change
    version: int


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document with both its layers."""

    subject: Subject
    declared: Body | None
    override: Body | None
    app: str
    revision: int
    version: int
    """Grows with each change of the document; for compare-and-set."""
