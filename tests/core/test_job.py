from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.job import (
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_ATTEMPTS,
    MAX_PARENTS,
    Edge,
    Mode,
    NewJob,
    OnFailure,
    check_new_job,
)
from windlass.core.units import DAY
from windlass.errors import InvalidOption


def edges(count: int) -> tuple[Edge, ...]:
    return tuple(Edge(f"parent {number}") for number in range(count))


@st.composite
def sensible(draw: st.DrawFn) -> dict[str, Any]:
    """Options of a job that every store can honour."""
    options: dict[str, Any] = {
        "priority": draw(st.integers(LOWEST_PRIORITY, HIGHEST_PRIORITY)),
        "expires": draw(st.none() | st.integers(1, DAY)),
        "max_attempts": draw(st.integers(1, MAX_ATTEMPTS)),
    }
    options |= draw(
        st.one_of(
            st.fixed_dictionaries({"delay": st.integers(0, DAY)}),
            st.fixed_dictionaries({"run_at": st.none() | st.integers(0, 10**15)}),
        )
    )
    if draw(st.booleans()):
        options |= {
            "key": draw(st.text()),
            "mode": draw(st.sampled_from(Mode)),
            "window": draw(st.integers(0, DAY)),
        }
    if options.get("mode") is not Mode.REPLACE:
        parents = draw(st.sets(st.text(min_size=1), max_size=5))
        options["after"] = tuple(Edge(each, draw(st.sampled_from(OnFailure))) for each in parents)
    return options


@given(sensible())
def test_a_sensible_job_passes_unchanged(options: dict[str, Any]):
    job = NewJob(id="", task="t", **options)
    assert check_new_job(job) is job


@pytest.mark.parametrize(
    "options",
    [
        {"priority": -100},
        {"priority": 100},
        {"max_attempts": 10_000},
        {"expires": 1},
        {"run_at": 0},
        {"key": ""},
        {"key": "k", "mode": Mode.REPLACE, "window": 1},
        {"after": edges(MAX_PARENTS)},
        {"delay": 5, "run_at": None},
        {"delay": 0, "run_at": 5},
    ],
)
def test_what_is_at_the_edge_passes(options: dict[str, Any]):
    check_new_job(NewJob(id="j", task="t", **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": -101}, "priority must be from -100 to 100, not -101"),
        ({"priority": 101}, "not 101"),
        ({"delay": -1}, "delay must not be negative, got -1 µs"),
        ({"delay": 1, "run_at": 1}, "give delay or run_at, not both"),
        ({"expires": 0}, "expires must be positive, got 0 µs"),
        ({"expires": -5}, "got -5 µs"),
        ({"max_attempts": 0}, "max_attempts must be from 1 to 10000, not 0"),
        ({"max_attempts": 10_001}, "not 10001"),
        ({"key": "k", "window": -1}, "window must not be negative, got -1 µs"),
        ({"window": 1}, "mode and window need a key"),
        ({"mode": Mode.REPLACE}, "mode and window need a key"),
        ({"mode": Mode.THROTTLE}, "mode and window need a key"),
        ({"key": "k", "mode": Mode.REPLACE, "after": edges(1)}, "cannot have parents"),
        ({"after": edges(MAX_PARENTS + 1)}, "at most 1000 parents, got 1001"),
        ({"after": (Edge("p"), Edge("p", OnFailure.RUN))}, "names the same parent twice"),
        ({"after": (Edge("p"), Edge("j"))}, "cannot wait for itself"),
    ],
)
def test_what_no_store_could_honour_is_refused(options: dict[str, Any], message: str):
    with pytest.raises(InvalidOption, match=message):
        check_new_job(NewJob(id="j", task="t", **options))
