"""Where the fields of a job come from: fixed values, or paths into a message.

    headers.tenant        a header of the message
    body.order.id         a value inside of its JSON body
    message.key           what the message broker says of it: key, subject, id, place
    message.subject.1     a token of the subject, between its dots; the first one is 0

A path that leads nowhere gives nothing: the job has what its task says.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

import msgspec

from windlass.bridges.message import Message
from windlass.core.option import shown
from windlass.errors import InvalidOption

Scalar: TypeAlias = str | int | float
Reader: TypeAlias = Callable[["Opened"], Scalar | None]

_OF_A_MESSAGE: Final = ("key", "subject", "id", "place")


class Unreadable(Exception):
    """Nobody can make a job of a message; the text says why, without its content."""


class Opened:
    """A message whose body is decoded when a path leads into it, and only then."""

    __slots__ = ("_body", "message")

    def __init__(self, message: Message) -> None:
        self.message = message
        self._body: object = msgspec.UNSET

    @property
    def body(self) -> object:
        """The body as JSON; `Unreadable`."""
        if self._body is msgspec.UNSET:
            if self.message.body is None:
                raise Unreadable("the message has no body (it is a tombstone)")
            try:
                self._body = msgspec.json.decode(self.message.body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise Unreadable("the body is not JSON") from None
        return self._body

    def within(self, steps: tuple[str, ...]) -> object:
        """The value of the body that a path leads to; None: there is none."""
        found: object = self.body
        for step in steps:
            if not isinstance(found, dict):
                return None
            found = cast("dict[str, Any]", found).get(step)
        return found


def is_path(text: object) -> bool:
    """Whether the text is a path, and not a value."""
    return isinstance(text, str) and text.partition(".")[0] in ("headers", "body", "message") and "." in text


def reader(text: Scalar, *, option: str) -> Reader:
    """Read a field: along a path, or always the same value. `InvalidOption`: the path has no meaning."""
    if not is_path(text):
        return lambda _: text
    path = cast("str", text)
    root, _, rest = path.partition(".")
    if not rest or rest.endswith(".") or ".." in rest:
        raise InvalidOption(f"{option}={shown(path)} is not a path such as headers.tenant or body.order.id")
    if root == "headers":
        return lambda opened: opened.message.headers.get(rest)
    if root == "body":
        steps = tuple(rest.split("."))
        return lambda opened: _scalar(opened.within(steps), path)
    return _of_message(rest, path, option)


def _of_message(rest: str, path: str, option: str) -> Reader:
    name, _, token = rest.partition(".")
    if name == "subject" and token.isdecimal():
        number = int(token)
        return lambda opened: _token(opened.message.subject, number)
    if token or name not in _OF_A_MESSAGE:
        known = ", ".join(f"message.{each}" for each in _OF_A_MESSAGE)
        raise InvalidOption(f"{option}={shown(path)}: a message has {known} and message.subject.0, .1, …")
    return lambda opened: getattr(opened.message, name) or None


def _token(subject: str, number: int) -> str | None:
    tokens = subject.split(".")
    return tokens[number] if number < len(tokens) else None


def _scalar(value: object, path: str) -> Scalar | None:
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    raise Unreadable(f"{path} is neither text nor a number")


def text_of(value: Scalar) -> str:
    """The value as text: every digit of a number counts, and a whole number has no point (7.0 is "7")."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def whole_of(value: Scalar, *, name: str) -> int:
    """The value as a whole number; `Unreadable`."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        number = 0.5
    if not number.is_integer():
        raise Unreadable(f"{name} is not a whole number")
    return int(number)


def readers_of(fields: Mapping[str, str], *, option: str) -> dict[str, Reader]:
    """The readers of several fields."""
    return {name: reader(text, option=f"{option}[{name}]") for name, text in fields.items()}
