"""A message of RabbitMQ's in our words, and the other way round."""

from datetime import UTC, datetime
from typing import Any, Final, cast

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from windlass.bridges.message import Message, Outgoing
from windlass.core.units import SECOND, Micros

_PERSISTENT = 2
_KEPT: Final = ("content_type", "content_encoding", "correlation_id", "reply_to")
_TOOK_AT = "timestamp_in_ms"
"""The header in which RabbitMQ itself says when it took a message, if it is set to do so. Where it does not,
the sink has said so: the property for this knows whole seconds only.
"""


def message_of(delivered: DeliveredMessage, after: str) -> Message:
    """A message as it was delivered; `after` is what acknowledges it."""
    said = delivered.header.properties
    table = cast("dict[str, Any]", said.headers or {})
    return Message(
        body=delivered.body,
        headers={name: value for name, value in table.items() if isinstance(value, str)},
        table=table,
        properties={name: value for name in _KEPT if (value := getattr(said, name))},
        subject=delivered.routing_key or "",
        id=said.message_id or None,
        priority=said.priority,
        at=_at(table.get(_TOOK_AT), said.timestamp),
        after=after,
    )


def properties_of(message: Outgoing) -> Basic.Properties:
    """What a message has beside its body. It is kept on disk, where its queue is durable."""
    now = datetime.now(UTC)
    milliseconds = int(now.timestamp() * 1_000)
    return Basic.Properties(
        message_id=message.id,
        delivery_mode=_PERSISTENT,
        priority=message.priority,
        timestamp=now,
        headers={_TOOK_AT: milliseconds, **message.headers, **message.table},
        **{name: message.properties[name] for name in _KEPT if name in message.properties},
    )


def _at(milliseconds: object, timestamp: object) -> Micros | None:
    if isinstance(milliseconds, int) and not isinstance(milliseconds, bool) and milliseconds > 0:
        return milliseconds * (SECOND // 1_000)
    if isinstance(timestamp, datetime):
        return int(timestamp.timestamp()) * SECOND
    return None
