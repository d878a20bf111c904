"""Annotations of a task's parameters and result, made into decoders.

What cannot be stored as JSON is refused when the task is registered, with the parameter's name: the first
call would be too late, and the first run far too late.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast, get_type_hints

from msgspec import inspect as types

from windlass.core.codec import MAX_DEPTH, has_nul, may_have_wide_integer, nests_deeper
from windlass.core.constraints import Check, as_read, check_of
from windlass.core.forms import Forms
from windlass.core.models import is_pydantic_dataclass
from windlass.errors import InvalidOption


class Shape(NamedTuple):
    """A type as the codec sees it."""

    type: Any
    """As it is annotated."""
    read_as: Any
    """As msgspec reads it."""
    decode: Callable[[bytes], Any]
    check: Check | None
    """The constraints that msgspec does not know; None: there are none."""
    nests: bool
    """Whether values can nest without bound (Any, or a type that contains itself): depth must be checked."""
    counts: bool
    """Whether values can hold integers: their size must be checked."""

    def suspects(self, document: bytes, depth: int = MAX_DEPTH) -> bool:
        """Whether a document needs a closer look: every one that must be refused, and few others."""
        return (
            (b"\\" in document and has_nul(document))
            or (self.counts and may_have_wide_integer(document))
            or (self.nests and nests_deeper(document, depth))
        )


def shape_of(annotation: Any, *, label: str, forms: Forms) -> Shape:
    """The shape of an annotation, or an error that names the parameter."""
    try:
        read_as = as_read(annotation)
        kinds = list(_kinds(types.type_info(read_as), forms, set()))
        decode = forms.decoder(read_as)
        check = check_of(annotation)
    except Exception as error:
        raise InvalidOption(f"{label}: {_named(annotation)} cannot be stored as JSON: {error}") from error
    return Shape(
        annotation,
        read_as,
        decode,
        check,
        nests=any(kind is _UNBOUNDED for kind in kinds),
        counts=any(kind is _UNBOUNDED or isinstance(kind, _WITH_INTEGERS) for kind in kinds),
    )


# --- from names to types ------------------------------------------------------------------------------------


def resolved(function: Callable[..., object], *, label: str) -> inspect.Signature:
    """The signature of a function with every annotation resolved; what has none is Any."""
    signature = resolved_parameters(function, label=label)
    returned = _resolve(signature.return_annotation, _globals_of(function), f"{label}: return type")
    return signature.replace(return_annotation=returned)


def resolved_parameters(function: Callable[..., object], *, label: str) -> inspect.Signature:
    """The same, with the annotations of its parameters alone resolved."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError) as error:
        raise InvalidOption(f"{label}: its parameters cannot be read: {error}") from error
    scope = _globals_of(function)
    return signature.replace(
        parameters=[
            parameter.replace(
                annotation=_resolve(parameter.annotation, scope, f'{label}: parameter "{name}"')
            )
            for name, parameter in signature.parameters.items()
        ]
    )


def _globals_of(function: Callable[..., object]) -> dict[str, Any]:
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(cast("Callable[..., object]", inner.func))
    if not hasattr(inner, "__globals__"):
        inner = inner.__call__  # an object that can be called: its method knows where it was defined
    return getattr(inner, "__globals__", {})


def _resolve(annotation: Any, scope: dict[str, Any], label: str) -> Any:
    if annotation is inspect.Signature.empty:
        return Any

    def holder() -> None:
        """Carry this one annotation, so that an error can name the parameter it belongs to."""

    holder.__annotations__ = {"only": annotation}
    try:
        return get_type_hints(holder, globalns=scope, include_extras=True)["only"]
    except Exception as error:
        raise InvalidOption(
            f"{label}: the annotation {annotation!r} cannot be resolved: {error}; import the name at "
            "run time (not only under TYPE_CHECKING) in the module of the task"
        ) from error


# --- what a type can hold -----------------------------------------------------------------------------------


class _Unbounded(types.Type):
    """Any JSON value, or a type that contains itself."""


_UNBOUNDED = _Unbounded()
_WITH_INTEGERS = (types.IntType, types.EnumType, types.LiteralType)


def _kinds(
    kind: types.Type, forms: Forms, done: set[int], outer: tuple[int, ...] = ()
) -> Iterator[types.Type]:
    """Every kind of value that can be part of this one; TypeError for one that may not be.

    Kinds are told apart by identity: msgspec makes one object for each type, and a circle for one that
    contains itself.
    """
    yield kind
    if isinstance(kind, types.AnyType) or (isinstance(kind, types.CustomType) and kind.cls is object):
        yield _UNBOUNDED
        return
    _refuse(kind, forms)
    if isinstance(kind, types.CustomType):
        yield _UNBOUNDED
        return
    if id(kind) in outer:
        yield _UNBOUNDED
    elif id(kind) not in done:
        done.add(id(kind))
        for part in _parts(kind):
            yield from _kinds(part, forms, done, (*outer, id(kind)))


def _refuse(kind: types.Type, forms: Forms) -> None:
    if isinstance(kind, types.CustomType) and forms.of(kind.cls) is None:
        raise TypeError(
            f"{_named(kind.cls)} has no JSON form; use plain types, a dataclass, a TypedDict, a Struct or a "
            "model of Pydantic's, or an id; or give it one with app.type(), before the task"
        )
    if isinstance(kind, (types.RawType, types.ExtType)):
        raise TypeError(f"{type(kind).__name__[:-4]} has no JSON form; use plain types")
    if isinstance(kind, types.DataclassType) and is_pydantic_dataclass(kind.cls):
        raise TypeError(
            f"{_named(kind.cls)} is a dataclass of Pydantic's inside of another class, where Pydantic is not "
            "asked; make it a BaseModel"
        )
    if isinstance(kind, types.DictType):
        keys = list(_kinds(kind.key_type, forms, set()))
        if any(isinstance(key, types.FloatType) for key in keys):
            raise TypeError(
                "floats as the keys of a dict would be text, where NaN can hide; use str or int keys"
            )
        if custom := [key for key in keys if isinstance(key, types.CustomType) and key.cls is not object]:
            raise TypeError(f"{_named(custom[0].cls)} cannot be the key of a dict; use str keys")


def _parts(kind: types.Type) -> Iterator[types.Type]:
    for name in kind.__struct_fields__:
        value: object = getattr(kind, name)
        for part in cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,):
            if isinstance(part, types.Field):
                yield part.type
            elif isinstance(part, types.Type):
                yield part


def _named(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
