from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Never, NoReturn

import msgspec
import pytest
from signature_types import Line, Loose, Plain, Tree

from windlass.core.fault import fields_of
from windlass.core.signature import Signature
from windlass.errors import InvalidOption

if TYPE_CHECKING:
    from decimal import Decimal


def absent(value: int, amount: Decimal) -> None: ...


def absent_result(value: int) -> Decimal: ...


def unknown(value: list[Nowhere]) -> None: ...  # noqa: F821


def plain(value: list[Plain]) -> None: ...


def call(value: Callable[[int], int]) -> None: ...


def two_objects(value: Line | Loose) -> None: ...


def float_keys(value: dict[str, dict[float | int, int]]) -> None: ...


def raw(value: msgspec.Raw) -> None: ...


def extension(value: msgspec.msgpack.Ext) -> None: ...


def plain_result() -> Plain: ...


def unpacked(*values: *tuple[int, ...]) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (absent, "parameter \"amount\": the annotation 'Decimal' cannot be resolved: name 'Decimal' is not"),
        (absent_result, "return type: the annotation 'Decimal' cannot be resolved"),
        (unknown, "parameter \"value\": the annotation 'list[Nowhere]' cannot be resolved"),
        (
            plain,
            'parameter "value": list[signature_types.Plain] cannot be stored as JSON: Plain has no JSON form',
        ),
        (
            call,
            'parameter "value": collections.abc.Callable[[int], int] cannot be stored as JSON: Callable has',
        ),
        (
            two_objects,
            "signature_types.Line | signature_types.Loose cannot be stored as JSON: Type unions",
        ),
        (float_keys, "floats as the keys of a dict would be text"),
        (raw, 'parameter "value": Raw cannot be stored as JSON: Raw has no JSON form'),
        (extension, 'parameter "value": Ext cannot be stored as JSON: Ext has no JSON form'),
        (plain_result, "return type: Plain cannot be stored as JSON: Plain has no JSON form"),
        (unpacked, 'parameter "values": '),
    ],
)
def test_what_cannot_be_stored_is_refused_at_registration(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Signature(function, name="task")
    assert str(refused.value).startswith("task(): ")
    assert message in str(refused.value)


def test_a_result_that_is_not_kept_may_be_anything() -> None:
    signature = Signature(plain_result, keep_result=False)
    assert not signature.keeps_result
    assert signature.encode_result(Plain()) is None


def nothing() -> None: ...


def never() -> Never: ...


def no_return() -> NoReturn: ...


def maybe() -> int | None: ...


def unannotated(): ...


def test_which_tasks_keep_results() -> None:
    assert not any(Signature(function).keeps_result for function in (nothing, never, no_return))
    assert all(Signature(function).keeps_result for function in (maybe, unannotated))
    assert Signature(maybe).encode_result(None) == b'{"v":1,"r":null}'


def test_what_has_no_parameters_to_read_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"^int\(\): its parameters cannot be read"):
        Signature(int)


def line(value: Line, other: int = 1) -> Line: ...


class Callee:
    def __call__(self, value: Line) -> Line: ...

    def method(self, value: Line) -> Line: ...


@functools.wraps(line)
def wrapped(*args: Any, **kwargs: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (line, "line"),
        (wrapped, "line"),
        (functools.partial(line, other=2), "partial"),
        (functools.partial(functools.partial(wrapped, other=2)), "partial"),
        (Callee(), "Callee"),
        (Callee().method, "method"),
    ],
)
def test_annotations_are_found_behind_every_kind_of_callable(function: Callable[..., Any], name: str) -> None:
    signature = Signature(function)
    assert signature.name == name
    given = Line("a", 1.5)
    assert signature.decode(signature.encode((given,), {})) == ((), {"value": given})


def test_a_name_for_messages_can_be_given() -> None:
    assert Signature(line, name="shop.line").name == "shop.line"


def hidden(__value: int, __other: int = 0) -> None: ...  # noqa: PYI063 - the names are the point


def test_parameters_whose_names_python_reserves() -> None:
    signature = Signature(hidden)
    assert signature.decode(signature.encode((1,), {"__other": 2})) == ((), {"__value": 1, "__other": 2})


def shapes(a: int, /, b: Tree, *rest: Line, k: str = "", **others: float) -> None: ...


def test_the_schema_names_every_argument_but_the_rest() -> None:
    schema = Signature(shapes).schema()
    assert list(schema) == ["type", "properties", "required", "additionalProperties", "$defs"]
    assert schema["properties"] == {
        "a": {"type": "integer"},
        "b": {"$ref": "#/$defs/Tree"},
        "k": {"type": "string"},
    }
    assert schema["required"] == ["a", "b"]
    assert schema["additionalProperties"] == {"type": "number"}
    assert list(schema["$defs"]) == ["Tree"]
    assert Signature.untyped("elsewhere").schema() == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": {},
    }


class Box(msgspec.Struct, kw_only=True):
    text: str
    number: int | None = None


def repeated(first: tuple[Box, Box], second: tuple[Box, ...] = ()) -> None: ...


def test_a_type_that_occurs_twice_is_not_one_that_contains_itself() -> None:
    shape = Signature(repeated)._parameters.named["first"].shape
    assert (shape.nests, shape.counts) == (False, True)
    assert Signature(shapes)._parameters.named["b"].shape.nests


def test_fields_are_known_of_attrs_objects_too() -> None:
    class Attrs:
        __attrs_attrs__ = (SimpleNamespace(name="x"), SimpleNamespace(name="y"))

    assert fields_of(Attrs()) == ("x", "y")
    assert fields_of(Attrs) is fields_of(Line) is fields_of(1) is None
    assert fields_of(Line("a", 1.0)) == ("sku", "price", "count")
