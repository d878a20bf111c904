"""The program as users start it: a process of its own."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import TASKS

PROGRAM = [sys.executable, "-m", "windlass"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which other users may not enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tasks.py").write_text(TASKS)
        yield folder


def windlass(folder: Path, *tokens: str) -> subprocess.CompletedProcess[str]:
    return _run(folder, *PROGRAM, *tokens)


def python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _run(folder, sys.executable, "-c", code, *arguments)


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )


def test_enqueue_and_list_from_the_current_folder(folder: Path) -> None:
    made = windlass(folder, "enqueue", "tasks:app", "add", '{"a": 1}')
    assert (made.returncode, made.stderr) == (0, "")
    listed = windlass(folder, "jobs", "tasks:app", "--json")
    assert json.loads(listed.stdout)["id"] == made.stdout.strip()


def test_a_reader_who_has_had_enough_is_no_error(folder: Path) -> None:
    fill = "from tasks import app, add; app.enqueue_many(add.call(n) for n in range(2_000)); app.close()"
    assert python(folder, fill).returncode == 0
    with subprocess.Popen(
        [*PROGRAM, "jobs", "tasks:app", "--json"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"id"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


# Root may read everything, so it becomes somebody else; by then all is imported, which others may not read.
SOMEBODY_ELSE = """
import os, pathlib, sys
from windlass.cli import main
main(["jobs", "tasks:app"])
for path in pathlib.Path().glob("windlass.db*"):
    path.chmod(0)
pathlib.Path("closed").mkdir(mode=0o700)
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
sys.stderr.write("<<<\\n")
code = main(["jobs", "tasks:app"])
code += 10 * main(["jobs", "closed_tasks:app"])
sys.stderr.flush()
os._exit(code)
"""


def test_no_permission(folder: Path) -> None:
    folder.chmod(0o755)
    tasks = (folder / "tasks.py").read_text()
    (folder / "closed_tasks.py").write_text(tasks.replace("Windlass()", 'Windlass("sqlite:///closed/x.db")'))
    answer = python(folder, SOMEBODY_ELSE)
    assert answer.returncode == 11
    fix = "give this user access to it, or name a file elsewhere (WINDLASS_URL)"
    assert answer.stderr.partition("<<<\n")[2].splitlines() == [
        f'windlass: no permission to read and write "{folder}/{file}"; {fix}'
        for file in ("windlass.db", "closed/x.db")
    ]


def test_text_that_the_terminal_cannot_show(folder: Path) -> None:
    windlass(folder, "enqueue", "tasks:app", "add", '{"a": 1}', "--lane", "zürich")
    listed = subprocess.run(
        [*PROGRAM, "jobs", "tasks:app"],
        cwd=folder,
        capture_output=True,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=True,
    )
    assert rb"z\xfcrich" in listed.stdout


def test_producers_import_nothing_of_the_command_line() -> None:
    code = "import sys, windlass; print(sorted({'rich', 'cyclopts', 'windlass.cli'} & set(sys.modules)))"
    assert python(Path(), code).stdout == "[]\n"


def test_a_pipe_does_without_the_parts_for_terminals(folder: Path) -> None:
    code = (
        "import sys; from windlass.cli import main; main(['jobs', 'tasks:app']);"
        "assert 'rich' not in sys.modules, 'rich'"
    )
    assert python(folder, code).returncode == 0


WAIT = "import sys, tasks; print(tasks.app.job(sys.argv[1]).result(timeout=50)); tasks.app.close()"


def test_a_worker_runs_what_was_enqueued_until_it_is_stopped(folder: Path) -> None:
    job = windlass(folder, "enqueue", "tasks:app", "add", '{"a": 40, "b": 2}').stdout.strip()
    with subprocess.Popen(
        [
            *PROGRAM,
            "worker",
            "tasks:app",
            "--processes",
            "1",
            "--concurrency",
            "2",
            "--queues",
            "default,mail=3",
        ],
        cwd=folder,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
    ) as worker:
        try:
            done = python(folder, WAIT, job)
            assert (done.stdout, done.stderr) == ("42\n", "")
            (line,) = windlass(folder, "workers", "tasks:app", "--alive", "--json").stdout.splitlines()
            assert json.loads(line)["queues"] == ["default", "mail"]
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(40) == 0
    (shown,) = windlass(folder, "jobs", "tasks:app", "show", job, "--json").stdout.splitlines()
    assert json.loads(shown)["state"] == "done"
