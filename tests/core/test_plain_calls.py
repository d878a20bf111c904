"""The short way to a payload says what the long way says, or nothing."""

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core import signature as long_way
from windlass.core.forms import Forms
from windlass.core.parameters import Parameters
from windlass.core.plain import plain_encoder
from windlass.core.signature import Signature
from windlass.errors import InvalidPayload, PayloadTooLarge, WindlassError


def texts(user: str, subject: str = "") -> None: ...
def mixed(a: int, b: float | None = None, *, c: bool = False, d: Any = None) -> None: ...
def nothing() -> None: ...
def only_named(*, required: str, optional: int | str = 0) -> None: ...


FUNCTIONS = (texts, mixed, nothing, only_named)
NAMES = ("user", "subject", "a", "b", "c", "d", "required", "optional", "other")
ODD = st.sampled_from(
    ["\0", "\ud800", '"', "\\", 2**63, -(2**63) - 1, 2**63 - 1, math.nan, math.inf, msgspec.UNSET]
)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ODD | st.just([1])


def short_of(function: Callable[..., Any], max_payload: int = 10_000) -> Any:
    parameters = Parameters(inspect.signature(function), label="task()", forms=Forms())
    return plain_encoder(parameters, max_payload=max_payload)


def long_of(function: Callable[..., Any], max_payload: int = 10_000) -> Signature:
    signature = Signature(function, max_payload=max_payload)
    signature.plain = lambda _args, _kwargs: None
    return signature


@given(
    st.sampled_from(FUNCTIONS),
    st.lists(VALUES, max_size=3),
    st.lists(VALUES, max_size=3),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
)
def test_it_accepts_only_what_the_long_way_accepts(
    function: Callable[..., Any], before: list[object], args: list[object], kwargs: dict[str, object]
) -> None:
    """Whatever it has learned from a call before, this one included."""
    encoder = short_of(function)
    encoder(before, {})
    short = encoder(args, kwargs)
    assert encoder(args, kwargs) == short
    signature = long_of(function)
    try:
        payload = signature.encode(args, kwargs)
    except WindlassError:
        assert short is None
    else:
        assert short is None or signature.decode(short) == signature.decode(payload)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (texts, ("a",), {"subject": "hé"}),
        (texts, ("a", "b"), {}),
        (mixed, (2**63 - 1, 0.5), {"c": True, "d": "x"}),
        (mixed, (1,), {"b": None}),
        (nothing, (), {}),
        (only_named, (), {"optional": "x", "required": "y"}),
    ],
)
def test_plain_calls_take_it(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    short = short_of(function)(args, kwargs)
    assert short is not None
    assert msgspec.json.decode(short) == msgspec.json.decode(long_of(function).encode(args, kwargs))


def shortened(text: Annotated[str, msgspec.Meta(max_length=3)]) -> None: ...
def rest(*parts: str) -> None: ...
def by_position(text: str, /) -> None: ...


@pytest.mark.parametrize("function", [shortened, rest, by_position])
def test_conditions_and_other_parameters_go_the_long_way(function: Callable[..., Any]) -> None:
    assert short_of(function)(("abc",), {}) is None


def test_refusals_are_those_of_the_long_way() -> None:
    with pytest.raises(InvalidPayload, match='argument "subject": NUL'):
        Signature(texts).encode(("a", "\0"), {})
    with pytest.raises(InvalidPayload, match='unexpected argument "subjekt"; did you mean "subject"'):
        Signature(texts).encode(("a",), {"subjekt": "b"})
    with pytest.raises(PayloadTooLarge):
        Signature(texts, max_payload=100).encode(("a" * 100,), {})


def test_a_plain_call_is_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(long_way, "_same")
    assert Signature(texts).encode(("a",), {}) == b'{"v":1,"k":{"user":"a"}}'
