import dataclasses
import datetime as dt
import uuid
from typing import Any, Never
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signature_types import Address, Color, Discounted, Line, Loose, Pair, Plain, Point, Tree

from windlass.core.forms import Forms
from windlass.core.signature import Signature
from windlass.errors import InvalidPayload, PayloadTooLarge, UnreadablePayload

NAN = float("nan")
ID = uuid.UUID(int=1)


def send(to: str, subject: str, n: int = 0) -> str: ...


def anything(items, x: float = 0.0): ...


def typed(
    lines: list[Line] | None = None,
    prices: dict[str, dict[str, float]] | None = None,
    numbers: dict[int, str] | None = None,
    color: Color | None = None,
    loose: Loose | None = None,
    pair: Pair | None = None,
    address: Address | None = None,
    moment: dt.datetime | None = None,
    clock: dt.time | None = None,
    data: bytes | None = None,
    tags: set[str] | None = None,
    floats: set[float] | None = None,
    tree: Tree | None = None,
    uid: uuid.UUID | None = None,
) -> None: ...


def positions(a: int, /, b: int, *rest: str, k: int = 1, **others: float) -> None: ...


def refusal(function: Any, *args: object, **kwargs: object) -> str:
    with pytest.raises(InvalidPayload) as refused:
        Signature(function).encode(args, kwargs)
    message = str(refused.value)
    assert len(message) < 500
    assert message.startswith(f"{function.__name__}(): ")
    return message.removeprefix(f"{function.__name__}(): ")


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("a",), {}, 'argument "subject" is missing'),
        ((), {}, 'argument "to" is missing'),
        (("a", "b"), {"subjet": 1}, 'unexpected argument "subjet"; did you mean "subject"?'),
        (("a", "b"), {"zzz": 1}, 'unexpected argument "zzz"; its arguments are: to, subject, n'),
        (("a", "b"), {"to": "c"}, 'argument "to" is given by position and by name'),
        (("a", "b", 1, 2), {}, "takes at most 3 arguments by position, got 4"),
        (("a", 3), {}, 'argument "subject": expected str, got int'),
        ((None, "b"), {}, 'argument "to": expected str, got None'),
        (("a", "b"), {"n": True}, 'argument "n": expected int, got bool'),
        (("a", "b"), {"n": 1.0}, 'argument "n": expected int, got float'),
        (("a", "b"), {"n": "1"}, 'argument "n": expected int, got str'),
        ((b"a", "b"), {}, 'argument "to": expected str, got bytes; convert it, or annotate it as bytes'),
        ((ID, "b"), {}, 'argument "to": expected str, got UUID; convert it, or annotate it as UUID'),
        ((ID, "b"), {"n": ID}, 'argument "n": expected int, got UUID'),
        ((Color.RED, "b"), {}, 'argument "to": expected str, got Color; convert it, or annotate it as Color'),
    ],
)
def test_a_wrong_call_names_the_argument(args: Any, kwargs: Any, message: str) -> None:
    assert refusal(send, *args, **kwargs) == message


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"lines": [Line("a", 1.0), Line("b", "1")]}, '"lines"[1]["price"]: expected float, got str'),  # type: ignore[arg-type]
        (
            {"lines": [Discounted("a", 1.0)]},
            '"lines"[0]: expected Line, got Discounted; convert it, or annotate',
        ),
        ({"lines": [{"sku": "a", "price": 1.0}]}, '"lines"[0]: expected Line, got dict'),
        ({"lines": "abc"}, '"lines": expected list | None, got str'),
        (
            {"prices": {"a": {"b": 1.0}, "c": {"d": 1.0, "e": "x"}}},
            '"prices"["c"]["e"]: expected float, got str',
        ),
        ({"prices": {"a": {"b": NAN}}}, '"prices"["a"]["b"]: NaN cannot be stored; use None or a string'),
        ({"numbers": {"1": "a"}}, '"numbers": key "1" is not one that the annotation allows'),
        ({"numbers": {"x": "a"}}, '"numbers": key "x": expected int, got str'),
        (
            {"numbers": {2**63: "a"}},
            '"numbers": key 9223372036854775808: 9223372036854775808 is beyond 64 bits',
        ),
        ({"color": "red"}, '"color": expected Color, got str'),
        ({"color": "z" * 5_000}, '"color": invalid enum value \'zzz'),
        ({"loose": Loose(ID)}, '"loose"["text"]: expected str, got UUID'),  # type: ignore[arg-type]
        ({"pair": Pair(1, ID)}, '"pair"[1]: expected str, got UUID'),  # type: ignore[arg-type]
        (
            {"address": {"street": "a", "town": "b"}},
            '"address": key "town" is not one that the annotation allows',
        ),
        ({"moment": "2024-01-01T00:00:00Z"}, '"moment": expected datetime, got str'),
        ({"moment": dt.date(2024, 1, 1)}, '"moment": invalid RFC3339'),
        ({"data": "YWJj"}, '"data": expected bytes, got str'),
        ({"tags": ["a"]}, '"tags": expected set, got list'),
        ({"tags": {ID}}, '"tags": '),
        ({"floats": {1.0, NAN}}, '"floats": NaN cannot be stored'),
        (
            {"tree": Tree(1, [Tree(2), Tree(2**63)])},
            '"tree"["children"][1]["value"]: 9223372036854775808 is beyond',
        ),
        ({"uid": "nope"}, '"uid": invalid UUID'),
    ],
)
def test_a_wrong_part_is_named_with_its_path(kwargs: Any, message: str) -> None:
    assert refusal(typed, **kwargs).startswith(f"argument {message}")


@pytest.mark.parametrize("zone", ["Europe/Paris", "Africa/Monrovia"])
def test_an_offset_with_seconds_is_refused_because_it_would_move_the_moment(zone: str) -> None:
    moment = dt.datetime(1900, 1, 1, tzinfo=ZoneInfo(zone))
    assert "cannot be stored exactly: it would arrive as" in refusal(typed, moment=moment)
    clock = dt.time(12, tzinfo=dt.timezone(dt.timedelta(seconds=30)))
    assert '"clock": ' in refusal(typed, clock=clock)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: "a"}, ": key 1 would arrive as text; annotate the keys of the dict, or change it"),
        ({1: "a", "1": "b"}, ": key 1 would arrive as text"),
        ({ID: 1}, f": key {ID!r} would arrive as text"),
        ({1.5: 1}, ": key 1.5: a float cannot be stored as the key of a dict; use a string"),
        ({True: 1}, ": key True: a bool cannot be stored as the key of a dict; use a string"),
        ({(1, 2): 1}, ": key (1, 2): a tuple cannot be stored as the key of a dict; use a string"),
        ([{1, 2}], "[0]: expected list, got set; convert it, or annotate it as set"),
        ({"id": ID}, '["id"]: expected str, got UUID; convert it, or annotate it as UUID'),
        ([b"x"], "[0]: expected str, got bytes; convert it, or annotate it as bytes"),
        (Line("a", 1.0), ": expected dict, got Line; convert it, or annotate it as Line"),
        (Pair(1, "a"), ": expected list, got Pair; convert it, or annotate it as Pair"),
        (Point(1), ": expected dict, got Point; convert it, or annotate it as Point"),
        ([1, Plain()], "[1]: a value of type Plain cannot be stored as JSON; pass plain values"),
        ([Plain], "[0]: a value of type type cannot be stored as JSON"),
        ([Line], "[0]: a value of type type cannot be stored as JSON"),
        ({"a": 1j}, '["a"]: a value of type complex cannot be stored as JSON'),
        ([Line("a", Plain())], '[0]["price"]: a value of type Plain cannot be stored as JSON'),  # type: ignore[arg-type]
        ({ID: {"x": Plain()}}, f'["{ID}"]["x"]: a value of type Plain'),
    ],
)
def test_an_unannotated_argument_takes_what_json_can_hold(value: object, message: str) -> None:
    assert refusal(anything, value).startswith(f'argument "items"{message}')


BAD = [
    (NAN, "NaN cannot be stored; use None or a string"),
    (float("inf"), "infinity cannot be stored; use None or a string"),
    (float("-inf"), "-infinity cannot be stored; use None or a string"),
    ("a\0b", "NUL (at position 1 of the text) cannot be stored; remove it, or pass bytes"),
    ("ab\ud800", "a lone surrogate (at position 2 of the text) cannot be stored; decode the text"),
    (2**63, "9223372036854775808 is beyond 64 bits and cannot be stored; pass it as a string"),
    (-(2**63) - 1, "-9223372036854775809 is beyond 64 bits and cannot be stored; pass it as a string"),
    (2**64, "18446744073709551616 is beyond 64 bits"),
    (10**5_000, "is beyond 64 bits"),
    (Plain(), "a value of type Plain cannot be stored as JSON"),
]
GOOD = st.none() | st.integers(0, 9) | st.text('abc[{"\\', max_size=3) | st.just({"k": [1, "9" * 30]})
STEPS = st.lists(st.integers(0, 3) | st.sampled_from(["a", "b c", '"', "€"]), max_size=6)


def buried(value: object, steps: list[int | str], filling: list[object]) -> object:
    """A structure that has the value at the end of the steps, with good values all around."""
    for step in reversed(steps):
        if isinstance(step, int):
            value = [*(filling * 4)[:step], value, *filling]
        else:
            value = {"first": filling, step: value, "last": filling}
    return value


def path(steps: list[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f'["{step}"]' for step in steps)


@given(st.sampled_from(BAD), STEPS, st.lists(GOOD, min_size=1, max_size=3))
def test_a_refused_value_is_found_wherever_it_is(
    bad: Any, steps: list[int | str], filling: list[object]
) -> None:
    value, message = bad
    structure = buried(value, steps, filling)
    for function, name in ((anything, "items"), (positions, "a")):
        kwargs = {} if function is anything else {"b": 1}
        said = refusal(function, structure, **kwargs)
        assert said.startswith(f'argument "{name}"{path(steps)}: ')
        assert message in said
    with pytest.raises(InvalidPayload) as refused:
        Signature(anything).encode_result(structure)
    assert str(refused.value).startswith(f"anything(): result{path(steps)}: ")


@given(st.sampled_from(["a\0", "\ud800", 2**63, Plain()]), STEPS, st.lists(GOOD, min_size=1, max_size=3))
def test_a_refused_key_is_found_wherever_it_is(
    key: Any, steps: list[int | str], filling: list[object]
) -> None:
    said = refusal(anything, buried({"fine": 1, key: 2}, steps, filling))
    assert said.startswith(f'argument "items"{path(steps)}: key ')
    assert "cannot be stored" in said


def test_what_contains_itself_is_refused() -> None:
    circle: list[Any] = [1]
    circle.append({"a": circle})
    assert refusal(anything, circle) == (
        'argument "items"[1]["a"]: this list contains itself, which JSON cannot express'
    )
    tree = Tree(1)
    tree.children = [tree]
    assert refusal(typed, tree=tree).startswith('argument "tree"["children"][0]: this Tree contains itself')


def test_the_same_value_twice_does_not_contain_itself() -> None:
    shared = [1]
    assert Signature(anything).encode(([shared, shared],), {})


@pytest.mark.parametrize("levels", [65, 66, 67, 200, 900, 5_000])
def test_too_deep_is_refused_without_exhausting_the_stack(levels: int) -> None:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    said = refusal(anything, value)
    assert said == (
        'argument "items"[0][0][0][0][0][0][0]…[0][0]: '
        "nested deeper than 64 levels; flatten it, or pass it as text"
    )
    tree = Tree(1)
    for _ in range(levels):
        tree = Tree(1, [tree])
    assert "nested deeper than 64 levels" in refusal(typed, tree=tree)


def test_a_float_that_cannot_hold_an_integer_is_refused() -> None:
    said = refusal(anything, 1, 2**53 + 1)
    assert (
        said
        == 'argument "x": 9007199254740993 cannot be stored exactly: it would arrive as 9007199254740992.0'
    )


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, 'argument "b" is missing'),
        ((), {"b": 1}, 'argument "a" is missing'),
        ((1, 2, "x", 3), {}, 'argument "rest"[1]: expected str, got int'),
        ((1, 2), {"z": "q"}, 'argument "z": expected float, got str'),
        ((1, 2, "x"), {"b": 2}, 'argument "b" is given by position and by name'),
        ((1, 2), {"é\0": 1.0}, 'the name of argument "é\\x00": NUL (at position 1'),
        ((1, 2), {"\ud800": 1.0}, 'the name of argument "\\ud800": a lone surrogate (at position 0'),
        ((1, 2, "x", "\0"), {}, 'argument "rest"[1]: NUL'),
    ],
)
def test_arguments_without_a_parameter_of_their_own(args: Any, kwargs: Any, message: str) -> None:
    assert refusal(positions, *args, **kwargs).startswith(message)


def first_only(a: int, b: int = 0, /) -> None: ...


def test_a_parameter_by_position_only_cannot_be_named() -> None:
    assert refusal(first_only, 1, b=1) == 'argument "b" can be given by position only'
    assert refusal(first_only, 1, c=1) == 'unexpected argument "c"; its arguments are: none'


def test_size_is_limited_and_the_largest_argument_named() -> None:
    signature = Signature(send, max_payload=100)
    assert len(signature.encode(("a", "b" * 65), {})) == 100
    with pytest.raises(PayloadTooLarge) as refused:
        signature.encode(("a", "b" * 66), {})
    assert str(refused.value) == (
        'send(): the payload has 101 bytes (argument "subject": 68), the limit is 100; '
        "keep large data elsewhere and pass a reference to it, or raise max_payload"
    )
    with pytest.raises(PayloadTooLarge, match="the result has 212 bytes, the limit is 100"):
        signature.encode_result("x" * 198)
    with pytest.raises(PayloadTooLarge, match="the payload has 106 bytes, the limit is 100"):
        signature.encode_json(b'{"to":"' + b"x" * 97 + b'"}')
    with pytest.raises(PayloadTooLarge, match="limit is 1,048,576"):
        Signature(anything).encode(("x" * 2**20,), {})


def test_a_result_must_be_as_annotated() -> None:
    def numbers() -> list[int]: ...

    signature = Signature(numbers)
    for value, message in (
        (None, "numbers(): result: expected list, got None"),
        (["a"], "numbers(): result[0]: expected int, got str"),
        ({1}, "numbers(): result: expected list, got set; convert it, or annotate it as set"),
        ([Plain()], "numbers(): result[0]: a value of type Plain cannot be stored as JSON"),
    ):
        with pytest.raises(InvalidPayload) as refused:
            signature.encode_result(value)
        assert str(refused.value).startswith(message)


def test_a_path_in_json_need_not_be_one_in_the_value() -> None:
    def by_id(counts: dict[uuid.UUID, dict[str, int]]) -> None: ...

    said = refusal(by_id, {ID: {"a": 1, "b": "x"}})
    assert said == f'argument "counts"["{ID}"]["b"]: expected int, got str'


def test_long_names_are_cut_short() -> None:
    said = refusal(anything, {"k" * 1_000: NAN})
    assert said == f'argument "items"["{"k" * 59}…"]: NaN cannot be stored; use None or a string'


@dataclasses.dataclass(slots=True)
class Half:
    value: int = 1


def test_an_object_without_its_values_is_refused() -> None:
    def task(half: Half) -> None: ...

    assert refusal(task, Half.__new__(Half)).startswith('argument "half"["value"]: expected int, got None')


def test_a_value_that_raises_when_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(_: object) -> Never:
        raise RuntimeError("odd " * 1_000)

    forms = Forms()
    monkeypatch.setattr(forms, "encode", odd)
    signature = Signature(anything, forms=forms)
    with pytest.raises(InvalidPayload, match=r"anything\(\): the payload cannot be stored as JSON: odd odd"):
        signature.encode(([1],), {})


@given(st.integers(500, 1_100))
def test_a_stack_that_is_nearly_full_makes_no_other_error(levels: int) -> None:
    value: object = []
    for _ in range(levels - 1):
        value = [value]
    with pytest.raises(InvalidPayload, match="nested deeper than 64 levels"):
        Signature(anything).encode((value,), {})
    with pytest.raises(InvalidPayload, match="nested deeper than 64 levels"):
        Signature(anything).encode_result(value)


def test_an_envelope_that_does_not_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(_: bytes) -> Never:
        raise UnreadablePayload("payload is nested deeper than 64 levels")

    monkeypatch.setattr("windlass.core.signature.open_payload", shut)
    monkeypatch.setattr("windlass.core.signature.open_result", shut)
    assert refusal(positions, 1, 2) == "payload is nested deeper than 64 levels"
    with pytest.raises(InvalidPayload, match=r"anything\(\): payload is nested deeper"):
        Signature(anything).encode_result(1)


class Stubborn(dict[str, int]):
    """Looks fine to every check, but raises when it is read."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def test_a_comparison_that_raises_is_replaced_by_a_closer_look() -> None:
    assert Signature(anything).encode((Stubborn(a=1),), {}) == b'{"v":1,"k":{"items":{"a":1}}}'
