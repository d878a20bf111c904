"""Django's tasks on Windlass: what `django.tasks` says of a backend."""

import importlib
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest


@pytest.fixture(scope="module", autouse=True)
def django_site() -> None:
    """Django, set up in this process with a project of these tests alone."""
    import django
    from django.conf import settings

    if settings.configured:  # once in a process
        return
    folder = tempfile.mkdtemp()
    tasks = ["django_tasks"] if not _has_tasks() else []
    settings.configure(
        INSTALLED_APPS=["windlass.django", *tasks],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/db.sqlite3"}},
        WINDLASS={"url": f"sqlite:///{folder}/jobs.db"},
        TASKS={
            "default": {
                "BACKEND": "windlass.django.backend.TasksBackend",
                "QUEUES": ["default", "mail"],
                "OPTIONS": {"retry": {"max_attempts": 2}},
            },
            "picky": {
                "BACKEND": "windlass.django.backend.TasksBackend",
                "OPTIONS": {"retry": {"retry_on": (LookupError, OSError), "give_up_on": (KeyError,)}},
            },
            "patient": {
                "BACKEND": "windlass.django.backend.TasksBackend",
                "OPTIONS": {"retry": {"max_attempts": 14}},
            },
            "once": {
                "BACKEND": "windlass.django.backend.TasksBackend",
                "OPTIONS": {"retry": {"max_attempts": 1}},
            },
        },
        USE_TZ=True,
    )
    django.setup()


def _has_tasks() -> bool:
    try:
        import django.tasks  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.fixture
def tasks() -> Any:
    """The module with the tasks; imported after Django was set up."""
    return importlib.import_module("tests.django_project.background")


@pytest.fixture
def t() -> Iterator[Any]:
    from windlass.django.testing import jobs

    with jobs(raises=False) as bench:
        yield bench


def test_a_result_is_ready_then_successful(tasks: Any, t: Any) -> None:
    result = tasks.meaning.enqueue()
    assert result.status == "READY"
    assert not result.is_finished
    assert result.enqueued_at is not None
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    t.drain()
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert result.return_value == 42
    assert result.attempts == 1
    assert result.started_at is not None
    assert result.finished_at >= result.started_at >= result.enqueued_at
    assert tasks.meaning.get_result(result.id).return_value == 42


def test_arguments_are_json(tasks: Any, t: Any) -> None:
    result = tasks.echo.enqueue(1, ("a", None), key={"b": [True]})
    assert result.args == [1, ["a", None]]
    assert result.kwargs == {"key": {"b": [True]}}
    t.drain()
    result.refresh()
    assert result.return_value == [[1, ["a", None]], {"key": {"b": [True]}}]
    with pytest.raises(TypeError):
        tasks.echo.enqueue(object())


def test_a_failure_is_tried_again_and_ends_failed(tasks: Any, t: Any) -> None:
    result = tasks.fails.enqueue()
    t.drain()
    result.refresh()
    assert result.status == "READY"
    assert result.attempts == 1
    t.finish()
    result.refresh()
    assert result.status == "FAILED"
    assert result.attempts == 2
    assert result.errors[-1].exception_class is ValueError
    assert "ValueError: this failed" in result.errors[-1].traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_the_signals_tell_how_a_task_ends(tasks: Any, t: Any) -> None:
    from windlass.django.backend import task_finished

    told: list[tuple[str, str]] = []

    def listen(task_result: Any, **_: Any) -> None:
        told.append((task_result.task.name, str(task_result.status)))

    task_finished.connect(listen)
    for task in (tasks.meaning, tasks.fails, tasks.unkept):
        task.enqueue()
        t.finish()
    task_finished.disconnect(listen)
    assert told == [("meaning", "SUCCESSFUL"), ("fails", "FAILED"), ("unkept", "FAILED")]


@pytest.fixture
def ends() -> Iterator[list[tuple[int, str]]]:
    """What `task_finished` tells: the attempt, and the status."""
    from windlass.django.backend import task_finished

    told: list[tuple[int, str]] = []

    def listen(task_result: Any, **_: Any) -> None:
        told.append((task_result.attempts, str(task_result.status)))

    task_finished.connect(listen)
    yield told
    task_finished.disconnect(listen)


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("given_up", 1),
        ("not_retried", 1),
        ("gives_up", 1),
        ("stops_itself", 1),
        ("asks_again", 2),
        ("fails", 2),
    ],
)
def test_a_job_that_ends_in_a_run_has_finished(
    tasks: Any, t: Any, ends: list[tuple[int, str]], name: str, attempt: int
) -> None:
    result = getattr(tasks, name).enqueue()
    t.finish()
    result.refresh()
    assert result.status == "FAILED"
    assert result.attempts == attempt
    assert ends == [(attempt, "FAILED")]


def test_receivers_of_the_end_have_what_was_returned_or_raised(tasks: Any, t: Any) -> None:
    from windlass.django.backend import task_finished

    told: list[Any] = []

    def listen(task_result: Any, **_: Any) -> None:
        told.append(task_result)

    task_finished.connect(listen)
    tasks.echo.enqueue(1)
    tasks.gives_up.enqueue()
    tasks.unkept.enqueue()
    t.finish()
    task_finished.disconnect(listen)
    returned, raised, unkept = told
    assert returned.return_value == [[1], {}]
    assert raised.errors[0].exception_class.__name__ == "GiveUp"
    assert "no such customer" in raised.errors[0].traceback
    assert unkept.errors[0].exception_class.__name__ == "InvalidPayload"


@pytest.mark.parametrize("name", ["loses_its_lease", "snoozes", "is_given_back"])
def test_a_job_that_goes_back_has_not_finished(
    tasks: Any, t: Any, ends: list[tuple[int, str]], name: str
) -> None:
    result = getattr(tasks, name).enqueue()
    t.finish()
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert result.attempts == 1
    assert ends == [(1, "SUCCESSFUL")]


def test_a_run_that_somebody_cancels_has_finished(tasks: Any, t: Any, ends: list[tuple[int, str]]) -> None:
    t.cancel_running(tasks.asks_again.enqueue().id)
    t.finish()
    assert ends == [(1, "FAILED")]


def test_async_tasks_run_and_async_code_enqueues(tasks: Any) -> None:
    import asyncio

    from windlass.django.project import project_app
    from windlass.testing import testing

    async def main() -> None:
        async with testing(project_app()) as t:
            result = await tasks.ameaning.aenqueue()
            await t.drain()
            await result.arefresh()
            assert result.return_value == 42

    asyncio.run(main())


def test_a_task_that_takes_a_context_knows_its_result(tasks: Any, t: Any) -> None:
    result = tasks.who.enqueue("x")
    t.drain()
    result.refresh()
    assert result.return_value == [result.id, 1, "x"]


def test_queue_priority_and_time_reach_the_job(tasks: Any, t: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    tasks.meaning.using(queue_name="mail", priority=7, run_after=later).enqueue()
    (job,) = t.enqueued()
    assert (job.queue, job.priority) == ("mail", 7)
    assert t.drain() == []
    assert len(t.advance(3_700)) == 1


def test_a_result_that_is_read_knows_how_its_task_was_asked_for(tasks: Any, t: Any) -> None:
    later = t.now + timedelta(hours=1)
    asked = tasks.meaning.using(queue_name="mail", priority=7, run_after=later)
    result = asked.enqueue()
    assert tasks.meaning.get_result(result.id).task == asked
    t.advance(3_600)
    ended = tasks.meaning.get_result(result.id).task
    assert (ended.queue_name, ended.priority, ended.run_after) == ("mail", 7, None)


def test_a_task_that_runs_knows_how_it_was_asked_for(tasks: Any, t: Any) -> None:
    result = tasks.where.using(queue_name="mail", priority=7).enqueue()
    t.drain()
    result.refresh()
    assert result.return_value == ["mail", 7]


def test_a_result_can_be_read_when_its_queue_is_not_allowed_any_more(tasks: Any, t: Any) -> None:
    from django.test import override_settings

    result = tasks.meaning.using(queue_name="mail").enqueue()
    with override_settings(TASKS={"default": {"BACKEND": "windlass.django.backend.TasksBackend"}}):
        assert tasks.meaning.get_result(result.id).task == tasks.meaning


def test_attempts_are_counted_beyond_the_runs_that_a_store_keeps(tasks: Any, t: Any) -> None:
    result = tasks.patient.enqueue()
    t.finish()
    result.refresh()
    assert result.status == "FAILED"
    assert result.attempts == 14
    assert not any(result.worker_ids[:4])
    assert all(result.worker_ids[4:])


def test_what_is_not_known_does_not_exist(tasks: Any, t: Any) -> None:
    from windlass.django.backend import TaskResultDoesNotExist
    from windlass.django.project import project_app

    for unknown in ("nonsense", project_app().new_id()):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.meaning.get_result(unknown)
    result = tasks.echo.enqueue()
    with pytest.raises(Exception, match="does not match"):
        tasks.meaning.get_result(result.id)


def test_a_queue_that_the_backend_does_not_have_is_refused(tasks: Any) -> None:
    with pytest.raises(Exception, match="'unknown' is not valid"):
        tasks.meaning.using(queue_name="unknown").enqueue()


def test_signals_are_sent_once_for_each_step(tasks: Any, t: Any) -> None:
    from windlass.django.backend import task_enqueued, task_finished, task_started

    seen: list[tuple[str, str]] = []

    def watch(name: str) -> Any:
        def receive(task_result: Any, **_: Any) -> None:
            seen.append((name, str(task_result.status)))

        return receive

    watchers = {name: watch(name) for name in ("enqueued", "started", "finished")}
    for signal, name in ((task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished")):
        signal.connect(watchers[name])
    tasks.meaning.enqueue()
    t.drain()
    tasks.fails.enqueue()
    t.finish()
    assert seen == [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("started", "RUNNING"),
        ("finished", "FAILED"),
    ]


@pytest.mark.parametrize("name", ["queries", "aqueries"])
def test_a_run_leaves_no_connection_to_the_database(tasks: Any, t: Any, name: str) -> None:
    tasks.used.clear()
    result = getattr(tasks, name).enqueue()
    t.drain()
    result.refresh()
    assert result.status == "SUCCESSFUL"
    ((database, connection),) = tasks.used
    assert connection is not None
    assert database.connection is None


def test_other_threads_have_the_same_tasks(tasks: Any, t: Any) -> None:
    import threading

    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(tasks.meaning.using(priority=3).enqueue()))
    thread.start()
    thread.join()
    assert results[0].id
