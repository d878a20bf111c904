"""Settings as scripts read them: maps of what is said, with false for "no limit"."""

from typing import Any

import msgspec

from windlass.broker.redis.codes import EMITS
from windlass.broker.redis.records import pack, unpack
from windlass.core.limits import Rate
from windlass.core.settings import Body, LaneSettings, QueueSettings, Retention
from windlass.core.units import HOUR

REDIS_RETENTION = Retention(retention=HOUR, retention_count=10_000)
"""Finished jobs that this store keeps where a queue says nothing: memory is dear."""


def write_body(body: Body) -> bytes:
    """A layer of a document."""
    return body if isinstance(body, bytes) else pack(_said(body))


def read_queue(raw: bytes) -> QueueSettings:
    """A layer of a queue's document."""
    return QueueSettings(**_read(raw))


def read_lane(raw: bytes) -> LaneSettings:
    """A layer of a lane's document."""
    return LaneSettings(**_read(raw))


def write_retention(retention: Retention) -> dict[str, Any]:
    """The defaults of the namespace."""
    return {name: _write(name, value) for name, value in msgspec.structs.asdict(retention).items()}


def _said(body: QueueSettings | LaneSettings) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if value is not msgspec.UNSET:
            said[name] = _write(name, value)
    return said


def _write(name: str, value: Any) -> Any:
    if value is None:
        return False
    match name:
        case "rate" | "lane_rate":
            return [value.count, value.per, False if value.burst is None else value.burst, value.size]
        case "bands":
            return sorted([priority, weight] for priority, weight in value.items())
        case "emit":
            return EMITS.index(value)
        case "sequence":
            return int(value)
        case _:
            return value


def _read(raw: bytes) -> dict[str, Any]:
    return {name: _value(name, value) for name, value in unpack(raw).items()}


def _value(name: str, value: Any) -> Any:
    if value is False:
        return None
    match name:
        case "rate" | "lane_rate":
            return Rate(value[0], value[1], None if value[2] is False else value[2])
        case "bands":
            return dict(value)
        case "emit":
            return EMITS[int(value)]
        case "sequence":
            return bool(value)
        case _:
            return value
