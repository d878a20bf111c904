"""Messages as SQS takes them: text with at most ten attributes, whose names are limited and values not empty.

What fits is sent as it is, so that others can read it. The rest is in attributes of ours:

    windlass-id          the id, by which readers tell repeats
    windlass-encoding    `base64`: the body is binary; `empty`, `none`: there is no body, or none at all
    windlass-key         the key, where it cannot be a group
    windlass-headers     a JSON object of the headers that cannot be attributes
"""

import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from windlass.bridges.message import Message, Outgoing

ID: Final = "windlass-id"
_ENCODING: Final = "windlass-encoding"
_KEY: Final = "windlass-key"
_HEADERS: Final = "windlass-headers"
_OURS: Final = (ID, _ENCODING, _KEY, _HEADERS)
_MOST: Final = 10 - len(_OURS)
_TEXT: Final = re.compile("[\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")
"""What SQS takes, but for the carriage return, which not every way of writing it keeps."""
_NAME: Final = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_LONGEST_NAME: Final = 256
_GROUP: Final = re.compile(r"[!-~]{1,128}")
"""What can name a group or a repeat: letters, digits and punctuation of ASCII."""


def entry_of(message: Outgoing, number: int, *, fifo: bool) -> dict[str, Any]:
    """A message as an entry of a batch. In a FIFO queue the key is the group, and the id tells repeats."""
    body, encoding = _written(message.body)
    attributes = dict(_attributes(message, encoding, fifo=fifo))
    entry: dict[str, Any] = {
        "Id": str(number),
        "MessageBody": body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
        },
    }
    if fifo:
        entry["MessageGroupId"] = _group(message.key or message.id)
        entry["MessageDeduplicationId"] = _group(message.id)
    return entry


def size_of(entry: Mapping[str, Any]) -> int:
    """Bytes of an entry as SQS counts them: its body, and names, types and values of its attributes."""
    return len(entry["MessageBody"].encode()) + sum(
        len(name.encode()) + len(value["DataType"]) + len(value["StringValue"].encode())
        for name, value in entry["MessageAttributes"].items()
    )


def message_of(said: Mapping[str, Any], queue: str) -> Message:
    """A message that was received. What is not written as ours are is kept as it came."""
    attributes = dict(_texts(said.get("MessageAttributes", {})))
    system: Mapping[str, str] = said.get("Attributes", {})
    ours = {name: attributes.pop(name) for name in _OURS if name in attributes}
    sent = system.get("SentTimestamp")
    return Message(
        body=_read(said.get("Body", ""), ours.get(_ENCODING)),
        headers={**attributes, **_packed(ours.get(_HEADERS))},
        key=ours.get(_KEY, system.get("MessageGroupId", "")),
        subject=queue,
        # SQS names a message anew each time it is sent, and not each time it is handed out.
        id=ours.get(ID) or said["MessageId"],
        at=int(sent) * 1_000 if sent else None,
        place=f"{queue}/{said['MessageId']}",
        after=said["ReceiptHandle"],
    )


def _attributes(message: Outgoing, encoding: str, *, fifo: bool) -> Iterator[tuple[str, str]]:
    yield ID, message.id
    if encoding:
        yield _ENCODING, encoding
    if message.key and (not fifo or _group(message.key) != message.key):
        yield _KEY, message.key
    plain = {name: value for name, value in message.headers.items() if _fits(name, value)}
    plain = dict(list(plain.items())[:_MOST])
    yield from plain.items()
    if rest := {name: value for name, value in message.headers.items() if name not in plain}:
        yield _HEADERS, msgspec.json.encode(rest).decode()


def _fits(name: str, value: str) -> bool:
    return (
        len(name) <= _LONGEST_NAME
        and name not in _OURS
        and _NAME.fullmatch(name) is not None
        and _TEXT.fullmatch(value) is not None
    )


def _written(body: bytes | None) -> tuple[str, str]:
    """A body as text, and how it was written; empty: as it is."""
    if not body:
        return "-", "none" if body is None else "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = ""
    return (text, "") if _TEXT.fullmatch(text) else (b64encode(body).decode(), "base64")


def _read(text: str, encoding: str | None) -> bytes | None:
    if encoding == "base64":
        try:
            return b64decode(text, validate=True)
        except (NotBase64, ValueError):
            return text.encode()
    return {"none": None, "empty": b""}.get(encoding or "", text.encode(errors="replace"))


def _texts(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Attributes that are text or numbers."""
    for name, value in attributes.items():
        if isinstance(text := value.get("StringValue"), str):
            yield name, text


def _packed(text: str | None) -> dict[str, str]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _group(text: str) -> str:
    """The text if it can be the name of a group, else one that is the same for the same text."""
    if _GROUP.fullmatch(text):
        return text
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=20).hexdigest()
