"""Options that cannot be honoured are refused in one line: which, what value, and what is right."""

from typing import Any

import pytest

from windlass import RetryPolicy, Windlass
from windlass.errors import InvalidOption


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


def refused(work: Any, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        work()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "unknown option 'colour'; options are: concurrency, expires, hard_timeout"),
        ({"timout": 3}, "unknown option 'timout'; did you mean \"timeout\"?"),
        ({"timeout": 0}, "timeout must be longer than nothing, or None for no limit, got 0"),
        ({"timeout": -1}, "timeout must not be negative, got -1"),
        ({"timeout": "soon"}, "timeout must be seconds"),
        ({"run": "fiber"}, 'run must be one of "loop", "thread", "process", "inline", not \'fiber\''),
        ({"retry": 3}, "retry must be a RetryPolicy, such as RetryPolicy(max_attempts=3), not 3"),
        ({"concurrency": 0}, "concurrency must be a whole number from 1"),
        ({"concurrency": 2.5}, "concurrency must be a whole number"),
        ({"concurrency": "5"}, "concurrency must be a whole number"),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"rate": 5}, 'rate must be text such as "100/s" or "5/m", or a Rate, not 5'),
        ({"rate": "fast"}, "rate 'fast' is not understood"),
        ({"lane_rate": "0/s"}, "a rate must allow 1"),
        ({"priority": 101}, "priority must be a whole number from -100 to 100, not 101"),
        ({"expires": 0}, "expires must be positive"),
        ({"revision": -1}, "revision must be a whole number"),
        ({"keep_result": "no"}, "keep_result must be True or False, not 'no'"),
        ({"name": ""}, "task name"),
        ({"name": "a b"}, "task name 'a b'"),
        ({"name": 5}, "task name must be a string, not 5"),
        ({"queue": ""}, "queue name"),
        ({"queue": 7}, "queue name must be a string, not 7"),
    ],
    ids=str,
)
def test_options_of_a_task(app: Windlass, options: dict[str, Any], words: str) -> None:
    def send() -> None: ...

    refused(lambda: app.task(**options)(send), words)
    assert not app.tasks


def test_an_unknown_option_of_a_task_is_refused_before_there_is_a_function(app: Windlass) -> None:
    refused(lambda: app.task(queu="mail"), "unknown option 'queu'")  # pyright: ignore[reportCallIssue]


def test_the_options_of_a_task_are_kept(app: Windlass) -> None:
    @app.task(timeout="1m", run="process", retry=RetryPolicy(max_attempts=2), revision=4, queue="mail")
    def send() -> None: ...

    options = send.options
    assert (options.timeout, options.run, options.revision, options.queue) == (
        60_000_000,
        "process",
        4,
        "mail",
    )
    assert send.call().job.max_attempts == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "unknown option 'colour'; options are: age_step, bands, concurrency"),
        ({"wieght": 3}, "unknown option 'wieght'; did you mean \"weight\"?"),
        ({"concurrency": 1.5}, "concurrency must be a whole number"),
        ({"lane_concurrency": 0}, "lane_concurrency must be a whole number from 1"),
        ({"retention_count": "10"}, "retention_count must be a whole number"),
        ({"rate": b"5/s"}, "rate must be text"),
        ({"order": "fifo"}, 'order must be one of "band", "lane"'),
        ({"bands": [1, 2]}, "bands must map priorities to weights, such as {10: 80, 0: 20}, not [1, 2]"),
        ({"bands": {"high": 3}}, "a priority of bands must be a whole number from -100 to 100, not 'high'"),
        ({"bands": {1: "3"}}, "the weight of band 1 must be a whole number"),
        ({"bands": {}}, "bands must give each priority a weight"),
        ({"bands": {1: 1}, "age_step": 5}, "bands and age_step cannot be used together"),
        ({"sequence": "yes"}, "sequence must be True or False, not 'yes'"),
        ({"emit": "some"}, 'emit must be one of "none", "final", "all"'),
        ({"age_step": "100ms"}, "age_step must be at least 1 second"),
        ({"retention": -1}, "retention must not be negative"),
    ],
    ids=str,
)
def test_options_of_a_queue(app: Windlass, options: dict[str, Any], words: str) -> None:
    refused(lambda: app.queue("mail", **options), words)
    assert not app._declared.has_queue("mail")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "unknown option 'colour'; options are: concurrency, rate, weight"),
        ({"weight": 1.5}, "weight must be a whole number"),
        ({"weight": 0}, "weight must be a whole number from 1"),
        ({"concurrency": "1"}, "concurrency must be a whole number"),
        ({"rate": 1}, "rate must be text"),
    ],
    ids=str,
)
def test_options_of_a_lane(app: Windlass, options: dict[str, Any], words: str) -> None:
    refused(lambda: app.lane("mail", "acme", **options), words)
    refused(lambda: app.lane("mail", "a\x00b"), "lane")
    assert not app._declared.has_queue("mail")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colour": "red"}, "unknown option 'colour'; options are: after, callback, connection"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"queue": "a b"}, "queue name 'a b'"),
    ],
    ids=str,
)
def test_options_of_a_task_elsewhere(app: Windlass, options: dict[str, Any], words: str) -> None:
    refused(lambda: app.external("resize", **options), words)
    assert not app.tasks


@pytest.mark.parametrize("name", ["", "a b", 5, None])
def test_names(app: Windlass, name: Any) -> None:
    refused(lambda: app.queue(name), "queue name")
    refused(lambda: app.external(name), "task name")
    refused(lambda: Windlass("memory://", name=name), "app name")
