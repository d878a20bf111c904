"""Build wheel and sdist of a release into `dist/` and check them: `make dist`.

    .venv/bin/python tools/build_dist.py PYTHON [PYTHON_TO_TRY ...]

PYTHON is the interpreter of an environment with hatchling and twine and without Node (`.venv-dist`). The
wheel is tried on each PYTHON_TO_TRY, by default on the one that runs this. The sdist is built twice, from two
fresh copies of the project's files, and the wheel from each sdist; both pairs must be the same bytes. The
times in them are those of the last commit, unless SOURCE_DATE_EPOCH says another.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from dist_contents import names_in, sdist_complaints, wheel_complaints
from project_files import ROOT, project_files
from windlass.version import __version__

DIST = ROOT / "dist"


class Unfit(Exception):
    """The release must not be published; the text says why."""


def main(python: str, *tried: str) -> int:
    """Build and check; return the exit code."""
    try:
        refuse_changes(ROOT, __version__)
        with tempfile.TemporaryDirectory(prefix="windlass-dist-") as folder:
            archives = build_twice(Path(folder), python)
            check_contents(archives)
            run([python, "-m", "twine", "check", "--strict", *archives])
            for number, interpreter in enumerate(tried or [sys.executable]):
                try_wheel(Path(folder) / f"tried-{number}", archives[1], interpreter)
            keep(archives)
    except (Unfit, subprocess.CalledProcessError) as error:
        print(f"not fit for a release: {error}", file=sys.stderr)
        return 1
    return 0


def refuse_changes(root: Path, version: str) -> None:
    """Refuse to release what is in no commit: nobody else could build it again."""
    command = ["git", "status", "--porcelain"]
    changes = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    if changes and ".dev" not in version:
        raise Unfit(f"version {version} would have changes that are in no commit:\n{changes}")


def build_twice(folder: Path, python: str) -> list[Path]:
    """Build in two places and compare the bytes. Returns sdist and wheel."""
    os.environ["SOURCE_DATE_EPOCH"] = epoch = os.environ.get("SOURCE_DATE_EPOCH") or last_commit()
    print(f"building twice, with SOURCE_DATE_EPOCH={epoch}", flush=True)
    first, second = (build_once(folder / name, python) for name in ("first", "second"))
    for one, other in zip(first, second, strict=True):
        if sha256(one) != sha256(other):
            raise Unfit(f"{one.name} differs between two builds of the same files")
        print(f"  {sha256(one)}  {one.name}, twice the same", flush=True)
    return first


def build_once(folder: Path, python: str) -> list[Path]:
    """Build the sdist with Node, from a copy of the project's files; the wheel without, from the sdist."""
    source, made = folder / "source", folder / "made"
    for path in project_files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, source / path)
    hatchling = ["-m", "hatchling", "build", "--directory", str(made)]
    required = {**os.environ, "WINDLASS_DASHBOARD": "require"}
    run([sys.executable, *hatchling, "--target", "sdist"], cwd=source, env=required)
    (sdist,) = made.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    without_node = {**required, "PATH": str(Path(python).parent)}
    run([python, *hatchling, "--target", "wheel"], cwd=unpacked, env=without_node)
    (wheel,) = made.glob("*.whl")
    return [sdist, wheel]


def check_contents(archives: list[Path]) -> None:
    """Refuse archives that have too much or too little."""
    sdist, wheel = (names_in(archive) for archive in archives)
    if found := [*sdist_complaints(sdist), *wheel_complaints(wheel)]:
        raise Unfit("\n  ".join(["the contents are wrong:", *found]))
    print(
        f"contents: {len(sdist)} files in the sdist, {len(wheel)} in the wheel, as they should be", flush=True
    )


def try_wheel(folder: Path, wheel: Path, interpreter: str) -> None:
    """Install the wheel into an empty environment, as a user does, and run the demo there."""
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir(parents=True)
    print(f"trying the wheel on {interpreter}", flush=True)
    run([interpreter, "-m", "venv", environment])
    pip = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--only-binary", ":all:", wheel])
    run([environment / "bin" / "windlass", "--version"], cwd=empty)
    run([environment / "bin" / "windlass", "demo"], cwd=empty)


def keep(archives: list[Path]) -> None:
    """Put the checked archives where the release is published from."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for archive in archives:
        shutil.copy2(archive, DIST)
    print("fit for a release:", *(f"dist/{archive.name}" for archive in archives))


def last_commit() -> str:
    """When the last commit was made, in seconds."""
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def sha256(path: Path) -> str:
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run(command: list[str | Path], **options: object) -> None:
    """Run a command that has to succeed."""
    subprocess.run(list(map(str, command)), check=True, **options)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
