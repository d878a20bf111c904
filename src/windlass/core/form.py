"""The form of a type: how its values are written as JSON, and read. That of paths is here."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from windlass.core.fault import Fault, Unfit


class Form(NamedTuple):
    """How values of one type are written, and read."""

    encode: Callable[[Any], object]
    """To what msgspec can write."""
    decode: Callable[[Any], object]
    """From what msgspec has read. Whatever it raises says that the value does not fit."""
    schema: Callable[[], Mapping[str, Any]]
    """The JSON Schema, for the registry."""


def path_form(kind: Any) -> Form | None:
    """That of a class of `pathlib`, found by its name: the core does no I/O and does not import it."""
    if not isinstance(kind, type) or kind.__module__.partition(".")[0] != "pathlib":
        return None

    def decode(text: object) -> object:
        if not isinstance(text, str):
            raise Unfit(Fault((), f"expected str, got {_IN_JSON.get(type(text), 'object')}"))
        return kind(text)

    return Form(str, decode, lambda: {"type": "string", "format": "path"})


_IN_JSON: Mapping[type, str] = {int: "int", float: "float", bool: "bool", list: "array", type(None): "null"}
