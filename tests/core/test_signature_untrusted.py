"""Bytes that nobody vouches for: whatever they are, they are read or refused, and the worker stays up."""

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from signature_types import Address, Color, Line, Pair, Point, Tree

from windlass.core.codec import LEAST_INTEGER, MOST_INTEGER
from windlass.core.fault import find_fault
from windlass.core.forms import Forms
from windlass.core.signature import Signature
from windlass.errors import InvalidPayload, UnreadablePayload


def typed(
    text: str = "",
    number: int = 0,
    ratio: float = 0.0,
    anything: Any = None,
    lines: list[Line] | None = None,
    prices: dict[str, dict[int, float]] | None = None,
    tree: Tree | None = None,
    point: Point | None = None,
    pair: Pair | None = None,
    address: Address | None = None,
    color: Color | None = None,
    moment: dt.datetime | None = None,
    amount: decimal.Decimal | None = None,
    uid: uuid.UUID | None = None,
    data: bytes | None = None,
) -> dict[str, list[int]]: ...


SIGNATURES = [
    Signature(typed),
    Signature.untyped("elsewhere"),
    Signature(lambda a, /, b=1, *rest, **others: None, name="positions"),
    Signature(lambda: None, name="nothing"),
]
NAMES = list(typed.__annotations__)[:-1]
REFUSED = object()
HOSTILE = [
    b"",
    b"null",
    b"{}",
    b'{"v":1}',
    b'{"v":1,"v":2}',
    b'{"v":1,"k":null}',
    b'{"v":1,"a":{}}',
    b'{"v":1,"k":{"anything":' + b"[" * 65 + b"]" * 65 + b"}}",
    b'{"v":1,"k":{"anything":' + b"[" * 200_000 + b"]" * 200_000 + b"}}",
    b'{"v":1,"k":{"tree":' + b'{"value":1,"children":[' * 5_000 + b"]}" * 5_000 + b"}}",
    b'{"v":1,"k":{"text":"\\ud800"}}',
    b'{"v":1,"k":{"text":"\xed\xa0\x80"}}',
    b'{"v":1,"k":{"text":"\\u0000"}}',
    b'{"v":1,"k":{"text":"\x00"}}',
    b'{"v":1,"k":{"number":' + b"9" * 10_000 + b"}}",
    b'{"v":1,"k":{"ratio":1e999}}',
    b'{"v":1,"k":{"amount":"1e99999999999999999999"}}',
    b'{"v":1,"k":{"anything":NaN}}',
    b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    b'{"v":1,"k":{"__class__":"os.system"}}',
]


def outcome(call: Callable[[], Any], *refusals: type[Exception]) -> Any:
    """What a call returns; REFUSED if it raised one of the refusals, with a short message."""
    message = ""
    try:
        return call()
    except refusals as error:
        message = str(error)
    assert 0 < len(message) < 600
    return REFUSED


def read(signature: Signature, payload: bytes) -> Any:
    """The arguments of a payload, with the promises about them checked; or REFUSED."""
    arguments = outcome(lambda: signature.decode(payload), InvalidPayload, UnreadablePayload)
    if arguments is not REFUSED:
        args, kwargs = arguments
        assert not any(find_fault(value, Forms()) for value in (*args, *kwargs.values()))
    return arguments


@pytest.mark.parametrize("payload", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bytes_are_read_or_refused(payload: bytes) -> None:
    for signature in SIGNATURES:
        read(signature, payload)


@given(st.binary())
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for signature in SIGNATURES:
        read(signature, payload)
        for document in (payload, b'{"v":1,"r":' + payload + b"}"):
            outcome(lambda: signature.decode_result(document), InvalidPayload, UnreadablePayload)  # noqa: B023
        outcome(lambda: signature.encode_json(payload), InvalidPayload)  # noqa: B023


TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\0\\"[]{}'), max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)
CALLS = st.fixed_dictionaries(
    {"v": st.just(1)},
    optional={
        "a": st.lists(JSON, max_size=3),
        "k": st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3),
    },
)


@given(CALLS)
def test_any_call_in_json_is_read_or_refused(call: dict[str, Any]) -> None:
    payload = msgspec.json.encode(call)
    for signature in SIGNATURES:
        read(signature, payload)


@given(CALLS, st.data())
def test_damaged_calls_are_read_or_refused(call: dict[str, Any], data: st.DataObject) -> None:
    payload = bytearray(msgspec.json.encode(call))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(payload)))
        end = data.draw(st.integers(start, min(start + 4, len(payload))))
        payload[start:end] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\\ud800", b"\\u0000", b"[", b'"'])
        )
    for signature in SIGNATURES:
        read(signature, bytes(payload))


@given(JSON)
@example("9" * 30)
@example({"a": 2**63})
@example(["\0"])
def test_what_is_refused_at_enqueue_is_refused_at_run_and_the_reverse(value: object) -> None:
    signature = Signature(lambda value: None, name="task")
    payload = msgspec.json.encode({"v": 1, "k": {"value": value}})
    try:
        written = signature.encode((value,), {})
    except InvalidPayload:
        written = None
    assert (written is None) == (read(signature, payload) is REFUSED)
    assert written in (None, payload)


@given(st.integers() | st.integers(-(2**65), 2**65))
def test_integers_of_64_bits_and_no_others(number: int) -> None:
    payload = msgspec.json.encode({"v": 1, "k": {"number": number}})
    fits = LEAST_INTEGER <= number <= MOST_INTEGER
    assert (read(SIGNATURES[0], payload) == ((), {"number": number})) == fits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (b'{"text":1}', 'argument "text": expected str, got int'),
        (b'{"prices":{"a":{"1":1},"b":{"2":1,"3":"x"}}}', '"prices"["b"]["3"]: expected float, got str'),
        (b'{"prices":{"a":{"1":1},"b":{"2":1,"x":1}}}', '"prices"["b"]: key "x": expected int, got str'),
        (b'{"prices":{"a":{"1":"x"},"a":{}}}', '"prices"["…"]["…"]: expected float, got str'),
        (b'{"prices":{"a":{"1":"x"},"a":{"2":1}}}', '"prices"["…"]["…"]: expected float, got str'),
        (b'{"prices":{"a":{"x":1},"a":{}}}', '"prices"["…"]: key "…": expected int, got str'),
        (b'{"prices":{"a":{"1":"x"},"b":"\xff"}}', '"prices"["…"]["…"]: expected float, got str'),
        (b'{"lines":[{"sku":"a","price":1},{"sku":"a"}]}', '"lines"[1]: object missing required field price'),
        (b'{"anything":{"a":["\\u0000"]}}', 'argument "anything"["a"][0]: NUL'),
        (b'{"anything":{"\\u0000":1}}', 'argument "anything": key "\\x00": NUL'),
        (
            b'{"anything":[9223372036854775808]}',
            'argument "anything"[0]: 9223372036854775808 is beyond 64 bits',
        ),
        (b'{"txt":"a"}', 'unexpected argument "txt"; did you mean "text"?'),
        (b"[]", "the payload must be a JSON object of arguments, not an array"),
        (b"{", "the payload is not JSON: it ends too early"),
        (b'{"anything":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "nested deeper than 64 levels"),
        (b'{"anything":' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64 levels"),
    ],
)
def test_bad_json_arguments_are_explained(arguments: bytes, message: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        SIGNATURES[0].encode_json(arguments)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400


def test_malformed_json_inside_arguments_is_unreadable() -> None:
    with pytest.raises(UnreadablePayload, match=r'argument "text" is not readable: .* invalid start byte'):
        SIGNATURES[0].decode(b'{"v":1,"k":{"text":"\xff"}}')
    with pytest.raises(InvalidPayload, match=r'argument "text" is not readable: .* invalid start byte'):
        SIGNATURES[0].encode_json(b'{"text":"\xff"}')


def test_depth_that_only_the_decoder_of_the_type_meets() -> None:
    signature = SIGNATURES[0]
    shape = signature._parameters.shape("anything")
    with pytest.raises(Exception, match="nested deeper than 64 levels"):
        signature._converted(msgspec.Raw(b"[" * 5_000 + b"]" * 5_000), shape, "anything")


def first_two(a: int = 1, b: int = 2, /, **others: int) -> None: ...


def test_json_names_also_what_python_takes_by_position_only() -> None:
    signature = Signature(first_two)
    assert signature.decode(signature.encode_json(b'{"b":4,"a":3,"c":5}')) == ((3, 4), {"c": 5})
    assert signature.decode(signature.encode_json(b'{"a":3}')) == ((3,), {})
    with pytest.raises(InvalidPayload, match='argument "b" needs those before it'):
        signature.encode_json(b'{"b":4}')


def test_text_stands_for_richer_types_in_json() -> None:
    signature = SIGNATURES[0]
    _, kwargs = signature.decode(
        signature.encode_json(b'{"moment":"2024-01-01T00:00:00Z","data":"YWJj","color":"red"}')
    )
    assert kwargs == {"moment": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "data": b"abc", "color": Color.RED}


@dataclasses.dataclass
class Choosy:
    value: int

    def __post_init__(self) -> None:
        if self.value == 1:
            raise ValueError("one is not allowed")
        if self.value == 2:
            raise KeyError("two " * 1_000)


class Guarded(enum.Enum):
    A = 1


def test_an_error_of_the_users_code_is_a_refusal() -> None:
    def task(choosy: Choosy, choices: dict[str, Choosy] | None = None) -> None: ...

    signature = Signature(task)
    for value, message in ((1, "one is not allowed"), (2, "KeyError: 'two ")):
        with pytest.raises(InvalidPayload) as refused:
            signature.decode(b'{"v":1,"k":{"choosy":{"value":%d}}}' % value)
        assert f'argument "choosy": {message}' in str(refused.value).replace("\"'two", "'two")
        assert len(str(refused.value)) < 300
    with pytest.raises(InvalidPayload, match=r'"choices"\["b"\]: one is not allowed'):
        signature.decode(b'{"v":1,"k":{"choosy":{"value":0},"choices":{"a":{"value":0},"b":{"value":1}}}}')


def test_results_that_are_not_as_annotated_are_refused() -> None:
    signature = SIGNATURES[0]
    assert signature.decode_result(b'{"v":1,"r":{"a":[1]}}') == {"a": [1]}
    with pytest.raises(InvalidPayload, match=r'typed\(\): result\["a"\]\[0\]: expected int, got str'):
        signature.decode_result(b'{"v":1,"r":{"a":["1"]}}')
    with pytest.raises(UnreadablePayload, match=r"typed\(\): result is not readable: .* invalid start byte"):
        signature.decode_result(b'{"v":1,"r":{"\xff":[]}}')
