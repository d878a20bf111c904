"""The files that belong to the project: all that git tracks or would add, and that is still there."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Never part of the project, for a tree without git (an unpacked source archive).
_FOREIGN = {".git", ".venv", ".venv-lock", ".hypothesis", "__pycache__", "build", "dist", "node_modules"}


def project_files() -> list[Path]:
    """Return the project's files, relative to its root, sorted."""
    listed = _listed_by_git()
    found = _walked() if listed is None else (path for path in listed if (ROOT / path).is_file())
    return sorted(found)


def text_of(path: Path) -> str | None:
    """Return the text of a project file, or None if it is binary."""
    content = (ROOT / path).read_bytes()
    return None if b"\0" in content else content.decode("utf-8", errors="replace")


def _listed_by_git() -> list[Path] | None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    # A set: during a merge git lists a file once per side.
    return [Path(os.fsdecode(name)) for name in {*listing.stdout.split(b"\0")} if name]


def _walked() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in _FOREIGN and not name.endswith("_cache")]
        for name in names:
            yield (Path(folder) / name).relative_to(ROOT)
