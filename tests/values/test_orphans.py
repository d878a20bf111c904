"""What is judged to be of no use, case by case; pure."""

from datetime import UTC, datetime

import msgspec
import pytest

from windlass.core.codec import reference_to
from windlass.core.job import FORGOTTEN, JobDetail
from windlass.core.state import State
from windlass.core.units import DAY, HOUR, MINUTE, SECOND, Micros
from windlass.values.bucket import Stored
from windlass.values.orphans import (
    SAFE,
    SAFE_BEHIND_A_FRONT,
    Rules,
    judge_payload,
    judge_results,
    rules_for,
)

NOW: Micros = 1_800_000_000 * SECOND
OLD, YOUNG = 2 * DAY, HOUR
REFERENCE = reference_to(b"large")
RULES = Rules()
KEEPING = Rules(kept=30 * DAY)


def stored(name: object, age: Micros = OLD) -> Stored:
    return Stored(f"r/shop/job/{name}", datetime.fromtimestamp((NOW - age) / SECOND, UTC))


def job(state: State, fence: int = 7, **more: object) -> JobDetail:
    return msgspec.structs.replace(FORGOTTEN, state=state, fence=fence, pruned=False, **more)


def names(keys: tuple[str, ...]) -> list[str]:
    return [key.rpartition("/")[2] for key in keys]


@pytest.mark.parametrize(
    ("detail", "age", "goes"),
    [
        (None, OLD, True),
        (None, YOUNG, False),
        (FORGOTTEN, OLD, True),
        (job(State.READY, payload=REFERENCE), OLD, False),
        (job(State.DEAD, payload=REFERENCE), 300 * DAY, False),
        (job(State.READY, payload=b'{"v":1}'), OLD, True),  # an operator has changed it
        (job(State.READY, payload=b'{"v":1}'), YOUNG, False),
        (job(State.DONE, payload=b""), OLD, True),  # somebody had it erased
    ],
)
def test_a_payload(detail: JobDetail | None, age: Micros, goes: bool) -> None:
    assert bool(judge_payload(stored("p", age), detail, NOW, RULES).remove) is goes


def test_behind_a_front_door_an_unknown_job_may_still_be_on_its_way() -> None:
    rules = rules_for(resend_window=HOUR, has_front=True, kept=None)
    assert judge_payload(stored("p", 29 * DAY), None, NOW, rules).remove == ()
    assert judge_payload(stored("p", SAFE_BEHIND_A_FRONT + MINUTE), None, NOW, rules).remove
    assert judge_payload(stored("p", OLD), FORGOTTEN, NOW, rules).remove, "this one has arrived"


def test_a_long_resend_window_makes_the_safe_age_longer() -> None:
    assert rules_for(resend_window=10 * SECOND, has_front=False, kept=None).safe == SAFE
    assert rules_for(resend_window=3 * DAY, has_front=False, kept=None).safe == 3 * DAY + HOUR


@pytest.mark.parametrize(
    ("detail", "remove"),
    [
        (job(State.DONE, result=REFERENCE), ["5", "9"]),
        (job(State.DONE, result=b'{"v":1,"r":1}'), ["5", "7", "9"]),
        (job(State.DONE, result=None), ["5", "7", "9"]),
        (job(State.RUNNING), ["5", "9"]),
        (job(State.READY), ["5", "7", "9"]),
        (job(State.DEAD), ["5", "7", "9"]),
        (FORGOTTEN, ["5", "7", "9"]),
        (None, ["5", "7", "9"]),
    ],
)
def test_results(detail: JobDetail | None, remove: list[str]) -> None:
    found = [stored(5), stored(7), stored(9)]
    judged = judge_results(found, detail, None, NOW, RULES)
    assert names(judged.remove) == remove
    assert judged.keep is None
    young = [stored(number, YOUNG) for number in (5, 7, 9)]
    assert judge_results(young, detail, None, NOW, RULES).remove == ()


def test_which_result_it_was_is_noted_while_that_is_known() -> None:
    found = [stored(5), stored(7)]
    assert judge_results(found, job(State.DONE, result=REFERENCE), None, NOW, KEEPING).keep == 7
    assert judge_results(found, job(State.DONE, result=None), None, NOW, KEEPING).keep == 7
    assert judge_results(found, job(State.DONE, result=REFERENCE), 7, NOW, KEEPING).keep is None
    assert judge_results(found[:1], job(State.DONE), None, NOW, KEEPING).keep is None, "it was a small one"
    assert judge_results(found, None, None, NOW, KEEPING).keep is None
    assert judge_results([stored(7, YOUNG)], job(State.DONE), None, NOW, KEEPING).keep == 7


def test_a_noted_result_outlasts_its_job_and_then_goes_with_its_note() -> None:
    found = [stored(5), stored(7), stored("kept")]
    assert names(judge_results(found, None, 7, NOW, KEEPING).remove) == ["5"]
    past = [stored(7, 31 * DAY), stored("kept", 30 * DAY)]
    assert names(judge_results(past, None, 7, NOW, KEEPING).remove) == ["kept", "7"]
    assert names(judge_results([stored("kept")], None, 7, NOW, KEEPING).remove) == ["kept"]


def test_a_result_that_the_store_refers_to_is_never_too_old() -> None:
    found = [stored(7, 400 * DAY)]
    assert judge_results(found, job(State.DONE, result=REFERENCE), None, NOW, KEEPING).remove == ()
