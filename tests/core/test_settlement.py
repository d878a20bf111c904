from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.retry import crash_delay
from windlass.core.settlement import (
    HOLD_CAP,
    HOLD_FIRST,
    HOLD_LIMIT,
    HoldKey,
    JobFacts,
    Ruling,
    Settlement,
    hold_delay,
    is_crash,
    rule_deadline,
    rule_session_end,
    rule_settlement,
)
from windlass.core.state import TERMINAL, Move, Reason, State, permitted
from windlass.core.units import DAY, MINUTE, SECOND

END_OF_SESSION = (CauseKind.STOP, CauseKind.CRASH, CauseKind.LOST)


@st.composite
def standings(draw: st.DrawFn, *, flagged: bool | None = None) -> JobFacts:
    flags = st.booleans() if flagged is None else st.just(flagged)
    most = draw(st.integers(1, 10))
    return JobFacts(
        attempt=draw(st.integers(1, most)),
        max_attempts=most,
        crashes=draw(st.integers(0, 20)),
        cancel_requested=draw(flags),
        superseded=draw(flags),
        holds=draw(st.integers(0, 10_000)),
        held_for=draw(st.one_of(st.integers(0, 8 * DAY), st.sampled_from([HOLD_LIMIT - 1, HOLD_LIMIT]))),
    )


def words(outcome: Outcome, delay: int = 0) -> Settlement:
    hold = HoldKey("task:t", "unknown task") if outcome is Outcome.HOLD else None
    return Settlement(job="j", fence=1, outcome=outcome, delay=delay, hold=hold)


outcomes = st.sampled_from(Outcome)
delays = st.one_of(st.just(0), st.integers(1, DAY))
plain, any_standing = standings(flagged=False), standings()


def rulings(facts: JobFacts, delay: int) -> Iterator[Ruling]:
    """Every way in which a lease can end."""
    for outcome in Outcome:
        yield rule_settlement(facts, words(outcome, delay))
    for kind in END_OF_SESSION:
        for started in (False, True):
            yield rule_session_end(facts, Cause(kind), started=started)
    yield rule_deadline(facts)


# --- what holds for every end


@given(any_standing, delays)
def test_every_ruling_is_an_arrow_of_the_table(facts: JobFacts, delay: int):
    for ruling in rulings(facts, delay):
        assert permitted(State.RUNNING, ruling.move, ruling.state), ruling


@given(any_standing, delays)
def test_a_delay_belongs_to_scheduled_and_only_to_it(facts: JobFacts, delay: int):
    for ruling in rulings(facts, delay):
        assert (ruling.delay > 0) == (ruling.state is State.SCHEDULED), ruling


@given(any_standing, delays)
def test_dead_and_cancelled_have_a_reason_and_nothing_else_has(facts: JobFacts, delay: int):
    for ruling in rulings(facts, delay):
        assert (ruling.reason is not None) == (ruling.state in (State.DEAD, State.CANCELLED)), ruling


@given(any_standing, delays)
def test_the_outcome_names_the_terminal_state(facts: JobFacts, delay: int):
    named = {Outcome.DONE: State.DONE, Outcome.DEAD: State.DEAD, Outcome.CANCELLED: State.CANCELLED}
    for ruling in rulings(facts, delay):
        assert named.get(ruling.outcome) == (ruling.state if ruling.state in TERMINAL else None), ruling


@given(any_standing, delays)
def test_only_what_goes_back_at_once_keeps_its_place(facts: JobFacts, delay: int):
    for ruling in rulings(facts, delay):
        assert not ruling.keeps_place or ruling.state is State.READY, ruling


@given(any_standing, delays)
def test_no_job_runs_more_often_than_its_attempts(facts: JobFacts, delay: int):
    for ruling in rulings(facts, delay):
        spent = facts.attempt if ruling.charged else facts.attempt - 1
        assert ruling.state in TERMINAL or spent < facts.max_attempts, ruling


@given(standings(flagged=True), delays)
def test_with_the_cancel_flag_every_end_but_done_is_cancelled(facts: JobFacts, delay: int):
    done, *others = rulings(facts, delay)
    assert done.state is State.DONE
    assert {(each.state, each.reason) for each in others} == {(State.CANCELLED, Reason.CANCELLED)}


@given(plain, delays)
def test_with_a_newer_call_waiting_every_end_but_done_is_superseded(facts: JobFacts, delay: int):
    facts = JobFacts(
        attempt=facts.attempt,
        max_attempts=facts.max_attempts,
        crashes=facts.crashes,
        superseded=True,
    )
    done, *others = rulings(facts, delay)
    assert done.state is State.DONE
    assert {(each.state, each.reason, each.move) for each in others} == {
        (State.CANCELLED, Reason.SUPERSEDED, Move.SUPERSEDE)
    }


# --- a holder's word


@given(any_standing)
def test_done_stands_whatever_else_was_asked_for(facts: JobFacts):
    ruling = rule_settlement(facts, words(Outcome.DONE))
    assert (ruling.state, ruling.charged, ruling.outcome) == (State.DONE, True, Outcome.DONE)


@given(plain, delays)
def test_a_retry_waits_or_was_the_last(facts: JobFacts, delay: int):
    ruling = rule_settlement(facts, words(Outcome.RETRY, delay))
    assert ruling.charged
    assert not ruling.keeps_place
    if facts.attempt == facts.max_attempts:
        assert (ruling.state, ruling.reason) == (State.DEAD, Reason.EXHAUSTED)
    else:
        assert (ruling.state is State.SCHEDULED, ruling.delay) == (delay > 0, delay)


@given(plain, delays)
def test_a_snooze_waits_and_spends_nothing(facts: JobFacts, delay: int):
    ruling = rule_settlement(facts, words(Outcome.SNOOZE, delay))
    assert (ruling.delay, ruling.charged, ruling.keeps_place) == (delay, False, False)
    assert ruling.outcome is Outcome.SNOOZE


@given(plain)
def test_a_release_goes_back_as_if_nothing_had_been(facts: JobFacts):
    ruling = rule_settlement(facts, words(Outcome.RELEASE))
    assert (ruling.state, ruling.charged, ruling.keeps_place) == (State.READY, False, True)


@given(plain)
def test_giving_up_is_dead_at_once(facts: JobFacts):
    ruling = rule_settlement(facts, words(Outcome.DEAD))
    assert (ruling.state, ruling.reason, ruling.charged) == (State.DEAD, Reason.GAVE_UP, True)


@given(plain)
def test_a_holder_may_end_a_run_as_cancelled(facts: JobFacts):
    ruling = rule_settlement(facts, words(Outcome.CANCELLED))
    assert (ruling.state, ruling.reason) == (State.CANCELLED, Reason.CANCELLED)


@given(plain)
def test_a_hold_backs_off_and_ends_after_seven_days(facts: JobFacts):
    ruling = rule_settlement(facts, words(Outcome.HOLD))
    assert not ruling.charged
    if facts.held_for >= 7 * DAY:
        assert (ruling.state, ruling.reason) == (State.DEAD, Reason.HELD_TOO_LONG)
    else:
        assert (ruling.state, ruling.delay) == (State.SCHEDULED, hold_delay(facts.holds))


def test_hold_delays_double_from_a_second_to_five_minutes():
    assert [hold_delay(holds) // SECOND for holds in range(11)] == [
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
        300,
        300,
    ]
    assert hold_delay(10**9) == HOLD_CAP == 5 * MINUTE
    assert hold_delay(0) == HOLD_FIRST


# --- ends that the store sees


@given(plain, st.booleans())
def test_a_stop_charges_nobody(facts: JobFacts, started: bool):
    ruling = rule_session_end(facts, Cause(CauseKind.STOP), started=started)
    assert (ruling.state, ruling.charged, ruling.keeps_place) == (State.READY, False, True)
    assert ruling.outcome is Outcome.RELEASE


@given(plain)
def test_a_crash_charges_what_had_started_and_nothing_else(facts: JobFacts):
    cause = Cause(CauseKind.CRASH)
    bystander = rule_session_end(facts, cause, started=False)
    assert (bystander.state, bystander.charged, bystander.keeps_place) == (State.READY, False, True)
    assert rule_session_end(facts, cause, started=True).charged


@pytest.mark.parametrize(
    ("kind", "move", "reason"),
    [(CauseKind.CRASH, Move.CRASH, Reason.CRASHED), (CauseKind.LOST, Move.LOST, Reason.LOST)],
)
@given(facts=plain, started=st.booleans())
def test_crashes_back_off_and_end_with_their_cause(
    kind: CauseKind, move: Move, reason: Reason, facts: JobFacts, started: bool
):
    ruling = rule_session_end(facts, Cause(kind), started=started or kind is CauseKind.CRASH)
    assert (ruling.move, ruling.charged) == (move, True)
    if facts.attempt == facts.max_attempts:
        assert (ruling.state, ruling.reason, ruling.outcome) == (State.DEAD, reason, Outcome.DEAD)
    elif facts.crashes == 0:
        assert (ruling.state, ruling.keeps_place) == (State.READY, True)
    else:
        assert (ruling.state, ruling.delay) == (State.SCHEDULED, crash_delay(facts.crashes + 1))
        assert not ruling.keeps_place


@given(plain)
def test_a_deadline_charges_and_reruns_at_once(facts: JobFacts):
    ruling = rule_deadline(facts)
    assert (ruling.move, ruling.charged) == (Move.DEADLINE, True)
    if facts.attempt == facts.max_attempts:
        assert (ruling.state, ruling.reason) == (State.DEAD, Reason.DEADLINE)
    else:
        assert (ruling.state, ruling.keeps_place) == (State.READY, True)


@given(plain, st.booleans(), st.sampled_from(END_OF_SESSION))
def test_crashes_and_lost_sessions_make_suspects(facts: JobFacts, started: bool, kind: CauseKind):
    cause = Cause(kind)
    counts = is_crash(cause, rule_session_end(facts, cause, started=started))
    assert counts == (kind is CauseKind.LOST or (kind is CauseKind.CRASH and started))


@given(any_standing)
def test_a_deadline_makes_no_suspect(facts: JobFacts):
    assert not is_crash(Cause(CauseKind.DEADLINE), rule_deadline(facts))
