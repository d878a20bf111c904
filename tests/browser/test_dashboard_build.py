"""The build: small, external files only, in the wheel; and a failure that is said and harms nothing else."""

import gzip
import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import httpx
import pytest
from tests.browser.stage import Stage

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "windlass" / "api" / "static"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build's own code."""
    spec = importlib.util.spec_from_file_location("web_build", ROOT / "web" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_load_is_below_150_kb_compressed() -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 6)) for path in files}
    assert sum(sizes.values()) < 150_000, sizes


def test_the_page_has_no_inline_script_or_style_and_asks_nobody_else() -> None:
    html = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", html) == []
    assert "<style" not in html
    assert re.search(r"\sstyle=|\son\w+=", html) is None
    for path in STATIC.rglob("*.[jc]s*"):
        found = set(re.findall(r"https?://[^\"'`\s)]+", path.read_text()))
        assert all(url.startswith(("http://www.w3.org/", "https://svelte.dev/e/")) for url in found), found


def test_the_types_are_those_of_the_api() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "from api_types import schema; print(schema(), end='')"],
        cwd=ROOT / "web", check=True, capture_output=True, text=True,
    )  # fmt: skip
    kept = (ROOT / "web" / "src" / "api" / "schema.ts").read_text()
    assert answer.stdout == kept, "make it anew: make web-types"


def test_no_source_renders_text_as_html() -> None:
    for path in (ROOT / "web" / "src").rglob("*"):
        if path.suffix in (".svelte", ".ts"):
            assert not re.search(
                r"@html|innerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text()
            ), path


def test_the_server_sends_a_strict_policy(stage: Stage) -> None:
    policy = httpx.get(stage.url).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert re.search(r"(default|script)-src 'self'|default-src 'none'", policy)


def test_a_wheel_carries_the_built_files(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "windlass/api/static/index.html" in names
    assert any(re.fullmatch(r"windlass/api/static/assets/index-.+\.js", name) for name in names)
    assert not any("node_modules" in name for name in names)


def test_a_build_that_fails_says_why_and_is_no_error_unless_asked_for(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def fail() -> None:
        raise hook.CannotBuild("npm ci failed (1): no network")

    class Screen:
        def display_warning(self, text: str) -> None:
            said.append(text)

    monkeypatch.setattr(hook, "build", fail)
    monkeypatch.setattr(hook, "STAMP", tmp_path / "nothing")
    made = hook.CustomBuildHook.__new__(hook.CustomBuildHook)
    monkeypatch.setattr(type(made), "app", Screen(), raising=False)
    made.initialize("standard", {})
    [told] = said
    assert told.startswith("the dashboard was not built; this package has the API and no dashboard.")
    assert "npm ci failed (1): no network" in told
    made.initialize("editable", {})
    assert len(said) == 1
    monkeypatch.setenv("WINDLASS_DASHBOARD", "require")
    with pytest.raises(hook.CannotBuild):
        made.initialize("standard", {})
