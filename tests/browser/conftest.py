"""Fixtures: Chromium, a page that refuses to be silent about errors, and a stage with a running server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright
from tests.browser.stage import Stage, staged
from tests.browser.watching import Complaints, watched

STATIC = Path(__file__).parents[2] / "src" / "windlass" / "api" / "static"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def chromium() -> str:
    """The browser of the machine; the tests are skipped aloud without one."""
    found = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in $CHROMIUM")
    return found


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    if not (STATIC / "index.html").is_file():
        pytest.fail("the dashboard is not built: make web")
    # A container lets nobody make the namespaces that the sandbox needs.
    started = playwright.chromium.launch(
        executable_path=chromium(),
        args=["--no-sandbox", "--enable-precise-memory-info", "--js-flags=--expose-gc"],
    )
    yield started
    started.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for the tests of a file: what they do to it, those of the next do not see."""
    with staged(tmp_path_factory.mktemp("stage")) as started:
        yield started


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    """Checked at the end: no error, no violation of the policy, no warning."""
    found = Complaints()
    yield found
    found.check()


@pytest.fixture
def context(browser: Browser, stage: Stage) -> Iterator[BrowserContext]:
    made = browser.new_context(
        base_url=stage.url,
        viewport={"width": 1280, "height": 860},
        timezone_id="Europe/Berlin",
        locale="en-GB",
    )
    made.set_default_timeout(15_000)
    stage.enter(made)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints) -> Page:
    return watched(context.new_page(), complaints)
