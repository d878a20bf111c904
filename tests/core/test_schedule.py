"""Intervals, one-off rules, bounds, previews, jitter. Cron: test_cron.py; missed ticks: test_due_ticks.py."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.cron import Cron
from windlass.core.duration import LONGEST, Duration
from windlass.core.schedule import Every, Once, Rule, jitter_of, latest_tick, next_tick, upcoming
from windlass.core.units import DAY, HOUR, MAX_INTEGER, MINUTE, SECOND
from windlass.errors import InvalidOption

NOW = 1_800_000_000 * SECOND

times = st.integers(0, MAX_INTEGER)
intervals = st.builds(Every, st.integers(SECOND, LONGEST), times)
rules: st.SearchStrategy[Rule] = st.one_of(
    intervals,
    st.builds(Every, st.integers(SECOND, DAY), times),
    st.builds(Once, times),
    st.builds(
        Cron,
        st.sampled_from(["* * * * *", "*/7 3 * * *", "0 2 * * MON", "@monthly", "0 0 29 2 *"]),
        st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe", "America/Havana"]),
    ),
)


# --- intervals


@given(intervals, times)
def test_an_interval_counts_elapsed_time_from_its_anchor_without_drift(rule: Every, after: int):
    tick = rule.next_tick(after)
    assert tick is not None
    assert after < tick <= after + rule.interval
    assert (tick - rule.anchor) % rule.interval == 0
    assert rule.latest_tick(after) == tick - rule.interval
    assert rule.latest_tick(tick) == tick


def test_an_interval_stands_on_the_epoch_unless_anchored():
    assert upcoming(Every.of("1h"), NOW + 1, 2) == [NOW + HOUR, NOW + 2 * HOUR]
    anchor = datetime(2030, 1, 1, 0, 7, tzinfo=UTC)
    shifted = Every.of("1h", anchor=anchor)
    assert upcoming(shifted, NOW, 2) == [NOW + 7 * MINUTE, NOW + 67 * MINUTE]


@pytest.mark.parametrize(
    ("written", "interval"),
    [("5m", 5 * MINUTE), (1, SECOND), (1.5, 3 * SECOND // 2), (timedelta(days=1), DAY)],
)
def test_intervals_as_users_write_them(written: Duration, interval: int):
    assert Every.of(written) == Every(interval)


@pytest.mark.parametrize("interval", [300, 0, -SECOND, SECOND - 1, LONGEST + 1, "5m", 5e6, True, None])
def test_an_interval_that_looks_like_seconds_is_refused_with_the_remedy(interval: int):
    with pytest.raises(
        InvalidOption, match=r'^interval, in microseconds \(Every\.of takes .* "5m"\), must be'
    ):
        Every(interval)


def test_other_wrong_intervals():
    with pytest.raises(InvalidOption, match="must be a whole number from 1,000,000"):
        Every.of("500ms")
    with pytest.raises(InvalidOption, match="interval must not be negative"):
        Every.of(-5)
    with pytest.raises(InvalidOption, match="anchor must be a datetime that says its zone"):
        Every.of("5m", anchor=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidOption, match="anchor must be a whole number"):
        Every(MINUTE, -1)


# --- once


@given(times, times)
def test_once_fires_once(at: int, after: int):
    rule = Once(at)
    assert next_tick(rule, after) == (at if at > after else None)
    assert latest_tick(rule, after) == (at if at <= after else None)
    assert upcoming(rule, -1, 5) == [at]


def test_once_as_users_write_it():
    assert Once.of(datetime(2027, 1, 15, 8, tzinfo=UTC)) == Once(NOW)
    for wrong in (-1, MAX_INTEGER + 1, 1.5, None):
        with pytest.raises(InvalidOption, match="at must be a whole number"):
            Once(wrong)  # pyright: ignore[reportArgumentType]


# --- any rule


@given(rules, st.integers(-DAY, MAX_INTEGER + DAY))
def test_ticks_are_strictly_after_and_fit_into_every_store(rule: Rule, after: int):
    tick = next_tick(rule, after)
    assert tick is None or max(after, -1) < tick <= MAX_INTEGER
    latest = latest_tick(rule, after)
    assert latest is None or 0 <= latest <= after


@given(rules, times)
def test_forwards_and_backwards_agree(rule: Rule, after: int):
    ticks = upcoming(rule, after, 10)
    for tick, following in pairwise([after, *ticks]):
        assert tick < following
        assert latest_tick(rule, following) == following
        assert next_tick(rule, following - 1) == following
    for tick, following in pairwise(ticks):
        assert latest_tick(rule, following - 1) == tick


@given(rules, times, st.none() | times, st.none() | times)
def test_bounds(rule: Rule, after: int, start: int | None, end: int | None):
    ticks = upcoming(rule, after, 5, start=start, end=end)
    low = max(after, (start or 0) - 1)
    assert ticks == [tick for tick in upcoming(rule, low, 5) if end is None or tick < end]


def test_start_is_in_and_end_is_out():
    rule = Every.of("1m")
    found = upcoming(rule, NOW - DAY, 10, start=NOW, end=NOW + 2 * MINUTE)
    assert found == [NOW, NOW + MINUTE]


@pytest.mark.parametrize("count", [-1, 1_001, True, 1.0])
def test_a_preview_is_bounded(count: int):
    with pytest.raises(InvalidOption, match="count must be a whole number from 0 to 1,000"):
        upcoming(Every.of("1m"), NOW, count)
    assert len(upcoming(Every.of("1m"), NOW, 1_000)) == 1_000
    assert upcoming(Every.of("1m"), NOW, 0) == []


@given(rules)
def test_a_rule_survives_the_store(rule: Rule):
    assert msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule


def test_a_stored_rule_is_checked_when_read():
    with pytest.raises(msgspec.ValidationError, match="interval, in microseconds"):
        msgspec.json.decode(b'{"rule":"every","interval":5}', type=Rule)


# --- jitter


@given(st.text(st.characters(codec="utf-8")), times, st.integers(0, LONGEST))
def test_jitter_is_within_its_bound_and_the_same_everywhere(name: str, tick: int, jitter: int):
    delay = jitter_of(name, tick, jitter)
    assert 0 <= delay <= max(0, jitter - 1)
    assert delay == jitter_of(name, tick, jitter)


def test_jitter_never_changes_between_versions():
    """Two versions run side by side during a deploy, and must agree."""
    assert jitter_of("nightly", NOW, MINUTE) == 47_628_148
    assert jitter_of("nightly", NOW + DAY, MINUTE) != jitter_of("nightly", NOW, MINUTE)


def test_jitter_spreads_schedules_of_one_tick():
    delays = [jitter_of(f"report-{number}", NOW, HOUR) // MINUTE for number in range(1_000)]
    assert set(delays) == set(range(60))
    assert max(delays.count(minute) for minute in range(60)) < 50
