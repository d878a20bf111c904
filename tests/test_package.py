"""The distribution is `windlass-queue`; the import and the command are `windlass`.

A package index has another project under the name windlass: who installs that gets something else.
"""

import importlib
import importlib.metadata
import re
from pathlib import Path

import pytest

from windlass.version import __version__

ROOT = Path(__file__).parents[1]
NAME = "windlass-queue"

OLD = "windlass"
INSTALLS_ANOTHER = re.compile(
    rf"(?<![\w./-]){OLD}(?:\[[a-z]|\s?(?:==|>=|~=)\s?\d)"  # a requirement, with an extra or a version
    rf"|\binstall(?:\s+-\S+)*\s+['\"]?{OLD}(?![\w-])"  # of pip, pipx, uv
    rf"|\b(?:uv|poetry|pdm) add\s+['\"]?{OLD}(?![\w-])"
    rf"|\b(?:version|distribution|metadata|requires)\(['\"]{OLD}['\"]\)"  # importlib.metadata
)


def test_nothing_installs_the_other_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    files = importlib.import_module("project_files").project_files()
    texts = {file: (ROOT / file).read_text(errors="replace") for file in files}
    assert len(texts) > 500
    found = [
        f"{file}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for file, text in texts.items()
        for match in INSTALLS_ANOTHER.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        f"pip install '{OLD}[redis]'",
        f"pip install -U {OLD}",
        f"{OLD}[serve]>=1",
        f"{OLD}==0.1",
        f"uv add {OLD}",
        f'version("{OLD}")',
    ],
)
def test_the_old_form_would_be_found(line: str) -> None:
    assert INSTALLS_ANOTHER.search(line)


@pytest.mark.parametrize(
    "line", ["pip install 'windlass-queue[redis]'", "pip install -e ./windlass", "$ windlass dev"]
)
def test_the_new_form_is_not_found(line: str) -> None:
    assert not INSTALLS_ANOTHER.search(line)


def test_the_installed_distribution_is_this_one() -> None:
    installed = importlib.metadata.distribution(NAME)
    assert installed.version == __version__
    assert {(script.group, script.name) for script in installed.entry_points} == {
        ("console_scripts", "windlass"),
        ("pytest11", "pytest_windlass"),
    }
    systems = [line for line in installed.metadata.get_all("Classifier", []) if line.startswith("Operating")]
    assert systems == ["Operating System :: POSIX :: Linux"]


def test_extras_that_are_named_exist() -> None:
    extras = set(importlib.metadata.metadata(NAME).get_all("Provides-Extra") or [])
    named = {
        extra
        for folder, kind in (("docs", "md"), ("src", "py"))
        for file in (ROOT / folder).rglob(f"*.{kind}")
        for extra in re.findall(rf"{NAME}\[(\w+)\]", file.read_text())
    }
    assert {"redis", "postgres", "serve", "verify", "observe"} <= named
    assert named <= extras
