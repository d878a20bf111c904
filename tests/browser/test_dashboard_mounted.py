"""The reference of the API at /docs, and the whole dashboard under a path of another application."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.browser.stage import Stage, eventually, free_port
from tests.browser.watching import Complaints, watched

ROOT = Path(__file__).parents[2]
SLOW = 60_000
"""Milliseconds: the description of the API is made when it is first asked for."""


def test_the_reference_of_the_api_is_found_read_and_linked(page: Page, stage: Stage) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/docs")
    expect(page.locator("details").first).to_be_visible(timeout=SLOW)
    page.get_by_label("Find an operation").fill("a call of a task")
    expect(page.locator("details")).to_have_count(1)
    page.locator("summary").click()
    expect(page.locator("details")).to_contain_text("Needs a key with the scope enqueue.")
    expect(page.get_by_label("Parameters of POST /v1/jobs")).to_contain_text("Idempotency-Key")
    page.locator("details").get_by_role("link", name="Wanted").click()
    expect(page.locator("#schema-Wanted")).to_be_in_viewport()
    expect(page.get_by_label("Fields of Wanted", exact=True)).to_contain_text("needed")
    page.get_by_label("Find an operation").fill("no such thing")
    expect(page.get_by_text("No operation has “no such thing”")).to_be_visible()
    assert all(url.startswith((stage.url, "data:")) for url in asked), "it asks nobody else"


def test_every_operation_can_be_opened(page: Page, stage: Stage) -> None:
    page.goto("/docs")
    described = stage.get("/openapi.json")
    count = sum(len(methods) for methods in described["paths"].values())
    expect(page.locator("details")).to_have_count(count, timeout=SLOW)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    expect(page.locator("details[open]")).to_have_count(count)
    expect(page.locator("article")).to_have_count(len(described["components"]["schemas"]))
    links = page.eval_on_selector_all("details a[href^='#']", "all => all.map(each => each.hash)")
    assert links
    assert set(links) <= set(page.eval_on_selector_all("article", "all => all.map(each => '#' + each.id)"))


def test_the_reference_needs_what_its_description_needs(
    browser: Browser, stage: Stage, complaints: Complaints
) -> None:
    complaints.expect("401")
    context = browser.new_context(base_url=stage.url)
    try:
        page = watched(context.new_page(), complaints)
        page.goto("/docs")
        expect(page.get_by_label("API key, or token")).to_be_visible()
        expect(page.get_by_role("heading", name="HTTP API")).to_have_count(0)
    finally:
        context.close()


@pytest.fixture
def mounted(stage: Stage) -> Iterator[str]:
    """The address of a web application that has the dashboard under a path."""
    port = free_port()
    paths = os.pathsep.join((str(ROOT), stage.environment["PYTHONPATH"]))
    environment = {**stage.environment, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "uvicorn", "tests.browser.mounted_app:web", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "warning"], cwd=stage.folder, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(f"{url}/queue/readyz"))
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_dashboard_works_under_a_path(
    browser: Browser, mounted: str, complaints: Complaints, scheme: str
) -> None:
    context: BrowserContext = browser.new_context(
        base_url=mounted, color_scheme="light" if scheme == "light" else "dark"
    )
    context.set_default_timeout(15_000)
    try:
        page = watched(context.new_page(), complaints)
        page.goto("/queue/")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.get_by_text("live", exact=True)).to_be_visible()  # the event stream, too
        expect(page.get_by_role("button", name="Log out")).to_have_count(0)
        for place in ("Jobs", "Queues", "Tasks", "API"):
            page.get_by_role("navigation").get_by_role("link", name=place, exact=True).click()
            expect(page).to_have_url(f"{mounted}/queue/{'docs' if place == 'API' else place.lower()}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.reload()
        expect(page.get_by_role("heading", name="HTTP API")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Tasks")).to_be_visible()
        page.locator("main").get_by_role("link").first.click()
        expect(page).to_have_url(re.compile(f"^{mounted}/queue/tasks/.+"))
    finally:
        context.close()
