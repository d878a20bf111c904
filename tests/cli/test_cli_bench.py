import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.shell import Shell

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}


def bench(folder: Path, *tokens: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "windlass", "bench", *tokens],
        cwd=folder,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_it_measures_a_store_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = bench(tmp_path, "--jobs", "500", "--json")
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines()]
    assert [figure["measure"] for figure in figures] == [
        "enqueue one by one",
        "enqueue, 100 callers at once",
        "enqueue, 1,000 a call",
        "edges a second, 100 children",
        "edges a second, 10,000 children",
        "edges a second, 1,000 parents",
        "fires of a schedule",
        "drain, two worker processes",
        "enqueue to start, idle",
    ]
    assert all(figure["rate"] > 0 for figure in figures[:8])
    assert figures[8]["p50_ms"] > 0
    # An edge among 10,000 costs what one of 100 costs, or less.
    assert figures[4]["rate"] > figures[3]["rate"] / 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_its_jobs_are_gone_in_the_end(tmp_path: Path) -> None:
    done = bench(tmp_path, "--jobs", "300", "--url", "sqlite:///measured.db")
    assert done.returncode == 0, done.stderr
    (tmp_path / "tasks.py").write_text(
        'from windlass import Windlass\napp = Windlass("sqlite:///measured.db", namespace="windlass_bench")\n'
    )
    listed = subprocess.run(
        [sys.executable, "-m", "windlass", "jobs", "tasks:app", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=60,
        check=True,
    )
    assert listed.stdout == ""


def test_what_cannot_be_measured_is_refused(shell: Shell) -> None:
    assert "lives inside one process" in shell("bench", "--url", "memory://").complaint
    assert "no store is known" in shell("bench", "--url", "gopher://host").complaint
    assert "--jobs must be from 1" in shell("bench", "--jobs", "0").complaint
    assert "--payload must be from 0" in shell("bench", "--payload", "-1").complaint
