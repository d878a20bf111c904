"""Strikes: which jobs they mean, and which strikes are refused."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.signature import Signature
from windlass.core.strike import (
    MOST_CONDITIONS,
    Strike,
    check_strike,
    decode_strike,
    first_match,
    is_strike_key,
    matches,
    same,
    strike_key,
)
from windlass.errors import InvalidOption


def send(user_id: int, address: dict[str, Any] | None = None, lines: list[Any] | None = None) -> None: ...


def by_position(first: int, /, second: int = 0) -> None: ...


def gathers(*numbers: int) -> None: ...


ADDRESS = {"city": "Paris", "7": "key", "tags": ["a", {"b": None}]}
PAYLOAD = Signature(send).encode((42,), {"address": ADDRESS, "lines": [1.0, True, [2]]})


@pytest.mark.parametrize(
    ("where", "is_meant"),
    [
        ({}, True),
        ({"user_id": 42}, True),
        ({"user_id": 42.0}, True),
        ({"user_id": "42"}, False),
        ({"user_id": 43}, False),
        ({"address.city": "Paris"}, True),
        ({"address.city": "Paris", "user_id": 43}, False),
        ({"address.7": "key"}, True),
        ({"address.tags.0": "a"}, True),
        ({"address.tags.1.b": None}, True),
        ({"address.tags.1.c": None}, False),
        ({"address.tags.2": None}, False),
        ({"address.tags.-1": "a"}, False),
        ({"address.tags.٠": "a"}, False),
        ({"address": ADDRESS}, True),
        ({"address": {**ADDRESS, "more": 1}}, False),
        ({"lines.0": 1}, True),
        ({"lines.1": True}, True),
        ({"lines.1": 1}, False),
        ({"lines": [1, True, [2]]}, True),
        ({"lines.0.deeper": 1}, False),
        ({"unknown": None}, False),
        ({"0": 42}, False),
    ],
)
def test_every_condition_must_hold(where: dict[str, Any], *, is_meant: bool) -> None:
    assert matches(Strike(task="send", where=where), PAYLOAD) is is_meant


def test_arguments_without_a_name_are_found_by_their_position() -> None:
    payload = Signature(by_position).encode((1, 2), {})
    assert matches(Strike(task="t", where={"0": 1, "second": 2}), payload)
    assert not matches(Strike(task="t", where={"first": 1}), payload)
    assert matches(Strike(task="t", where={"2": 30}), Signature(gathers).encode((10, 20, 30), {}))


@pytest.mark.parametrize("payload", [b"", b"nonsense", b'{"v":2}', b'{"v":1,"k":{"a":\xff}}', b"[" * 100_000])
def test_what_cannot_be_read_is_meant_only_if_all_are(payload: bytes) -> None:
    assert not matches(Strike(task="t", where={"a": 1}), payload)
    assert matches(Strike(task="t"), payload)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_values_are_the_same_when_json_says_so(one: Any, other: Any) -> None:
    assert same(one, one)
    assert same(one, other) == same(other, one)
    if same(one, other):
        assert one == other


@given(JSON, st.lists(st.sampled_from(["a", "b", "0"]), max_size=4), JSON)
def test_a_value_is_found_where_it_was_put(value: Any, steps: list[str], other: Any) -> None:
    nested = value
    for step in reversed(steps):
        nested = [nested] if step == "0" else {step: nested, "else": other}
    payload = msgspec.json.encode({"v": 1, "k": {"given": nested}})
    path = ".".join(["given", *steps])
    assert matches(Strike(task="t", where={path: value}), payload)
    assert not matches(Strike(task="t", where={path: [value, value]}), payload)
    assert not matches(Strike(task="t", where={f"{path}.x.y": value}), payload)


@given(st.binary(), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_no_payload_and_no_pattern_is_an_error(payload: bytes, where: dict[str, Any]) -> None:
    assert matches(Strike(task="t", where=where), payload) in (True, False)


def test_the_first_that_means_a_job_counts() -> None:
    some = [Strike(task="send", where={"user_id": user}) for user in (1, 42)] + [Strike(task="send")]
    assert first_match(some, PAYLOAD) is some[1]
    assert first_match(some[:1], PAYLOAD) is None


def test_a_strike_is_named_for_what_it_means() -> None:
    one = Strike(task="send", where={"a": 1, "b": 2}, reason="why", by="ada", at=1)
    assert one.id == Strike(task="send", where={"b": 2, "a": 1}).id
    assert one.id != Strike(task="send", where={"a": 1}).id != Strike(task="other", where={"a": 1}).id
    assert is_strike_key(strike_key(one.id))
    assert not is_strike_key("task:strike")


@pytest.mark.parametrize(
    ("strike", "complaint"),
    [
        (Strike(task="no task"), "task name"),
        (Strike(task="t", where={f"a{n}": n for n in range(MOST_CONDITIONS + 1)}), "at most 20 conditions"),
        (Strike(task="t", where={"": 1}), "needs the place of an argument"),
        (Strike(task="t", where={"a..b": 1}), "needs the place of an argument"),
        (Strike(task="t", where={"a\n": 1}), "needs the place of an argument"),
        (Strike(task="t", where={"a" * 201: 1}), "needs the place of an argument"),
        (Strike(task="t", where={"user.password": "hunter22"}), '"user.password" is called like a secret'),
        (Strike(task="t", where={"a": "x" * 1_000}), "has 1,002 bytes"),
        (Strike(task="t", reason="x" * 301), "has 301 characters"),
    ],
)
def test_what_is_refused(strike: Strike, complaint: str) -> None:
    with pytest.raises(InvalidOption) as error:
        check_strike(strike)
    assert complaint in str(error.value)
    assert "hunter22" not in str(error.value)


def test_documents() -> None:
    strike = Strike(task="t", where={"a": [1, None]}, reason="why", by="ada", at=7)
    assert decode_strike(msgspec.json.encode(strike)) == strike
    assert decode_strike(msgspec.json.encode({"task": "t", "newer": 1})) == Strike(task="t")
    assert decode_strike(b"{}") is None
    assert decode_strike(None) is None
