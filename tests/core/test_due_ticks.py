"""Which ticks fire when somebody looks again: catch-up by policy (fault 27), each tick once (fault 26)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core import schedule
from windlass.core.cron import Cron
from windlass.core.schedule import CAP, GRACE, MOST_COUNTED, Due, Every, Once, Rule, due_ticks, next_tick
from windlass.core.units import DAY, HOUR, MINUTE, SECOND
from windlass.errors import InvalidOption

NOW = 1_800_000_000 * SECOND
YEAR = 365 * DAY

rules: st.SearchStrategy[Rule] = st.one_of(
    st.builds(Every, st.integers(SECOND, 10 * MINUTE), st.integers(0, DAY)),
    st.builds(
        Cron,
        st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "*/20 1-3 * * *", "0 * * * *"]),
        st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe", "America/Havana"]),
    ),
    st.builds(Once, st.integers(NOW - HOUR, NOW + HOUR)),
)
# Around a change of clocks in Paris (27 October 2024) and Lord Howe (6 October 2024), or none.
starts = st.sampled_from([NOW, 1_729_980_000 * SECOND, 1_728_136_800 * SECOND])
pauses = st.lists(st.one_of(st.integers(0, 2 * MINUTE), st.integers(0, 3 * HOUR)), min_size=1, max_size=20)
policies = st.sampled_from(["skip", "one", "all"])


def all_ticks(rule: Rule, after: int, until: int) -> list[int]:
    """The ticks, one by one, without any cleverness."""
    ticks: list[int] = []
    while (tick := next_tick(rule, ticks[-1] if ticks else after)) is not None and tick <= until:
        ticks.append(tick)
    return ticks


@given(rules, starts, st.integers(0, 90 * MINUTE), policies, st.integers(1, 20), st.integers(0, HOUR))
def test_what_fires_is_what_the_policy_says(
    rule: Rule, start: int, missed: int, catch_up: Any, cap: int, grace: int
):
    next_at = next_tick(rule, start)
    now = start + missed
    due = due_ticks(rule, next_at, now, catch_up=catch_up, cap=cap, grace=grace)
    late = all_ticks(rule, start, now)
    latest = late[-1:]
    fires = {"skip": [tick for tick in latest if now - tick <= grace], "one": latest, "all": late[-cap:]}
    assert list(due.ticks) == fires[catch_up]
    assert due.dropped == min(MOST_COUNTED, len(late) - len(due.ticks))
    assert due.next_at == next_tick(rule, now)


@given(rules, starts, pauses)
def test_all_never_loses_or_doubles_a_tick_whenever_somebody_looks(rule: Rule, start: int, pauses: list[int]):
    next_at, now = next_tick(rule, start), start
    fired: list[int] = []
    for pause in pauses:
        now += pause
        # Enough for every tick of the longest pause at an interval of a second would be too many to fire.
        due = due_ticks(rule, next_at, now, catch_up="all", cap=1_000)
        fired += due.ticks
        next_at = due.next_at
        if due.dropped:
            return
    assert fired == all_ticks(rule, start, now)
    assert next_at == next_tick(rule, now)


@given(rules, starts, pauses, policies, st.integers(1, 20))
def test_no_policy_doubles_or_reorders_ticks_and_each_is_accounted_for(
    rule: Rule, start: int, pauses: list[int], catch_up: Any, cap: int
):
    next_at, now = next_tick(rule, start), start
    fired: list[int] = []
    dropped = 0
    for pause in pauses:
        now += pause
        due = due_ticks(rule, next_at, now, catch_up=catch_up, cap=cap)
        assert len(due.ticks) <= cap
        fired += due.ticks
        next_at = due.next_at
        if due.dropped == MOST_COUNTED:
            return
        dropped += due.dropped
    assert all(tick < following for tick, following in pairwise(fired))
    assert len(fired) + dropped == len(all_ticks(rule, start, now))


@given(rules, starts, st.lists(st.integers(0, GRACE), min_size=1, max_size=40))
def test_a_look_after_each_tick_within_the_grace_skips_nothing(rule: Rule, start: int, late: list[int]):
    next_at, now = next_tick(rule, start), start
    fired: list[int] = []
    for seconds in late:
        following = next_tick(rule, next_at) if next_at is not None else None
        if next_at is None or following is None:
            return
        now = min(next_at + seconds, following - 1)
        due = due_ticks(rule, next_at, now, catch_up="skip")
        assert (due.ticks, due.dropped) == ((next_at,), 0)
        fired += due.ticks
        next_at = due.next_at
    assert fired == all_ticks(rule, start, now)


@pytest.mark.parametrize("rule", [Every.of("1m"), Cron("* * * * *"), Cron("* * * * *", "Europe/Paris")])
@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_ten_years_of_missed_minutes_cost_no_more_than_a_day(
    rule: Rule, catch_up: Any, monkeypatch: pytest.MonkeyPatch
):
    looks = 0

    def counted(rule: Rule, at: int) -> int | None:
        nonlocal looks
        looks += 1
        return rule.latest_tick(at)

    monkeypatch.setattr(schedule, "latest_tick", counted)
    due = due_ticks(rule, NOW, NOW + 10 * YEAR + 5 * SECOND, catch_up=catch_up)
    minutes = CAP if catch_up == "all" else {"skip": 1, "one": 1}[catch_up]
    assert due.ticks == tuple(NOW + 10 * YEAR - ago * MINUTE for ago in reversed(range(minutes)))
    assert due.next_at == NOW + 10 * YEAR + MINUTE
    assert due.dropped == MOST_COUNTED
    assert looks <= CAP + MOST_COUNTED + 1


def test_skip_drops_what_is_older_than_the_grace():
    rule = Every.of("1h")
    assert due_ticks(rule, NOW, NOW + GRACE) == Due((NOW,), NOW + HOUR)
    assert due_ticks(rule, NOW, NOW + GRACE + 1) == Due((), NOW + HOUR, dropped=1)
    assert due_ticks(rule, NOW, NOW + 2 * HOUR) == Due((NOW + 2 * HOUR,), NOW + 3 * HOUR, dropped=2)


def test_when_ticks_must_go_the_oldest_go():
    rule = Every.of("1h")
    due = due_ticks(rule, NOW, NOW + 5 * HOUR, catch_up="all", cap=2)
    assert due == Due((NOW + 4 * HOUR, NOW + 5 * HOUR), NOW + 6 * HOUR, dropped=4)
    assert due_ticks(rule, NOW, NOW + 5 * HOUR, catch_up="one").ticks == (NOW + 5 * HOUR,)


def test_nothing_is_due_before_its_time_or_after_the_end():
    rule = Every.of("1h")
    assert due_ticks(rule, NOW, NOW - 1) == Due((), NOW)
    assert due_ticks(rule, None, NOW) == Due((), None)
    assert due_ticks(rule, NOW, NOW, end=NOW) == Due((), None)
    assert due_ticks(rule, NOW, NOW, end=NOW + 1) == Due((NOW,), None)
    late = due_ticks(rule, NOW, NOW + DAY, end=NOW + 2 * HOUR, catch_up="all")
    assert late == Due((NOW, NOW + HOUR), None)


def test_a_promised_tick_fires_though_the_rule_does_not_name_it_any_more():
    rule = Every.of("1h")
    assert due_ticks(rule, NOW + MINUTE, NOW + 2 * MINUTE) == Due((NOW + MINUTE,), NOW + HOUR)
    late = due_ticks(rule, NOW + MINUTE, NOW + HOUR, catch_up="all")
    assert late == Due((NOW + MINUTE, NOW + HOUR), NOW + 2 * HOUR)


def test_once_fires_late_or_is_skipped():
    rule = Once(NOW)
    assert due_ticks(rule, NOW, NOW + SECOND) == Due((NOW,), None)
    assert due_ticks(rule, NOW, NOW + DAY, catch_up="one") == Due((NOW,), None)
    assert due_ticks(rule, NOW, NOW + DAY, catch_up="skip") == Due((), None, dropped=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catch_up": "some"}, 'catch_up must be one of "skip", "one", "all", not \'some\''),
        ({"cap": 0}, "cap must be a whole number from 1 to 1,000, not 0"),
        ({"cap": 1_001}, "cap must be a whole number"),
        ({"grace": -1}, "grace must be a whole number from 0"),
        ({"grace": 1.5}, "grace must be a whole number"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(InvalidOption) as refused:
        due_ticks(Every.of("1h"), NOW, NOW, **options)
    assert str(refused.value).startswith(message)
