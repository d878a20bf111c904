"""Constraints in `Annotated` that msgspec does not know: those of `annotated_types`, and marks of Pydantic's
such as `Field(gt=0)`. Neither package is imported here.

A check looks at a value that was read, in lists, dicts and fields of classes, too. It changes nothing: a
value is as the constraint wants it, or is refused. msgspec's own (`Meta`) are checked by msgspec.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from windlass.core.fault import Fault
from windlass.core.forms import stand_in
from windlass.core.models import has_marks, predicate, reads_whole, schema_of
from windlass.core.option import shown

Check: TypeAlias = Callable[[object], Fault | None]


def check_of(annotation: Any) -> Check | None:
    """The check of all constraints in an annotation; None: there are none."""
    if not _is_constrained(annotation, set()):
        return None
    check = _Checks().of(annotation)

    def guarded(value: object) -> Fault | None:
        try:
            return check(value)
        except Exception as error:  # noqa: BLE001 - users' code, such as the function of a `Predicate`
            return Fault((), f"{type(error).__name__}: {shown(str(error))}")

    return guarded


def as_read(annotation: Any) -> Any:
    """An annotation as msgspec reads it: with a stand-in for what Pydantic reads as a whole, and what its
    constraints are in JSON Schema. One that has neither is as it was.
    """
    if (behind := unaliased(annotation)) is not annotation:
        read = as_read(behind)
        return annotation if read is behind else read
    if reads_whole(annotation):
        return stand_in(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, marks = as_read(arguments[0]), annotation.__metadata__
        if keywords := _keywords(annotation, marks):
            marks = (*marks, msgspec.Meta(extra_json_schema=keywords))
        elif inner is arguments[0]:
            return annotation
        return Annotated[(inner, *marks)]
    if origin is Literal or not arguments:
        return annotation
    parts = tuple(map(as_read, arguments))
    if all(new is old for new, old in zip(parts, arguments, strict=True)):
        return annotation
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007 - made at run time


class _Checks:
    """Makes the checks of one annotation. Those of a class are made when a value of it is first seen: it may
    contain itself.
    """

    def __init__(self) -> None:
        self._fields: dict[Any, dict[str, Check]] = {}

    def of(self, annotation: Any) -> Check:
        """The check of an annotation."""
        annotation = unaliased(annotation)
        if reads_whole(annotation):
            return _fine
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return _all((self.of(arguments[0]), *_predicates(annotation)))
        if origin in (Union, UnionType):
            return _first_that_fits([(each, self.of(each)) for each in arguments])
        if isinstance(origin, type) and arguments and origin is not Literal:
            if issubclass(origin, tuple) and arguments[-1:] != (...,):
                return _each_in_place([self.of(each) for each in arguments])
            if issubclass(origin, Mapping):
                return _entries(self.of(arguments[0]), self.of(arguments[1]))
            if issubclass(origin, Iterable):
                return _each(self.of(arguments[0]))
        return self._of_class(origin or annotation)

    def _of_class(self, kind: Any) -> Check:
        if not _has_fields(kind):
            return _fine

        def check(value: object) -> Fault | None:
            fields = self._fields.get(kind)
            if fields is None:
                hints = _hints(kind)
                fields = self._fields[kind] = {name: self.of(hint) for name, hint in hints.items()}
            given = cast("Mapping[str, object]", value) if _is_typed_dict(kind) else _Fields(value)
            for name, one in fields.items():
                if name in given and (fault := one(given[name])):
                    return _within(name, fault)
            return None

        return check


def _is_constrained(annotation: Any, seen: set[Any]) -> bool:
    annotation = unaliased(annotation)
    if reads_whole(annotation):
        return False
    if get_origin(annotation) is Annotated:
        marks = annotation.__metadata__
        if has_marks(marks) or any(map(_is_annotated_types, marks)):
            return True
        return _is_constrained(get_args(annotation)[0], seen)
    kind = get_origin(annotation) or annotation
    parts: list[Any] = [] if kind is Literal else list(get_args(annotation))
    if _has_fields(kind) and kind not in seen:
        seen.add(kind)
        parts += _hints(kind).values()
    return any(_is_constrained(part, seen) for part in parts)


# --- the parts of a value -----------------------------------------------------------------------------------


def _fine(_: object) -> Fault | None:
    return None


def _within(step: object, fault: Fault) -> Fault:
    return Fault((step if isinstance(step, (str, int)) else str(step), *fault.path), fault.reason)


def _all(checks: Sequence[Check]) -> Check:
    return lambda value: next((fault for one in checks if (fault := one(value))), None)


def _first_that_fits(alternatives: Sequence[tuple[Any, Check]]) -> Check:
    def check(value: object) -> Fault | None:
        fitting = (one for annotation, one in alternatives if _fits(value, annotation))
        return next(fitting, _fine)(value)

    return check


def _fits(value: object, annotation: Any) -> bool:
    """Whether a value that was read as one of several types is of this one. msgspec has told them apart."""
    annotation = unaliased(annotation)
    if get_origin(annotation) is Annotated:
        return _fits(value, get_args(annotation)[0])
    kind = get_origin(annotation) or annotation
    if kind is Literal:
        return any(value is each or value == each for each in get_args(annotation))
    if not isinstance(kind, type):
        return kind is None and value is None
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, dict if _is_typed_dict(kind) else kind)


def _each(one: Check) -> Check:
    def check(value: object) -> Fault | None:
        places = not isinstance(value, (set, frozenset))
        for place, each in enumerate(cast("Iterable[object]", value)):
            if fault := one(each):
                return _within(place, fault) if places else fault
        return None

    return check


def _each_in_place(checks: Sequence[Check]) -> Check:
    def check(value: object) -> Fault | None:
        for place, (one, each) in enumerate(zip(checks, cast("Iterable[object]", value), strict=False)):
            if fault := one(each):
                return _within(place, fault)
        return None

    return check


def _entries(key_check: Check, value_check: Check) -> Check:
    def check(value: object) -> Fault | None:
        for key, each in cast("Mapping[object, object]", value).items():
            if fault := key_check(key):
                return Fault((), f"key {key!r}: {fault.reason}")
            if fault := value_check(each):
                return _within(key, fault)
        return None

    return check


def unaliased(annotation: Any) -> Any:
    """What is behind a NewType, a `type X = ...`, or a word about the key of a TypedDict."""
    while True:
        if get_origin(annotation) in (Required, NotRequired):
            annotation = get_args(annotation)[0]
        elif (named := getattr(annotation, "__supertype__", None)) is not None or (
            not isinstance(annotation, type) and (named := getattr(annotation, "__value__", None)) is not None
        ):
            annotation = named
        else:
            return annotation


class _Fields:
    """The fields of an object, as if it were a dict."""

    def __init__(self, of: object) -> None:
        self._of = of

    def __contains__(self, name: str) -> bool:
        return hasattr(self._of, name)

    def __getitem__(self, name: str) -> object:
        return getattr(self._of, name)


def _is_typed_dict(kind: Any) -> bool:
    return hasattr(kind, "__required_keys__")


def _has_fields(kind: Any) -> bool:
    """Whether msgspec reads a class by its fields."""
    if not isinstance(kind, type):
        return False
    marks = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "_fields", "__required_keys__")
    return any(hasattr(cast("object", kind), mark) for mark in marks)


def _hints(kind: Any) -> dict[str, Any]:
    found = get_type_hints(kind, include_extras=True)
    return {
        name: hint
        for name, hint in found.items()
        if get_origin(hint) is not ClassVar and not isinstance(hint, dataclasses.InitVar)
    }


# --- what marks say -----------------------------------------------------------------------------------------


def _is_annotated_types(mark: Any) -> bool:
    return type(mark).__module__.partition(".")[0] == "annotated_types"


def _predicates(annotation: Any) -> Iterator[Check]:
    marks = annotation.__metadata__
    if has_marks(marks):
        yield predicate(annotation)  # which looks at those of annotated_types, too
        return
    for mark in _single(marks):
        for name, (fits, words) in _BOUNDS.items():
            bound = getattr(mark, name, None)
            if bound is not None and not (name == "min_length" and bound == 0):
                yield _bounded(fits, bound, words)
        if callable(function := getattr(mark, "func", None)):
            yield _judged(function)
        if type(mark).__name__ == "Timezone":
            yield _zoned(mark.tz)


def _single(marks: Iterable[Any]) -> Iterator[Any]:
    """The marks of annotated_types, with groups such as `Interval` and `Len` taken apart."""
    for mark in marks:
        if getattr(mark, "__is_annotated_types_grouped_metadata__", False):
            yield from _single(mark)
        elif _is_annotated_types(mark):
            yield mark


_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "gt": (lambda value, bound: value > bound, "a value > {}"),
    "ge": (lambda value, bound: value >= bound, "a value >= {}"),
    "lt": (lambda value, bound: value < bound, "a value < {}"),
    "le": (lambda value, bound: value <= bound, "a value <= {}"),
    "multiple_of": (lambda value, bound: value % bound == 0, "a multiple of {}"),
    "min_length": (lambda value, bound: len(value) >= bound, "a length >= {}"),
    "max_length": (lambda value, bound: len(value) <= bound, "a length <= {}"),
}


def _bounded(fits: Callable[[Any, Any], bool], bound: object, words: str) -> Check:
    return lambda value: None if fits(value, bound) else Fault((), f"expected {words.format(bound)}")


def _judged(function: Callable[[Any], object]) -> Check:
    name = getattr(function, "__qualname__", type(function).__name__)
    return lambda value: None if function(value) else Fault((), f"refused by {name}")


def _zoned(zone: Any) -> Check:
    """A time zone that a datetime must have: `None` none at all, `...` any."""

    def check(value: Any) -> Fault | None:
        has = value.tzinfo
        if zone is None:
            return Fault((), "expected a datetime without a time zone") if has is not None else None
        if has is None:
            return Fault((), "expected a datetime with a time zone")
        fits = zone is ... or has == zone or str(has) == str(zone)
        return None if fits else Fault((), f"expected a datetime in the time zone {zone}")

    return check


def _keywords(annotation: Any, marks: tuple[Any, ...]) -> dict[str, Any]:
    """What the constraints of an annotation are in JSON Schema."""
    if has_marks(marks):
        return schema_of(annotation)
    kind = get_origin(get_args(annotation)[0]) or get_args(annotation)[0]
    length = "Length" if kind in (str, bytes) else "Properties" if kind is dict else "Items"
    names = {
        "gt": "exclusiveMinimum",
        "ge": "minimum",
        "lt": "exclusiveMaximum",
        "le": "maximum",
        "multiple_of": "multipleOf",
        "min_length": f"min{length}",
        "max_length": f"max{length}",
    }
    return {
        keyword: bound
        for mark in _single(marks)
        for name, keyword in names.items()
        if isinstance(bound := getattr(mark, name, None), (int, float))
        and not (name == "min_length" and bound == 0)
    }
