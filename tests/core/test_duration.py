import math
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.core.duration import LONGEST, Duration, instant, micros
from windlass.core.units import DAY, HOUR, MAX_INTEGER, MINUTE, SECOND
from windlass.errors import InvalidOption

HUGE = pytest.param(10**5_000, id="huge")  # more digits than Python converts to text
NOT_DURATIONS = [
    True,
    False,
    None,
    math.nan,
    math.inf,
    -math.inf,
    1j,
    [],
    b"5s",
    "",
    " ",
    "s",
    "abc",
    "5 parsecs",
    "1h30m",
    "5S",
    "1_000",
    "1e3",
    "+5s",
    "5..0s",
    ".5s",
    "٣s",
    "nan",
    "inf",
    "5s\x00",
    "9" * 10_000,
]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("24h", 24 * HOUR),
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("1d", DAY),
        ("500ms", SECOND // 2),
        ("1.5h", 90 * MINUTE),
        ("4.35s", 4_350_000),
        ("30", 30 * SECOND),
        (" 30 s ", 30 * SECOND),
        ("0", 0),
        (0, 0),
        (30, 30 * SECOND),
        (0.25, SECOND // 4),
        (4.35, 4_350_000),
        (timedelta(days=1, microseconds=1), DAY + 1),
        (100 * 365 * 86_400, LONGEST),
    ],
)
def test_durations_as_users_write_them(value: Duration, expected: int):
    assert micros(value, name="delay") == expected


@pytest.mark.parametrize("value", NOT_DURATIONS)
def test_what_is_no_duration_is_refused_with_name_and_examples(value: Duration):
    with pytest.raises(InvalidOption, match=r'^delay must be seconds, a timedelta or text such as "30s"'):
        micros(value, name="delay")


@pytest.mark.parametrize("value", [-1, -0.5, "-5s", timedelta(microseconds=-1)])
def test_negative_durations_are_refused_unless_allowed(value: Duration):
    with pytest.raises(InvalidOption, match=r"^delay must not be negative, got "):
        micros(value, name="delay")
    assert micros(value, name="delay", negative=True) < 0


@pytest.mark.parametrize(
    "value", [1e300, HUGE, "999999999999d", timedelta.max, 100 * 365 * 86_400 + 1, -1e300]
)
def test_absurd_durations_are_refused(value: Duration):
    with pytest.raises(InvalidOption, match=r"^delay must be at most 100 years, got "):
        micros(value, name="delay", negative=True)


@given(st.integers(0, LONGEST))
@example(4_350_000)
def test_every_way_to_write_a_duration_means_the_same(amount: int):
    text = f"{amount // SECOND}.{amount % SECOND:06}"
    assert micros(timedelta(microseconds=amount), name="delay") == amount
    assert micros(f"{text}s", name="delay") == amount
    assert micros(text, name="delay") == amount
    # A double has 53 bits: below 2^52 µs its error is far less than half a microsecond.
    assert micros(amount / SECOND, name="delay") == amount


@given(st.one_of(st.text(), st.floats(), st.integers(), st.timedeltas(), st.none(), st.booleans()))
def test_any_value_is_either_a_duration_or_refused(value: Duration):
    try:
        amount = micros(value, name="delay")
    except InvalidOption:
        return
    assert type(amount) is int
    assert 0 <= amount <= LONGEST


def test_an_instant_is_the_same_in_every_zone():
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert instant(noon, name="at") == 1_896_091_200 * SECOND
    assert instant(noon.astimezone(ZoneInfo("Asia/Kathmandu")), name="at") == instant(noon, name="at")
    assert instant(noon + timedelta(microseconds=1), name="at") == instant(noon, name="at") + 1


@pytest.mark.parametrize("value", [datetime(2030, 1, 31), "now", 5, None])  # noqa: DTZ001
def test_an_instant_says_its_zone(value: datetime):
    with pytest.raises(InvalidOption, match=r"^at must be a datetime that says its zone"):
        instant(value, name="at")


@pytest.mark.parametrize(
    "value", [datetime(1969, 12, 31, tzinfo=UTC), datetime.max.replace(tzinfo=timezone(timedelta(hours=-23)))]
)
def test_an_instant_fits_into_every_store(value: datetime):
    with pytest.raises(InvalidOption, match=r"^at must lie between the years 1970 and 2255, got "):
        instant(value, name="at")


def test_the_last_instant_is_the_last_integer_of_every_store():
    last = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=MAX_INTEGER)
    assert last.year == 2255
    assert instant(last, name="at") == MAX_INTEGER
