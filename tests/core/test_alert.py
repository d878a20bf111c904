"""Alerts: raised over a threshold, cleared well below it, and not a word in between."""

import pytest

from windlass.core.alert import (
    Alert,
    AlertState,
    check_alert,
    decode_alert,
    decode_state,
    encode_alert,
    judged,
    values,
)
from windlass.core.bridging import Bridging, lag_of
from windlass.core.intake import IntakeStatus, PartitionStatus
from windlass.core.query import Count, Counts
from windlass.core.relay import RelayReading
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import InvalidOption, UnreadablePayload


def counts(ready: int = 0, dead: int = 0, oldest: int = 0) -> Counts:
    return Counts(
        rows=(
            Count("mail", "send", State.READY, ready),
            Count("mail", "send", State.DEAD, dead),
            Count("other", "send", State.READY, 7),
            Count("mail", "send", State.DONE, 1_000),
        ),
        oldest={"mail": oldest * SECOND, "other": 1 * SECOND},
    )


def test_it_looks_at_its_queue_or_at_all() -> None:
    assert values(Alert(queue="mail", depth=1, dead=1), counts(5, 2)) == {"depth": 5, "dead": 2}
    assert values(Alert(depth=1, oldest=1), counts(5, 2, 9)) == {"depth": 12, "oldest": 9 * SECOND}


def test_it_looks_at_one_task() -> None:
    jobs = Counts(rows=(*counts(5, 2).rows, Count("mail", "charge", State.DEAD, 1)), oldest={"mail": SECOND})
    charged = Alert(task="charge", depth=0, dead=0)
    assert values(charged, jobs) == {"depth": 0, "dead": 1}
    assert values(Alert(task="send", queue="mail", dead=0), jobs) == {"dead": 2}
    assert judged(charged, jobs, AlertState(), 5).why == "1 dead letters of task charge (over 0)"
    with pytest.raises(InvalidOption, match="oldest says nothing of one task; it has depth, dead"):
        check_alert(Alert(task="charge", oldest=SECOND))
    assert decode_alert(encode_alert(charged)) == charged


def test_a_value_at_its_threshold_raises_nothing() -> None:
    alert = Alert(queue="mail", depth=10)
    assert not judged(alert, counts(10), AlertState(), 5).raised
    raised = judged(alert, counts(11), AlertState(), 5)
    assert (raised.raised, raised.since) == (True, 5)
    assert raised.why == "11 ready jobs (over 10)"


def test_one_that_wavers_is_raised_once() -> None:
    alert = Alert(queue="mail", depth=10)
    state, changes = AlertState(), 0
    for moment, depth in enumerate((11, 10, 9, 11, 9, 12, 9)):
        after = judged(alert, counts(depth), state, moment)
        changes += after.raised != state.raised
        state = after
    assert (changes, state.raised, state.since) == (1, True, 0)
    cleared = judged(alert, counts(8), state, 9)
    assert (cleared.raised, cleared.since, cleared.why) == (False, 9, "")


def test_all_values_must_be_calm_before_it_is_cleared() -> None:
    alert = Alert(queue="mail", depth=10, dead=4, oldest=100 * SECOND)
    raised = judged(alert, counts(0, 5, 101), AlertState(), 1)
    assert raised.why == "the oldest job has waited 101 s (over 100 s), 5 dead letters (over 4)"
    assert judged(alert, counts(0, 4, 0), raised, 2).raised
    assert judged(alert, counts(0, 3, 81), raised, 2).raised
    assert not judged(alert, counts(8, 3, 80), raised, 2).raised


@pytest.mark.parametrize(
    ("alert", "words"),
    [
        (Alert(queue="mail"), "needs a threshold"),
        (Alert(depth=-1), "depth must not be negative"),
        (Alert(dead=1, clear=101), "from 0 to 100 percent"),
    ],
)
def test_what_has_no_meaning_is_refused(alert: Alert, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        check_alert(alert)


def test_it_is_kept_as_bytes() -> None:
    alert = Alert(queue="mail", depth=3)
    assert decode_alert(encode_alert(alert)) == alert
    with pytest.raises(UnreadablePayload):
        decode_alert(b"\xff")
    assert decode_state(b"nonsense") == decode_state(None) == AlertState()


# --- intakes and relays -------------------------------------------------------------------------------------

NOW = 1_000 * SECOND


def bridges(*, lag: int = 0, stopped: bool = False, as_of: int = NOW, behind: int = 0) -> Bridging:
    parts = {
        "0": PartitionStatus(owner="a", lag=lag, stopped=stopped, as_of=as_of),
        "1": PartitionStatus(owner="b", lag=5, as_of=as_of),
    }
    reading = RelayReading(cursor="", until=as_of, as_of=as_of, behind=behind * SECOND)
    return Bridging(intakes={"orders": IntakeStatus(partitions=parts)}, relays={"ends": reading})


@pytest.mark.parametrize(
    ("alert", "seen", "why"),
    [
        (Alert(lag=10), bridges(lag=6), 'intake "orders" is 11 messages behind (over 10)'),
        (Alert(intake="orders", lag=10), bridges(lag=5), ""),
        (Alert(intake="others", lag=0), bridges(lag=5), ""),
        (Alert(stopped=True), bridges(), ""),
        (
            Alert(intake="orders", stopped=True),
            bridges(stopped=True),
            'intake "orders" has stopped in partition 0 and waits for an operator',
        ),
        (
            Alert(stopped=True),
            bridges(as_of=NOW - 61 * SECOND),
            'intake "orders" is run by nobody, relay "ends" is run by nobody',
        ),
        (
            Alert(relay="ends", behind=60 * SECOND),
            bridges(behind=61),
            'relay "ends" is 61 s behind (over 60 s)',
        ),
        (Alert(relay="ends", behind=60 * SECOND), bridges(behind=60), ""),
    ],
)
def test_it_looks_at_intakes_and_relays(alert: Alert, seen: Bridging, why: str) -> None:
    state = judged(check_alert(alert), counts(), AlertState(), NOW, seen)
    assert (state.raised, state.why) == (bool(why), why)


def test_an_intake_that_caught_up_halfway_keeps_it_raised() -> None:
    alert = Alert(lag=100)
    raised = judged(alert, counts(), AlertState(), 1, bridges(lag=200))
    assert judged(alert, counts(), raised, 2, bridges(lag=90)).raised
    assert not judged(alert, counts(), raised, 3, bridges(lag=75)).raised


def test_readers_of_a_queue_see_one_queue() -> None:
    readers = {name: PartitionStatus(owner=name, lag=40) for name in ("a", "b")}
    assert lag_of(IntakeStatus(partitions=readers)) == 40
    assert lag_of(IntakeStatus(partitions={"0": PartitionStatus(owner="a")})) is None


@pytest.mark.parametrize(
    "alert",
    [
        Alert(queue="mail", lag=1),
        Alert(intake="orders", depth=1),
        Alert(intake="orders", behind=1),
        Alert(relay="ends", lag=1),
        Alert(intake="orders", relay="ends", stopped=True),
        Alert(lag=-1),
        Alert(intake="orders"),
    ],
)
def test_what_says_nothing_of_what_it_names_is_refused(alert: Alert) -> None:
    with pytest.raises(InvalidOption):
        check_alert(alert)
