"""Every screen, with real jobs behind it: what it shows, deep links, and its empty states."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from tests.browser.scenes import a_day
from tests.browser.stage import Stage, eventually, staged
from tests.browser.watching import Complaints, watched

import windlass


@pytest.fixture(scope="module", autouse=True)
def day(stage: Stage) -> None:
    a_day(stage)


def first(stage: Stage, task: str) -> str:
    """A job of a task."""
    return str(stage.get("/v1/jobs", task=task, limit=1)["items"][0]["id"])


def test_the_overview_tells_problems_first_then_depth_and_pace(page: Page) -> None:
    page.goto("/")
    problems = page.get_by_label("Problems")
    expect(problems).to_contain_text("archive: 7 jobs ready, and no live worker serves it")
    expect(problems).to_contain_text("default: 18 dead letters")
    expect(page.get_by_role("link", name="Dead letters 18")).to_be_visible()
    expect(page.get_by_role("link", name="Workers 2")).to_be_visible()
    for chart in (
        "Jobs by state",
        "Throughput (ends per second)",
        "Enqueue to start",
        "Run time",
        "Failure rate",
    ):
        expect(page.get_by_role("heading", name=chart)).to_be_visible()
    page.get_by_role("button", name="1 hour").click()
    expect(page).to_have_url(re.compile("range=1h"))
    expect(page.get_by_role("heading", name="Throughput (attempts per second)")).to_be_visible()
    problems.get_by_role("link", name="default: 18 dead letters").click()
    expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    expect(page.get_by_text("18 dead letters in 3 groups")).to_be_visible()


SCREENS = {
    "/jobs?state=dead": "18 jobs on this page",
    "/queues": "8 at once, 2 a lane",
    "/queues/mail": "parked until a slot is free",
    "/dead": "ConnectionError: the bank does not answer for order",
    "/schedules": "At 03:00 every day, Europe/Paris",
    "/flows": "order-43",
    "/flows/order-42": "5 jobs: 5 done",
    "/workers": "2 worker processes alive with 16 slots",
    "/tasks": "(name: text, width: integer,",
    "/tasks/send": "Send a mail for a tenant.",
    "/history?window=15m": "attempts,",
    "/jobs/x/y": "There is no page at",
    "/queues/nothing": 'there is no queue "nothing"',
}


@pytest.mark.parametrize(("path", "text"), SCREENS.items())
def test_a_deep_link_shows_its_screen(page: Page, complaints: Complaints, path: str, text: str) -> None:
    if "nothing" in path:
        complaints.expect("404")
    page.goto(path)
    expect(page.get_by_text(text).first).to_be_visible()
    expect(page).to_have_title(re.compile(" · Windlass$"))


def test_a_job_shows_its_timeline_payload_result_log_and_progress(page: Page, stage: Stage) -> None:
    page.goto(f"/jobs/{first(stage, 'resize')}")
    expect(page.get_by_text("attempt 1", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Payload")).to_contain_text('"width": 640')
    expect(page.get_by_role("region", name="Result")).to_contain_text('"bytes": 467840')
    expect(page.get_by_role("region", name="Log")).to_contain_text("written")
    page.goto(f"/jobs/{first(stage, 'film')}")
    expect(page.get_by_text("of harbour.mov").first).to_be_visible()


def test_a_replayed_job_that_is_done_shows_its_old_error_in_the_timeline_alone(
    page: Page, stage: Stage
) -> None:
    charm = stage.folder / "charm"
    job = stage.enqueue("unlucky", {"charm": str(charm)})
    stage.wait_for(job, "dead")
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("heading", name="Error")).to_be_visible()
    charm.touch()
    stage.post("/v1/dead/replay", {"ids": [job]})
    stage.wait_for(job, "done")
    expect(page.get_by_role("heading", name="unlucky done")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("rror"))).to_be_hidden()
    runs = page.locator("ol li").filter(has_text="attempt 1")
    expect(runs.nth(0)).to_contain_text("OSError: out of luck")
    expect(runs.nth(1)).to_contain_text("done")


def test_an_error_that_is_not_retried_says_so(page: Page, stage: Stage) -> None:
    page.goto(f"/jobs/{first(stage, 'parse')}")
    expect(page.locator("header").filter(has=page.get_by_role("heading", name="Error"))).to_have_text(
        re.compile(r"^Error\s*not retried$")
    )


def test_a_scheduled_row_says_when_it_is_due(page: Page, stage: Stage) -> None:
    page.goto("/jobs?state=scheduled&task=report")
    expect(page.locator("tbody tr").first).to_contain_text(re.compile(r"scheduled\s*due in (59|1)"))
    page.set_viewport_size({"width": 390, "height": 780})
    expect(page.get_by_text(re.compile("due in (59|1)")).first).to_be_visible()


def test_a_lane_that_runs_is_not_idle(page: Page, stage: Stage) -> None:
    stage.enqueue("deliver", {"seconds": 600}, lane="alone")
    page.goto("/queues/mail")
    row = page.get_by_role("row").filter(has_text="alone")
    expect(row.get_by_role("cell").nth(9)).to_have_text("running")


def test_a_bucket_that_goes_on_is_not_drawn(page: Page) -> None:
    def with_figures(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        for bucket in told["buckets"]:
            bucket["done"] = 10 * told["step"]
        told["buckets"][-1]["done"] = 0  # it has just begun
        route.fulfill(response=answer, json=told)

    page.route("**/v1/history?**", with_figures)
    page.goto("/history?window=1h")
    chart = page.locator("figure").filter(has_text="Throughput (attempts per second)")
    expect(chart).to_contain_text("Done 10/s")


def test_history_tells_attempts_apart(page: Page) -> None:
    page.goto("/history?window=1h")
    apart = page.get_by_role("group", name="Told apart by")
    expect(page.get_by_label("By task", exact=True).get_by_role("columnheader").first).to_have_text("Task")
    apart.get_by_role("button", name="Workers").click()
    expect(page.get_by_label("By worker").get_by_role("columnheader", name="Use")).to_be_visible()
    expect(page.get_by_label("By worker").get_by_role("row").nth(1)).to_contain_text("%")
    apart.get_by_role("button", name="Errors").click()
    failed = page.get_by_label("By error").get_by_role("row").nth(1)
    expect(failed).to_contain_text("does not answer for order")
    apart.get_by_role("button", name="Lanes").click()
    expect(page.get_by_label("By lane").get_by_role("row").nth(1)).to_be_visible()


def test_a_job_tells_why_it_waits(page: Page, stage: Stage) -> None:
    page.goto(f"/jobs/{first(stage, 'shelve')}")
    why = page.get_by_label("Why it waits")
    expect(why).to_contain_text('no live worker serves queue "archive"')
    expect(why).to_contain_text('start a worker for queue "archive"')
    page.goto(f"/jobs/{first(stage, 'flaky')}")
    expect(page.get_by_label("Why it waits")).to_contain_text("Passes by itself in")
    expect(page.get_by_text("TimeoutError").first).to_be_visible()


def test_a_flow_is_drawn_and_its_boxes_lead_to_jobs(page: Page) -> None:
    page.goto("/flows/order-43")
    graph = page.get_by_label("Graph")
    expect(graph.get_by_role("link")).to_have_count(5)
    graph.get_by_role("link", name="notify blocked").click()
    expect(page.get_by_role("heading", name="notify")).to_be_visible()
    expect(page.get_by_label("Why it waits")).to_contain_text("dead")
    expect(page.get_by_role("cell", name="waits for; should it fail: cancel").first).to_be_visible()


def test_a_parent_names_those_that_wait_for_it(page: Page, stage: Stage) -> None:
    graph = stage.get("/v1/flows/order-42")
    [root] = [job["id"] for job in graph["jobs"] if job["task"] == "collect"]
    page.goto(f"/jobs/{root}")
    expect(page.get_by_role("cell", name="waits for this")).to_have_count(3)


def test_times_are_in_the_viewers_zone_and_exact_on_hover(page: Page, stage: Stage) -> None:
    job = stage.get("/v1/jobs", task="resize", limit=1)["items"][0]
    page.goto(f"/jobs/{job['id']}")
    shown = page.locator("dd time").first
    expect(shown).to_have_attribute(
        "title", re.compile(rf"\(Europe/Berlin\)\n{re.escape(job['accepted_at'])}$")
    )


def test_an_integer_beyond_2_53_is_shown_digit_by_digit(page: Page, stage: Stage) -> None:
    huge = 2**63 - 1
    job = stage.run(f"from shop import app, ledger; print(ledger.enqueue({huge}).id); app.close()")
    stage.wait_for(job, "done")
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text(str(huge))
    expect(page.get_by_role("region", name="Result")).to_have_text(str(huge))


def test_a_schedule_shows_next_times_in_its_zone_and_the_viewers(page: Page) -> None:
    page.goto("/schedules")
    page.get_by_role("listitem").filter(has_text="nightly-report").get_by_role(
        "button", name="More times"
    ).click()
    expect(page.get_by_role("columnheader", name="In Europe/Paris")).to_be_visible()
    expect(page.get_by_role("columnheader", name="In your zone, Europe/Berlin")).to_be_visible()
    expect(page.get_by_role("cell", name="03:00")).to_have_count(16)


# --- empty --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server that nothing has happened on."""
    with staged(tmp_path_factory.mktemp("bare"), app="calm:app", worker=False) as started:
        yield started


EMPTY = {
    "/": "no worker is alive: what is enqueued waits",
    "/jobs": "No jobs",
    "/jobs?tag=x": "No job matches",
    "/dead": "No dead letters",
    "/flows": "No flows",
    "/workers": "No worker is alive",
    "/history": "Nothing ended in this window",
    "/bridges": "No intakes and no relays",
    "/queues/mail": "No lane has work",
}


@pytest.mark.parametrize(("path", "text"), EMPTY.items())
def test_nothing_is_said_in_words(
    browser: Browser, bare: Stage, complaints: Complaints, path: str, text: str
) -> None:
    made = browser.new_context()
    bare.enter(made)
    page = watched(made.new_page(), complaints)
    page.goto(bare.url + path)
    expect(page.get_by_text(text).first).to_be_visible()
    made.close()


def test_the_empty_list_of_flows_names_functions_that_exist(
    browser: Browser, bare: Stage, complaints: Complaints
) -> None:
    made = browser.new_context()
    bare.enter(made)
    page = watched(made.new_page(), complaints)
    page.goto(bare.url + "/flows")
    named = page.locator(".nothing code")
    expect(named).to_have_text(["chain(…)", "group(…)", "windlass"])
    for name in named.all_inner_texts()[:-1]:
        assert callable(getattr(windlass, name.removesuffix("(…)")))
    made.close()


DRAWN = """
window.drawn = []
const canvas = CanvasRenderingContext2D.prototype
const fill = canvas.fillText
canvas.fillText = function (text, ...rest) {
  window.drawn.push(text)
  fill.call(this, text, ...rest)
}
"""


@pytest.mark.parametrize("path", ["/", "/queues/mail"])
def test_the_first_look_at_an_empty_store_is_drawn_at_a_clock(
    browser: Browser, bare: Stage, complaints: Complaints, path: str
) -> None:
    made = browser.new_context(locale="en-GB")
    bare.enter(made)
    page = watched(made.new_page(), complaints)
    page.add_init_script(DRAWN)
    # One look and no more: the second would hide what is wrong.
    page.clock.install()
    page.goto(bare.url + path)
    eventually(lambda: page.evaluate("drawn.some(text => /^\\d\\d:\\d\\d/.test(text))"))
    assert not page.evaluate("drawn.filter(text => /[A-Z][a-z]{2}/.test(text))")
    made.close()
