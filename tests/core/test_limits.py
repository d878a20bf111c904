from fractions import Fraction
from itertools import combinations_with_replacement
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from windlass.core.limits import (
    Bucket,
    Rate,
    check_rate,
    full,
    has_slot,
    parse_rate,
    refilled,
    returned,
    taken,
    token_in,
    tokens,
)
from windlass.core.units import DAY, HOUR, MAX_INTEGER, MILLISECOND, MINUTE, SECOND
from windlass.errors import InvalidOption

NOW = 1_800_000_000_000_000
periods = st.one_of(st.integers(MILLISECOND, DAY), st.sampled_from([MILLISECOND, SECOND, MINUTE, HOUR, DAY]))
small_rates = st.builds(
    Rate,
    st.integers(1, 20),
    st.sampled_from([MILLISECOND, 7_001, SECOND, MINUTE]),
    st.integers(1, 5),
)


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    """Any rate that is not refused."""
    count, per = draw(st.integers(1, 1_000_000)), draw(periods)
    most = MAX_INTEGER // 2 // per
    return check_rate(Rate(count, per, draw(st.one_of(st.none(), st.integers(1, most), st.just(most)))))


@st.composite
def buckets(draw: st.DrawFn, rate: Rate) -> Bucket:
    most = rate.size * rate.per
    level = draw(st.integers(0, most) | st.just(most))
    return Bucket(level, NOW - draw(st.integers(0, 10 * DAY)), rate.per)


class Happening(NamedTuple):
    """A token taken (1) or brought back (-1), and the rate that was in force."""

    at: int
    net: int
    rate: Rate


waits = st.one_of(st.just(0), st.integers(1, 3_000), st.integers(1, 3 * SECOND), st.just(HOUR))
doings = st.lists(
    st.tuples(waits, st.sampled_from(["take", "take", "take", "return", "change"])), max_size=60
)


def assert_windows_hold(happenings: list[Happening]) -> None:
    """In every window: what was taken, less what came back in it, is within burst and rate."""
    for first, last in combinations_with_replacement(range(len(happenings)), 2):
        window = happenings[first : last + 1]
        width = window[-1].at - window[0].at
        fastest = max(Fraction(each.rate.count, each.rate.per) for each in window)
        assert sum(each.net for each in window) <= fastest * width + max(each.rate.size for each in window)


@given(small_rates, doings, st.data())
def test_no_window_hands_out_more_than_rate_and_burst(
    rate: Rate, doing: list[tuple[int, str]], data: st.DataObject
):
    """Greedily, with tokens that come back and rates that change."""
    now, bucket, held = NOW, full(rate, NOW), 0
    happenings: list[Happening] = []
    for wait, what in doing:
        now += wait
        if what == "change":
            rate = data.draw(small_rates)
        elif what == "return" and held:
            bucket, held = returned(bucket, rate, now, now), held - 1
            happenings.append(Happening(now, -1, rate))
        elif what == "take":
            while token_in(bucket, rate, now) == 0:
                bucket, held = taken(bucket, rate, now), held + 1
                happenings.append(Happening(now, 1, rate))
        assert 0 <= bucket.level <= MAX_INTEGER
    assert_windows_hold(happenings)


@given(small_rates, st.lists(st.tuples(waits, st.sampled_from(["start", "claim", "return"])), max_size=60))
def test_no_window_starts_more_than_rate_and_burst(rate: Rate, doing: list[tuple[int, str]]):
    """Of those alone that were not given back, however late that was."""
    now, bucket = NOW, full(rate, NOW)
    claimed: list[int] = []
    starts: list[Happening] = []
    for wait, what in doing:
        now += wait
        if what == "return" and claimed:
            bucket = returned(bucket, rate, now, claimed.pop(0))
        elif what == "claim" and token_in(bucket, rate, now) == 0:
            bucket = taken(bucket, rate, now)
            claimed.append(now)
        elif what == "start":
            while token_in(bucket, rate, now) == 0:
                bucket = taken(bucket, rate, now)
                starts.append(Happening(now, 1, rate))
    assert_windows_hold(starts)


@given(rates(), st.integers(0, DAY))
def test_a_token_that_comes_back_is_worth_what_has_not_come_since(rate: Rate, wait: int):
    """Never more than if nobody had claimed, and all of it if that is given back at once."""
    rate = Rate(rate.count, rate.per, max(2, rate.size))
    left = taken(full(rate, NOW), rate, NOW)
    assert returned(left, rate, NOW, NOW) == full(rate, NOW)
    empty = Bucket(0, NOW, rate.per)
    back = returned(empty, rate, NOW + wait, NOW)
    assert back.level == max(rate.per, refilled(empty, rate, NOW + wait).level)


@given(rates(), st.integers(2, 20), st.integers(1, 50))
def test_who_asks_again_when_told_gets_the_whole_rate(rate: Rate, burst: int, more: int):
    """Nothing is lost by rounding (a burst of one alone has no room for what is gained in a microsecond)."""
    assume(rate.count <= rate.per)
    rate = Rate(rate.count, rate.per, burst)
    now, bucket = NOW, full(rate, NOW)
    for _ in range(burst):
        assert token_in(bucket, rate, now) == 0
        bucket = taken(bucket, rate, now)
    for _ in range(more):
        now += token_in(bucket, rate, now)
        bucket = taken(bucket, rate, now)
    assert now - NOW == -(-more * rate.per // rate.count)


@given(st.data(), rates(), rates())
def test_a_token_comes_when_it_was_said_and_not_before(data: st.DataObject, old: Rate, rate: Rate):
    bucket = data.draw(st.one_of(buckets(old), buckets(rate)))
    wait = token_in(bucket, rate, NOW)
    assert tokens(bucket, rate, NOW + wait) >= 1
    assert wait == 0 or tokens(bucket, rate, NOW + wait - 1) == 0


@given(st.data(), rates(), st.lists(st.integers(0, DAY), max_size=5))
def test_looking_costs_and_gains_nothing(data: st.DataObject, rate: Rate, looks: list[int]):
    bucket = data.draw(buckets(rate))
    looked = bucket
    for at in sorted(looks):
        looked = refilled(looked, rate, NOW + at)
    assert refilled(looked, rate, NOW + 2 * DAY) == refilled(bucket, rate, NOW + 2 * DAY)


@given(st.data(), rates(), st.integers(0, 400 * DAY))
def test_a_bucket_never_overflows(data: st.DataObject, rate: Rate, wait: int):
    bucket = data.draw(buckets(rate))
    for later in (refilled(bucket, rate, NOW + wait), returned(bucket, rate, NOW + wait, NOW)):
        assert bucket.level <= later.level <= rate.size * rate.per


@given(st.data(), rates())
def test_a_token_that_comes_back_undoes_its_taking(data: st.DataObject, rate: Rate):
    bucket = data.draw(buckets(rate))
    assume(token_in(bucket, rate, NOW) == 0)
    assert returned(taken(bucket, rate, NOW), rate, NOW, NOW) == refilled(bucket, rate, NOW)


@given(rates(), st.integers(0, 10 * DAY))
def test_a_token_returned_to_a_full_bucket_is_lost(rate: Rate, wait: int):
    assert tokens(returned(full(rate, NOW), rate, NOW + wait, NOW + wait), rate, NOW + wait) == rate.size


@given(st.data(), rates(), rates())
def test_a_changed_rate_keeps_whole_tokens_up_to_its_own_burst(data: st.DataObject, old: Rate, new: Rate):
    bucket = data.draw(buckets(old))
    bucket = Bucket(bucket.level, NOW, bucket.per)
    assert tokens(bucket, new, NOW) == min(tokens(bucket, old, NOW), new.size)


class Bounded(int):
    """An integer that fails where a store's would: beyond 2^53."""

    def __mul__(self, other: int) -> "Bounded":
        return bounded(int(self) * int(other))

    def __add__(self, other: int) -> "Bounded":
        return bounded(int(self) + int(other))

    def __floordiv__(self, other: int) -> "Bounded":
        return bounded(int(self) // int(other))

    __rmul__, __radd__ = __mul__, __add__


def bounded(value: int) -> Bounded:
    assert abs(value) <= MAX_INTEGER, value
    return Bounded(value)


@given(rates(), rates(), st.integers(0, 10 * DAY))
@example(old=Rate(1, MILLISECOND, MAX_INTEGER // 2 // MILLISECOND), rate=Rate(1, DAY), wait=0)
@example(old=Rate(1), rate=Rate(1_000_000), wait=400 * DAY)
def test_no_step_of_the_arithmetic_passes_what_stores_hold(old: Rate, rate: Rate, wait: int):
    bucket = Bucket(bounded(old.size * old.per), bounded(NOW), bounded(old.per))
    rate = Rate(bounded(rate.count), bounded(rate.per), None if rate.burst is None else bounded(rate.burst))
    for at_hand in (bucket, Bucket(bounded(0), bounded(NOW), bounded(old.per))):
        token_in(at_hand, rate, bounded(NOW + wait))
        returned(at_hand, rate, bounded(NOW + wait), bounded(NOW))


@given(st.data(), rates(), st.integers(1, HOUR))
def test_a_clock_that_steps_back_gains_nothing(data: st.DataObject, rate: Rate, back: int):
    bucket = Bucket(data.draw(buckets(rate)).level, NOW, rate.per)
    there_and_back = refilled(refilled(bucket, rate, NOW - back), rate, NOW)
    assert there_and_back == bucket


# --- rates as they are written


@pytest.mark.parametrize(
    ("text", "rate", "size"),
    [
        ("100/s", Rate(100), 10),
        ("5/s", Rate(5), 1),
        ("19/s", Rate(19), 1),
        ("20/s", Rate(20), 2),
        ("5/m", Rate(5, MINUTE), 1),
        ("10/500ms", Rate(10, 500 * MILLISECOND), 2),
        (" 3 / 2 h ", Rate(3, 2 * HOUR), 1),
        ("7/d", Rate(7, DAY), 1),
        ("1000000/1ms", Rate(1_000_000, MILLISECOND), 100_000_000),
    ],
)
def test_rates_are_read_with_a_burst_of_a_tenth_of_a_second(text: str, rate: Rate, size: int):
    assert parse_rate(text) == rate
    assert rate.size == size


def test_a_burst_can_be_given():
    assert parse_rate("5/s", burst=50) == Rate(5, SECOND, 50)
    assert parse_rate("5/s", burst=50).size == 50


@pytest.mark.parametrize(
    "text", ["", "5", "/s", "5/", "5/w", "-5/s", "5.5/s", "5/s/s", "5/-1s", "1e3/s", "5 per s", "5/s\n5/s"]
)
def test_what_is_no_rate_is_refused_with_an_example(text: str):
    with pytest.raises(InvalidOption, match='write for example "100/s"'):
        parse_rate(text)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (Rate(0), "1 to 1,000,000 per period, not 0"),
        (Rate(1_000_001), "not 1000001"),
        (Rate(1, MILLISECOND - 1), "from 1 ms to 1 day, not 999 µs"),
        (Rate(1, 0), "not 0 µs"),
        (Rate(1, DAY + 1), "not 86400000001 µs"),
        (Rate(1, SECOND, 0), "a burst of 0 is out of range"),
        (Rate(1, SECOND, -1), "a burst of -1 is out of range"),
        (Rate(1, DAY, MAX_INTEGER // 2 // DAY + 1), "is out of range for a period"),
    ],
)
def test_rates_out_of_range_are_refused(rate: Rate, message: str):
    with pytest.raises(InvalidOption, match=message):
        check_rate(rate)


@pytest.mark.parametrize(
    "rate",
    [Rate(1, MILLISECOND), Rate(1_000_000, DAY), Rate(1, DAY, MAX_INTEGER // 2 // DAY), Rate(1, SECOND, 1)],
)
def test_rates_at_the_edge_are_accepted(rate: Rate):
    assert check_rate(rate) is rate


# --- concurrency


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_slot_is_free_below_the_limit(running: int, concurrency: int):
    assert has_slot(running, concurrency) == (running < concurrency)
    assert has_slot(running, None)
