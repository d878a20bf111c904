"""Where in a value the trouble is: paths and reasons for messages.

Nothing here runs for a good call of a usual kind. The checks that notice trouble are cheap (`codec`,
`signature`), so that these walks may take their time and be exact.
"""

import dataclasses
import datetime as dt
import enum
import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias, cast

import msgspec

from windlass.core.codec import LEAST_INTEGER, MAX_DEPTH, MOST_INTEGER, brief
from windlass.core.option import shown

Path: TypeAlias = tuple[str | int, ...]
"""Keys, field names and indexes that lead from an argument to a part of it."""

_LONGEST_PATH = 10
_LONGEST_NAME = 60


class Fault(NamedTuple):
    """What is wrong, and where."""

    path: Path
    reason: str


class Unfit(ValueError):
    """A value that is not of its type: what is wrong, and where in the value."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"{written(fault.path)}{': ' if fault.path else ''}{fault.reason}")
        self.fault = fault


class Writer(Protocol):
    """Writes values as JSON; see `windlass.core.forms`."""

    def encode(self, value: object, /) -> bytes:
        """Any value as JSON, or an exception of any kind."""
        ...

    def simpler(self, value: object, /) -> object:
        """What is written for a value of a type with a form of its own; any other value as it is."""
        ...


TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels; flatten it, or pass it as text"


def written(path: Path) -> str:
    """A path as it stands in a message: `[3]["price"]`."""
    steps = [f"[{step}]" if isinstance(step, int) else f"[{quoted(step)}]" for step in path]
    if len(steps) > _LONGEST_PATH:
        steps = [*steps[: _LONGEST_PATH - 3], "…", *steps[-2:]]
    return "".join(steps)


def quoted(name: str) -> str:
    """A name between double quotes, short, with everything unprintable escaped."""
    name = str.__str__(name)
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 1]}…"
    return f'"{repr(name)[1:-1]}"'


def described(value: object) -> str:
    """The type of a value, as a message names it."""
    return "None" if value is None else _WRITTEN.get(type(value).__name__, type(value).__name__)


_WRITTEN = {"PosixPath": "Path", "WindowsPath": "Path"}
"""How annotations write classes that nobody names."""


def fields_of(value: object) -> tuple[str, ...] | None:
    """The names of the fields of a Struct, a dataclass, an attrs object or a model of Pydantic's; None for
    anything else.
    """
    if isinstance(value, type):
        return None
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    kind = type(value)
    if hasattr(kind, "__pydantic_validator__"):
        return (*getattr(kind, "model_fields", ()), *(getattr(value, "__pydantic_extra__", None) or ()))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(attribute.name for attribute in attributes)


# --- a value that may never be stored -----------------------------------------------------------------------


def find_fault(value: object, writer: Writer, path: Path = (), trail: tuple[int, ...] = ()) -> Fault | None:
    """The first part of a value that may never be stored, whatever its annotation; None if there is none."""
    try:
        simpler = writer.simpler(value)
    except Exception as error:  # noqa: BLE001 - users' code
        return Fault(path, f"this {described(value)} cannot be written as JSON: {brief(error)}")
    if simpler is not value and len(trail) < MAX_DEPTH:
        return find_fault(simpler, writer, path, (*trail, id(value)))
    parts = _parts(value)
    if parts is None:
        reason = _leaf_reason(value, writer)
        return Fault(path, reason) if reason else None
    if id(value) in trail:
        return Fault(path, f"this {described(value)} contains itself, which JSON cannot express")
    if len(trail) == MAX_DEPTH:
        return Fault(path, TOO_DEEP)
    trail = (*trail, id(value))
    for step, part in parts:
        if isinstance(value, dict) and not _surely_fine(step) and (reason := _key_reason(step, writer)):
            return Fault(path, reason)
        if _surely_fine(part):
            continue
        # The elements of a set have no place: the message names the set.
        here = path if isinstance(value, (set, frozenset)) else (*path, _step(step))
        if fault := find_fault(part, writer, here, trail):
            return fault
    return None


def _surely_fine(value: object) -> bool:
    """Whether a value is one of the many that need no thought; it halves the time of the walk."""
    if type(value) is str:
        return value.isascii() and "\0" not in value
    if type(value) is int:
        return LEAST_INTEGER <= value <= MOST_INTEGER
    return value is None


def _parts(value: object) -> Iterator[tuple[object, object]] | None:
    if isinstance(value, dict):
        return iter(cast("dict[object, object]", value).items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return enumerate(cast("list[object]", value))
    names = fields_of(value)
    return None if names is None else ((name, getattr(value, name, None)) for name in names)


def _step(key: object) -> str | int:
    return key if isinstance(key, (str, int)) else str(key)


def _leaf_reason(value: object, writer: Writer) -> str | None:
    if isinstance(value, str):
        return text_reason(value)
    if isinstance(value, int):
        return _integer_reason(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{_not_a_number(value)} cannot be stored; use None or a string"
    if value is None or isinstance(value, float) or _storable(value, writer):
        return None
    return (
        f"a value of type {described(value)} cannot be stored as JSON; pass plain values, a dataclass or "
        "a Struct of such values, or an id to look it up by; app.type() gives a class a JSON form"
    )


def _key_reason(key: object, writer: Writer) -> str | None:
    if isinstance(key, str):
        reason = text_reason(key)
    elif isinstance(key, int) and _storable({key: None}, writer):
        reason = _integer_reason(key)
    elif isinstance(key, float) or not _storable({key: None}, writer):
        reason = f"a {described(key)} cannot be stored as the key of a dict; use a string"
    else:
        reason = None
    return f"key {_key(key)}: {reason}" if reason else None


def _key(key: object) -> str:
    return quoted(key) if isinstance(key, str) else shown(key)


def text_reason(text: str) -> str | None:
    """Why a text may not be stored; None if it may."""
    if "\0" in text:
        return (
            f"NUL (at position {text.index(chr(0)):,} of the text) cannot be stored; remove it, or pass bytes"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"a lone surrogate (at position {error.start:,} of the text) cannot be stored; "
            'decode the text with errors="replace", or pass bytes'
        )
    return None


def _integer_reason(value: int) -> str | None:
    if LEAST_INTEGER <= value <= MOST_INTEGER:
        return None
    return f"{shown(value)} is beyond 64 bits and cannot be stored; pass it as a string"


def _not_a_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity" if value > 0 else "-infinity"


def _storable(value: object, writer: Writer) -> bool:
    try:
        writer.encode(value)
    except Exception:  # noqa: BLE001 - whatever a value raises when it is read, it cannot be stored
        return False
    return True


# --- a value that would arrive as another one ---------------------------------------------------------------


def find_change(given: object, arrived: object, writer: Writer, path: Path = ()) -> Fault | None:
    """The first part of a value that would not arrive as it was given; None if nothing that matters changes.

    Lists and tuples stand for each other, and so do a subclass and its plain base type: nothing gets lost.
    """
    pairs = _pairs(given, arrived)
    if pairs is not None:
        faults = (find_change(left, right, writer, (*path, step)) for step, left, right in pairs)
        return next((fault for fault in faults if fault is not None), None)
    if isinstance(given, dict) and isinstance(arrived, dict):
        before, after = cast("dict[object, object]", given), cast("dict[object, object]", arrived)
        return _changed_dict(before, after, writer, path)
    return _changed_leaf(cast("object", given), arrived, writer, path)


def _pairs(given: object, arrived: object) -> Iterator[tuple[str | int, object, object]] | None:
    alike = type(given) is type(arrived)
    if (_is_sequence(given) and _is_sequence(arrived)) or (alike and isinstance(given, tuple)):
        left, right = cast("list[object]", given), cast("list[object]", arrived)
        return ((index, *pair) for index, pair in enumerate(zip(left, right, strict=True)))
    if alike and (names := fields_of(given)) is not None:
        return ((name, getattr(given, name, None), getattr(arrived, name, None)) for name in names)
    return None


def _is_sequence(value: object) -> bool:
    """Whether a value is a list or a tuple, but not a NamedTuple: its names would be lost."""
    return isinstance(value, list) or type(value) is tuple


def _changed_dict(
    given: dict[object, object], arrived: dict[object, object], writer: Writer, path: Path
) -> Fault | None:
    for key, value in given.items():
        if key not in arrived:
            kind = "is not one that the annotation allows" if isinstance(key, str) else "would arrive as text"
            return Fault(path, f"key {_key(key)} {kind}; annotate the keys of the dict, or change it")
        if fault := find_change(value, arrived[key], writer, (*path, _step(key))):
            return fault
    return None


def _changed_leaf(given: object, arrived: object, writer: Writer, path: Path) -> Fault | None:
    if _equal(given, arrived):
        return None
    if not _same_kind(given, arrived):
        ours, theirs = described(given), described(arrived)
        return Fault(path, f"expected {theirs}, got {ours}; convert it, or annotate it as {ours}")
    if not _same_value(given, arrived, writer):
        return Fault(path, f"{shown(given)} cannot be stored exactly: it would arrive as {shown(arrived)}")
    return None


def _equal(given: object, arrived: object) -> bool:
    try:
        return bool(given == arrived)
    except Exception:  # noqa: BLE001 - comparing a signalling NaN raises; so may any __eq__
        return False


def _same_kind(given: object, arrived: object) -> bool:
    if isinstance(arrived, enum.Enum) or fields_of(arrived) is not None:
        return type(given) is type(arrived)
    if isinstance(arrived, float):
        return isinstance(given, (int, float))
    return isinstance(given, type(arrived))


def _same_value(given: object, arrived: object, writer: Writer) -> bool:
    """Whether two values of one kind are unequal only by their way of comparing."""
    if isinstance(given, (dt.datetime, dt.time)) and isinstance(arrived, type(given)):
        # In an hour that a clock change repeats, times in different zones are never equal.
        return (
            given.replace(tzinfo=None) == arrived.replace(tzinfo=None)
            and given.utcoffset() == arrived.utcoffset()
        )
    if isinstance(given, (int, set, frozenset)):
        return False
    try:
        return writer.encode(given) == writer.encode(arrived)
    except Exception:  # noqa: BLE001 - a part of a model, which only Pydantic can write
        return False
