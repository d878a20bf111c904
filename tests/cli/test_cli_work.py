"""`windlass worker`, `dev` and `demo`: what is typed is what those who do the work are told."""

import os
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.shell import Shell

from windlass.core.units import SECOND
from windlass.worker.options import WorkerOptions


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, WorkerOptions]]:
    """What the supervisor was called with."""
    calls: list[tuple[str, WorkerOptions]] = []

    def supervise(app: str, options: WorkerOptions, *, once_open: object) -> int:
        calls.append((app, options))
        return 7

    monkeypatch.setattr("windlass.worker.command.supervise", supervise)
    monkeypatch.setenv("WINDLASS_LOG_LEVEL", "warning")
    return calls


def test_the_options_of_a_worker(shell: Shell, started: list[Any]) -> None:
    tokens = "worker tasks:app --processes 2 --concurrency 16 --queues mail=5,default --grace 30 --reload"
    probed = ("--health", "0.0.0.0:8701", "--exit-if-store-is-down")
    assert shell(*tokens.split(" "), "--max-jobs", "9", "--max-memory", "300", *probed).code == 7
    assert started == [
        (
            "tasks:app",
            WorkerOptions(
                processes=2,
                concurrency=16,
                queues=("mail=5", "default"),
                grace=30 * SECOND,
                reload=True,
                max_jobs=9,
                max_memory=300,
                health="0.0.0.0:8701",
                exit_if_store_is_down=True,
            ),
        )
    ]


def test_groups_and_defaults(shell: Shell, started: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell("worker", "tasks:app", "--group", "7:mail,default", "--group", "1:mail").code == 7
    monkeypatch.setenv("WINDLASS_APP", "tasks:app")
    assert shell("worker").code == 7
    assert [(app, options.groups) for app, options in started] == [
        ("tasks:app", ("7:mail,default", "1:mail")),
        ("tasks:app", ()),
    ]
    assert started[1][1] == WorkerOptions()


def test_a_worker_that_reloads_waits_for_a_broken_module_to_be_mended(
    shell: Shell, started: list[Any]
) -> None:
    shell.write("broken.py", "raise ValueError")
    assert shell("worker", "broken:app", "--reload").code == 7
    assert shell("worker", "broken:app").code == 2
    assert len(started) == 1


def test_dev_is_a_worker_that_reloads(shell: Shell, started: list[Any]) -> None:
    assert shell("dev", "tasks:app", "--concurrency", "3", "--port", "0").code == 7
    (_, options) = started[0]
    assert (options.processes, options.concurrency, options.reload, options.grace) == (1, 3, True, SECOND)


def test_the_level_of_the_log_reaches_the_processes(
    shell: Shell, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shell("worker", "tasks:app", "--log-level", "debug").code == 7
    assert os.environ["WINDLASS_LOG_LEVEL"] == "DEBUG"
    monkeypatch.setenv("WINDLASS_LOG_LEVEL", "loud")
    answer = shell("worker", "tasks:app")
    assert answer.code == 2
    assert answer.complaint == 'WINDLASS_LOG_LEVEL must be debug, run, info, warning or error, not "loud"'


@pytest.mark.parametrize("command", ["worker", "dev"])
@pytest.mark.parametrize(
    ("option", "level"), [("-v", "RUN"), ("-vv", "DEBUG"), ("-q", "WARNING"), ("-qq", "ERROR")]
)
def test_more_or_less_is_logged_by_a_letter(
    shell: Shell, started: list[Any], monkeypatch: pytest.MonkeyPatch, command: str, option: str, level: str
) -> None:
    monkeypatch.setenv("WINDLASS_LOG_LEVEL", "info")
    more = ("--port", "0") if command == "dev" else ()
    assert shell(command, "tasks:app", option, *more).code == 7
    assert os.environ["WINDLASS_LOG_LEVEL"] == level


def test_only_one_option_says_how_much_is_logged(shell: Shell, started: list[Any]) -> None:
    for options in (("-v", "-q"), ("-q", "--log-level", "info")):
        answer = shell("worker", "tasks:app", *options)
        assert answer.code == 2
        assert answer.complaint == "--log-level, -v and -q say the same in different words: give one of them"
    assert started == []


def test_a_queue_and_a_group_exclude_each_other(shell: Shell, started: list[Any]) -> None:
    answer = shell("worker", "tasks:app", "--group", "1:mail", "--queues", "mail")
    assert answer.complaint == "give either queues or groups: a group names its own queues"
    answer = shell("worker", "tasks:app", "--grace", "soon")
    assert answer.complaint.startswith("--grace must be seconds")
    assert started == []


def test_the_demo_decides_on_the_exit_code(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "windlass.demo", SimpleNamespace(main=lambda: 3))  # type: ignore[arg-type]
    assert shell("demo") == (3, "", "")


def test_the_package_installs_the_program() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"windlass": "windlass.cli:main"}
