"""What a wheel and an sdist of Windlass contain, and what they must not contain.

`make dist` (tools/build_dist.py) asks it about a release, and a test about a build of the working tree.
"""

import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from project_files import project_files

PACKAGES = ("src/windlass", "src/pytest_windlass")
"""Every file of the project in these folders is in both archives."""
DASHBOARD = ("index.html", "sources.sha256", "assets/index-*.js", "assets/style-*.css")
"""What must be in `windlass/api/static`, by pattern; the hash tells that an sdist needs no Node."""
TOP = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", ".gitignore", "pyproject.toml", "src", "web"}
"""All that may be at the top of an sdist: no tests, no benchmarks, no pages, no settings of machines."""
NEVER = {"__pycache__", "node_modules", "tests", ".git", ".venv"}


def names_in(archive: Path) -> list[str]:
    """Return the files of an archive. Those of an sdist come without its top folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return sorted(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return sorted(member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile())


def wheel_complaints(names: Iterable[str], *, dashboard: bool = True) -> list[str]:
    """Return what is wrong with the files of a wheel, a line of text for each finding."""
    names = set(names)
    allowed = {PurePosixPath(package).name for package in PACKAGES}
    strangers = [
        name
        for name in names
        if (top := name.partition("/")[0]) not in allowed and not top.endswith(".dist-info")
    ]
    wanted = {str(path.relative_to("src")) for path in _package_files()}
    return _complaints("wheel", names, strangers, wanted, "windlass/api/static" if dashboard else None)


def sdist_complaints(names: Iterable[str], *, dashboard: bool = True) -> list[str]:
    """Return what is wrong with the files of an sdist, a line of text for each finding."""
    names = set(names)
    strangers = [name for name in names if name.partition("/")[0] not in TOP]
    wanted = {str(path) for path in _package_files() | _files_below("web")} | {"LICENSE", "README.md"}
    return _complaints("sdist", names, strangers, wanted, "src/windlass/api/static" if dashboard else None)


def _complaints(
    kind: str, names: set[str], strangers: list[str], wanted: set[str], static: str | None
) -> list[str]:
    never = [name for name in names if NEVER & set(PurePosixPath(name).parts)]
    found = [f"{kind}: {name} must not be in it" for name in sorted({*strangers, *never})]
    found += [f"{kind}: {name} is missing" for name in sorted(wanted - names)]
    if static is not None:
        missing = [
            pattern
            for pattern in DASHBOARD
            if not any(PurePosixPath(name).match(f"{static}/{pattern}") for name in names)
        ]
        found += [
            f"{kind}: {static}/{pattern} is missing: the dashboard was not built" for pattern in missing
        ]
    return found


def _package_files() -> set[Path]:
    return {path for package in PACKAGES for path in _files_below(package)}


def _files_below(folder: str) -> set[Path]:
    return {path for path in project_files() if path.is_relative_to(folder)}
