"""Overriding settings of a queue or a lane: what was said, read field by field."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from windlass.api.problems import field, invalid
from windlass.core.settings import LaneSettings, QueueSettings

S = TypeVar("S", QueueSettings, LaneSettings)


def overrides(change: msgspec.Struct, kind: type[S], read: Callable[[Any], S], check: Callable[[S], S]) -> S:
    """The settings that a change names; null is no limit. Each field is read by itself, so that a refusal can
    name it.
    """
    said: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        value = getattr(change, name)
        if value is None:
            said[name] = None
        elif value is not UNSET:
            with field(name):
                said[name] = getattr(read({name: value}), name)
    if not said:
        raise invalid("say what to override: " + ", ".join(kind.__struct_fields__))
    return check(kind(**said))


def on_record(change: msgspec.Struct) -> dict[str, str]:
    """The same for the record of what operators did."""
    return {name: str(value) for name, value in msgspec.to_builtins(change, str_keys=True).items()}
