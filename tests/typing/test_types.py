"""The type checker agrees with the comments in `typed.py`."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TYPED = Path(__file__).with_name("typed.py")


def test_wrong_calls_are_type_errors_and_right_ones_are_not() -> None:
    checker = Path(sys.executable).with_name("basedpyright")
    finished = subprocess.run(
        [str(checker), "--outputjson", str(TYPED)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = json.loads(finished.stdout)["generalDiagnostics"]
    errors = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    lines = TYPED.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# wrong" in line}
    assert len(wrong) == 27
    assert errors == wrong, [one["message"] for one in found]
