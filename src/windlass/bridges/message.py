"""What a message broker carries, in and out."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.core.units import Micros


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a source has read it."""

    body: bytes | None
    """None: a tombstone of Kafka, which says that what its key names is gone."""
    headers: Mapping[str, str] = {}
    """Those whose values are text. Others are left out."""
    table: Mapping[str, Any] = {}
    """All headers with their types, where the message broker's headers have types (AMQP, kombu)."""
    properties: Mapping[str, str] = {}
    """What AMQP has beside headers: `content_type`, `content_encoding`, `correlation_id`, `reply_to`."""
    key: str = ""
    """What its producer partitions by: the key of Kafka, the group of a FIFO queue of SQS."""
    subject: str = ""
    """Where it was sent: topic, routing key, subject."""
    id: str | None = None
    """What the message broker or its producer names it by: two with the same id are one message."""
    priority: int | None = None
    """As AMQP has it: higher goes first."""
    at: Micros | None = None
    """When the message broker took it, by its clock."""
    place: str = ""
    """Where it stands in its source, for people: `3/1042` is offset 1042 of partition 3."""
    after: str = ""
    """A log: the offset behind this message. A queue: what acknowledges it; the adapter alone reads it."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a sink sends it."""

    id: str
    """The same for every try: it goes where the message broker, or its consumers, look for repeats."""
    body: bytes | None
    to: str = ""
    """Routing key, subject, or topic; empty: what the URL of the sink says."""
    key: str = ""
    """Messages of one key stay in order, where the message broker knows keys."""
    headers: Mapping[str, str] = {}
    table: Mapping[str, Any] = {}
    """Headers with types, for message brokers that have them; others leave them out."""
    properties: Mapping[str, str] = {}
    """As those of `Message`."""
    priority: int | None = None
