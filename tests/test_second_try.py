"""`make test`: what fails beside others gets one more try, alone; what is broken fails the run.

The files of a whole run lie in memory.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "run_tests.py"
ONCE = """
from pathlib import Path

def test_once():
    first = Path("tried")
    if not first.exists():
        first.touch()
        raise AssertionError
"""
BROKEN = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_broken(number):
    raise AssertionError
"""
PLACE = """
import tempfile
from pathlib import Path

def test_place():
    Path("place").write_text(tempfile.gettempdir())
"""


def run(
    folder: Path, text: str, *arguments: str, temporary: str | None = None
) -> "subprocess.CompletedProcess[str]":
    (folder / "test_some.py").write_text(text)
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist"}
    others = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    if temporary is not None:
        quick["TMPDIR"] = temporary
    return subprocess.run(
        [sys.executable, TOOL, *arguments],
        cwd=folder,
        env=others | quick,
        capture_output=True,
        text=True,
        check=False,
    )


def test_failure_that_passes_alone_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, ONCE)
    assert done.returncode == 0
    assert done.stdout.endswith("(to be looked into):\n  test_some.py::test_once\n")


def test_narrowed_run_has_no_second_try(tmp_path: Path) -> None:
    assert run(tmp_path, ONCE, "-k", "once").returncode == 1


@pytest.mark.parametrize(("count", "tries"), [(2, 2), (20, 1)])
def test_broken_tests_fail_the_run(tmp_path: Path, count: int, tries: int) -> None:
    done = run(tmp_path, BROKEN.format(count=count))
    assert done.returncode == 1
    assert done.stdout.count(f"{count} failed") == tries


def test_run_that_was_cut_short_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "import nothing_of_that_name").returncode == 2


def test_a_whole_run_has_its_files_in_memory_and_leaves_none(tmp_path: Path) -> None:
    memory = Path("/dev/shm")  # noqa: S108
    if not memory.exists() or shutil.disk_usage(memory).free < 8_000_000_000:
        pytest.skip("this machine has too little memory for files: 8 GB in /dev/shm")
    assert run(tmp_path, PLACE).returncode == 0
    place = Path((tmp_path / "place").read_text())
    assert place.parent == memory
    assert not place.exists()


def test_files_lie_where_one_says(tmp_path: Path) -> None:
    assert run(tmp_path, PLACE, temporary=str(tmp_path)).returncode == 0
    assert (tmp_path / "place").read_text() == str(tmp_path)


def test_files_of_a_narrowed_run_are_kept(tmp_path: Path) -> None:
    assert run(tmp_path, PLACE, "-k", "place").returncode == 0
    assert Path((tmp_path / "place").read_text()).exists()
