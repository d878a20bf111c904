"""Strikes on the bench of a test: what is struck is held, as by a worker; what is lifted runs."""

import pytest

from windlass import Windlass
from windlass.errors import InvalidOption
from windlass.testing import testing


@pytest.fixture
def app() -> Windlass:
    app = Windlass("memory://")

    @app.task(name="send")
    def send(user_id: int, text: str = "hi") -> int:
        return user_id

    return app


def test_what_is_struck_is_held_until_it_is_lifted(app: Windlass) -> None:
    send = app.tasks["send"]
    with testing(app) as t:
        strike = t.strike(send, user_id=42, reason="it is broken")
        struck, other = send.enqueue(42), send.enqueue(43)
        t.drain()
        assert other.result() == 43
        (run,) = t.runs(struck)
        assert (run.outcome, run.state, run.delay) == ("hold", "scheduled", 1)
        assert "it is broken" in run.why
        assert "struck by an operator" in t.explain(struck)
        t.advance("1h")
        assert {each.outcome for each in t.runs(struck)} == {"hold"}
        assert t.lift(strike) == 1
        t.drain()
        assert struck.result() == 42
        assert t.runs(struck)[-1].attempt == 1, "holds spend no attempt"


def test_a_task_is_paused_by_a_strike_without_conditions(app: Windlass) -> None:
    with testing(app) as t:
        strike = t.strike("send")
        jobs = [app.tasks["send"].enqueue(number) for number in range(3)]
        t.drain()
        assert {job.state() for job in jobs} == {"scheduled"}
        assert t.lift(strike) == 3
        t.drain()
        assert [job.result() for job in jobs] == [0, 1, 2]


def test_what_cannot_be_struck(app: Windlass) -> None:
    with testing(app) as t:
        with pytest.raises(InvalidOption, match='there is no task "nope"'):
            t.strike("nope")
        with pytest.raises(InvalidOption, match="nowhere"):
            t.strike("send", nowhere=1)
        with pytest.raises(InvalidOption, match='strike "nope" is not known'):
            t.lift("nope")
