import dataclasses
import math
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.duration import Duration
from windlass.core.retry import (
    CRASH_CAP,
    MOST_ATTEMPTS,
    Again,
    Jitter,
    RetryPolicy,
    Stop,
    crash_delay,
)
from windlass.core.state import Reason
from windlass.core.units import HOUR, MINUTE, SECOND
from windlass.errors import InvalidOption

HUGE = 10**5_000  # more digits than Python converts to text
ALMOST_ONE = math.nextafter(1.0, 0.0)

draws = st.floats(0, 1, exclude_max=True)
attempts = st.one_of(st.integers(1, 50), st.integers(1, 10**9))


@st.composite
def policies(draw: st.DrawFn, **fixed: Any) -> RetryPolicy:
    base = draw(st.one_of(st.integers(0, 100), st.floats(0, 1_000)))
    options: dict[str, Any] = {
        "base": base,
        "cap": base + draw(st.one_of(st.integers(0, 5), st.floats(0, 100_000))),
        "factor": draw(st.one_of(st.integers(1, 1_000), st.floats(1, 1_000))),
        "backoff": draw(st.sampled_from(["exponential", "linear", "fixed", lambda attempt: attempt**0.5])),
        "jitter": draw(st.sampled_from(get_args(Jitter))),
    }
    return RetryPolicy(**(options | fixed))


def without_jitter(policy: RetryPolicy) -> RetryPolicy:
    return dataclasses.replace(policy, jitter="none")


def test_the_defaults_are_those_of_the_design():
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.base, policy.cap, policy.jitter) == (5, 30, 3600, "full")
    waits = [without_jitter(policy).delay(attempt, draw=0) // SECOND for attempt in range(1, 9)]
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600]


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"backoff": "exponential", "factor": 3}, [10, 30, 90, 100]),
        ({"backoff": "exponential", "factor": 1.5}, [10, 15, 22.5, 33.75]),
        ({"backoff": "linear"}, [10, 20, 30, 40]),
        ({"backoff": "fixed"}, [10, 10, 10, 10]),
        ({"backoff": lambda attempt: attempt * 0.5}, [0.5, 1, 1.5, 2]),
        ({"backoff": lambda attempt: f"{attempt}m"}, [60, 100, 100, 100]),
        ({"backoff": lambda attempt: timedelta(days=attempt)}, [100, 100, 100, 100]),
    ],
)
def test_backoff(options: dict[str, Any], waits: list[float]):
    policy = RetryPolicy(base=10, cap=100, jitter="none", **options)
    assert [policy.delay(attempt, draw=0.3) / SECOND for attempt in range(1, 5)] == waits


@given(policies(), attempts, draws)
def test_no_delay_is_negative_or_above_the_cap(policy: RetryPolicy, attempt: int, draw: float):
    delay = policy.delay(attempt, draw=draw)
    assert type(delay) is int
    assert 0 <= delay <= policy._cap


@given(policies(), attempts, draws)
def test_each_jitter_keeps_to_its_window(policy: RetryPolicy, attempt: int, draw: float):
    wait = without_jitter(policy).delay(attempt, draw=0)
    low, high = {
        "full": (0, wait),
        "equal": (wait // 2, wait),
        "additive": (
            min(wait, policy._cap - policy._base),
            min(wait, policy._cap - policy._base) + policy._base,
        ),
        "none": (wait, wait),
    }[policy.jitter]
    assert low <= policy.delay(attempt, draw=draw) <= high
    assert policy.delay(attempt, draw=0) == low
    assert high - policy.delay(attempt, draw=ALMOST_ONE) <= 1


@given(policies(), attempts, draws, draws)
def test_a_greater_draw_never_waits_less(policy: RetryPolicy, attempt: int, one: float, other: float):
    assert policy.delay(attempt, draw=min(one, other)) <= policy.delay(attempt, draw=max(one, other))


@given(policies(), attempts, draws)
def test_a_later_attempt_never_waits_less(policy: RetryPolicy, attempt: int, draw: float):
    assert policy.delay(attempt, draw=draw) <= policy.delay(attempt + 1, draw=draw)


@given(policies(jitter="additive", backoff="exponential", base=60, cap=3600, factor=2), draws)
def test_additive_jitter_spreads_at_the_cap_too(policy: RetryPolicy, draw: float):
    assert policy.delay(1_000, draw=draw) == 59 * MINUTE + int(60 * SECOND * draw)


@pytest.mark.parametrize("jitter", ["full", "equal", "additive"])
def test_ten_thousand_jobs_that_failed_together_come_back_spread(jitter: Jitter):
    policy = RetryPolicy(jitter=jitter)
    for attempt in (1, 4, 100):
        delays = [policy.delay(attempt, draw=number / 10_000) for number in range(10_000)]
        busiest = max(delays.count(delay) for delay in set(delays[::500]))
        assert max(delays) - min(delays) >= 14 * SECOND
        assert busiest <= 2


@pytest.mark.parametrize("factor", [1, 2, 1.0001, 1_000])
@pytest.mark.parametrize("base", [0, 1e-6, 30])
def test_huge_attempts_do_not_overflow(factor: float, base: float):
    policy = RetryPolicy(base=base, factor=factor, jitter="none")
    expected = round(base * SECOND) if factor == 1 or base == 0 else HOUR
    assert policy.delay(10**9, draw=0) == expected


@pytest.mark.parametrize(("attempt", "draw"), [(0, 0.5), (-1, 0.5), (1, 1.0), (1, -0.1), (1, math.nan)])
def test_attempt_and_draw_are_checked(attempt: int, draw: float):
    with pytest.raises(InvalidOption):
        RetryPolicy().delay(attempt, draw=draw)


# --- decide


def test_another_attempt_while_there_are_some():
    policy = RetryPolicy(max_attempts=3, jitter="none")
    assert policy.decide(1, RuntimeError(), draw=0) == Again(30 * SECOND)
    assert policy.decide(2, RuntimeError(), draw=0) == Again(60 * SECOND)
    assert policy.decide(3, RuntimeError(), draw=0) == Stop(Reason.EXHAUSTED, "attempt 3 of 3")
    assert policy.decide(4, RuntimeError(), draw=0) == Stop(Reason.EXHAUSTED, "attempt 4 of 3")


def test_the_jobs_own_max_attempts_wins():
    policy = RetryPolicy(max_attempts=3, jitter="none")
    assert policy.decide(1, RuntimeError(), draw=0, max_attempts=1) == Stop(
        Reason.EXHAUSTED, "attempt 1 of 1"
    )
    assert policy.decide(9, RuntimeError(), draw=0, max_attempts=10) == Again(HOUR)


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (LookupError(), None),
        (KeyError(), "KeyError is in give_up_on"),
        (ValueError(), "ValueError is not in retry_on"),
        (KeyboardInterrupt(), "KeyboardInterrupt is not in retry_on"),
    ],
)
def test_classes_decide_and_giving_up_wins(error: BaseException, detail: str | None):
    policy = RetryPolicy(retry_on=(LookupError, OSError), give_up_on=KeyError, jitter="none")
    expected = Again(30 * SECOND) if detail is None else Stop(Reason.GAVE_UP, detail)
    assert policy.decide(1, error, draw=0) == expected


def test_every_exception_is_retried_unless_said_otherwise():
    assert isinstance(RetryPolicy().decide(1, Exception(), draw=0), Again)
    assert isinstance(RetryPolicy().decide(1, SystemExit(), draw=0), Stop)
    assert isinstance(RetryPolicy(retry_on=BaseException).decide(1, SystemExit(), draw=0), Again)


@given(policies(), st.integers(1, 20), draws)
def test_a_job_is_tried_max_attempts_times(policy: RetryPolicy, max_attempts: int, draw: float):
    tried = 1
    while isinstance(policy.decide(tried, OSError(), draw=draw, max_attempts=max_attempts), Again):
        tried += 1
    assert tried == max_attempts


# --- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 10,000, not 0"),
        ({"max_attempts": MOST_ATTEMPTS + 1}, "max_attempts must be a whole number from 1 to 10,000"),
        ({"max_attempts": True}, "max_attempts must be a whole number"),
        ({"base": -1}, "base must not be negative, got -1"),
        ({"base": "soon"}, "base must be seconds, a timedelta or text such as"),
        ({"cap": math.inf}, "cap must be seconds, a timedelta or text such as"),
        ({"base": "2h"}, "cap=3600 is shorter than base='2h'"),
        ({"backoff": "quadratic"}, 'backoff must be one of "exponential", "linear", "fixed" or a function'),
        ({"backoff": ["fixed"]}, "backoff must be one of"),
        ({"factor": 0.5}, "factor must be a number from 1 to 1,000, not 0.5"),
        ({"factor": math.nan}, "factor must be a number"),
        ({"factor": math.inf}, "factor must be a number"),
        pytest.param({"factor": HUGE}, "factor must be a number", id="huge"),
        ({"factor": True}, "factor must be a number"),
        ({"factor": "2"}, "factor must be a number"),
        ({"jitter": "some"}, 'jitter must be one of "full", "equal", "additive", "none", not \'some\''),
        ({"jitter": None}, "jitter must be one of"),
        ({"retry_on": "ValueError"}, "retry_on must be an exception class or a tuple of them"),
        (
            {"retry_on": (ValueError, int)},
            "retry_on must be an exception class or a tuple of them, not <class",
        ),
        ({"give_up_on": [ValueError]}, "give_up_on must be an exception class or a tuple of them"),
        ({"give_up_on": ValueError()}, "give_up_on must be an exception class or a tuple of them"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(InvalidOption) as refused:
        RetryPolicy(**options)
    assert str(refused.value).startswith(message)


def test_a_coroutine_function_is_no_backoff():
    async def backoff(attempt: int) -> float:
        return attempt

    with pytest.raises(InvalidOption, match="backoff must be a plain function"):
        RetryPolicy(backoff=backoff)  # pyright: ignore[reportArgumentType]


def broken(attempt: int) -> Duration:
    return 1 // (attempt - 2)


class Nonsense:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __call__(self, attempt: int) -> Any:
        return self.answer


def test_a_backoff_that_raises_is_named():
    with pytest.raises(InvalidOption, match=r"^backoff broken\(2\) raised ZeroDivisionError: ") as refused:
        RetryPolicy(backoff=broken).decide(2, OSError(), draw=0)
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "answer", [None, -1, math.nan, math.inf, True, "soon", pytest.param(HUGE, id="huge")]
)
def test_a_backoff_that_answers_nonsense_is_named(answer: object):
    with pytest.raises(InvalidOption, match=r"^the answer of backoff Nonsense\(1\) must "):
        RetryPolicy(backoff=Nonsense(answer)).delay(1, draw=0)


def test_a_policy_is_a_value():
    policy = RetryPolicy(base="1m", give_up_on=(ValueError,))
    assert policy == RetryPolicy(base="1m", give_up_on=(ValueError,))
    assert hash(policy) == hash(RetryPolicy(base="1m", give_up_on=(ValueError,)))
    assert dataclasses.replace(policy, jitter="none").delay(1, draw=0) == MINUTE
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.base = 1  # pyright: ignore[reportAttributeAccessIssue]


# --- crashes


def test_after_a_crash_at_once_then_doubling_to_a_minute():
    assert [crash_delay(crashes) // SECOND for crashes in range(10)] == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]


@given(st.integers(2, 10**9))
def test_crash_delays_are_bounded(crashes: int):
    assert crash_delay(crashes) == min(CRASH_CAP, SECOND * 2 ** min(crashes - 2, 30))
