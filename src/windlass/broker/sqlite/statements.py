"""SQL lives in files of its own: `sql/<concern>.sql`, each statement headed by its name, inputs, outputs and
cost.

Inputs are bound (`?1`). Codes that the program and the file share are written by name, `{ready}`, and put in
as literals when a file is loaded: a partial index needs a literal, in its own text and in the statement that
is to use it.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from windlass.broker.sqlite.records import CODES, DELIVERIES, HAS_CHILDREN, JOB_COLUMNS, RESULT
from windlass.core.settlement import SUSPECT_AFTER

_PACKAGE = "windlass.broker.sqlite"
_NAME = "-- name:"
_CODES: Final = {state.value: str(code) for state, code in CODES.items()} | {
    "suspect_after": str(SUSPECT_AFTER),
    "has_children": str(HAS_CHILDREN),
    "has_result": str(RESULT),
    "deliveries": str(DELIVERIES),
    "job_columns": ", ".join(JOB_COLUMNS),
}


@cache
def statements(concern: str) -> Mapping[str, str]:
    """The statements of one concern, by name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    text = files(_PACKAGE).joinpath("sql", f"{concern}.sql").read_text("utf-8")
    for line in _with_codes(text).splitlines():
        if line.startswith(_NAME):
            lines = found.setdefault(line.removeprefix(_NAME).strip(), [])
        elif line.strip() and not line.lstrip().startswith("--"):
            lines.append(line.strip())
    return {name: " ".join(text) for name, text in found.items()}


def migrations() -> tuple[str, ...]:
    """The numbered migrations, in order: the first leads from an empty file to version 1."""
    folder = files(_PACKAGE).joinpath("migrations")
    scripts = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(_with_codes(script.read_text("utf-8")) for script in scripts)


def _with_codes(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: _CODES[name[1]], text)
