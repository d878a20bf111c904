"""Asking what was enqueued, and the words of an assertion that fails."""

import re
from datetime import UTC, datetime
from unittest.mock import ANY

import msgspec
import pytest

from windlass import Windlass
from windlass.errors import InvalidOption
from windlass.testing import testing


class Size(msgspec.Struct):
    width: int
    height: int


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def test_arguments_are_compared_as_the_task_gets_them(app: Windlass) -> None:
    @app.task
    def work(at: datetime, size: Size, *rest: int, deep: bool = False, **more: str) -> None: ...

    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with testing(app) as t:
        work.enqueue(moment, Size(1, 2), 3, 4, colour="red")
        found = t.assert_enqueued(work, moment, Size(1, 2), 3, 4, colour="red", deep=False)
        assert found.arguments == {
            "at": moment,
            "size": Size(1, 2),
            "rest": (3, 4),
            "more": {"colour": "red"},
        }
        t.assert_enqueued(work, at=moment)
        t.assert_enqueued(work, ANY, Size(1, 2))
        t.assert_enqueued(work, deep=False)
        t.assert_not_enqueued(work, moment, Size(2, 1))
        t.assert_not_enqueued(work, ANY, ANY, 3)
        t.assert_not_enqueued(work, deep=True)


def test_options_are_compared_where_using_says_them(app: Windlass) -> None:
    app.queue("mail")

    @app.task(queue="mail", priority=3)
    def send(to: str) -> None: ...

    with testing(app) as t:
        send.using(delay="1m", lane="acme", key="k", tags=["a"]).enqueue("ada")
        t.drain()
        t.assert_enqueued(send, "ada")
        t.assert_enqueued(send.using(delay=60))
        t.assert_enqueued(send.using(lane="acme", key="k", tags=["a"]), to="ada")
        t.assert_not_enqueued(send.using(priority=4))
        t.assert_not_enqueued(send.using(delay=61))
        job = t.enqueued(send)[0]
        assert (job.queue, job.priority, job.delay, job.key) == ("mail", 3, 60, "k")


def test_a_failed_assertion_says_what_was_enqueued_instead(app: Windlass) -> None:
    @app.task
    def send(to: str, subject: str = "hi") -> None: ...

    @app.task
    def other() -> None: ...

    def failure() -> str:
        with pytest.raises(AssertionError) as raised:
            t.assert_enqueued(send.using(lane="acme"), "bob", subject="hi")
        return str(raised.value)

    with testing(app) as t:
        head = "no job of \"send\" with to='bob', subject='hi', lane acme was enqueued."
        assert failure() == f"{head} Nothing was."
        other.enqueue()
        assert failure() == f'{head} Nothing of "send" was, but:\n  other()  ready'
        send.using(lane="acme", priority=2).enqueue("ada")
        send.using(delay=90).enqueue("bob", subject="yo")
        assert failure() == (
            f"{head} These were:\n"
            "  send(to='ada')  ready, lane acme, priority 2\n"
            "    to is 'ada', not 'bob'\n"
            "  send(to='bob', subject='yo')  scheduled, delay 90 s\n"
            "    subject is 'yo', not 'hi'\n"
            "    lane is , not acme"
        )
        app.enqueue_many(send.call(str(number)) for number in range(20))
        assert failure().endswith("… and 12 more")


def test_a_job_that_should_not_be_is_shown(app: Windlass) -> None:
    @app.task
    def send(to: str) -> None: ...

    with testing(app) as t:
        send.enqueue("ada")
        with pytest.raises(AssertionError, match=r'^1 jobs? of "send" with to=\'ada\' (was|were) enqueued'):
            t.assert_not_enqueued(send, "ada")


def test_a_question_that_makes_no_sense_is_an_error(app: Windlass) -> None:
    @app.task
    def send(to: str) -> None: ...

    stranger = Windlass("memory://")

    @stranger.task
    def foreign() -> None: ...

    with testing(app) as t:
        with pytest.raises(TypeError, match=re.escape("send(): got an unexpected keyword argument 'too'")):
            t.assert_enqueued(send, too="ada")
        with pytest.raises(InvalidOption, match='task "foreign" is not one of this app; its tasks: send'):
            t.enqueued(foreign)
        with pytest.raises(InvalidOption, match="name a task"):
            t.enqueued("send")  # type: ignore[arg-type]


def test_a_replaced_job_is_what_it_was_replaced_by(app: Windlass) -> None:
    @app.task
    def index(page: int) -> None: ...

    with testing(app) as t:
        debounced = index.using(key="k", mode="replace", delay=10)
        debounced.enqueue(1)
        debounced.enqueue(2)
        assert [job.arguments for job in t.enqueued(index)] == [{"page": 2}]
