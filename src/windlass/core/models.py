"""Pydantic's types: its models, what stands in its modules, and its marks beside other types.

Pydantic is never imported here. Its types are found by their own protocol, when the program has imported it.
"""

import sys
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from windlass.core.codec import encode
from windlass.core.fault import Fault, Unfit, quoted
from windlass.core.form import Form


def is_pydantic(kind: Any) -> bool:
    """Whether a type says how Pydantic reads it, and Pydantic is there."""
    return isinstance(kind, type) and _pydantic() is not None and hasattr(kind, _PROTOCOL)


def is_pydantic_dataclass(kind: Any) -> bool:
    """Whether a class is one of Pydantic's dataclasses. msgspec would check less."""
    return isinstance(kind, type) and _VALIDATOR in vars(kind) and hasattr(kind, "__dataclass_fields__")


def model_form(kind: Any) -> Form | None:
    """The form of a class that Pydantic reads; None for any other."""
    return adapter_form(kind) if is_pydantic(kind) or is_pydantic_dataclass(kind) else None


def adapter_form(annotation: Any) -> Form:
    """The form of what Pydantic can read, once it is there."""
    pydantic = _pydantic()
    adapter = pydantic.TypeAdapter(annotation)

    def dump(value: object) -> object:
        if (secret := _revealed(value)) is not value:
            return secret
        # With `round_trip` it leaves out what it would not read, such as computed fields.
        known: dict[str, Any] = {"by_alias": True, "round_trip": True, "warnings": False}
        dumped = adapter.dump_python(value, mode="json", **known)
        return _unmasked(adapter.dump_python(value, **known), dumped) if _is_masked(dumped) else dumped

    def read(value: object) -> object:
        try:
            return adapter.validate_json(encode(value))  # as JSON, for models that are strict
        except pydantic.ValidationError as error:
            raise Unfit(_first(error)) from None  # its own text quotes values

    return Form(dump, read, adapter.json_schema)


def unread_alias(model: object, name: str) -> str | None:
    """Why a model's own field was missed when it was read under a name; None if no alias is the cause."""
    fields: dict[str, Any] = getattr(type(model), "model_fields", {})
    for field, settings in fields.items():
        reads, writes = _first_alias(settings.validation_alias), settings.serialization_alias or field
        if reads == name and writes != name and hasattr(model, field):
            return (
                f"the model writes this field as {quoted(writes)} and reads it as {quoted(name)}: give it "
                f"one alias for both (alias={quoted(name)}), or let it be read by its name (populate_by_name)"
            )
    return None


def _first_alias(alias: Any) -> str | None:
    """The name by which Pydantic misses a field: of several it says the first."""
    first = alias.choices[0] if hasattr(alias, "choices") else alias
    return first if isinstance(first, str) else None


def predicate(annotation: Any) -> Callable[[object], Fault | None]:
    """What Pydantic says to a value that has the annotated type, by the marks beside the type."""
    pydantic = _pydantic()
    adapter = pydantic.TypeAdapter(annotation)

    def judge(value: object) -> Fault | None:
        try:
            arrived = adapter.validate_python(value)
        except pydantic.ValidationError as error:
            return _first(error)
        if arrived != value:  # neither is quoted: they may be secrets
            return Fault((), "its validator would change it; give it as that leaves it")
        return None

    return judge


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of an annotation with Pydantic's marks; empty, if there is none."""
    try:
        return _pydantic().TypeAdapter(annotation).json_schema()
    except Exception:  # noqa: BLE001 - Pydantic can read types that JSON Schema has no words for
        return {}


def has_marks(metadata: tuple[Any, ...]) -> bool:
    """Whether Pydantic's own marks, such as `Field(gt=0)`, stand beside a type."""
    return _pydantic() is not None and any(
        type(mark).__module__.partition(".")[0] in ("pydantic", "pydantic_core") for mark in metadata
    )


_PROTOCOL, _VALIDATOR = "__get_pydantic_core_schema__", "__pydantic_validator__"
MISSED = "field required"
"""How Pydantic's complaint of a field that is not there begins, as `_first` says it."""
_MASK = "**********"
"""What Pydantic writes for a secret."""


def _pydantic() -> Any:
    found = sys.modules.get("pydantic")
    return found if hasattr(found, "TypeAdapter") else None  # not Pydantic 1


def _first(error: Any) -> Fault:
    """The first complaint of Pydantic's, without the value: it may be a secret."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    said = str(found[0]["msg"])
    return Fault(tuple(found[0]["loc"]), f"{said[:1].lower()}{said[1:]}{more}")


def _revealed(value: object) -> object:
    """What is in one of Pydantic's secrets; any other value as it is."""
    reveal = getattr(value, "get_secret_value", None)
    if not callable(reveal):
        return value
    secret = reveal()
    return secret.decode() if isinstance(secret, bytes) else secret


def _is_masked(dumped: object) -> bool:
    if isinstance(dumped, dict):
        return any(_is_masked(each) for each in cast("dict[object, object]", dumped).values())
    if isinstance(dumped, list):
        return any(_is_masked(each) for each in cast("list[object]", dumped))
    return dumped == _MASK


def _unmasked(value: Any, dumped: Any) -> Any:
    """What was dumped, with secrets as they are: Pydantic writes asterisks, and the task needs the value."""
    if (secret := _revealed(value)) is not value:
        return secret if dumped == _MASK else dumped
    if isinstance(dumped, dict) and isinstance(value, dict):
        before, after = cast("dict[Any, Any]", value), cast("dict[str, Any]", dumped)
        pairs = zip(before.values(), after.items(), strict=True)
        return {key: _unmasked(each, written) for each, (key, written) in pairs}
    if isinstance(dumped, list) and isinstance(value, list | tuple | set | frozenset):
        # Where a serializer of a model makes this fail, the call is refused.
        both = zip(cast("list[Any]", value), cast("list[Any]", dumped), strict=True)
        return [_unmasked(each, written) for each, written in both]
    return cast("Any", dumped)


def reads_whole(annotation: Any) -> bool:
    """Whether Pydantic reads an annotation as a whole: one of its dataclasses, or a union with one of its
    types, which msgspec would refuse.
    """
    if get_origin(annotation) is Annotated:
        return reads_whole(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        return any(map(reads_whole, members)) or (len(members) > 1 and any(map(_is_of_pydantic, members)))
    return is_pydantic_dataclass(annotation)


def _is_of_pydantic(annotation: Any) -> bool:
    return is_pydantic(get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation)
