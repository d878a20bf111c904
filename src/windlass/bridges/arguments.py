"""Where the arguments of a job come from: one JSON object of the message, or a path for each of them.

arguments="body.order"                                    the fields of this object
arguments={"order": "body.id", "tenant": "headers.tenant"}    these alone, whatever else there is
arguments={"event": "body"}                               the body itself, for a model
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, cast

import msgspec

from windlass.bridges.fields import Opened, Unreadable, is_path, reader
from windlass.core.option import shown
from windlass.errors import InvalidOption

Said: TypeAlias = str | Mapping[str, str]
_BODY = "body"


class Arguments:
    """Reads the arguments of a message."""

    def __init__(self, said: Said) -> None:
        """`InvalidOption`: this leads nowhere in any message."""
        if isinstance(said, str):
            self._read = _object_at(said)
        elif said and isinstance(said, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._read = _each_by_itself(said)
        else:
            raise InvalidOption(
                f"arguments={shown(said)}: give the path of an object, or a path for each argument"
            )

    def of(self, opened: Opened) -> bytes:
        """A JSON object; `Unreadable`: the message has none."""
        if opened.message.body is None:
            raise Unreadable("the message has no body (it is a tombstone)")
        return self._read(opened)


def _object_at(path: str) -> Callable[[Opened], bytes]:
    if path == _BODY:
        return lambda opened: opened.message.body or b""
    steps = _steps(path, "arguments")

    def read(opened: Opened) -> bytes:
        found = opened.within(steps)
        if found is None:
            raise Unreadable(f"the message has no {path}")
        return msgspec.json.encode(found)

    return read


def _each_by_itself(said: Mapping[str, str]) -> Callable[[Opened], bytes]:
    readers = {name: _value_at(path, f"arguments[{name}]") for name, path in said.items()}

    def read(opened: Opened) -> bytes:
        """A path that leads nowhere gives no argument: the task may have a default."""
        found = {name: value for name, at in readers.items() if (value := at(opened)) is not None}
        return msgspec.json.encode(found)

    return read


def _value_at(path: object, option: str) -> Callable[[Opened], object]:
    if path == _BODY:
        return lambda opened: opened.body
    if not is_path(path):
        raise InvalidOption(f"{option}={shown(path)} is not a path such as body.id, headers.tenant or body")
    text = cast("str", path)
    if text.startswith("body."):
        steps = _steps(text, option)
        return lambda opened: opened.within(steps)
    return reader(text, option=option)


def _steps(path: str, option: str) -> tuple[str, ...]:
    root, *steps = path.split(".")
    if root != _BODY or not all(steps):
        raise InvalidOption(
            f"{option}={shown(path)}: arguments are in the body, as in arguments='body.order'"
        )
    return tuple(steps)
