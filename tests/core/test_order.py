import itertools
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.order import (
    MAX_WEIGHT,
    REBASE_AT,
    STRIDE,
    Ring,
    Turns,
    band_of,
    choose_band,
    draws,
    next_draw,
    stride,
    turn_of,
)
from windlass.core.units import MAX_INTEGER, SECOND

LANES = "abcdef"
weight = st.integers(1, MAX_WEIGHT)
weights_of_lanes = st.dictionaries(st.sampled_from(LANES), weight, min_size=1)
priority = st.integers(-100, 100)
draw = st.integers(0, 2**32 - 1)
listed_bands = st.dictionaries(priority, weight, min_size=1, max_size=5)

enter_or_leave = st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from(LANES), weight)
step = st.one_of(enter_or_leave, st.tuples(st.just("take"), st.just(""), weight))
steps = st.lists(step, max_size=60)


def backlogged(weights: dict[str, int]) -> Ring:
    ring = Ring()
    for lane, its_weight in weights.items():
        ring.enter(lane, its_weight)
    return ring


def served(ring: Ring, weights: dict[str, int], count: int) -> list[str]:
    order = []
    for _ in range(count):
        lane = ring.first()
        assert lane is not None
        ring.take(lane, weights[lane])
        order.append(lane)
    return order


def apply(ring: Ring, action: tuple[str, str, int]) -> str | None:
    """Carry out one step where it has a meaning; the lane that was taken from, if any."""
    what, lane, its_weight = action
    if what == "take":
        first = ring.first()
        if first is not None:
            ring.take(first, its_weight)
        return first
    if what == "enter" and lane not in ring:
        ring.enter(lane, its_weight)
    elif what == "leave" and lane in ring:
        ring.leave(lane)
    return None


def seen(ring: Ring) -> tuple[object, ...]:
    """All that decides what a ring does next, whatever the numbers behind it."""
    return (ring.first(), len(ring), [lane in ring for lane in LANES], [ring.lag(lane) for lane in LANES])


# --- the ring


def test_weights_two_and_one_give_a_a_b():
    weights = {"a": 2, "b": 1}
    assert "".join(served(backlogged(weights), weights, 9)) == "aabaabaab"


def test_equal_lanes_take_turns_by_name():
    weights = {"c": 5, "a": 5, "b": 5}
    assert "".join(served(backlogged(weights), weights, 6)) == "abcabc"


@given(weights_of_lanes, st.integers(1, 200))
def test_backlogged_lanes_stay_within_one_stride_of_their_shares(weights: dict[str, int], count: int):
    ring = backlogged(weights)
    had = dict.fromkeys(weights, 0)
    for lane in served(ring, weights, count):
        had[lane] += 1
        for other, its_weight in weights.items():
            assert had[lane] * stride(weights[lane]) <= (had[other] + 1) * stride(its_weight)


@given(weights_of_lanes, weight, st.integers(0, 100), st.integers(1, 200))
def test_a_lane_that_was_idle_has_no_credit(
    weights: dict[str, int], its_weight: int, before: int, after: int
):
    ring = backlogged(weights)
    served(ring, weights, before)
    ring.enter("late", its_weight)
    had = Counter(served(ring, {**weights, "late": its_weight}, after))
    for other, other_weight in weights.items():
        assert had["late"] * stride(its_weight) <= (had[other] + 2) * stride(other_weight)


@given(weights_of_lanes, st.data())
def test_leaving_and_coming_back_sheds_no_debt(weights: dict[str, int], data: st.DataObject):
    """A lane that is filled one job at a time is served exactly like one with a backlog."""
    one_by_one = data.draw(st.sets(st.sampled_from(sorted(weights))))
    always, sometimes = backlogged(weights), backlogged(weights)
    for _ in range(50):
        (lane,) = served(always, weights, 1)
        assert served(sometimes, weights, 1) == [lane]
        if lane in one_by_one:
            sometimes.leave(lane)
            assert lane not in sometimes
            sometimes.enter(lane, weights[lane])


@given(weights_of_lanes, st.data())
def test_leaving_at_any_moment_never_gains_a_turn(weights: dict[str, int], data: st.DataObject):
    lane = data.draw(st.sampled_from(sorted(weights)))
    always, leaving = backlogged(weights), backlogged(weights)
    had_always = had_leaving = 0
    for leaves in data.draw(st.lists(st.booleans(), max_size=80)):
        if leaves:
            leaving.leave(lane)
            leaving.enter(lane, weights[lane])
        had_always += served(always, weights, 1) == [lane]
        had_leaving += served(leaving, weights, 1) == [lane]
        assert had_leaving <= had_always


@given(steps)
def test_no_lane_gets_further_ahead_than_one_claim(actions: list[tuple[str, str, int]]):
    ring = Ring()
    for action in actions:
        apply(ring, action)
        assert all(0 <= ring.lag(lane) <= STRIDE for lane in LANES)


@given(weight, weight)
def test_a_changed_weight_counts_from_the_claim_after_the_next(old: int, new: int):
    ring = Ring()
    ring.enter("a", old)
    ring.take("a", new)
    assert ring.lag("a") == stride(old)
    ring.take("a", new)
    assert ring.lag("a") == stride(new)


@given(steps, st.integers(1, 4 * STRIDE))
def test_rebasing_changes_nothing_that_can_be_seen(actions: list[tuple[str, str, int]], before: int):
    plain, old = Ring(), Ring()
    old.time = REBASE_AT - before
    for action in [("enter", "a", 1), ("enter", "b", 3), *actions, *[("take", "", 1)] * 8]:
        assert apply(plain, action) == apply(old, action)
        assert seen(plain) == seen(old)
        assert old.time < REBASE_AT


def test_rebasing_keeps_every_number_exact_on_every_store():
    assert REBASE_AT + 2 * STRIDE < MAX_INTEGER
    ring = Ring()
    ring.time = REBASE_AT - 1
    ring.enter("a", 1)
    ring.take("a", 1)
    ring.take("a", 1)
    assert ring.time == 0


@given(steps, st.data())
def test_forgetting_idle_lanes_changes_nothing_that_can_be_seen(
    actions: list[tuple[str, str, int]], data: st.DataObject
):
    remembering, forgetting = Ring(), Ring()
    for action in actions:
        assert apply(remembering, action) == apply(forgetting, action)
        if data.draw(st.booleans()):
            forgetting.forget_idle()
        assert seen(remembering) == seen(forgetting)


def test_forgetting_drops_what_the_ring_has_passed_and_keeps_debt():
    ring = backlogged({"debtor": 1, "other": 1_000})
    served(ring, {"debtor": 1, "other": 1_000}, 1_001)
    ring.leave("debtor")
    ring.forget_idle()
    assert ring.lag("debtor") > 0
    served(ring, {"other": 1_000}, 2_000)
    ring.forget_idle()
    assert list(ring._places) == ["other"]


def test_an_empty_ring_has_no_first():
    ring = Ring()
    assert ring.first() is None
    ring.enter("a", 1)
    ring.leave("a")
    assert (ring.first(), len(ring), "a" in ring) == (None, 0, False)


@given(weight, st.integers(1, 100))
def test_a_stride_is_whole_and_never_nothing(its_weight: int, cost: int):
    assert stride(its_weight, cost) == STRIDE * cost // its_weight >= 1


# --- bands


@given(priority, priority)
def test_strict_bands_go_by_priority(one: int, other: int):
    assert (band_of(one, 0, None, None) < band_of(other, 0, None, None)) == (one > other)


@given(priority, listed_bands)
def test_an_unlisted_priority_goes_with_the_nearest_lower_one(its_priority: int, bands: dict[int, int]):
    lower = [listed for listed in bands if listed <= its_priority]
    assert band_of(its_priority, 0, bands, None) == -(max(lower) if lower else min(bands))


@given(priority, st.integers(0, 10**15), st.integers(SECOND, 10**9), listed_bands)
def test_a_job_gains_one_priority_per_step_it_waits(
    its_priority: int, due: int, age_step: int, bands: dict[int, int]
):
    older = band_of(its_priority, due, None, age_step)
    assert band_of(its_priority, due + age_step, None, age_step) == older + 1
    assert band_of(its_priority + 1, due + age_step, None, age_step) == older
    assert band_of(its_priority, due, bands, age_step) == older


@given(st.sets(st.integers(-200, 200), min_size=1), draw)
def test_without_weights_the_first_band_goes_first(present: set[int], its_draw: int):
    assert choose_band(present, None, its_draw) == min(present)


@given(st.sets(st.integers(-200, 200), min_size=1), listed_bands, draw)
def test_a_weighted_choice_is_the_first_band_of_one_listed(
    present: set[int], bands: dict[int, int], its_draw: int
):
    chosen = choose_band(present, bands, its_draw)
    listed = band_of(-chosen, 0, bands, None)
    assert chosen == min(band for band in present if band_of(-band, 0, bands, None) == listed)


@given(listed_bands, st.data())
def test_weighted_bands_share_the_draws_by_their_weights(bands: dict[int, int], data: st.DataObject):
    present = data.draw(st.sets(st.sampled_from(sorted(bands)), min_size=1, max_size=3))
    total = sum(bands[listed] for listed in present)
    evenly = [-(-point * 2**32 // total) for point in range(total)]
    chosen = Counter(-choose_band({-listed for listed in present}, bands, each) for each in evenly)
    assert chosen == {listed: bands[listed] for listed in present}


# --- draws


@given(draw, st.integers(0, 50), st.integers(0, 50))
def test_an_asker_goes_on_where_it_stopped(start: int, first: int, second: int):
    at_once = list(itertools.islice(draws(start), first + second))
    in_two = [
        *itertools.islice(draws(start), first),
        *itertools.islice(draws(next_draw(start, first)), second),
    ]
    assert at_once == in_two
    assert all(0 <= each < 2**32 for each in at_once)


@given(draw, weight, weight)
def test_no_band_waits_longer_than_its_bound(start: int, high: int, low: int):
    bound = 1 + 262 * (high + low) // (100 * low)
    chosen = (choose_band({-10, 0}, {10: high, 0: low}, each) for each in draws(start))
    assert 0 in itertools.islice(chosen, bound)


def test_the_share_of_a_band_ends_exactly_where_its_weight_says():
    border = -(-80 * 2**32 // 100)
    chosen = [
        choose_band([0, -10], {10: 80, 0: 20}, its_draw) for its_draw in (0, border - 1, border, 2**32 - 1)
    ]
    assert chosen == [-10, -10, 0, 0]


# turns


def test_a_turn_is_one_job_more_for_every_32_that_start_soon_and_four_at_the_most() -> None:
    assert [turn_of(16, soon) for soon in (0, 16, 47, 48, 79, 80, 111, 112, 1_000)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


@given(
    weights=st.dictionaries(st.sampled_from("abcde"), st.integers(1, 5), min_size=2), most=st.integers(1, 4)
)
def test_turns_share_by_weight(weights: dict[str, int], most: int) -> None:
    """No lane is ahead of another by more than a turn and a job, in shares."""
    ring, turns, had = Ring(), Turns(most), dict.fromkeys(weights, 0)
    for lane, its_weight in weights.items():
        ring.enter(lane, its_weight)
    for _ in range(200):
        lane = turns.lane(None, ring)
        turns.take(None, ring, lane, weights[lane])
        had[lane] += 1
        shares = {each: had[each] / weights[each] for each in weights}
        assert max(shares.values()) - min(shares.values()) <= 1 + most / min(weights.values())


def test_a_turn_goes_on_only_while_its_lane_is_in_the_ring() -> None:
    ring, turns = Ring(), Turns(4)
    for lane in "ab":
        ring.enter(lane, 1)
    turns.take(0, ring, "a", 1)
    assert turns.lane(0, ring) == "a"
    ring.leave("a")
    assert turns.lane(0, ring) == "b"
    ring.enter("a", 1)
    turns.end()
    assert turns.lane(0, ring) == "b"
