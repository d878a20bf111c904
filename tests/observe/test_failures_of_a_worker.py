"""A worker with processes whose jobs fail in every way: a line and, of a dead letter, an event for each."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.observe.shop_worker import shop_worker
from tests.worker.blackbox.fleet import eventually

from windlass import Windlass
from windlass.core.secret import MASK

pytestmark = pytest.mark.slow

CARD = "CANARY-4111-1111"
RAISING = ("fails_loop", "fails_thread", "fails_inline", "fails_process")
DYING = ("kills_its_process", "kills_its_worker", "outlasts_its_process", "outlasts_its_worker")
HELD = ("nowhere", "reads_a_number")


class Story(NamedTuple):
    """What is left of a worker."""

    jobs: dict[str, str]
    lines: list[dict[str, Any]]
    events: list[dict[str, Any]]
    everything: str
    exit_code: int

    def failures(self, task: str) -> list[dict[str, Any]]:
        lines = [line for line in self.lines if line["logger"] == "windlass.run" and line.get("error")]
        return [line for line in lines if line["task"] == task]

    def events_of(self, task: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("tags", {}).get("task") == task]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """One worker, for all tests: it is stopped as soon as the last line is written."""
    folder = tmp_path_factory.mktemp("shop")
    with shop_worker(folder, "--processes", "1", "--log-format", "json", "-v") as worker:
        producer = Windlass(worker.url)
        jobs: dict[str, str] = {}

        def failed() -> Counter[str]:
            return Counter(line["task"] for line in worker.lines if line.get("error_message"))

        # One after the other: a job that kills its worker would end the others with it.
        for task in ("fails_twice", "is_too_slow", *DYING, *HELD, *RAISING):
            wanted = 2 if task == "fails_twice" else 1
            jobs[task] = producer.external(task, max_attempts=wanted).using(lane="acme").enqueue(card=CARD).id
            eventually(
                f"{task} has failed",
                lambda task=task, wanted=wanted: failed()[task] >= wanted,
                hint=lambda: worker.text,
            )
        code = worker.stop()
        producer.close()
        bodies = b"\n".join(worker.inbox.bodies).decode()
        yield Story(jobs, worker.lines, worker.inbox.events, worker.text + bodies, code)


@pytest.mark.parametrize("task", RAISING)
def test_a_run_that_raises_has_one_line_with_its_traceback(story: Story, task: str) -> None:
    (line,) = story.failures(task)
    assert {name: line[name] for name in ("level", "job", "queue", "lane", "attempt", "max_attempts")} == {
        "level": "error", "job": story.jobs[task], "queue": "default", "lane": "acme",
        "attempt": 1, "max_attempts": 1,
    }  # fmt: skip
    assert (line["error"], line["outcome"]) == ("ValueError", "dead")
    assert line["error_message"].startswith(f"declined: {MASK}, ")
    assert "in fails\n" in line["traceback"]
    assert "windlass/worker" not in line["traceback"]
    assert f"note with {MASK}" in line["traceback"]
    assert "The above exception was the direct cause" in line["traceback"]


def test_every_attempt_has_a_line(story: Story) -> None:
    first, second = story.failures("fails_twice")
    assert (first["level"], first["outcome"], first["attempt"], first["retry_in"]) == (
        "warning", "retry", 1, 0.01,
    )  # fmt: skip
    assert (second["level"], second["outcome"], second["attempt"]) == ("error", "dead", 2)
    assert first["fence"] < second["fence"]


@pytest.mark.parametrize(
    ("task", "error", "why"),
    [
        ("kills_its_process", "ProcessDied", "the process of this job died: signal 9 (SIGKILL)"),
        ("outlasts_its_process", "ProcessDied", "the process of this job died: signal 9 (SIGKILL)"),
        ("kills_its_worker", "Crashed", "the worker process that ran it died: signal 9 (SIGKILL)"),
        ("outlasts_its_worker", "Crashed", "the worker process that ran it died: hard timeout"),
    ],
)
def test_a_run_whose_process_dies_has_one_line(story: Story, task: str, error: str, why: str) -> None:
    (line,) = story.failures(task)
    assert (line["error"], line["error_message"]) == (error, why)
    assert (line["level"], line["outcome"], line["job"]) == ("error", "dead", story.jobs[task])
    assert (line["attempt"], line["max_attempts"], line["lane"]) == (1, 1, "acme")
    assert line["fence"] > 0


def test_a_timeout_says_where_the_code_was(story: Story) -> None:
    (line,) = story.failures("is_too_slow")
    assert line["error"] == "windlass.worker.failure.RunTimedOut"
    assert "asyncio.Event().wait()" in line["traceback"]


@pytest.mark.parametrize(
    ("task", "error"), [("nowhere", "UnknownTask"), ("reads_a_number", "windlass.errors.InvalidPayload")]
)
def test_a_job_that_cannot_be_run_has_a_line(story: Story, task: str, error: str) -> None:
    """It is held, and found again and again until some worker can run it: each time is a line."""
    line = story.failures(task)[0]
    assert (line["level"], line["outcome"], line["error"]) == ("warning", "hold", error)
    assert line["job"] == story.jobs[task]
    assert not line.get("traceback"), "no code of the user's was called"


def test_starts_and_ends_are_lines_at_a_level_of_their_own(story: Story) -> None:
    lines = [line for line in story.lines if line["level"] == "run" and line["task"] == "fails_process"]
    assert [line["message"].split(") ")[1].split()[0] for line in lines] == ["starts", "ends"]
    assert (lines[1]["outcome"], lines[1]["lane"]) == ("dead", "acme")
    assert lines[1]["runtime"] >= 0


@pytest.mark.parametrize("task", ["fails_twice", "is_too_slow", *DYING, *RAISING])
def test_sentry_gets_one_event_for_each_dead_letter(story: Story, task: str) -> None:
    """Before the processes end: the worker was stopped at once. Those of a child that was killed, too."""
    (event,) = story.events_of(task)
    assert event["tags"] == {
        "job": story.jobs[task], "task": task, "queue": "default", "lane": "acme",
        "attempt": "2" if task == "fails_twice" else "1",
    }  # fmt: skip
    assert event["level"] == "error"
    (line,) = [line for line in story.failures(task) if line["outcome"] == "dead"]
    assert line["error"].endswith(event["exception"]["values"][-1]["type"])


def test_sentry_gets_no_event_for_a_job_that_is_held(story: Story) -> None:
    assert [story.events_of(task) for task in HELD] == [[], []]


def test_no_secret_is_in_a_line_or_in_an_event(story: Story) -> None:
    assert "CANARY" not in story.everything
    assert MASK in story.everything
    assert '"vars"' not in story.everything


@pytest.fixture(params=["redis", "postgres"])
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a store that is a server."""
    if request.param == "redis":
        with running(redis_binary()) as server:
            yield server.url
        return
    postgres = Server(programs())
    try:
        yield postgres.dsn
    finally:
        postgres.remove()


def test_a_killed_process_is_reported_with_its_attempt_on_every_store(
    tmp_path: Path, server_url: str
) -> None:
    """The supervisor reads the attempt from the store, since the process that knew it is gone."""
    with shop_worker(tmp_path, "--processes", "1", "--log-format", "json", url=server_url) as worker:
        producer = Windlass(worker.url)
        eventually("it has begun", lambda: "worker started" in worker.text, hint=lambda: worker.text)
        killer = producer.external("kills_its_worker", max_attempts=1)
        job = killer.using(lane="acme").enqueue(card=CARD)

        def told() -> list[dict[str, Any]]:
            return [line for line in worker.lines if line.get("error") == "Crashed"]

        (line,) = eventually("it is told", told, hint=lambda: worker.text)
        worker.stop()
        producer.close()
        events = [event["tags"] for event in worker.inbox.events if "tags" in event]
    expected = {"job": job.id, "attempt": 1, "max_attempts": 1, "outcome": "dead", "lane": "acme"}
    assert {name: line[name] for name in expected} == expected
    assert line["fence"] > 0
    assert [(tags["task"], tags["job"], tags["attempt"]) for tags in events] == [
        ("kills_its_worker", job.id, "1")
    ]


def test_it_ends_as_told(story: Story) -> None:
    assert story.exit_code == 0
