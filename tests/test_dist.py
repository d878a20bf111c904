"""A release has everything that Windlass needs, and nothing of its tests and benchmarks (`make dist`)."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from windlass.version import __version__

ROOT = Path(__file__).parents[1]


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("dist_contents")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of the working tree, without a build of the dashboard."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT,
        env={**os.environ, "WINDLASS_DASHBOARD": "skip"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder


def test_a_wheel_has_the_packages_with_their_sql_and_lua_and_nothing_else(
    contents: ModuleType, built: Path
) -> None:
    (wheel,) = built.glob("*.whl")
    names = contents.names_in(wheel)
    assert contents.wheel_complaints(names, dashboard=False) == []
    assert {"windlass/py.typed", "pytest_windlass/py.typed"} <= set(names)
    assert sum(name.endswith(".sql") for name in names) > 20
    assert sum(name.endswith(".lua") for name in names) > 40


def test_an_sdist_has_the_packages_and_the_sources_of_the_dashboard(
    contents: ModuleType, built: Path
) -> None:
    (sdist,) = built.glob("*.tar.gz")
    names = contents.names_in(sdist)
    assert contents.sdist_complaints(names, dashboard=False) == []
    assert {"web/build.py", "pyproject.toml", "PKG-INFO"} <= set(names)


@pytest.mark.parametrize("stranger", ["tests/test_docs.py", "bench/run.py", "windlass/__pycache__/x.pyc"])
def test_a_stranger_in_an_archive_is_named(contents: ModuleType, stranger: str) -> None:
    for complaints in (contents.wheel_complaints, contents.sdist_complaints):
        assert any(stranger in found for found in complaints([stranger])), complaints


@pytest.mark.parametrize(
    "missing",
    ["windlass/broker/postgres/sql/01_rules.sql", "windlass/py.typed", "windlass/api/static/index.html"],
)
def test_a_file_that_a_wheel_lacks_is_named(contents: ModuleType, missing: str) -> None:
    found = contents.wheel_complaints([])
    assert any(missing in complaint for complaint in found)


def test_what_is_in_no_commit_is_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    build = importlib.import_module("build_dist")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    build.refuse_changes(tmp_path, "0.1.0")
    (tmp_path / "left.py").write_text("")
    build.refuse_changes(tmp_path, "0.1.0.dev0")
    with pytest.raises(build.Unfit, match=r"left\.py"):
        build.refuse_changes(tmp_path, "0.1.0")


def test_the_newest_heading_of_the_changelog_is_the_version() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == __version__.removesuffix(".dev0")
