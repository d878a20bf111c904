"""Running jobs in a test: what runs, in which order, and what the test sees of it."""

import asyncio
import contextvars
from pathlib import Path
from typing import Any

import pytest

from windlass import GiveUp, Retry, RetryPolicy, Snooze, Windlass, current
from windlass.errors import EnqueueRefused, InvalidOption, InvalidPayload, JobFailed, ResultTimeout
from windlass.testing import testing


@pytest.fixture
def app(tmp_path: Path) -> Windlass:
    """Its own store is a file, which no test may touch."""
    return Windlass(f"sqlite:///{tmp_path / 'own.db'}")


def test_drain_runs_what_is_ready_in_order(app: Windlass) -> None:
    @app.task
    def note(word: str) -> None:
        said.append(word)

    said: list[str] = []
    with testing(app) as t:
        note.enqueue("first")
        note.using(priority=1).enqueue("urgent")
        note.enqueue("last")
        note.using(delay=1).enqueue("later")
        ran = t.drain()
    assert said == ["urgent", "first", "last"]
    assert [(run.task, run.outcome, run.attempt) for run in ran] == [("note", "done", 1)] * 3


def test_drain_runs_what_jobs_enqueue_and_spawn(app: Windlass) -> None:
    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task
    def root() -> None:
        leaf.enqueue(1)
        current.spawn(leaf.call(2))

    with testing(app) as t:
        root.enqueue()
        t.drain()
        assert [job.job.result() for job in t.enqueued(leaf)] == [1, 2]
        assert [run.result for run in t.runs(leaf)] == [1, 2]


def test_spawned_children_of_a_failed_run_do_not_exist(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(max_attempts=1))
    def root() -> None:
        current.spawn(root.call())
        raise ValueError("no")

    with testing(app, raises=False) as t:
        root.enqueue()
        t.drain()
        assert len(t.enqueued(root)) == 1


def test_a_child_that_cannot_be_fails_its_run(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(max_attempts=1))
    def root() -> None:
        current.spawn(root.using(queue="nowhere").call())

    with testing(app) as t:
        job = root.enqueue()
        with pytest.raises(EnqueueRefused, match="what the run spawned was refused"):
            t.drain()
        assert job.state() == "dead"


def test_a_plain_function_may_return_something_to_await(app: Windlass) -> None:
    @app.task
    async def answer() -> int:
        return 7

    @app.task
    def indirect() -> Any:
        return answer()

    with testing(app) as t:
        assert t.run(indirect) == 7


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_task_raises_the_test_sees_after_it_was_settled(app: Windlass, asynchronous: bool) -> None:
    if asynchronous:

        @app.task(name="fail", retry=RetryPolicy(max_attempts=2, base=30))
        async def fail_async() -> None:
            raise LookupError("no such order")
    else:

        @app.task(name="fail", retry=RetryPolicy(max_attempts=2, base=30))
        def fail_plain() -> None:
            raise LookupError("no such order")

    with testing(app) as t:
        job = app.tasks["fail"].enqueue()
        with pytest.raises(LookupError, match="no such order") as raised:
            t.drain()
        assert "attempt 1 of 2; the job runs again in 30 s" in raised.value.__notes__[0]
        assert [entry.name for entry in raised.traceback if not entry.ishidden(raised)][1:] == [
            f"fail_{'async' if asynchronous else 'plain'}"
        ]
        assert (job.state(), t.enqueued()[0].attempt) == ("scheduled", 1)
        assert t.drain() == []
        with pytest.raises(LookupError):
            t.advance(30)
        assert job.state() == "dead"
        with pytest.raises(JobFailed, match="no such order"):
            job.result()


def test_the_other_jobs_are_still_there_after_an_exception(app: Windlass) -> None:
    @app.task
    def work(fails: bool) -> None:
        if fails:
            raise LookupError

    with testing(app) as t:
        work.enqueue(True)
        second = work.enqueue(False)
        with pytest.raises(LookupError):
            t.drain()
        assert second.state() == "ready"
        t.drain()
        assert second.state() == "done"


def test_signals_are_words_to_the_worker_and_are_not_raised(app: Windlass) -> None:
    @app.task
    def work(how: str) -> None:
        if current.attempt == 1 and how == "retry":
            raise Retry(after=5)
        if how == "snooze" and t.now < start.replace(year=start.year + 1):
            raise Snooze("400d")
        if how == "give up":
            raise GiveUp("pointless")

    with testing(app) as t:
        start = t.now
        jobs = {how: work.enqueue(how) for how in ("retry", "snooze", "give up")}
        t.drain()
        assert {how: job.state() for how, job in jobs.items()} == {
            "retry": "scheduled",
            "snooze": "scheduled",
            "give up": "dead",
        }
        assert [run.delay for run in t.runs(work)] == [5, 400 * 86_400, None]
        t.finish()
        assert jobs["retry"].state() == jobs["snooze"].state() == "done"
        assert [run.attempt for run in t.runs(jobs["snooze"])] == [1, 1]  # none was spent


def test_current_is_the_run(app: Windlass) -> None:
    @app.task
    def work() -> list[object]:
        current.progress(0.5, "half")
        current.log("a line")
        value = current.step("once", lambda: calls.append(1) or 7)
        if current.attempt == 1:
            raise Retry(after=1)
        return [current.job.id, current.attempt, value]

    calls: list[int] = []
    with testing(app) as t:
        job = work.enqueue()
        t.drain()
        detail = t.enqueued(work)[0].detail
        assert detail is not None
        assert (detail.logs, detail.progress and detail.progress.permille) == (("a line",), 500)
        assert (job.logs(), job.progress()) == (("a line",), (0.5, "half"))
        t.advance(1)
        assert job.result() == [job.id, 2, 7]
        assert calls == [1]
    assert not current


def test_a_run_does_not_leave_its_context_behind(app: Windlass) -> None:
    place: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="test")

    @app.task
    def work() -> str:
        found = place.get()
        place.set("task")
        return found

    with testing(app) as t:
        assert (t.run(work), t.run(work), place.get()) == ("test", "test", "test")


def test_run_returns_what_the_job_returned_or_raises_what_it_raised(app: Windlass) -> None:
    @app.task
    def half(number: int) -> int:
        if number % 2:
            raise ArithmeticError("odd")
        return number // 2

    @app.task
    def later() -> None:
        raise Snooze(60)

    with testing(app, raises=False) as t:
        assert t.run(half, 42) == 21
        assert t.run(half.call(number=4)) == 2
        with pytest.raises(ArithmeticError, match="odd"):
            t.run(half, 3)
        with pytest.raises(
            AssertionError, match=r"later\) has not finished: it ended in snooze: it is not due"
        ):
            t.run(later)
        with pytest.raises(InvalidOption, match="run takes a task"):
            t.run(half.function, 42)  # type: ignore[call-overload]


def test_run_says_why_a_job_cannot_run(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        t.pause("default")
        with pytest.raises(AssertionError, match="has not finished: its queue is paused"):
            t.run(work)
        t.resume("default")
        t.drain()
        assert t.enqueued(work)[0].state == "done"
        with pytest.raises(InvalidOption, match='queue "mail" is not declared; declared queues: default'):
            t.pause("mail")


def test_a_result_that_cannot_be_kept_is_seen(app: Windlass) -> None:
    @app.task
    def work() -> object:
        return object()

    with testing(app) as t:
        work.enqueue()
        with pytest.raises(InvalidPayload, match="object"):
            t.drain()


def test_waiting_for_a_job_that_nobody_runs_says_so(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app):
        job = work.using(delay=60).enqueue()
        with pytest.raises(ResultTimeout, match=r"\(work\) has not finished: it is not due \(60 s left\)"):
            job.result()
        job = work.enqueue()
        with pytest.raises(ResultTimeout, match=r"it is ready, and nobody has run it yet.*t\.drain\(\)"):
            job.result(timeout=10)


def test_the_app_has_its_own_store_back(app: Windlass, tmp_path: Path) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        work.enqueue()
        app.close()  # code under test may do that; the store is the same afterwards
        work.enqueue()
        assert len(t.enqueued()) == 2
    assert not (tmp_path / "own.db").exists()
    job = work.enqueue()
    assert job.state() == "ready"
    assert (tmp_path / "own.db").exists()
    app.close()


def test_each_block_begins_with_nothing(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    for _ in range(2):
        with testing(app) as t:
            assert t.enqueued() == []
            work.enqueue()


def test_a_task_that_enqueues_itself_for_ever_is_stopped(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def work() -> None:
        work.enqueue()

    monkeypatch.setattr("windlass.testing.timeline.MOST_RUNS", 50)
    with testing(app) as t:
        work.enqueue()
        with pytest.raises(AssertionError, match="50 runs, and no end: work 50 times"):
            t.drain()


def test_a_task_that_lives_elsewhere_is_held(app: Windlass) -> None:
    mail = app.external("mail")
    with testing(app) as t:
        mail.enqueue(to="a@example.com")
        t.finish()
        assert t.assert_enqueued(mail, to="a@example.com").state == "scheduled"
        assert [run.outcome for run in t.runs(mail)] == ["hold"]


def test_the_queue_of_a_task_that_lives_elsewhere_is_declared_there(app: Windlass) -> None:
    mail = app.external("mail", queue="postroom")
    with testing(app) as t:
        mail.using(queue="night").enqueue(to="a@example.com")
        mail.enqueue(to="b@example.com")
        t.finish()
        assert [(job.queue, job.state) for job in t.enqueued(mail)] == [
            ("night", "ready"),
            ("postroom", "ready"),
        ]
        assert t.runs() == []


def test_a_queue_that_nobody_declared_refuses_its_jobs(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app), pytest.raises(EnqueueRefused, match='queue "nowhere"'):
        work.using(queue="nowhere").enqueue()


def test_unusable_options_are_refused(app: Windlass) -> None:
    with pytest.raises(InvalidOption, match="jitter must be a number from 0 to 1, not 2"):
        testing(app, jitter=2)
    with pytest.raises(InvalidOption, match="unknown option 'jiter'"):
        testing(app, jiter=0)  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="testing takes an app"):
        testing("app")  # type: ignore[arg-type]
    block = testing(app)
    with block, pytest.raises(InvalidOption, match="open already"):
        block.__enter__()


def test_the_story_is_told_in_order(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(base=30))
    def work(number: int) -> None:
        if current.attempt == 1:
            raise LookupError("not there")

    with testing(app, raises=False) as t:
        assert str(t) == "nothing was enqueued"
        work.enqueue(42)
        t.finish()
        assert repr(t).startswith("<Bench: 1 jobs, 2 runs, 20")
        lines = [line[21:] for line in str(t).splitlines()]
    assert lines == [
        "enqueued  work(number=42)  done",
        "attempt 1 of 5  work  retry in 30 s  LookupError: not there",
        "attempt 2 of 5  work  done",
    ]


def test_a_dead_letter_can_be_replayed(app: Windlass) -> None:
    @app.task
    def work() -> None:
        if broken:
            raise GiveUp("broken")

    with testing(app) as t:
        broken = True
        job = work.enqueue()
        with pytest.raises(InvalidOption, match="cannot be replayed: it is ready"):
            t.replay(job)
        t.drain()
        assert job.state() == "dead"
        broken = False
        t.replay(job)
        t.drain()
        assert job.state() == "done"


def test_a_worker_inside_the_application_leaves_the_jobs_to_the_test(app: Windlass) -> None:
    """As where a web application enters one in its lifespan. It has no session, so it can claim nothing."""

    @app.task
    def note() -> str:
        return "run by the test"

    async def main() -> None:
        async with testing(app) as t:
            async with app.worker(concurrency=4):
                job = await note.aenqueue()
                assert {view.info.host for view in await t.broker.sessions("", 10)} == {"test"}
                await t.drain()
                assert await job.aresult() == "run by the test"
            assert [run.outcome for run in t.runs(job)] == ["done"]

    asyncio.run(main())
