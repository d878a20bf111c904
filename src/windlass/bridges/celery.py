"""Messages of Celery's, read and written: protocol 2, JSON only. Nothing is ever unpickled.

A message has its task, id, times and retries in its headers, and `[args, kwargs, embed]` in its body. What
Celery does after the end of a task (callbacks, chains, chords, groups) is not taken over: such a message is
unreadable, and becomes a dead letter with the reason.
"""

import base64
import binascii
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from windlass.bridges.fields import Unreadable
from windlass.bridges.message import Message, Outgoing
from windlass.core.units import MAX_INTEGER, SECOND, Micros

_JSON = "application/json"
_CODINGS = ("", "utf-8", "utf8", "us-ascii", "ascii", "binary")
_OURS: Final = frozenset(
    (
        "argsrepr",
        "compression",
        "eta",
        "expires",
        "group",
        "group_index",
        "id",
        "ignore_result",
        "kwargsrepr",
        "lang",
        "meth",
        "origin",
        "parent_id",
        "replaced_task_nesting",
        "retries",
        "root_id",
        "sent_event",
        "shadow",
        "stamped_headers",
        "stamps",
        "task",
        "timelimit",
    )
)
"""The headers of the protocol; others are those of the application."""
_LATER: Final = {
    "callbacks": "callbacks (link=)",
    "errbacks": "callbacks (link_error=)",
    "chain": "what follows it in a chain",
    "chord": "a chord",
}
_SPECIAL: Final = frozenset(("__type__", "__value__"))


class CeleryCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call of a task, as a message of Celery's has it."""

    id: str
    task: str
    args: Sequence[Any] = ()
    """Values of JSON: what Celery marks as a datetime, a date, a time, a UUID, a Decimal or bytes is the text
    that stands for it in JSON.
    """
    kwargs: Mapping[str, Any] = {}
    eta: Micros | None = None
    """Not to be run earlier."""
    expires: Micros | None = None
    """Not to be run later."""
    retries: int = 0
    """How often Celery has tried it again already."""
    priority: int | None = None
    headers: Mapping[str, str] = {}
    """Those of the application whose values are text."""


def read(message: Message) -> CeleryCall:
    """The call that a message asks for; `Unreadable`: it is none, or asks for more than can be honoured."""
    given = {**message.headers, **message.table}
    task, identity = given.get("task"), given.get("id")
    if not isinstance(task, str) or not isinstance(identity, str) or not task or not identity:
        raise Unreadable(
            "it is no message of Celery's protocol 2: it has no headers task and id (task_protocol = 2)"
        )
    _refuse_coding(message, given)
    if given.get("group") is not None:
        raise Unreadable("it is part of a group: Windlass has flows for that")
    args, kwargs = _body(message.body or b"")
    return CeleryCall(
        id=identity,
        task=task,
        args=args,
        kwargs=kwargs,
        eta=_time(given.get("eta"), "eta"),
        expires=_time(given.get("expires"), "expires"),
        retries=_retries(given.get("retries")),
        priority=message.priority,
        headers={name: value for name, value in message.headers.items() if name not in _OURS},
    )


def write(call: CeleryCall, *, to: str = "", key: str = "") -> Outgoing:
    """The message that lets a Celery worker run a task; its arguments are values of JSON. `to` is the routing
    key, or the list of Redis.
    """
    return Outgoing(
        id=call.id,
        body=msgspec.json.encode([list(call.args), dict(call.kwargs), dict.fromkeys(_LATER)]),
        to=to,
        key=key,
        priority=call.priority,
        headers=call.headers,
        table={
            "lang": "py",
            "task": call.task,
            "id": call.id,
            "root_id": call.id,
            "parent_id": None,
            "group": None,
            "eta": None if call.eta is None else _written(call.eta),
            "expires": None if call.expires is None else _written(call.expires),
            "retries": call.retries,
            "timelimit": [None, None],
            "ignore_result": False,
            "origin": "windlass",
        },
        properties={
            "content_type": _JSON,
            "content_encoding": "utf-8",
            "correlation_id": call.id,
            "reply_to": "",
        },
    )


def _refuse_coding(message: Message, given: Mapping[str, Any]) -> None:
    kind = message.properties.get("content_type", "")
    if kind != _JSON:
        raise Unreadable(
            f'its body is "{_short(kind)}": only JSON is read (task_serializer = "json"), and nothing is '
            "unpickled"
        )
    coding = message.properties.get("content_encoding", "")
    if coding.lower() not in _CODINGS:
        raise Unreadable(f'its body is in "{_short(coding)}": only UTF-8 is read')
    if given.get("compression"):
        raise Unreadable("its body is compressed: switch task_compression off")


def _body(body: bytes) -> tuple[list[Any], dict[str, Any]]:
    try:
        args, kwargs, later = msgspec.json.decode(body, type=tuple[list[Any], dict[str, Any], Any])
        _refuse_later(later)
        return [_plain(value) for value in args], {name: _plain(value) for name, value in kwargs.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Unreadable("its body is not [args, kwargs, embed] in JSON") from None
    except RecursionError:
        raise Unreadable("its body is nested too deeply") from None


def _refuse_later(later: object) -> None:
    asked = cast("dict[str, Any]", later) if isinstance(later, dict) else {}
    for name, what in _LATER.items():
        if asked.get(name):
            raise Unreadable(f"it has {what}: Windlass has flows for that")


def _plain(value: Any) -> Any:
    """A value of JSON, without the marks with which Celery says of a text what it stands for."""
    if isinstance(value, list):
        return [_plain(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    if table.keys() == _SPECIAL:
        return _unmarked(table["__type__"], table["__value__"])
    return {name: _plain(each) for name, each in table.items()}


def _unmarked(kind: object, value: Any) -> str:
    try:
        match kind, value:
            case "uuid", {"hex": str(digits)}:
                return str(uuid.UUID(hex=digits))
            case "bytes", str():
                return base64.b64encode(value.encode()).decode()
            case "base64", str():
                base64.b64decode(value, validate=True)
                return value
            case "datetime" | "date" | "time" | "decimal", str():
                return value
            case _:
                pass
    except (ValueError, binascii.Error, UnicodeEncodeError):
        pass
    raise Unreadable(f'an argument is of a type that JSON has not: "{_short(str(kind))}"')


def _time(value: Any, name: str) -> Micros | None:
    """A time of ISO 8601; without a zone it is UTC, as Celery has it unless told otherwise."""
    if value is None or value == "":
        return None
    try:
        when = datetime.fromisoformat(value)
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
        since = when - datetime(1970, 1, 1, tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise Unreadable(f"{name} is not a time in ISO 8601") from None
    at = (since.days * 86_400 + since.seconds) * SECOND + since.microseconds
    if at > MAX_INTEGER:
        raise Unreadable(f"{name} is after the year 2255, which no store can keep")
    return at


def _written(at: Micros) -> str:
    seconds, rest = divmod(at, SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).isoformat()


def _retries(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unreadable("retries is not a count")
    return value


def _short(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:60]
