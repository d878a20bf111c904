"""Type checkers agree with the comments in `typed.py` and in `typed_orders.py`, which misuses an example."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ORDERS = ROOT / "examples" / "orders"
PLANTED = [Path(__file__).with_name(name) for name in ("typed.py", "typed_orders.py")]
FILES = [*PLANTED, *sorted(ORDERS.rglob("*.py"))]
WRONG = [42, 23]


def _marked(*marks: str) -> set[tuple[str, int]]:
    """The lines with a comment that begins so."""
    return {
        (file.name, number)
        for file in FILES
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if any(f"# {mark}" in line for mark in marks)
    }


def _checked(checker: str, *options: str) -> str:
    program = Path(sys.executable).with_name(checker)
    finished = subprocess.run(
        [str(program), *options],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ORDERS)},
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.stdout


def test_wrong_calls_are_type_errors_and_right_ones_are_not(tmp_path: Path) -> None:
    config = {
        "include": [str(file) for file in FILES],
        "extraPaths": [str(ORDERS)],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "venvPath": str(ROOT),
        "venv": ".venv",
    }
    asked = tmp_path / "pyright.json"
    asked.write_text(json.dumps(config))
    found = json.loads(_checked("basedpyright", "-p", str(asked), "--outputjson"))["generalDiagnostics"]
    errors = {
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in found
        if one["severity"] == "error"
    }
    assert [sum(name == file.name for name, _ in _marked("wrong")) for file in PLANTED] == WRONG
    assert errors == _marked("wrong"), [one["message"] for one in found]


def test_mypy_finds_the_same(tmp_path: Path) -> None:
    """It joins `int` and `str` in a list to `object`, where pyright makes a union."""
    said = _checked("mypy", "--strict", "--cache-dir", str(tmp_path), *map(str, FILES))
    errors = {(Path(file).name, int(line)) for file, line in re.findall(r"(\S+):(\d+): error: ", said)}
    assert errors == _marked("wrong", "mypy"), said
