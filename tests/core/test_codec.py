import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core import codec
from windlass.errors import UnreadablePayload

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def integers(value: object) -> list[int]:
    if isinstance(value, dict):
        return [n for part in value.values() for n in integers(part)]
    if isinstance(value, list):
        return [n for part in value for n in integers(part)]
    return [value] if type(value) is int else []


def has_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any("\0" in key or has_nul(part) for key, part in value.items())
    if isinstance(value, list):
        return any(map(has_nul, value))
    return isinstance(value, str) and "\0" in value


TRICKY = st.text(alphabet='[]{}"\\nu0\0 ')
NESTED = st.recursive(
    TRICKY | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=30,
)


@given(NESTED, st.integers(0, 8), st.booleans())
def test_depth_is_read_off_the_bytes(value: object, levels: int, spaced: bool) -> None:
    document = json.dumps(value).encode() if spaced else msgspec.json.encode(value)
    assert codec.nests_deeper(document, levels + 4) == (depth(value) > levels + 4)


@pytest.mark.parametrize("levels", [63, 64, 65, 66, 500, 100_000])
def test_depth_of_deep_documents(levels: int) -> None:
    document = b'[{"]":' * (levels // 2) + b"[" * (levels % 2) + b"]" * (levels % 2) + b"1" * (1 - levels % 2)
    document += b"}]" * (levels // 2)
    assert codec.nests_deeper(document, 64) == (levels > 64)
    assert not codec.nests_deeper(b"]" * levels, 64)


@given(NESTED)
def test_nul_is_read_off_the_bytes(value: object) -> None:
    assert codec.has_nul(msgspec.json.encode(value)) == has_nul(value)


@given(st.lists(st.integers() | st.integers(-(2**66), 2**66)))
def test_no_wide_integer_escapes_notice(numbers: list[int]) -> None:
    wide = any(not codec.LEAST_INTEGER <= number <= codec.MOST_INTEGER for number in numbers)
    assert codec.may_have_wide_integer(msgspec.json.encode(numbers)) or not wide


class Word(str):
    __slots__ = ()


class Number(int):
    __slots__ = ()


class Fraction(float):
    __slots__ = ()


def test_subclasses_of_plain_types_are_written_as_what_they_are() -> None:
    assert codec.encode([Word("a"), Number(3), Fraction(1.5), {Word("k"): 1}]) == b'["a",3,1.5,{"k":1}]'


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"", "payload of 0 bytes is not readable: it is empty"),
        (b"\x80\x04K\x01.", "payload of 5 bytes is not readable: JSON is malformed"),
        (b"[]", "payload of 2 bytes is not readable: Expected `object`, got `array`"),
        (b'{"k":{}}', "missing required field `v`"),
        (
            b'{"v":2,"later":1}',
            "payload has format version 2, this code reads version 1; upgrade this process",
        ),
        (b'{"v":"1"}', "not readable"),
        (b'{"v":1,"x":1}', "unknown field `x`"),
        (b'{"v":1,"k":{"a":' + b"[" * 100_000, "payload is nested deeper than 64 levels"),
        (b'{"v":1,"k":{"\xff":1}}', "invalid start byte"),
        (b'{"v":1,"k":{"\\ud800":1}}', "escape for a lone surrogate"),
        (b'{"v":1,"k":{"\\udC00":1}}', "escape for a lone surrogate"),
        (b'{"v":1,"k":{"\\ud83d\\ude00 \\\\ud800":1}', "it ends too early"),
    ],
)
def test_unreadable_payloads_say_why(document: bytes, message: str) -> None:
    with pytest.raises(UnreadablePayload) as refused:
        codec.open_payload(document)
    assert message in str(refused.value)


def test_an_error_never_repeats_the_document() -> None:
    with pytest.raises(UnreadablePayload) as refused:
        codec.open_payload(b'{"v":1,"' + b"secret" * 10_000 + b'":1}')
    assert len(str(refused.value)) < 300


def test_unreadable_results_say_why() -> None:
    with pytest.raises(UnreadablePayload, match="result has format version 3"):
        codec.open_result(b'{"v":3}')
    assert bytes(codec.open_result(b'{"v":1,"r":[1]}').r) == b"[1]"


@given(VALUES)
def test_the_envelope_of_a_call(value: object) -> None:
    opened = codec.open_payload(codec.encode(codec.Call(1, (value,), {"k": value})))
    assert (
        msgspec.json.decode(opened.a[0])
        == msgspec.json.decode(opened.k["k"])
        == msgspec.json.decode(msgspec.json.encode(value))
    )


def test_empty_parts_of_a_call_are_left_out() -> None:
    assert codec.encode(codec.Call(1)) == b'{"v":1}'
    assert codec.encode(codec.Call(1, (), {"a": 1})) == b'{"v":1,"k":{"a":1}}'


def test_the_last_of_equal_keys_counts() -> None:
    assert bytes(codec.open_payload(b'{"v":1,"k":{"a":1,"a":2}}').k["a"]) == b"2"
