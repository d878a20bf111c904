"""Text that means harm, in every field that users fill: shown as text, and nothing else."""

import pytest
from playwright.sync_api import Page, expect
from tests.browser.stage import Stage, eventually
from tests.browser.watching import Complaints

MARK = "<img src=x onerror=\"window.hurt='HERE'\">"
TEXTS = (
    MARK,
    "<script>window.hurt=1</script>",
    "{@html '<b>x</b>'} {{7*7}} ${7*7}",
    "javascript:window.hurt=1",
    "\u202eright to left\u202c \u0007bell \x1b[31m",
    "'\"><svg onload=window.hurt=1>",
    "__proto__",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🪝 " + "long" * 200,
)


@pytest.fixture(scope="module")
def jobs(stage: Stage) -> list[str]:
    """Jobs that carry the texts in payload, lane, tags, key and headers."""
    ids: list[str] = []
    for text in TEXTS:
        plain = "".join(each for each in text if each.isprintable())
        ids.append(
            stage.enqueue(
                "shelve",
                {"box": text},
                lane=plain[:60],
                tags=[plain[:40]],
                key=plain[:60],
                headers={"x-note": plain[:60]},
            )
        )
    return ids


@pytest.fixture(scope="module")
def dead(stage: Stage) -> list[str]:
    """Dead letters whose errors carry the texts."""
    ids = [stage.enqueue("parse", {"text": text}) for text in TEXTS]
    for job in ids:
        stage.wait_for(job, "dead")
    return ids


def unhurt(page: Page) -> None:
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("({}).hurt") is None
    assert page.locator("main img, main svg[onload], main b, main script").count() == 0


def test_jobs_show_text_as_text(page: Page, jobs: list[str]) -> None:
    page.goto("/jobs?state=ready&task=shelve")
    expect(page.get_by_text("<img src=x").first).to_be_visible()
    unhurt(page)
    for job in jobs:
        page.goto(f"/jobs/{job}")
        expect(page.get_by_role("region", name="Payload")).to_be_visible()
        unhurt(page)
    page.goto(f"/jobs/{jobs[0]}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("<img src=x onerror=")
    expect(page.get_by_role("link", name="<img src=x").first).to_be_visible()


def test_lanes_and_errors_show_text_as_text(page: Page, jobs: list[str], dead: list[str]) -> None:
    page.goto("/queues/archive")
    expect(page.get_by_role("link", name="<img src=x").first).to_be_visible()
    unhurt(page)
    page.goto("/dead")
    expect(page.get_by_text("windlass.signals.GiveUp: no meaning in").first).to_be_visible()
    page.get_by_role("button", name="windlass.signals.GiveUp").first.click()
    expect(page.get_by_text("<img src=x").first).to_be_visible()
    unhurt(page)
    for job in dead:
        page.goto(f"/jobs/{job}")
        expect(page.get_by_role("region", name="Traceback").first).to_be_visible()
        unhurt(page)


def test_names_in_the_address_show_as_text(page: Page, complaints: Complaints) -> None:
    complaints.expect("404")
    complaints.expect("400")
    complaints.expect("422")
    for path in (
        "/jobs?queue=%3Cimg%20src%3Dx%20onerror%3Dwindow.hurt%3D1%3E&text=%3Cb%3E&lane=%22%3E&last=__proto__",
        "/queues/%3Cimg%20src%3Dx%20onerror%3Dwindow.hurt%3D1%3E",
        "/jobs/%3Cscript%3Ewindow.hurt%3D1%3C%2Fscript%3E",
        "/jobs?parent=%3Cimg%20src%3Dx%20onerror%3Dwindow.hurt%3D1%3E&tag=%22%3E%3Cb%3E&since=x&until=.",
        "/tasks/no.such.task",
        "/flows/a..b",
        "/queues/.hidden",
        "/queues/x.js",
        "/tasks/%E0%A4%A",
    ):
        page.goto(path)
        expect(page.locator("main")).to_be_visible()
        eventually(lambda: page.locator("main").inner_text().strip())
        unhurt(page)
    for path in ("/__proto__", "/constructor/x"):  # no pages of the dashboard
        page.goto(path)
        assert "urn:windlass:not-found" in page.inner_text("body")
        unhurt(page)


def test_a_link_of_a_hostile_name_stays_within_the_page(page: Page, stage: Stage, jobs: list[str]) -> None:
    page.goto(f"/jobs/{jobs[3]}")
    page.get_by_role("link", name="#javascript:window.hurt=1").click()
    expect(page.get_by_label("Tag")).to_have_value("javascript:window.hurt=1")
    assert page.url.startswith(f"{stage.url}/jobs?tag=javascript")
    unhurt(page)
