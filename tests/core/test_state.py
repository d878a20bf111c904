from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.state import (
    PLAIN_NAMES,
    TERMINAL,
    TRANSITIONS,
    UNFINISHED,
    WAITING,
    Arrow,
    Move,
    State,
    diagram,
    permitted,
)

maybe_state = st.none() | st.sampled_from(State)


def reachable(start: State | None) -> set[State | None]:
    onward: dict[State | None, set[State | None]] = defaultdict(set)
    for before, _, after in TRANSITIONS:
        onward[before].add(after)
    found, ahead = {start}, [start]
    while ahead:
        new = onward[ahead.pop()] - found
        found |= new
        ahead.extend(new)
    return found


def test_every_state_is_waiting_running_or_terminal():
    assert WAITING | {State.RUNNING} == UNFINISHED
    assert set(State) == UNFINISHED | TERMINAL
    assert not UNFINISHED & TERMINAL


def test_every_state_has_a_plain_name():
    assert set(PLAIN_NAMES) == set(State)
    assert set(PLAIN_NAMES.values()) == {"PENDING", "RUNNING", "DONE", "FAILED", "CANCELLED"}


def test_every_move_is_an_arrow():
    assert {arrow.move for arrow in TRANSITIONS} == set(Move)


def test_every_state_can_be_reached_and_left_for_an_end():
    assert reachable(None) == {None, *State}
    for state in UNFINISHED:
        assert reachable(state) >= TERMINAL


def test_only_a_claim_starts_a_run_and_only_of_a_ready_job():
    starts = {arrow for arrow in TRANSITIONS if arrow.after is State.RUNNING}
    assert starts == {Arrow(State.READY, Move.CLAIM, State.RUNNING)}


def test_nothing_accepted_vanishes_before_it_has_finished():
    removed = {arrow.before for arrow in TRANSITIONS if arrow.after is None}
    assert removed == TERMINAL


def test_only_a_replayed_dead_letter_comes_back_from_its_end():
    returns = {arrow for arrow in TRANSITIONS if arrow.before in TERMINAL and arrow.after in UNFINISHED}
    assert returns == {Arrow(State.DEAD, Move.REPLAY, State.READY)}


def test_no_terminal_state_turns_into_another():
    turned = {arrow for arrow in TRANSITIONS if arrow.before in TERMINAL and arrow.after in TERMINAL}
    assert turned == {Arrow(State.DEAD, Move.EDIT, State.DEAD)}


def test_only_a_run_ends_done():
    assert {arrow.before for arrow in TRANSITIONS if arrow.after is State.DONE} == {State.RUNNING}


def test_a_job_is_born_by_enqueue_or_with_a_failed_parent():
    assert {arrow.move for arrow in TRANSITIONS if arrow.before is None} == {Move.ENQUEUE, Move.PARENT_FAILED}


@given(maybe_state, st.sampled_from(Move), maybe_state)
def test_what_is_not_in_the_table_is_not_permitted(before: State | None, move: Move, after: State | None):
    assert permitted(before, move, after) == (Arrow(before, move, after) in TRANSITIONS)


def test_the_diagram_has_every_arrow_once():
    head, *lines = diagram().splitlines()
    assert head == "stateDiagram-v2"
    drawn = []
    for line in lines:
        ends, moves = line.split(": ")
        before, after = ends.split(" --> ")
        drawn += [(before.strip(), move, after) for move in moves.split(", ")]
    wanted = {(before or "[*]", move, after or "[*]") for before, move, after in TRANSITIONS}
    assert len(drawn) == len(set(drawn)) == len(TRANSITIONS)
    assert set(drawn) == wanted
    assert diagram() == diagram()
