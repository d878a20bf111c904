"""Type checkers agree with the comments in `typed.py`."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TYPED = Path(__file__).with_name("typed.py")
WRONG = 42


def _marked(mark: str) -> set[int]:
    """The lines with a comment that begins so."""
    lines = TYPED.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if f"# {mark}" in line}


def _checked(checker: str, *options: str) -> str:
    program = Path(sys.executable).with_name(checker)
    finished = subprocess.run(
        [str(program), *options, str(TYPED)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return finished.stdout


def test_wrong_calls_are_type_errors_and_right_ones_are_not() -> None:
    found = json.loads(_checked("basedpyright", "--outputjson"))["generalDiagnostics"]
    errors = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert len(_marked("wrong")) == WRONG
    assert errors == _marked("wrong"), [one["message"] for one in found]


def test_mypy_finds_the_same(tmp_path: Path) -> None:
    """It joins `int` and `str` in a list to `object`, where pyright makes a union."""
    said = _checked("mypy", "--strict", "--cache-dir", str(tmp_path))
    errors = {int(line) for line in re.findall(r"typed\.py:(\d+): error: ", said)}
    assert errors == _marked("wrong") | _marked("mypy"), said
