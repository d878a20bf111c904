"""Where clocks change: ticks against a scan that only ever asks what a clock shows at a given minute."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.cron import Cron
from windlass.core.schedule import latest_tick, next_tick, upcoming
from windlass.core.units import DAY, HOUR, MINUTE, SECOND

ZONES = [
    "Africa/Cairo",
    "Africa/Casablanca",  # an hour back for Ramadan, which moves
    "America/Caracas",  # half an hour, once each way
    "America/Havana",  # forward at midnight
    "America/New_York",
    "America/Santiago",  # midnight
    "America/Sao_Paulo",
    "America/St_Johns",  # at one minute past midnight, until 2011
    "Antarctica/Casey",  # three hours
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",  # 5:45, from 5:30
    "Asia/Pyongyang",
    "Asia/Tehran",
    "Atlantic/Azores",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Dublin",  # winter is the exception
    "Europe/London",
    "Europe/Paris",
    "Pacific/Apia",  # without 30 December 2011
    "Pacific/Chatham",
    "Pacific/Kwajalein",  # without 21 August 1993
    "UTC",
]
SIGHT = 3 * DAY  # what the scan sees on either side
COMPARED = 2 * DAY


@dataclass(frozen=True)
class Times:
    """Minutes and hours of a rule, as text and as values."""

    minute: str
    minutes: frozenset[int]
    hour: str
    hours: frozenset[int]

    @property
    def expression(self) -> str:
        return f"{self.minute} {self.hour} * * *"

    @property
    def fixed(self) -> bool:
        return "*" not in self.minute + self.hour

    def match(self, wall: int) -> bool:
        return wall // MINUTE % 60 in self.minutes and wall // HOUR % 24 in self.hours


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def clock(zone: str, at: int) -> int:
    """What a clock shows, as if it were UTC."""
    local = datetime.fromtimestamp(at // SECOND, ZoneInfo(zone))
    return int(local.replace(tzinfo=UTC).timestamp()) * SECOND


@lru_cache(maxsize=64)
def scan(zone: str, around: int) -> tuple[list[int], list[int]]:
    """Every minute around a time, and what the clock shows at it."""
    minutes = list(range(around - SIGHT, around + SIGHT, MINUTE))
    return minutes, [clock(zone, minute) for minute in minutes]


def expected_ticks(times: Times, zone: str, around: int) -> list[int]:
    minutes, walls = scan(zone, around)
    if not times.fixed:
        return [minute for minute, wall in zip(minutes, walls, strict=True) if times.match(wall)]
    # A nominal time fires when the clock shows it, or more, for the first time.
    ticks: set[int] = set()
    nominal = walls[0]
    for minute, wall in zip(minutes, walls, strict=True):
        while nominal <= wall:
            if times.match(nominal):
                ticks.add(minute)
            nominal += MINUTE
    return sorted(ticks)


@lru_cache(maxsize=1024)
def changes(zone: str, year: int) -> list[int]:
    """The minutes at which clocks are changed in a year."""
    found: list[int] = []
    days = [at(f"{year}-01-01") + days * DAY for days in range(367)]
    for day, following in pairwise(days):
        if clock(zone, following) - clock(zone, day) != DAY:
            offset = clock(zone, day) - day
            low, high = 0, DAY // MINUTE
            while high - low > 1:
                middle = (low + high) // 2
                same = clock(zone, day + middle * MINUTE) - day - middle * MINUTE == offset
                low, high = (middle, high) if same else (low, middle)
            found.append(day + high * MINUTE)
    return found


def enumerated(rule: Cron, low: int, high: int) -> list[int]:
    ticks: list[int] = []
    while (tick := next_tick(rule, ticks[-1] if ticks else low)) is not None and tick < high:
        ticks.append(tick)
    return ticks


HOURLY = [
    Times("0", frozenset({0}), "*", frozenset(range(24))),
    Times("*/20", frozenset({0, 20, 40}), "*", frozenset(range(24))),
    Times("*/15", frozenset({0, 15, 30, 45}), "0-3", frozenset({0, 1, 2, 3})),
    Times("*/45", frozenset({0, 45}), "23,1", frozenset({23, 1})),
]
FIXED = [
    Times("30", frozenset({30}), "2", frozenset({2})),
    Times("0", frozenset({0}), "0", frozenset({0})),
    Times("1,59", frozenset({1, 59}), "0-3,23", frozenset({0, 1, 2, 3, 23})),
    Times("0-59/10", frozenset(range(0, 60, 10)), "0-23", frozenset(range(24))),
]


def assert_exact_around(zone: str, around: int) -> None:
    for times in HOURLY + FIXED:
        rule = Cron(times.expression, zone)
        expected = [
            tick
            for tick in expected_ticks(times, zone, around)
            if around - COMPARED < tick < around + COMPARED
        ]
        assert enumerated(rule, around - COMPARED, around + COMPARED) == expected, times.expression


@pytest.mark.parametrize("zone", ZONES)
def test_each_change_of_clocks_in_recent_years(zone: str):
    recent = [change for year in range(2019, 2027) for change in changes(zone, year)]
    for change in recent[-2:]:
        assert_exact_around(zone, change)


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        ("Pacific/Apia", "2011-12-30T10:00"),
        ("Pacific/Kwajalein", "1993-08-21T12:00"),
        ("America/Caracas", "2007-12-09T07:00"),
        ("America/Caracas", "2016-05-01T07:00"),
        ("America/St_Johns", "2006-10-29T02:31"),
        ("Antarctica/Casey", "2018-03-10T17:00"),
        ("Antarctica/Vostok", "1994-01-31T17:00"),  # seven hours back
        ("Asia/Kathmandu", "1985-12-31T18:30"),
        ("Asia/Pyongyang", "2015-08-14T15:00"),
        ("Europe/Lisbon", "1992-09-27T01:00"),
    ],
)
def test_odd_changes_of_clocks(zone: str, around: str):
    assert_exact_around(zone, at(around))


@pytest.mark.slow
@pytest.mark.parametrize("zone", sorted(available_timezones()))
def test_each_change_of_clocks_in_each_zone(zone: str):
    for year in range(2023, 2026):
        for change in changes(zone, year):
            assert_exact_around(zone, change)


@st.composite
def some_times(draw: st.DrawFn) -> Times:
    def part(top: int) -> tuple[str, frozenset[int]]:
        step = draw(st.integers(1, top))
        listed = draw(st.frozensets(st.integers(0, top - 1), min_size=1, max_size=6))
        return draw(
            st.sampled_from(
                [
                    (",".join(map(str, listed)), listed),
                    (f"0-{top - 1}/{step}", frozenset(range(0, top, step))),
                    (f"*/{step}", frozenset(range(0, top, step))),
                    ("*", frozenset(range(top))),
                ]
            )
        )

    return Times(*part(60), *part(24))


@given(st.data(), st.sampled_from(ZONES), st.integers(1973, 2040), some_times())
def test_any_rule_asked_at_any_time_around_any_change(
    data: st.DataObject, zone: str, year: int, times: Times
):
    around = data.draw(st.sampled_from(changes(zone, year) or [at(f"{year}-03-31")]))
    nearby = st.one_of(
        st.integers(-COMPARED, COMPARED),
        st.integers(-4 * 60, 4 * 60).map(lambda minutes: minutes * MINUTE),
    )
    asked = around + data.draw(nearby)
    rule = Cron(times.expression, zone)
    expected = expected_ticks(times, zone, around)

    following = expected[bisect_right(expected, asked) :]
    if following:
        assert next_tick(rule, asked) == following[0]
    else:
        assert (next_tick(rule, asked) or around + SIGHT) >= around + SIGHT

    preceding = expected[: bisect_right(expected, asked)]
    if preceding:
        assert latest_tick(rule, asked) == preceding[-1]
    else:
        assert (latest_tick(rule, asked) or 0) < around - SIGHT + DAY


@given(st.data(), st.sampled_from(ZONES), st.integers(1973, 2040), some_times())
def test_ticks_strictly_increase_and_none_is_passed_over(
    data: st.DataObject, zone: str, year: int, times: Times
):
    around = data.draw(st.sampled_from(changes(zone, year) or [at(f"{year}-03-31")]))
    rule = Cron(times.expression, zone)
    ticks = upcoming(rule, around - data.draw(st.integers(0, DAY)), 15)
    for tick, following in pairwise(ticks):
        assert tick < following
        assert latest_tick(rule, following - 1) == tick
        between = data.draw(st.integers(tick, following - 1))
        assert next_tick(rule, between) == following


# --- the documented rule, in the words of the catalogue


def local(zone: str, ticks: list[int]) -> list[str]:
    moments = [datetime.fromtimestamp(tick // SECOND, ZoneInfo(zone)) for tick in ticks]
    return [moment.strftime("%d %H:%M %z") for moment in moments]


@pytest.mark.parametrize(
    ("expression", "zone", "after", "ticks"),
    [
        # In a gap, once, at its end; in a repeated hour, once.
        ("30 2 * * *", "Europe/Paris", "2024-03-30T12:00", ["31 03:00 +0200", "01 02:30 +0200"]),
        ("15,45 2 * * *", "Europe/Paris", "2024-03-30T12:00", ["31 03:00 +0200", "01 02:15 +0200"]),
        ("0 2,3 * * *", "Europe/Paris", "2024-03-30T12:00", ["31 03:00 +0200", "01 02:00 +0200"]),
        ("30 2 * * *", "Europe/Paris", "2024-10-26T12:00", ["27 02:30 +0200", "28 02:30 +0100"]),
        # Asked within the repeated hour, after the first occurrence.
        ("30 2 * * *", "Europe/Paris", "2024-10-27T01:10", ["28 02:30 +0100"]),
        # With a star, by elapsed time.
        ("0 * * * *", "Europe/Paris", "2024-03-31T00:00", ["31 03:00 +0200", "31 04:00 +0200"]),
        ("30 * * * *", "Europe/Paris", "2024-10-27T00:00", ["27 02:30 +0200", "27 02:30 +0100"]),
        ("*/30 2 * * *", "Europe/Paris", "2024-03-30T12:00", ["01 02:00 +0200", "01 02:30 +0200"]),
        # Half an hour, two hours, a day, midnight.
        ("0,30 2 * * *", "Australia/Lord_Howe", "2024-10-05T12:00", ["06 02:30 +1100", "07 02:00 +1100"]),
        ("*/30 3 * * *", "Australia/Lord_Howe", "2024-10-05T12:00", ["06 03:00 +1100", "06 03:30 +1100"]),
        ("30 1 * * *", "Antarctica/Troll", "2024-03-30T12:00", ["31 03:00 +0200", "01 01:30 +0200"]),
        ("0 3 * * *", "Pacific/Apia", "2011-12-29T14:00", ["31 00:00 +1400", "31 03:00 +1400"]),
        ("0 0 * * *", "America/Havana", "2024-03-09T12:00", ["10 01:00 -0400", "11 00:00 -0400"]),
        ("*/30 0 * * SUN", "America/Havana", "2024-03-09T12:00", ["17 00:00 -0400", "17 00:30 -0400"]),
    ],
)
def test_the_documented_rule(expression: str, zone: str, after: str, ticks: list[str]):
    found = upcoming(Cron(expression, zone), at(after), len(ticks))
    assert local(zone, found) == ticks


def test_an_offset_with_seconds():
    """Liberia was 44 minutes 30 seconds behind until 1972."""
    rule = Cron("0 12 * * *", "Africa/Monrovia")
    noon = at("1971-06-01T12:44:30")
    assert upcoming(rule, noon - 1, 2) == [noon, noon + DAY]
    assert latest_tick(rule, noon) == noon
    assert latest_tick(rule, noon - 1) == noon - DAY


def test_a_rule_that_met_only_gaps_for_long_is_taken_to_meet_nothing_before():
    """Moscow skipped this hour each spring until 2010 and has not changed its clocks since 2014."""
    rule = Cron("*/30 2 * 3 7L", "Europe/Moscow")
    assert latest_tick(rule, at("2010-12-31")) is None
    assert local("Europe/Moscow", upcoming(rule, at("2014-12-31"), 1)) == ["29 02:00 +0300"]


@pytest.mark.slow
@pytest.mark.parametrize("zone", sorted(available_timezones()))
def test_no_zone_repeats_more_than_the_search_looks_back(zone: str):
    """The search looks 12 hours around; the most so far were Vostok's seven."""
    for year in range(1970, 2040):
        for change in changes(zone, year):
            assert clock(zone, change - MINUTE) - clock(zone, change) < 12 * HOUR


def test_the_calendar_of_a_zone_beats_that_of_utc():
    """New Year in Kiritimati is 10:00 on 31 December in UTC."""
    rule = Cron("@yearly", "Pacific/Kiritimati")
    midnight = datetime(2030, 1, 1, tzinfo=ZoneInfo("Pacific/Kiritimati"))
    expected = int(midnight.timestamp()) * SECOND
    assert next_tick(rule, at("2029-06-01")) == expected == at("2029-12-31T10:00")
