"""SQL lives in files of its own: `sql/<concern>.sql`, each statement headed by its name, inputs, outputs and
cost.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_PACKAGE = "windlass.broker.sqlite"
_NAME = "-- name:"


@cache
def statements(concern: str) -> Mapping[str, str]:
    """The statements of one concern, by name. Inputs are bound (`?1`); nothing is ever pasted in."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in files(_PACKAGE).joinpath("sql", f"{concern}.sql").read_text("utf-8").splitlines():
        if line.startswith(_NAME):
            lines = found.setdefault(line.removeprefix(_NAME).strip(), [])
        elif line.strip() and not line.lstrip().startswith("--"):
            lines.append(line.strip())
    return {name: " ".join(text) for name, text in found.items()}


def migrations() -> tuple[str, ...]:
    """The numbered migrations, in order: the first leads from an empty file to version 1."""
    folder = files(_PACKAGE).joinpath("migrations")
    scripts = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name)
    return tuple(script.read_text("utf-8") for script in scripts)
