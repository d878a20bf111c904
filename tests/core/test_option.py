import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.option import choice, shown, whole
from windlass.errors import InvalidOption, WindlassError

HUGE = pytest.param(10**5_000, id="huge")  # more digits than Python converts to text


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", ["x" * 10_000, HUGE, [10**5_000] * 10, Rude(), list(range(10_000))])
def test_a_value_is_shown_short_and_without_an_error(value: object):
    assert 0 < len(shown(value)) < 200


@given(st.integers(1, 10))
def test_whole_numbers_within_bounds_pass(value: int):
    assert whole(value, name="count", least=1, most=10) == value


@pytest.mark.parametrize("value", [0, 11, True, 1.0, "1", None, HUGE])
def test_other_values_are_refused_with_name_bounds_and_value(value: object):
    with pytest.raises(InvalidOption) as refused:
        whole(value, name="count", least=1, most=10)
    assert str(refused.value) == f"count must be a whole number from 1 to 10, not {shown(value)}"


def test_choices():
    assert choice("b", name="letter", among=("a", "b")) == "b"
    for value in ("c", None, ["a"]):
        with pytest.raises(InvalidOption, match='letter must be one of "a", "b", not '):
            choice(value, name="letter", among=("a", "b"))


def test_a_refusal_is_a_value_error_of_windlass():
    assert issubclass(InvalidOption, ValueError)
    assert issubclass(InvalidOption, WindlassError)
