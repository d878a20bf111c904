import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.dedup import KeyRuling, held_until, rule_key
from windlass.core.job import Mode
from windlass.core.state import TERMINAL, WAITING, State

modes = st.sampled_from(Mode)
states = st.sampled_from(State)
moments = st.integers(0, 10**15)


@pytest.mark.parametrize(
    ("mode", "waits", "runs", "within", "after"),
    [
        (Mode.IGNORE, KeyRuling.DUPLICATE, KeyRuling.DUPLICATE, KeyRuling.DUPLICATE, KeyRuling.CREATE),
        (Mode.REPLACE, KeyRuling.REPLACE, KeyRuling.FOLLOW, KeyRuling.CREATE, KeyRuling.CREATE),
        (Mode.THROTTLE, KeyRuling.DUPLICATE, KeyRuling.DUPLICATE, KeyRuling.DUPLICATE, KeyRuling.CREATE),
    ],
)
def test_the_table_of_the_design(
    mode: Mode, waits: KeyRuling, runs: KeyRuling, within: KeyRuling, after: KeyRuling
):
    assert {rule_key(mode, state, within_window=True) for state in WAITING} == {waits}
    assert rule_key(mode, State.RUNNING, within_window=True) is runs
    assert {rule_key(mode, state, within_window=True) for state in TERMINAL} == {within}
    assert {rule_key(mode, state, within_window=False) for state in TERMINAL} == {after}


@given(modes, st.booleans())
def test_a_free_key_creates(mode: Mode, within: bool):
    assert rule_key(mode, None, within_window=within) is KeyRuling.CREATE


@given(modes, states)
def test_the_window_counts_for_finished_jobs_alone(mode: Mode, state: State):
    within, after = (rule_key(mode, state, within_window=each) for each in (True, False))
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
