"""The clock of a test: what becomes due is run at its own time."""

from datetime import UTC, datetime, timedelta

import pytest

from windlass import RetryPolicy, Windlass
from windlass.errors import InvalidOption, JobFailed
from windlass.testing import testing

START = datetime(2030, 3, 30, tzinfo=UTC)


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def after(**length: float) -> datetime:
    return START + timedelta(**length)


def test_jobs_run_at_their_own_time_in_order(app: Windlass) -> None:
    @app.task
    def note(word: str) -> None:
        said.append((word, t.now))

    said: list[tuple[str, datetime]] = []
    with testing(app, now=START) as t:
        note.using(delay="3h").enqueue("third")
        note.using(delay=60).enqueue("first")
        note.using(run_at=after(hours=2)).enqueue("second")
        note.using(delay="4h").enqueue("not yet")
        t.advance("3h")
        assert t.now == after(hours=3)
    assert said == [("first", after(minutes=1)), ("second", after(hours=2)), ("third", after(hours=3))]


def test_a_microsecond_before_it_is_due_a_job_waits(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        job = work.using(delay=60).enqueue()
        t.advance(59.999999)
        assert job.state() == "scheduled"
        t.advance(0.000001)
        assert job.state() == "done"


def test_what_jobs_enqueue_on_the_way_runs_on_the_way(app: Windlass) -> None:
    @app.task
    def again(times: int) -> None:
        said.append(t.now)
        if times > 1:
            again.using(delay="1h").enqueue(times - 1)

    said: list[datetime] = []
    with testing(app, now=START) as t:
        again.enqueue(3)
        t.advance("1d")
        assert said == [START, after(hours=1), after(hours=2)]
        assert t.now == after(days=1)


def test_retries_wait_by_their_policy_without_chance(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(max_attempts=4, base=30, cap=100))
    def fail() -> None:
        raise LookupError

    for jitter, waits in ((1, [30, 60, 100]), (0.5, [15, 30, 50]), (0, [None, None, None])):
        with testing(app, raises=False, jitter=jitter) as t:
            job = fail.enqueue()
            t.finish()
            assert [run.delay for run in t.runs(job)] == [*waits, None]
            assert [run.outcome for run in t.runs(job)] == ["retry", "retry", "retry", "dead"]
            with pytest.raises(JobFailed):
                job.result()


def test_a_job_expires(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        late = work.using(delay="2h", expires="1h").enqueue()
        cleanup = work.using(after=late, on_failure="run").enqueue()
        t.advance("1h")
        assert (late.state(), cleanup.state()) == ("dead", "done")


def test_results_outlast_their_ttl(app: Windlass) -> None:
    @app.task
    def work() -> int:
        return 7

    with testing(app) as t:
        job = work.enqueue()
        t.drain()
        t.advance("400d")
        assert job.result() == 7
        assert t.enqueued(work)[0].state == "done"


def test_a_queue_that_keeps_nothing_is_still_listed(app: Windlass) -> None:
    app.queue("brief", retention=0, result_ttl=0)

    @app.task(queue="brief")
    def work() -> None: ...

    with testing(app) as t:
        work.enqueue()
        t.drain()
        t.advance("1h")
        assert t.assert_enqueued(work).state == "done"


def test_rates_are_kept_on_the_clock_of_the_test(app: Windlass) -> None:
    @app.task(rate="5/s")
    def work() -> None:
        at.append(t.now)

    at: list[datetime] = []
    with testing(app, now=START) as t:
        app.enqueue_many(work.call() for _ in range(6))
        t.drain()
        assert at == [START]  # a burst of one
        t.advance(1)
        assert at == [after(seconds=0.2 * number) for number in range(6)]


def test_unique_keys_are_free_after_their_window(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        once = work.using(key="k", window="1h")
        assert once.enqueue().created
        t.drain()
        assert not once.enqueue().created
        t.advance("1h")
        assert once.enqueue().created
        assert len(t.enqueued(work)) == 2


def test_run_at_of_the_real_clock_is_due_after_its_distance(app: Windlass) -> None:
    @app.task
    def work() -> None: ...

    with testing(app) as t:
        assert t.now.microsecond == 0
        assert timedelta(0) < t.now - datetime.now(UTC) <= timedelta(seconds=2)
        job = work.using(run_at=datetime.now(UTC) + timedelta(hours=1)).enqueue()
        t.advance(3590)
        assert job.state() == "scheduled"
        t.advance(10)
        assert job.state() == "done"


def test_the_clock_does_not_go_back(app: Windlass) -> None:
    with testing(app, now=START) as t:
        t.advance_to(after(days=1))
        assert t.now == after(days=1)
        with pytest.raises(InvalidOption, match="does not go back"):
            t.advance_to(START)
        with pytest.raises(InvalidOption, match="by must not be negative"):
            t.advance(-1)
        with pytest.raises(InvalidOption, match="says its zone"):
            t.advance_to(datetime(2031, 1, 1))  # noqa: DTZ001


def test_another_clock_can_follow(app: Windlass) -> None:
    @app.task
    def work() -> datetime:
        return moved[-1]

    moved: list[datetime] = []
    with testing(app, now=START, follow=moved.append) as t:
        job = work.using(delay=60).enqueue()
        t.advance("1h")
        assert job.result() == after(minutes=1)
        assert moved == [after(minutes=1), after(hours=1)]


def test_a_failure_stops_the_clock_where_it_happened(app: Windlass) -> None:
    @app.task(retry=RetryPolicy(base=600))
    def work() -> None:
        if t.now < after(minutes=2):
            raise LookupError

    with testing(app, now=START) as t:
        job = work.using(delay=60).enqueue()
        with pytest.raises(LookupError):
            t.advance("1h")
        assert t.now == after(minutes=1)
        t.advance("1h")
        assert job.state() == "done"


def test_finish_says_what_cannot_finish(app: Windlass) -> None:
    app.queue("mail")

    @app.task(queue="mail")
    def work() -> None: ...

    with testing(app) as t:
        job = work.enqueue()
        t.pause("mail")
        with pytest.raises(AssertionError, match=rf"work {job.id} \(ready\): its queue is paused"):
            t.finish()
        assert t.explain(job) == "its queue is paused"


# --- schedules ---


def test_schedules_fire(app: Windlass) -> None:
    @app.task
    def tick(name: str) -> None:
        ticks.append((name, t.now))

    ticks: list[tuple[str, datetime]] = []
    app.schedule("hourly", tick.call("hourly"), every="1h")
    app.schedule("nightly", tick.call("nightly"), cron="0 3 * * *")
    app.schedule("once", tick.call("once"), at=after(hours=2, minutes=30))
    with testing(app, now=START) as t:
        t.advance("3h")
    assert ticks == [
        ("hourly", after(hours=1)),
        ("hourly", after(hours=2)),
        ("once", after(hours=2.5)),
        ("hourly", after(hours=3)),
        ("nightly", after(hours=3)),
    ]


def test_schedules_can_be_left_alone(app: Windlass) -> None:
    @app.task
    def tick() -> None: ...

    app.schedule("hourly", tick.call(), every="1h")
    with testing(app, schedules=False) as t:
        t.advance("1d")
        t.assert_not_enqueued(tick)


def test_finish_does_not_wait_for_schedules(app: Windlass) -> None:
    @app.task
    def tick() -> None: ...

    app.schedule("hourly", tick.call(), every="1h")
    with testing(app, now=START) as t:
        tick.using(delay="90m").enqueue()
        t.finish()
        assert t.now == after(minutes=90)
        assert len(t.runs(tick)) == 2


@pytest.mark.parametrize(("overlap", "states"), [("skip", ["running"]), ("queue", ["running", "blocked"])])
def test_a_tick_during_an_unfinished_job_goes_by_its_policy(
    app: Windlass, overlap: str, states: list[str]
) -> None:
    @app.task
    def tick() -> None: ...

    app.schedule("often", tick.call(), every=10, overlap=overlap)  # type: ignore[arg-type]
    with testing(app, now=START) as t:
        t.lose(tick)
        t.advance(20)
        assert [job.state for job in t.enqueued(tick)] == states


def test_jitter_of_a_schedule_delays_its_job(app: Windlass) -> None:
    @app.task
    def tick() -> None: ...

    app.schedule("spread", tick.call(), every="1h", jitter="10m")
    with testing(app, now=START) as t:
        t.advance("1h")
        assert 0 < t.enqueued(tick)[0].delay < 600
        t.advance("10m")
        assert t.enqueued(tick)[0].state == "done"
