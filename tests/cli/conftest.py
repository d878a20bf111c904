"""A user's folder for each test."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.shell import TASKS, Shell, forget_modules


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for variable in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(variable)
    before = set(sys.modules)
    made = Shell(tmp_path, capsys)
    made.write("tasks.py", TASKS)
    yield made
    if "tasks" in sys.modules:
        made.app.close()
    forget_modules(before)
