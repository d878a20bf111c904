import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from signature_types import (
    Address,
    Color,
    Level,
    Line,
    Loose,
    Mood,
    Pair,
    Point,
    Tree,
)

from windlass.core.signature import Signature

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)
LINES = st.builds(Line, TEXT, FLOATS, INTEGERS)
TREES = st.recursive(
    st.builds(Tree, INTEGERS),
    lambda inner: st.builds(Tree, INTEGERS, st.lists(inner, max_size=3)),
    max_leaves=10,
)
ZONES = st.none() | st.sampled_from(
    [dt.UTC, ZoneInfo("Europe/Paris"), dt.timezone(dt.timedelta(hours=-3, minutes=30))]
)
# Before 1972 zones had offsets of odd seconds, which are refused: test_signature_refusals.
# Not those that a clock leaps over: they are equal to nothing but themselves.
TIMES = st.datetimes(dt.datetime(1972, 1, 7), timezones=ZONES, allow_imaginary=False)  # noqa: DTZ001

ANNOTATIONS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, JSON),
    (object, JSON),
    (str, TEXT),
    (int, INTEGERS),
    (float, FLOATS),
    (bool, st.booleans()),
    (bytes, st.binary()),
    (None, st.none()),
    (int | None, st.none() | INTEGERS),
    (int | str | None, st.none() | INTEGERS | TEXT),
    (uuid.UUID, st.uuids()),
    (decimal.Decimal, st.decimals(allow_nan=False)),
    (dt.datetime, TIMES),
    (dt.date, st.dates()),
    (dt.time, st.times()),
    (dt.timedelta, st.timedeltas()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Mood, st.sampled_from(Mood)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (list[int], st.lists(INTEGERS)),
    (list, st.lists(JSON, max_size=3)),
    (set[str], st.sets(TEXT)),
    (frozenset[int], st.frozensets(INTEGERS)),
    (tuple[int, str], st.tuples(INTEGERS, TEXT)),
    (tuple[int, ...], st.lists(INTEGERS).map(tuple)),
    (dict[str, float], st.dictionaries(TEXT, FLOATS)),
    (dict[int, str], st.dictionaries(INTEGERS, TEXT)),
    (dict[uuid.UUID, int], st.dictionaries(st.uuids(), INTEGERS)),
    (dict[Color, list[bytes]], st.dictionaries(st.sampled_from(Color), st.lists(st.binary()))),
    (dict[str, object], st.dictionaries(TEXT, JSON)),
    (Line, LINES),
    (list[Line], st.lists(LINES)),
    (Point, st.builds(Point, INTEGERS, INTEGERS)),
    (Tree, TREES),
    (Pair, st.builds(Pair, INTEGERS, TEXT)),
    (Address, st.fixed_dictionaries({}, optional={"street": TEXT, "number": INTEGERS})),
    (Annotated[str, msgspec.Meta(max_length=5)], st.text("abc", max_size=5)),
    (Annotated[int, "a remark"], INTEGERS),
]
ANNOTATED = st.sampled_from(range(len(ANNOTATIONS))).flatmap(
    lambda index: st.tuples(st.just(ANNOTATIONS[index][0]), ANNOTATIONS[index][1])
)


def function(**annotations: Any) -> Callable[..., Any]:
    """A function with these annotated parameters; `rest` and `others` take what has no name of its own."""
    returned = annotations.get("return", Any)

    def task(value: Any, /, *rest: Any, named: Any = None, **others: Any) -> Any: ...

    task.__annotations__ = {**annotations, "return": returned}
    return task


def by_name(annotation: Any) -> Callable[..., Any]:
    def task(value: Any, other: Any = None) -> Any: ...

    task.__annotations__ = {"value": annotation, "other": annotation, "return": annotation}
    return task


@given(ANNOTATED)
def test_a_value_arrives_as_it_was_given(annotated: tuple[Any, Any]) -> None:
    annotation, value = annotated
    signature = Signature(by_name(annotation))
    payload = signature.encode((value,), {})
    args, kwargs = signature.decode(payload)
    assert args == ()
    assert kwargs == {"value": value}
    assert type(kwargs["value"]) is type(value)
    assert signature.encode((), {"value": value, "other": value}) == signature.encode((value, value), {})


@given(ANNOTATED, ANNOTATED, ANNOTATED)
def test_a_value_arrives_in_every_kind_of_parameter(
    first: tuple[Any, Any], second: tuple[Any, Any], third: tuple[Any, Any]
) -> None:
    (one, a), (two, b), (three, c) = first, second, third
    signature = Signature(function(value=one, rest=two, named=three, others=one))
    payload = signature.encode((a, b, b), {"named": c, "further": a})
    assert signature.decode(payload) == ((a, b, b), {"named": c, "further": a})
    assert signature.decode(signature.encode((a,), {})) == ((a,), {})


@given(ANNOTATED)
def test_a_result_arrives_as_it_was_given(annotated: tuple[Any, Any]) -> None:
    annotation, value = annotated
    signature = Signature(by_name(annotation))
    document = signature.encode_result(value)
    if annotation is None:
        assert not signature.keeps_result
        assert document is None
        return
    assert document is not None
    arrived = signature.decode_result(document)
    assert arrived == value
    assert type(arrived) is type(value)


@given(ANNOTATED)
def test_the_quick_way_and_the_close_look_agree(annotated: tuple[Any, Any]) -> None:
    annotation, value = annotated
    quick, close = Signature(by_name(annotation)), Signature(by_name(annotation))
    close._quick = lambda _: None
    payload = quick.encode((value,), {})
    assert close.encode((value,), {}) == payload
    assert close.decode(payload) == quick.decode(payload)


@given(ANNOTATED)
def test_json_arguments_make_the_same_call(annotated: tuple[Any, Any]) -> None:
    annotation, value = annotated
    signature = Signature(by_name(annotation))
    arguments = msgspec.json.encode({"value": value})
    assert signature.decode(signature.encode_json(arguments)) == ((), {"value": value})
    positional = Signature(function(value=annotation))
    assert positional.decode(positional.encode_json(arguments)) == ((value,), {})


@given(ANNOTATED)
def test_every_annotation_has_a_schema(annotated: tuple[Any, Any]) -> None:
    schema = Signature(by_name(annotated[0])).schema()
    assert set(schema["properties"]) == {"value", "other"}
    assert schema["required"] == ["value"]
    assert schema["additionalProperties"] is False
    assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


@given(st.lists(JSON, max_size=3), st.dictionaries(TEXT, JSON, max_size=3))
def test_a_task_that_lives_elsewhere_takes_any_json(args: list[Any], kwargs: dict[str, Any]) -> None:
    signature = Signature.untyped("resize")
    assert signature.decode(signature.encode(args, kwargs)) == (tuple(args), kwargs)
    assert signature.decode(signature.encode_json(msgspec.json.encode(kwargs))) == ((), kwargs)
    assert signature.keeps_result


@pytest.mark.parametrize(
    ("annotation", "given_value", "arrives"),
    [
        (Any, (1, (2,)), [1, [2]]),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, int], [1, 2], (1, 2)),
        (float, 3, 3.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (decimal.Decimal, decimal.Decimal("Infinity"), decimal.Decimal("Infinity")),
        (bytes, bytearray(b"\0\xff"), b"\0\xff"),
        (set[int], frozenset({1}), {1}),
        (str, Mood.GOOD, "good"),
        (Any, Level.HIGH, 2),
        (Any, {"ids": "9" * 40, "back": '\\u0000 "['}, {"ids": "9" * 40, "back": '\\u0000 "['}),
    ],
)
def test_what_may_stand_for_something_else(annotation: Any, given_value: object, arrives: object) -> None:
    signature = Signature(by_name(annotation))
    _, kwargs = signature.decode(signature.encode((given_value, given_value), {}))
    assert kwargs == {"value": arrives, "other": arrives}
    assert type(kwargs["value"]) is type(arrives)


def test_values_that_never_equal_themselves_are_compared_by_what_they_hold() -> None:
    signature = Signature(by_name(Loose | None))
    loose = Loose("a", [Line("b", 1.5)])
    _, kwargs = signature.decode(signature.encode((loose,), {}))
    arrived: Any = kwargs["value"]
    assert (arrived.text, arrived.lines) == ("a", [Line("b", 1.5)])

    signalling = Signature(by_name(decimal.Decimal))
    _, kwargs = signalling.decode(signalling.encode((decimal.Decimal("sNaN"),), {}))
    assert str(kwargs["value"]) == "sNaN"


def test_a_time_in_a_repeated_hour_keeps_its_offset() -> None:
    signature = Signature(by_name(dt.datetime))
    for fold, hours in ((0, 2), (1, 1)):
        moment = dt.datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Paris"))
        _, kwargs = signature.decode(signature.encode((moment,), {}))
        assert kwargs["value"].utcoffset() == dt.timedelta(hours=hours)  # type: ignore[attr-defined]


@pytest.mark.parametrize("levels", [1, 63, 64])
def test_sixty_four_levels_are_not_too_deep(levels: int) -> None:
    value: Any = []
    for level in range(levels - 1):
        value = [value] if level % 2 else {"a": value}
    signature = Signature(by_name(Any))
    assert signature.decode(signature.encode((value,), {})) == ((), {"value": value})
    assert signature.decode_result(signature.encode_result(value) or b"") == value


def test_many_brackets_in_text_are_not_nesting() -> None:
    value = {"[" * 200: ['"' + "{" * 200 + "\\"]}
    signature = Signature(by_name(Any))
    assert signature.decode(signature.encode((value,), {})) == ((), {"value": value})


def test_only_what_was_given_is_stored() -> None:
    signature = Signature(by_name(int))
    assert signature.encode((1,), {}) == b'{"v":1,"k":{"value":1}}'
    assert Signature(lambda: None).encode((), {}) == b'{"v":1}'
    assert Signature(lambda: None).decode(b'{"v":1}') == ((), {})


def test_a_payload_by_position_is_read_by_name() -> None:
    signature = Signature(by_name(int))
    assert signature.decode(b'{"v":1,"a":[1,2]}') == ((), {"value": 1, "other": 2})
