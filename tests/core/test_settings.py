from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from windlass.core.event import Emit
from windlass.core.limits import Rate
from windlass.core.order import MAX_WEIGHT
from windlass.core.settings import (
    MAX_BANDS,
    Kind,
    LanePolicy,
    LaneSettings,
    QueuePolicy,
    QueueSettings,
    Retention,
    Subject,
    check_lane_settings,
    check_queue_settings,
    lane_policy,
    overlay,
    queue_policy,
)
from windlass.core.units import DAY, SECOND
from windlass.errors import InvalidOption

counts = st.none() | st.integers(1, 1_000)
rates = st.none() | st.builds(
    Rate, st.integers(1, 1_000), st.integers(1_000, DAY), st.none() | st.integers(1, 50)
)
durations = st.integers(0, 400 * DAY)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(UNSET) | values


queue_settings = st.builds(
    QueueSettings,
    concurrency=maybe(counts),
    rate=maybe(rates),
    lane_concurrency=maybe(counts),
    lane_rate=maybe(rates),
    order=maybe(st.sampled_from(["band", "lane"])),
    bands=maybe(
        st.none()
        | st.dictionaries(st.integers(-100, 100), st.integers(1, MAX_WEIGHT), min_size=1, max_size=5)
    ),
    age_step=maybe(st.none() | st.integers(SECOND, DAY)),
    sequence=maybe(st.booleans()),
    emit=maybe(st.sampled_from(Emit)),
    retention=maybe(durations),
    retention_count=maybe(counts),
    result_ttl=maybe(durations),
    dead_retention=maybe(durations),
)
lane_settings = st.builds(
    LaneSettings, weight=maybe(st.integers(1, MAX_WEIGHT)), concurrency=maybe(counts), rate=maybe(rates)
)
retentions = st.builds(
    Retention, retention=durations, retention_count=counts, result_ttl=durations, dead_retention=durations
)
policies = st.builds(queue_policy, queue_settings, retentions)


# --- two layers


@given(st.data(), st.sampled_from([queue_settings, lane_settings]))
def test_an_override_wins_field_by_field(data: st.DataObject, settings: st.SearchStrategy[Any]):
    declared, override = data.draw(settings), data.draw(settings)
    both = overlay(declared, override)
    for name in declared.__struct_fields__:
        said = getattr(override, name)
        assert getattr(both, name) == (getattr(declared, name) if said is UNSET else said)


@given(st.none() | queue_settings)
def test_one_layer_alone_is_what_counts(settings: QueueSettings | None):
    assert overlay(settings, None) == settings
    assert overlay(None, settings) == settings


@given(queue_settings)
def test_a_document_comes_back_from_bytes_as_it_was(settings: QueueSettings):
    assert msgspec.json.decode(msgspec.json.encode(settings), type=QueueSettings) == settings


# --- policies


@given(st.none() | queue_settings, retentions)
def test_a_queue_has_what_was_said_else_the_defaults(settings: QueueSettings | None, defaults: Retention):
    policy = queue_policy(settings, defaults)
    bare = QueuePolicy(**msgspec.structs.asdict(defaults))
    for name in QueuePolicy.__struct_fields__:
        said = getattr(settings, name, UNSET)
        assert getattr(policy, name) == (getattr(bare, name) if said is UNSET else said)


@given(st.none() | lane_settings, policies)
def test_a_lane_has_its_own_limits_else_those_of_the_queue_for_lanes(
    settings: LaneSettings | None, queue: QueuePolicy
):
    policy = lane_policy(settings, queue)
    own = settings or LaneSettings()
    assert policy.weight == (1 if own.weight is UNSET else own.weight)
    assert policy.rate == (queue.lane_rate if own.rate is UNSET else own.rate)
    if queue.sequence:
        assert policy.concurrency == 1
    else:
        assert policy.concurrency == (queue.lane_concurrency if own.concurrency is UNSET else own.concurrency)


def test_a_lane_of_which_nothing_was_said_has_weight_one_and_no_limit():
    assert lane_policy(None, queue_policy(None, Retention())) == LanePolicy(
        weight=1, concurrency=None, rate=None
    )


@given(policies)
def test_aging_and_sequence_put_lanes_before_bands(policy: QueuePolicy):
    assert policy.one_ring == (policy.order == "lane" or policy.age_step is not None or policy.sequence)
    assert policy.layout == (policy.one_ring, policy.age_step, policy.sequence)


# --- what has no meaning is refused


@given(queue_settings)
def test_sensible_queue_settings_pass(settings: QueueSettings):
    if isinstance(settings.bands, dict) and isinstance(settings.age_step, int):
        settings = msgspec.structs.replace(settings, bands=None)
    assert check_queue_settings(settings) is settings


@given(lane_settings)
def test_sensible_lane_settings_pass(settings: LaneSettings):
    assert check_lane_settings(settings) is settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, r"concurrency must be at least 1.*got 0\. To stop work, pause"),
        ({"lane_concurrency": -1}, "lane_concurrency must be at least 1"),
        ({"retention_count": 0}, "retention_count must be at least 1"),
        ({"rate": Rate(0)}, "a rate must allow"),
        ({"lane_rate": Rate(1, 0)}, "the period of a rate"),
        ({"retention": -1}, "retention must not be negative, got -1 µs"),
        ({"result_ttl": -1}, "result_ttl must not be negative"),
        ({"dead_retention": -1}, "dead_retention must not be negative"),
        ({"age_step": SECOND - 1}, "age_step must be at least 1 second, got 999999 µs"),
        ({"bands": {}}, "bands must give each priority a weight"),
        ({"bands": dict.fromkeys(range(MAX_BANDS + 1), 1)}, "at most .* priorities, got"),
        ({"bands": {0: 0}}, "a weight from 1 to 1000"),
        ({"bands": {10: 5, 0: MAX_WEIGHT + 1}}, "a weight from 1 to 1000"),
        ({"bands": {0: 1}, "age_step": SECOND}, "bands and age_step cannot be used together"),
    ],
)
def test_queue_settings_without_a_meaning_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(InvalidOption, match=message):
        check_queue_settings(QueueSettings(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concurrency": 0}, "concurrency must be at least 1"),
        ({"rate": Rate(1_000_001)}, "a rate must allow"),
        ({"weight": 0}, "weight must be from 1 to 1000, not 0"),
        ({"weight": MAX_WEIGHT + 1}, "not 1001"),
    ],
)
def test_lane_settings_without_a_meaning_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(InvalidOption, match=message):
        check_lane_settings(LaneSettings(**settings))


def test_subjects_are_ordered_by_kind_then_name_then_lane():
    subjects = [Subject(Kind.LANE, "q", "b"), Subject(Kind.QUEUE, "a"), Subject(Kind.LANE, "q", "a")]
    assert sorted(subjects) == [subjects[2], subjects[0], subjects[1]]
