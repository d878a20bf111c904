"""A record of Kafka as a message."""

from collections.abc import Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from windlass.bridges.kafka.offsets import Position
from windlass.bridges.message import Message
from windlass.core.units import MILLISECOND


def message_of(record: Any, partition: int) -> Message:
    """What a record says. It has no id: where it stands tells it from all others."""
    offset, epoch = record.offset(), record.leader_epoch()
    kind, at = record.timestamp()
    key = record.key()
    return Message(
        body=record.value(),
        headers=_texts(record),
        key="" if key is None else key.decode(errors="backslashreplace"),
        subject=record.topic() or "",
        at=None if kind == TIMESTAMP_NOT_AVAILABLE or at < 0 else at * MILLISECOND,
        place=f"{partition}/{offset}",
        after=str(Position(offset + 1, None if epoch is None or epoch < 0 else epoch)),
    )


def _texts(record: Any) -> dict[str, str]:
    """Those headers that are text; of two with one name the last one counts, as for Kafka's own clients."""
    try:
        headers: Iterable[tuple[str, bytes | None]] | None = record.headers()
    except UnicodeDecodeError:
        return {}  # a name that is no text; the client gives none of them then
    found: dict[str, str] = {}
    for name, value in headers or ():
        try:
            found[name] = "" if value is None else value.decode()
        except UnicodeDecodeError:
            found.pop(name, None)
    return found
