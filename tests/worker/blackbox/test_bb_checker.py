"""The checker notices every broken promise that it is there for."""

import msgspec
import pytest
from tests.worker.blackbox.checker import Checker
from tests.worker.blackbox.ledger import Ledger, Run

from windlass.core.job import FORGOTTEN, Delivery, JobDetail
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.state import Reason, State

CRASH = Cause(CauseKind.CRASH, "signal 9")


def _run(
    fence: int, *, attempt: int = 1, start: float = 1.0, end: float | None = 2.0, how: str = "ok"
) -> Run:
    return Run("job", "short", fence, attempt, 7, start, {}, end, None if end is None else how)


def _lease(
    fence: int, outcome: Outcome = Outcome.DONE, *, attempt: int = 1, cause: Cause | None = None
) -> Delivery:
    return Delivery(
        fence=fence,
        attempt=attempt,
        session="s",
        claimed_at=fence,
        ended_at=fence + 1,
        outcome=outcome,
        settled=cause is None,
        cause=cause,
        runtime=None if cause else 1,
    )


def _job(*deliveries: Delivery, state: State = State.DONE, **more: object) -> JobDetail:
    said = {
        "id": "job",
        "state": state,
        "attempt": 1,
        "max_attempts": 3,
        "deliveries": deliveries,
        "result": b"1",
    }
    return msgspec.structs.replace(FORGOTTEN, **{**said, **more})


def _problems(runs: list[Run], job: JobDetail, **options: object) -> str:
    return "\n".join(Checker(Ledger(runs=runs), {"job": job}, **options).problems())  # pyright: ignore[reportArgumentType]


def test_nothing_is_wrong() -> None:
    assert not _problems([_run(1)], _job(_lease(1)))
    crashed = [_run(1, end=None), _run(2, attempt=2, start=3.0, end=4.0)]
    history = (_lease(1, Outcome.RETRY, cause=CRASH), _lease(2, attempt=2))
    assert not _problems(crashed, _job(*history, attempt=2, crashes=1, result=b"2"))
    lost = [_run(1, end=9.0), _run(2, attempt=2, start=3.0, end=4.0)]
    history = (_lease(1, Outcome.RETRY, cause=Cause(CauseKind.LOST)), _lease(2, attempt=2))
    assert not _problems(lost, _job(*history, attempt=2, crashes=1, result=b"2"))


TWICE = [_run(1), _run(2, attempt=2, start=3.0, end=4.0)]
SPENT = _lease(1, Outcome.RETRY, cause=CRASH)


@pytest.mark.parametrize(
    ("runs", "job", "problem"),
    [
        pytest.param([_run(1)], _job(state=State.READY), "neither ended nor dead", id="lost"),
        pytest.param([], _job(_lease(1)), "did not complete", id="done without a run"),
        pytest.param([_run(1, end=None)], _job(_lease(1)), "did not complete", id="done without an end"),
        pytest.param(
            [_run(1)], _job(_lease(1), result=b"5"), "belongs to another run", id="another's result"
        ),
        pytest.param(TWICE, _job(_lease(2)), "no lease in its history explains", id="unexplained duplicate"),
        pytest.param(
            TWICE,
            _job(_lease(1, Outcome.RETRY), _lease(2, attempt=2), result=b"2"),
            "completed and was settled as retry",
            id="completed and repeated",
        ),
        pytest.param(
            [_run(1, end=None), TWICE[1]],
            _job(_lease(1, Outcome.RELEASE, cause=CRASH), _lease(2), result=b"2"),
            "had started in a crash and was not charged",
            id="not charged",
        ),
        pytest.param(
            [_run(2, attempt=1)],
            _job(SPENT, _lease(2), result=b"2"),
            "was attempt 1 after 1 attempts",
            id="attempt not counted",
        ),
        pytest.param([_run(1)], _job(_lease(1), attempt=4), "attempt 4 of 3", id="too many attempts"),
        pytest.param(
            [_run(1, end=9.0, how="ValueError"), TWICE[1]],
            _job(_lease(1, Outcome.RETRY), _lease(2, attempt=2), result=b"2"),
            "overlap",
            id="overlap",
        ),
        pytest.param(
            [_run(1)],
            _job(_lease(1, Outcome.DEAD), state=State.DEAD, reason=Reason.EXHAUSTED, error=Error(type="E")),
            "dead without a reason of its own",
            id="innocent and dead",
        ),
        pytest.param(
            [_run(1, how="E")],
            _job(_lease(1, Outcome.DEAD), state=State.DEAD, reason=None),
            "dead without a stated cause",
            id="no cause",
        ),
    ],
)
def test_broken_promise_is_noticed(runs: list[Run], job: JobDetail, problem: str) -> None:
    assert problem in _problems(runs, job)


def test_run_of_an_unknown_job_is_noticed() -> None:
    assert "without having been enqueued" in "\n".join(Checker(Ledger(runs=[_run(1)]), {}).problems())


def test_calm_means_that_nothing_was_taken_away() -> None:
    history = (_lease(1, Outcome.RETRY, cause=CRASH), _lease(2, attempt=2))
    problems = _problems([_run(1, end=None), TWICE[1]], _job(*history, attempt=2, result=b"2"), calm=True)
    assert "nobody was killed" in problems


def test_charge_before_the_first_line_is_counted() -> None:
    checker = Checker(
        Ledger(runs=[_run(2, attempt=2)]), {"job": _job(SPENT, _lease(2, attempt=2), result=b"2")}
    )
    assert not list(checker.problems())
    assert checker.charged_unseen == 1
