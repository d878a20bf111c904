"""The envelope in which Celery (kombu) puts a message into a list of Redis: JSON around a body in base64."""

import base64
import binascii
import uuid
from typing import Any, Final, cast

import msgspec

from windlass.bridges.message import Message, Outgoing
from windlass.bridges.redis_lists.place import turned

_KEPT: Final = ("correlation_id", "reply_to")
_PERSISTENT = 2


class _Envelope(msgspec.Struct, rename="kebab"):
    body: str
    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    properties: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Envelope)


def opened(raw: bytes, *, subject: str, after: str) -> Message:
    """The message of an envelope. What is no envelope is a body without id and headers."""
    try:
        envelope = _decoder.decode(raw)
        said = envelope.properties or {}
        body = _body(envelope.body, said.get("body_encoding"))
    except (msgspec.MsgspecError, UnicodeError, binascii.Error, RecursionError):
        return Message(body=raw, subject=subject, after=after)
    table = envelope.headers or {}
    written = {"content_type": envelope.content_type, "content_encoding": envelope.content_encoding}
    named = said.get("message_id") or said.get("delivery_tag")
    priority = said.get("priority")
    return Message(
        body=body,
        headers={name: value for name, value in table.items() if isinstance(value, str)},
        table=table,
        properties={
            name: value
            for name, value in {**written, **{kept: said.get(kept) for kept in _KEPT}}.items()
            if isinstance(value, str) and value
        },
        subject=subject,
        id=named if isinstance(named, str) and named else None,
        # 0 goes first there, and is what Celery writes if it was told nothing: then the task says.
        priority=-priority if isinstance(priority, int) and priority > 0 else None,
        after=after,
    )


def enclosed(message: Outgoing, *, to: str) -> bytes:
    """The envelope of a message."""
    properties = {
        "message_id": message.id,
        "correlation_id": message.properties.get("correlation_id") or message.id,
        "reply_to": message.properties.get("reply_to", ""),
        "delivery_mode": _PERSISTENT,
        "delivery_info": {"exchange": "", "routing_key": to},
        "priority": turned(message.priority or 0),
        "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }
    return msgspec.json.encode(
        _Envelope(
            body=base64.b64encode(message.body or b"").decode(),
            content_type=message.properties.get("content_type", "application/data"),
            content_encoding=message.properties.get("content_encoding", "binary"),
            headers={**message.headers, **message.table},
            properties=cast("dict[str, Any]", properties),
        )
    )


def _body(text: str, encoding: object) -> bytes:
    return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()
