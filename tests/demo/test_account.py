"""The account of the demo closes exactly when it should."""

import msgspec
import pytest

from windlass.core.job import FORGOTTEN, Delivery, JobDetail
from windlass.core.outcome import Cause, CauseKind, Error, Outcome
from windlass.core.state import Reason, State
from windlass.demo.account import Account, draw_up
from windlass.demo.ledger import Line


def job(name: str, state: State, *deliveries: Delivery, task: str = "flaky") -> JobDetail:
    reason = Reason.EXHAUSTED if state is State.DEAD else None
    return msgspec.structs.replace(
        FORGOTTEN, id=name, task=task, state=state, reason=reason, deliveries=deliveries, pruned=False
    )


def delivery(fence: int, outcome: Outcome, *, error: str = "", cause: CauseKind | None = None) -> Delivery:
    return Delivery(
        fence=fence,
        attempt=fence,
        session="s",
        claimed_at=0,
        ended_at=1,
        outcome=outcome,
        settled=cause is None,
        cause=None if cause is None else Cause(cause, "signal 9"),
        error=Error(type=error) if error else None,
    )


def run(name: str, fence: int, *, ended: bool = False) -> Line:
    return Line(job=name, fence=fence, task="flaky", lane="", attempt=fence, pid=1, at=0.0, ended=ended)


DONE = delivery(1, Outcome.DONE)


def test_it_closes_when_every_job_has_ended_and_every_repeat_has_a_reason() -> None:
    failed = delivery(1, Outcome.RETRY, error="ConnectionError")
    crashed = delivery(1, Outcome.RETRY, cause=CauseKind.CRASH)
    done = delivery(2, Outcome.DONE)
    account = draw_up(
        ["a", "b", "c", "d"],
        [
            job("a", State.DONE, DONE),
            job("b", State.DONE, failed, done),
            job("c", State.DONE, crashed, done),
            job("d", State.DEAD, delivery(1, Outcome.DEAD, error="ValueError")),
        ],
        [
            run("a", 1),
            run("a", 1, ended=True),
            run("b", 1),
            run("b", 2),
            run("c", 1),
            run("c", 2),
            run("d", 1),
        ],
    )
    assert account.closes
    assert (account.accepted, account.runs) == (4, 6)
    assert account.states == {State.DONE: 3, State.DEAD: 1}
    assert account.dead == {"flaky: attempts exhausted": 1}
    assert account.repeats == {
        "failed, and was tried again (ConnectionError)": 1,
        "had started in a worker that was killed (signal 9)": 1,
    }


def lost() -> Account:
    return draw_up(["a"], [None], [run("a", 1)])


def unfinished() -> Account:
    return draw_up(["a"], [job("a", State.READY)], [])


def never_accepted() -> Account:
    return draw_up([], [], [run("a", 1)])


def done_without_a_run() -> Account:
    return draw_up(["a"], [job("a", State.DONE, DONE)], [])


def dead_without_a_run() -> Account:
    return draw_up(["a"], [job("a", State.DEAD)], [])


def done_twice() -> Account:
    twice = job("a", State.DONE, DONE, delivery(2, Outcome.DONE))
    return draw_up(["a"], [twice], [run("a", 1), run("a", 2)])


def a_run_that_the_store_does_not_know() -> Account:
    return draw_up(["a"], [job("a", State.DONE, DONE)], [run("a", 1), run("a", 7)])


@pytest.mark.parametrize(
    ("account", "said"),
    [
        (lost(), "is lost"),
        (unfinished(), "has not finished: it is ready"),
        (never_accepted(), "never accepted"),
        (done_without_a_run(), "is done, and nobody ran it"),
        (dead_without_a_run(), "is dead, and nobody ran it"),
        (done_twice(), "has 2 runs that were"),
        (a_run_that_the_store_does_not_know(), "the store knows nothing of a run of it"),
    ],
    ids=["lost", "unfinished", "stranger", "done-unrun", "dead-unrun", "done-twice", "unexplained"],
)
def test_it_does_not_close_over_a_problem(account: Account, said: str) -> None:
    assert not account.closes
    assert said in account.problems[0]
