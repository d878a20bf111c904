"""Live: events as they happen, calm when hidden, honest when the server is away, and no growth with time."""

import os
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Request, expect
from tests.browser.stage import Stage, eventually, staged
from tests.browser.watching import Complaints, watched

JOBS = 10_000
SECONDS = float(os.environ.get("WINDLASS_STREAM_SECONDS", "60"))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage that may be hurt."""
    with staged(tmp_path_factory.mktemp("calm"), app="calm:app") as started:
        yield started


@pytest.fixture
def tab(browser: Browser, calm: Stage, complaints: Complaints) -> Iterator[Page]:
    made = browser.new_context(base_url=calm.url, viewport={"width": 1280, "height": 800})
    calm.enter(made)
    yield watched(made.new_page(), complaints)
    made.close()


def test_what_happens_shows_without_a_reload(tab: Page, calm: Stage) -> None:
    tab.goto("/jobs")
    expect(tab.get_by_text("live", exact=True)).to_be_visible()
    job = calm.enqueue("send", {"to": "a"})
    expect(tab.locator(f"[id='row-{job}']")).to_contain_text("done")
    tab.goto("/")
    before = int(tab.evaluate("performance.now()"))
    calm.enqueue_many([{"task": "send", "payload": {"to": "b"}} for _ in range(20)])
    expect(tab.get_by_role("link", name="Throughput")).to_contain_text(re.compile(r"[0-9.]+/s"))
    expect(tab.get_by_role("link", name="Throughput")).to_contain_text("21 done in all")
    assert tab.evaluate("performance.now()") > before  # the same document


def test_a_hidden_tab_asks_for_nothing(tab: Page) -> None:
    tab.goto("/")
    expect(tab.get_by_text("live", exact=True)).to_be_visible()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    hide(tab, hidden=True)
    expect(tab.get_by_text("paused", exact=True)).to_be_visible()
    asked.clear()
    tab.wait_for_timeout(4_000)
    assert asked == []
    hide(tab, hidden=False)
    expect(tab.get_by_text("live", exact=True)).to_be_visible()
    assert any("/v1/overview" in url for url in asked)


def hide(page: Page, *, hidden: bool) -> None:
    """As a browser does with a tab that is behind another."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')) }",
        hidden,
    )


def test_without_a_stream_it_looks_every_few_seconds(tab: Page, calm: Stage, complaints: Complaints) -> None:
    complaints.expect("ERR_FAILED")
    tab.route("**/v1/events", lambda route: route.abort())
    tab.goto("/jobs")
    expect(tab.get_by_text("every 3 s")).to_be_visible()
    job = calm.enqueue("send", {"to": "c"})
    expect(tab.locator(f"[id='row-{job}']")).to_contain_text("done")


def test_a_server_that_is_away_is_said_and_comes_back(tab: Page, calm: Stage, complaints: Complaints) -> None:
    complaints.expect("ERR_CONNECTION_REFUSED")
    complaints.expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
    complaints.expect("ERR_CONNECTION_RESET")
    complaints.expect("ERR_EMPTY_RESPONSE")
    tab.goto("/queues")
    expect(tab.get_by_role("link", name="mail", exact=True)).to_be_visible()
    assert calm.server is not None
    calm.end(calm.server)
    expect(tab.get_by_text("No connection.")).to_be_visible(timeout=15_000)
    expect(tab.get_by_role("link", name="mail", exact=True)).to_be_visible()  # what was there stays
    calm.serve()
    expect(tab.get_by_text("No connection.")).to_be_hidden(timeout=30_000)
    expect(tab.get_by_text("live", exact=True)).to_be_visible(timeout=40_000)


def test_ten_thousand_jobs_streaming_do_not_let_the_tab_grow(tab: Page, calm: Stage) -> None:
    tab.goto("/jobs")
    requests: list[str] = []

    def count(request: Request) -> None:
        requests.append(request.url)

    tab.on("request", count)
    started = time.monotonic()
    warm = 0.0
    sent = 0
    while sent < JOBS or time.monotonic() - started < SECONDS:
        due = min(JOBS, int(JOBS * (time.monotonic() - started) / SECONDS) + 1)
        if sent < due:
            batch = min(500, due - sent)
            calm.enqueue_many([{"task": "send", "payload": {"to": f"{sent + n}"}} for n in range(batch)])
            sent += batch
        tab.wait_for_timeout(250)
        if not warm and time.monotonic() - started > SECONDS / 4:
            warm = heap(tab)
    eventually(lambda: calm.get("/v1/queues/mail")["jobs"]["ready"] == 0, patience=60)
    expect(tab.locator("tbody tr")).to_have_count(100)
    grown = heap(tab) - warm
    assert grown < 3_000_000, f"{grown:,} bytes more than after a quarter of the time ({warm:,})"
    assert tab.evaluate("document.querySelectorAll('*').length") < 3_000
    passed = time.monotonic() - started
    assert len(requests) < 2.5 * passed + 20, f"{len(requests)} requests in {passed:.0f} s"


def heap(page: Page) -> float:
    """Bytes in use after a collection of garbage."""
    page.evaluate("() => { for (let n = 0; n < 3; n++) gc() }")
    return float(page.evaluate("performance.memory.usedJSHeapSize"))


# --- keys ---------------------------------------------------------------------------------------------------


def test_a_key_is_asked_for_and_a_session_is_kept(
    browser: Browser, complaints: Complaints, tmp_path_factory: pytest.TempPathFactory
) -> None:
    complaints.expect("401")
    complaints.expect("403")
    with staged(tmp_path_factory.mktemp("locked"), app="calm:app", worker=False) as stage:
        operate, read = (make_key(stage, scope) for scope in ("operate", "read"))
        made = browser.new_context(base_url=stage.url)
        page = watched(made.new_page(), complaints)
        page.goto("/queues/mail")
        page.get_by_label("API key").fill("windlass_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        page.get_by_label("API key").fill(operate)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="mail")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.reload()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert operate not in page.evaluate("document.cookie + JSON.stringify({...localStorage})")
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("API key").fill(read)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="mail")).to_be_visible()
        expect(page.get_by_role("button", name="Resume")).to_have_count(0)  # it may look, and no more
        made.close()


def make_key(stage: Stage, scope: str) -> str:
    """A key with a scope, by the command line."""
    words = ["keys", "calm:app", "create", "--scope", scope, "--label", scope]
    told = stage.run(f"import sys; from windlass.cli import main; sys.exit(main({words!r}))")
    found = re.search(r"windlass_[\w.-]+", told)
    assert found is not None
    return found[0]
