"""How it looks: axe finds nothing on any screen, light, dark and on a phone; and pictures for the docs."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.scenes import a_day
from tests.browser.stage import Stage
from tests.browser.watching import Complaints, watched

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
IMAGES = ROOT / "docs" / "images"
PICTURES = "WINDLASS_PICTURES"
"""Set to make the pictures of the docs anew."""

SCREENS = (
    "overview", "jobs", "job", "waiting", "queues", "queue", "dead", "schedules", "flows", "flow", "workers",
    "tasks", "task", "history", "group", "scheduled",
)  # fmt: skip
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 800}},
    "phone": {
        "color_scheme": "light",
        "viewport": {"width": 390, "height": 780},
        "has_touch": True,
        "is_mobile": True,
    },
}
UNPICTURED = {"group", "scheduled"}
PICTURED = {
    ("dark", "overview"),
    ("dark", "queue"),
    ("phone", "overview"),
    ("phone", "jobs"),
    ("phone", "dead"),
}


@pytest.fixture(scope="module")
def addresses(stage: Stage) -> dict[str, str]:
    a_day(stage)

    def job(task: str) -> str:
        return str(stage.get("/v1/jobs", task=task, limit=1)["items"][0]["id"])

    group = next(
        each["fingerprint"] for each in stage.get("/v1/dead/groups")["groups"] if each["task"] == "check"
    )
    return {
        **{name: f"/{name}" for name in SCREENS},
        "overview": "/",
        "jobs": "/jobs?state=running&state=ready&state=scheduled&state=blocked&state=dead",
        "job": f"/jobs/{job('charge')}",
        "waiting": f"/jobs/{job('deliver')}",
        "queue": "/queues/mail",
        "dead": "/dead?task=check",
        "flow": "/flows/order-43",
        "task": "/tasks/resize",
        "history": "/history?window=15m",
        "group": f"/dead?task=check&group={group}",
        "scheduled": "/jobs?state=scheduled",
    }


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, stage: Stage, complaints: Complaints, addresses: dict[str, str], look: str
) -> None:
    made = browser.new_context(base_url=stage.url, timezone_id="Europe/Berlin", locale="en-GB", **LOOKS[look])
    stage.enter(made)
    page = watched(made.new_page(), complaints)
    page.goto("/")
    if os.environ.get(PICTURES):
        busy(page, stage)
    page.evaluate(AXE.read_text())  # by the debugger: the page's own policy lets no such script in
    found: dict[str, list[str]] = {}
    for name in SCREENS:
        show(page, addresses[name])
        if os.environ.get(PICTURES) and (
            (look == "light" and name not in UNPICTURED) or (look, name) in PICTURED
        ):
            picture(page, name if look == "light" else f"{name}-{look}")
        found[name] = problems(page) + overflow(page)
    made.close()
    told = [f"{name}: {each}" for name, all_of_it in found.items() for each in all_of_it]
    assert not told, "\n".join(told)


def test_where_one_is_is_in_sight_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    for place in ("history", "flows", "jobs"):
        page.goto(f"/{place}")
        expect(page.locator("nav [aria-current]")).to_be_in_viewport(ratio=1)


def busy(page: Page, stage: Stage) -> None:
    """Let some time pass with work in it, for charts that show something."""
    for step in range(25):
        mails = [
            {"task": "send", "payload": {"to": "a@example.com", "subject": "Hello"}}
            for _ in range(20 + step % 7 * 6)
        ]
        stage.enqueue_many(mails)
        page.wait_for_timeout(1_000)


def show(page: Page, path: str) -> None:
    """Go there as a link does, so that what the page remembers stays."""
    page.evaluate(
        "to => { history.pushState(null, '', to); dispatchEvent(new PopStateEvent('popstate')) }", path
    )
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def problems(page: Page) -> list[str]:
    """What axe has to say."""
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    violations = page.evaluate("rules => axe.run(document, rules).then(found => found.violations)", rules)
    return [
        f"{each['id']}: {each['help']}: {node['html'][:160]} {[why['message'] for why in node['any'][:1]]}"
        for each in violations
        for node in each["nodes"]
    ]


def overflow(page: Page) -> list[str]:
    """The page never scrolls sideways; what is wide scrolls inside of its panel. The place is in sight.

    Not by `innerWidth`: a phone makes it as wide as the page.
    """
    assert page.viewport_size is not None
    width = page.viewport_size["width"]
    wide = page.evaluate("document.documentElement.scrollWidth") - width
    found = [f"{wide} pixels wider than the window"] if wide > 0 else []
    here = page.locator("nav [aria-current]").bounding_box()
    if here is None or here["x"] < 0 or here["x"] + here["width"] > width:
        found.append(f"the place in the navigation is out of sight: {here}")
    return found


def picture(page: Page, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    page.wait_for_timeout(300)
    # Where the tests lie is nobody's business.
    here = [str(Path(__file__).parent), "/srv/shop"]
    page.evaluate(
        "([from, to]) => document.querySelectorAll('pre').forEach("
        "each => { const text = each.textContent;"
        " if (text.includes(from)) each.textContent = text.replaceAll(from, to) })",
        here,
    )
    page.screenshot(path=str(IMAGES / f"{name}.png"))


def test_the_switch_chooses_a_theme_that_stays(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/workers")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_label("Theme").select_option("dark")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert light != dark
    page.reload()
    expect(page.get_by_label("Theme")).to_have_value("dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark
    page.get_by_label("Theme").select_option("system")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == light


def test_a_dialog_and_the_keyboard(page: Page) -> None:
    page.goto("/tasks/send")
    page.get_by_role("button", name="Pause").click()
    page.evaluate(AXE.read_text())
    assert problems(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("link", name="Skip to content").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
