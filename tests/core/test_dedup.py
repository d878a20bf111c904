import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.dedup import Meeting, held_until, meet
from windlass.core.job import Mode
from windlass.core.state import TERMINAL, WAITING, State

modes = st.sampled_from(Mode)
states = st.sampled_from(State)
moments = st.integers(0, 10**15)


@pytest.mark.parametrize(
    ("mode", "waits", "runs", "within", "after"),
    [
        (Mode.IGNORE, Meeting.DUPLICATE, Meeting.DUPLICATE, Meeting.DUPLICATE, Meeting.CREATE),
        (Mode.REPLACE, Meeting.REPLACE, Meeting.FOLLOW, Meeting.CREATE, Meeting.CREATE),
        (Mode.THROTTLE, Meeting.DUPLICATE, Meeting.DUPLICATE, Meeting.DUPLICATE, Meeting.CREATE),
    ],
)
def test_the_table_of_the_design(mode: Mode, waits: Meeting, runs: Meeting, within: Meeting, after: Meeting):
    assert {meet(mode, state, within_window=True) for state in WAITING} == {waits}
    assert meet(mode, State.RUNNING, within_window=True) is runs
    assert {meet(mode, state, within_window=True) for state in TERMINAL} == {within}
    assert {meet(mode, state, within_window=False) for state in TERMINAL} == {after}


@given(modes, st.booleans())
def test_a_free_key_creates(mode: Mode, within: bool):
    assert meet(mode, None, within_window=within) is Meeting.CREATE


@given(modes, states)
def test_the_window_counts_for_finished_jobs_alone(mode: Mode, state: State):
    within, after = (meet(mode, state, within_window=each) for each in (True, False))
    assert within is after or state in TERMINAL


@given(modes, moments, moments, moments)
def test_a_key_is_held_until_its_job_has_finished_at_least(mode: Mode, window: int, accepted: int, ran: int):
    assert held_until(mode, window, accepted, accepted + ran) >= accepted + ran


@given(moments, moments, moments)
def test_throttle_counts_from_acceptance_and_the_others_from_the_end(window: int, accepted: int, ran: int):
    finished = accepted + ran
    assert held_until(Mode.THROTTLE, window, accepted, finished) == max(finished, accepted + window)
    assert held_until(Mode.IGNORE, window, accepted, finished) == finished + window
    assert held_until(Mode.REPLACE, window, accepted, finished) == finished + window
