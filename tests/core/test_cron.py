"""Cron expressions: what they mean on a calendar without zones, and which are refused."""

import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.cron import LONGEST_EXPRESSION, Cron
from windlass.core.schedule import latest_tick, next_tick, upcoming
from windlass.core.units import MINUTE, SECOND
from windlass.errors import InvalidOption

# The promise is 10 ms. A shared machine stalls: the thread's own time counts, and the best of a few tries.
REFUSED_WITHIN = 0.010
TRIES = 5

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def shown(tick: int) -> str:
    return datetime.fromtimestamp(tick // SECOND, UTC).strftime("%Y-%m-%dT%H:%M")


# --- against a plain scan


@dataclass(frozen=True)
class Field:
    """One field: how it is written, and the values it stands for, made together and not by parsing."""

    text: str
    values: frozenset[int]

    @property
    def star(self) -> bool:
        return self.text.startswith("*")


@st.composite
def field_terms(draw: st.DrawFn, low: int, high: int, names: dict[int, str]) -> Field:
    def number(value: int) -> str:
        return names[value] if value in names and draw(st.booleans()) else str(value)

    start = draw(st.integers(low, high))
    end = draw(st.integers(start, high))
    step = draw(st.integers(1, high + 1))
    return draw(
        st.sampled_from(
            [
                Field(number(start), frozenset({start})),
                Field(f"{number(start)}-{number(end)}", frozenset(range(start, end + 1))),
                Field(
                    f"{start}-{end}/{step}",
                    frozenset(range(start, (end if end > start else high) + 1, step)),
                ),
                Field(f"{start}/{step}", frozenset(range(start, high + 1, step))),
                Field(f"*/{step}", frozenset(range(low, high + 1, step))),
                Field("*", frozenset(range(low, high + 1))),
            ]
        )
    )


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, names: dict[int, str] | None = None) -> Field:
    terms = draw(st.lists(field_terms(low, high, names or {}), min_size=1, max_size=3))
    return Field(
        ",".join(term.text for term in terms), frozenset(value for term in terms for value in term.values)
    )


@dataclass(frozen=True)
class Expression:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def text(self) -> str:
        return " ".join(part.text for part in (self.minute, self.hour, self.day, self.month, self.weekday))

    def has(self, day: date) -> bool:
        if day.month not in self.month.values:
            return False
        by_number = day.day in self.day.values
        by_name = bool({day.isoweekday(), day.isoweekday() % 7} & self.weekday.values)
        if self.day.star or self.weekday.star:
            return by_number and by_name
        return by_number or by_name

    def ticks(self, day: date) -> list[int]:
        midnight = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * SECOND
        if not self.has(day):
            return []
        return sorted(
            midnight + (hour * 60 + minute) * MINUTE
            for hour in self.hour.values
            for minute in self.minute.values
        )


expressions = st.builds(
    Expression,
    fields(0, 59),
    fields(0, 23),
    fields(1, 31),
    fields(1, 12, dict(enumerate(MONTHS, 1))),
    fields(0, 7, dict(enumerate(DAYS))),
)
times = st.integers(at("2019-01-01T00:00"), at("2031-01-01T00:00"))
WEEKS = 60


def cron(expression: Expression) -> Cron | None:
    try:
        return Cron(expression.text)
    except InvalidOption:
        # Refused as impossible: then no day within the longest cycle of the calendar may match.
        day = date(2000, 1, 1)
        assert not any(expression.has(day + timedelta(days=days)) for days in range(28 * 366))
        return None


@given(expressions, times)
def test_ticks_agree_with_a_scan_of_the_calendar(expression: Expression, after: int):
    if (rule := cron(expression)) is None:
        return
    first = datetime.fromtimestamp(after // SECOND, UTC).date()
    days = [first + timedelta(days=days) for days in range(7 * WEEKS)]
    found = next((tick for day in days for tick in expression.ticks(day) if tick > after), None)
    tick = next_tick(rule, after)
    assert tick is not None
    assert tick == found or (found is None and tick > after + 7 * (WEEKS - 1) * 86_400 * SECOND)
    before = [first - timedelta(days=days) for days in range(7 * WEEKS)]
    found = next((tick for day in before for tick in reversed(expression.ticks(day)) if tick <= after), None)
    assert found is None or latest_tick(rule, after) == found


@given(expressions, times)
def test_ticks_strictly_increase_and_are_found_backwards_too(expression: Expression, after: int):
    if (rule := cron(expression)) is None:
        return
    ticks = upcoming(rule, after, 6)
    assert ticks == sorted(set(ticks))
    assert ticks[0] > after
    for tick, following in pairwise(ticks):
        assert latest_tick(rule, tick) == tick
        assert latest_tick(rule, following - 1) == tick
        assert next_tick(rule, tick - 1) == tick


# --- forms


@pytest.mark.parametrize(
    ("expression", "ticks"),
    [
        ("0 3 * * *", ["2024-01-31T03:00", "2024-02-01T03:00"]),
        ("  0\t3  * * *\n", ["2024-01-31T03:00"]),
        ("@hourly", ["2024-01-31T01:00", "2024-01-31T02:00"]),
        ("@daily", ["2024-02-01T00:00", "2024-02-02T00:00"]),
        ("@MIDNIGHT", ["2024-02-01T00:00"]),
        ("@weekly", ["2024-02-04T00:00", "2024-02-11T00:00"]),
        ("@monthly", ["2024-02-01T00:00", "2024-03-01T00:00"]),
        ("@yearly", ["2025-01-01T00:00", "2026-01-01T00:00"]),
        ("@annually", ["2025-01-01T00:00"]),
        ("0 0 * feb mon-wed", ["2024-02-05T00:00", "2024-02-06T00:00", "2024-02-07T00:00"]),
        ("0 0 L * *", ["2024-02-29T00:00", "2024-03-31T00:00"]),
        ("0 0 LW * *", ["2024-02-29T00:00", "2024-03-29T00:00"]),
        ("0 0 * * 5L", ["2024-02-23T00:00", "2024-03-29T00:00"]),
        ("0 0 * * MON#2", ["2024-02-12T00:00", "2024-03-11T00:00"]),
        ("5/20 9 * * *", ["2024-01-31T09:05", "2024-01-31T09:25", "2024-01-31T09:45"]),
        # Either day when both are named, both when one starts with a star.
        ("0 0 13 * FRI", ["2024-02-02T00:00", "2024-02-09T00:00", "2024-02-13T00:00"]),
        ("0 0 */12 * FRI", ["2024-03-01T00:00", "2024-09-13T00:00"]),
        ("0 0 29 2 *", ["2024-02-29T00:00", "2028-02-29T00:00"]),
        # 29 February on a Sunday: the rarest rule.
        ("0 0 29 2 */7", ["2032-02-29T00:00", "2060-02-29T00:00", "2088-02-29T00:00", "2128-02-29T00:00"]),
    ],
)
def test_forms(expression: str, ticks: list[str]):
    found = upcoming(Cron(expression), at("2024-01-31T00:00"), len(ticks))
    assert [shown(tick) for tick in found] == ticks


def test_a_rule_says_itself_in_english():
    assert Cron("0 3 * * MON-FRI", "Europe/Paris").describe() == (
        "At 03:00 on Monday through Friday, Europe/Paris"
    )


# --- refusals


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("60 * * * *", "minute cannot be '60'; it takes 0-59"),
        ("-1 * * * *", "minute cannot be '-1'"),
        ("*/0 * * * *", "minute cannot be '*/0'"),
        ("L * * * *", "minute cannot be 'L'"),
        ("² * * * *", "minute cannot be '²'"),
        ("0 24 * * *", "hour cannot be '24'; it takes 0-23"),
        ("0 5-3 * * *", "hour cannot be '5-3'"),
        ("0 0 0 * *", "day-of-month cannot be '0'; it takes 1-31"),
        ("0 0 32 * *", "day-of-month cannot be '32'"),
        ("0 0 15W * *", "day-of-month cannot be '15W'"),
        ("0 0 ? * *", "day-of-month cannot be '?'"),
        ("0 0 * 13 *", "month cannot be '13'; it takes 1-12 or JAN-DEC"),
        ("0 0 * JANUARY *", "month cannot be 'JANUARY'"),
        ("0 0 * * 8", "day-of-week cannot be '8'; it takes 0-7"),
        ("0 0 * * FRı", "day-of-week cannot be 'FRı'"),
        ("0 0 * * MON#6", "day-of-week cannot be 'MON#6'"),
        ("0 0 * * SAT-SUN", "day-of-week cannot be 'SAT-SUN'"),
        ("0 0 30 2 *", "no day has day-of-month '30', month '2' and day-of-week '*' together"),
        ("0 0 31 2,4,6,9,11 */2", "no day has day-of-month '31'"),
        ("0 0 */28 2 MON#3", "no day has day-of-month '*/28', month '2' and day-of-week 'MON#3' together"),
        ("* * * * * *", "five fields (minute, hour, day-of-month, month, day-of-week), not 6"),
        ("* * * *", "five fields (minute, hour, day-of-month, month, day-of-week), not 4"),
        ("", "five fields"),
        ("@reboot", "'@reboot' is not a cron nickname; there are @hourly, @daily"),
        ("@", "'@' is not a cron nickname"),
        ("*" * (LONGEST_EXPRESSION + 1), "at most 256 characters, this one 257"),
        (",".join(["*/1"] * 63) + " 0 30 2 *", "at most 256 characters, this one 260"),
        (",".join(["*/1"] * 61) + " 0 30 2 *", "no day has day-of-month '30'"),
        ("0 0 30 " + ",".join(["2"] * 120) + " *", "no day has day-of-month '30'"),
        ("0 0 */28 2 " + ",".join(["MON#3", "2#4"] * 20), "no day has day-of-month '*/28'"),
        ("0-" * 100 + "0 * * * *", "minute cannot be '0-0-0"),
        ("1" + "/1" * 100 + " * * * *", "minute cannot be '1/1/1"),
        ("9" * 240 + " * * * *", "minute cannot be '999"),
        (None, "text as its expression"),
        (5, "text as its expression"),
        (["*"], "text as its expression"),
    ],
)
def test_impossible_and_hostile_expressions_are_refused_at_once(expression: str, message: str):
    assert message in quickly_refused(expression, "UTC")


@pytest.mark.parametrize(
    "tz",
    [
        "",
        "europe/paris",
        "Europe",
        "Europe/",
        "Mars/Olympus",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe/../Europe/Paris",
        "Europe//Paris",
        "Europe/Paris\x00",
        "Europe/Paris\n",
        "Éurope/Paris",
        "localtime",
        "posixrules",
        "posix/Europe/Paris",
        "right/Europe/Paris",
        "Factory",
        "UTC+2",
        "A" * 10_000,
        "A/" * 5_000,
        "C:\\Windows",
        None,
        5,
    ],
)
def test_unknown_zones_are_refused(tz: str):
    with pytest.raises(InvalidOption, match=r"is not a known time zone|text as its tz"):
        Cron("0 3 * * *", tz)


@pytest.mark.parametrize("expression", ["*/30 2 * 3 7L", "* 2 25-31 3 */7"])
def test_a_rule_whose_times_are_always_skipped_is_refused(expression: str):
    """Clocks in Paris never show these times; a rule with fixed hours would fire at the end of the gap."""
    assert "never fires in Europe/Paris" in quickly_refused(expression, "Europe/Paris")
    assert next_tick(Cron("0,30 2 * 3 7L", "Europe/Paris"), at("2024-01-01T00:00")) == at("2024-03-31T01:00")
    assert next_tick(Cron(expression, "UTC"), at("2024-01-01T00:00")) == at("2024-03-31T02:00")


def quickly_refused(expression: str, tz: str) -> str:
    """The message, after the promised time at most."""
    taken: list[float] = []
    for _ in range(TRIES):
        began = time.thread_time()
        with pytest.raises(InvalidOption) as refused:
            Cron(expression, tz)
        taken.append(time.thread_time() - began)
    assert min(taken) < REFUSED_WITHIN
    return str(refused.value)


@given(st.one_of(st.text(max_size=300), st.text("0123456789*,-/#LWMONJA@ ", max_size=40)))
def test_any_text_is_either_a_rule_that_fires_or_refused(text: str):
    try:
        rule = Cron(text)
    except InvalidOption:
        return
    assert next_tick(rule, at("2024-01-01T00:00")) is not None
    assert rule.describe()


def test_a_rule_is_a_value_that_is_checked_when_read():
    rule = Cron("0 3 * * *", "Europe/Paris")
    stored = msgspec.json.encode(rule)
    assert stored == b'{"rule":"cron","expression":"0 3 * * *","tz":"Europe/Paris"}'
    assert msgspec.json.decode(stored, type=Cron) == rule
    with pytest.raises(msgspec.ValidationError, match="hour cannot be '33'"):
        msgspec.json.decode(stored.replace(b"3", b"33"), type=Cron)
