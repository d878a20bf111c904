"""Queues, lanes, dead letters, schedules, flows and tasks: every action, and that it really was done."""

import re
from uuid import uuid4

from playwright.sync_api import Page, expect
from tests.browser.scenes import a_flow
from tests.browser.stage import Stage, eventually
from tests.browser.watching import Complaints


def test_a_queue_is_paused_and_resumed(page: Page, stage: Stage) -> None:
    page.goto("/queues")
    page.get_by_role("button", name="Pause archive").click()
    expect(page.get_by_role("button", name="Resume archive")).to_be_visible()
    assert stage.get("/v1/queues/archive")["paused"]
    page.goto("/queues/archive")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not stage.get("/v1/queues/archive")["paused"]


def test_a_limit_is_edited_in_place_shown_beside_its_declaration_and_reset(page: Page, stage: Stage) -> None:
    page.goto("/queues/mail")
    page.get_by_role("button", name="Edit running at once of mail").click()
    page.get_by_label("Running at once of mail: jobs; empty for no limit").fill("3")
    page.keyboard.press("Enter")
    expect(page.get_by_text("override, declared 8")).to_be_visible()
    page.get_by_role("button", name="Edit rate of mail").click()
    page.get_by_label("Rate of mail").fill("30/s")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("mail: rate is now 30/s")).to_be_visible()
    assert stage.get("/v1/queues/mail")["override"] == {"concurrency": 3, "rate": "30/s"}
    page.get_by_role("button", name="Reset overrides").click()
    page.get_by_role("dialog").get_by_role("button", name="Reset").click()
    expect(page.get_by_text("override, declared 8")).to_be_hidden()
    assert stage.get("/v1/queues/mail")["override"] == {}


def test_a_limit_that_has_no_meaning_is_refused_in_words(page: Page, complaints: Complaints) -> None:
    complaints.expect("422")
    page.goto("/queues/mail")
    page.get_by_role("button", name="Edit rate of mail").click()
    page.get_by_label("Rate of mail").fill("often")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").get_by_text("often")).to_be_visible()
    page.keyboard.press("Escape")


def test_a_lane_shows_its_share_and_is_weighed_paused_and_reset(page: Page, stage: Stage) -> None:
    stage.enqueue_many(
        [
            {"task": "shelve", "payload": {"box": "b"}, "lane": lane}
            for lane in ("east", "west")
            for _ in range(2)
        ]
    )
    page.goto("/queues/archive")
    row = page.get_by_role("row").filter(has_text="east")
    before = lane(stage, "east")["share"]
    page.get_by_role("button", name="Edit weight of lane east").click()
    page.get_by_label("Weight of lane east").fill("3")
    page.keyboard.press("Enter")
    expect(row.get_by_text("override")).to_be_visible()
    eventually(lambda: lane(stage, "east")["share"] > before)
    page.get_by_role("button", name="Pause lane east").click()
    expect(row).to_contain_text("parked: paused")
    page.get_by_role("button", name="Resume lane east").click()
    expect(row).to_contain_text("in the ring")
    page.get_by_role("button", name="Reset lane east").click()
    expect(row.get_by_text("override")).to_be_hidden()
    assert lane(stage, "east")["weight"] == 1


def lane(stage: Stage, name: str) -> dict[str, object]:
    return next(each for each in stage.get("/v1/lanes", queue="archive")["items"] if each["lane"] == name)


# --- dead letters -------------------------------------------------------------------------------------------


def test_a_group_is_opened_and_replayed_at_a_rate_with_progress_and_stopped(page: Page, stage: Stage) -> None:
    ids = stage.enqueue_many([{"task": "charge", "payload": {"order": n}} for n in range(30)])
    for job in ids:
        stage.wait_for(job, "dead")
    page.goto("/dead")
    group = page.get_by_role("listitem").filter(has_text="ConnectionError")
    group.get_by_role("button", name=re.compile("the bank does not answer")).click()
    expect(group.get_by_role("row")).not_to_have_count(0)
    expect(page).to_have_url(re.compile("task=charge"))
    page.get_by_role("button", name="Replay group of charge").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"Replay \d+ dead letters\?"))
    dialog.get_by_label("Rate").fill("2/s")
    dialog.get_by_role("button", name=re.compile("Replay")).click()
    operation = page.get_by_label("Operations")
    expect(operation).to_contain_text("task charge")
    expect(operation).to_contain_text(re.compile(r"[1-9]\d* of \d+"), timeout=15_000)
    operation.get_by_role("button", name="Stop").click()
    expect(operation).to_contain_text("stopped", timeout=15_000)
    [newest] = stage.get("/v1/dead/operations")[:1]
    assert 0 < newest["applied"] < newest["wanted"]


def test_one_letter_of_a_group_is_replayed(page: Page, stage: Stage) -> None:
    job = stage.enqueue("parse", {"text": "one"})
    stage.wait_for(job, "dead")
    page.goto("/dead?queue=default&error=GiveUp")
    page.get_by_role("button", name=re.compile("no meaning in")).click()
    page.get_by_role("button", name=f"Replay job {job}").click()
    eventually(lambda: stage.get(f"/v1/jobs/{job}")["replays"] == 1)


def test_a_group_is_discarded_with_a_reason_that_goes_on_record(page: Page, stage: Stage) -> None:
    job = stage.enqueue("check", {"fail": True})
    stage.wait_for(job, "dead")
    page.goto("/dead")
    page.get_by_role("button", name="Discard group of check").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This cannot be undone.")
    discard = dialog.get_by_role("button", name=re.compile("Discard"))
    expect(discard).to_be_disabled()
    dialog.get_by_label("Reason, for the record").fill("  ")
    expect(discard).to_be_disabled()
    dialog.get_by_label("Reason, for the record").fill("the <b>sums</b> are known to be wrong")
    discard.click()
    expect(page.get_by_role("button", name="Discard group of check")).to_be_hidden()
    eventually(lambda: not stage.get("/v1/dead", task="check")["items"])
    expect(page.get_by_label("Operations")).to_contain_text("the <b>sums</b> are known to be wrong")
    [act, *_] = [each for each in stage.get("/v1/audit")["items"] if each["what"] == "discarded"]
    assert act["reason"] == "the <b>sums</b> are known to be wrong"
    page.get_by_text("On record: what operators did").click()
    reason = "the <b>sums</b> are known to be wrong"
    row = page.get_by_role("row").filter(has_text=reason).filter(has_text="discarded")
    expect(row).to_contain_text("local")


# --- schedules ----------------------------------------------------------------------------------------------


def test_a_schedule_is_run_paused_edited_and_reset(page: Page, stage: Stage) -> None:
    page.goto("/schedules")
    page.get_by_role("button", name="Run now: nightly-report").click()
    page.get_by_role("link", name="See its job").click()
    expect(page.get_by_role("heading", name="report")).to_be_visible()
    page.goto("/schedules")
    page.get_by_role("button", name="Pause nightly-report").click()
    expect(page.get_by_role("button", name="Resume nightly-report")).to_be_visible()
    assert stage.get("/v1/schedules/nightly-report")["paused"]
    page.get_by_role("button", name="Resume nightly-report").click()
    page.get_by_role("button", name="Edit nightly-report").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Cron").fill("30 4 * * 1")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("30 4 * * 1 Europe/Paris")).to_be_visible()
    expect(page.get_by_text("override", exact=True)).to_be_visible()
    page.get_by_role("button", name="Reset nightly-report").click()
    expect(page.get_by_text("0 3 * * * Europe/Paris")).to_be_visible()


def test_a_schedule_that_an_operator_made_is_deleted(page: Page, stage: Stage) -> None:
    body = {"name": "once-more", "task": "ledger", "arguments": {"amount": 1}, "every": "12h"}
    stage.post("/v1/schedules", body)
    page.goto("/schedules")
    page.get_by_role("button", name="Delete once-more").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="once-more")).to_be_hidden()
    assert "once-more" not in {each["name"] for each in stage.get("/v1/schedules")}


# --- flows, tasks -------------------------------------------------------------------------------------------


def test_a_flow_is_replayed_and_another_cancelled(page: Page, stage: Stage) -> None:
    name = a_flow(stage, f"flow-{uuid4().hex[:6]}", fail=True)
    eventually(lambda: stage.get(f"/v1/flows/{name}")["flow"]["jobs"].get("dead"))
    page.goto(f"/flows/{name}")
    page.get_by_role("button", name="Replay 1 dead letter").click()
    expect(page.get_by_text("1 job replayed")).to_be_visible()
    eventually(lambda: stage.get(f"/v1/flows/{name}")["flow"]["jobs"].get("dead"))
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the flow").click()
    eventually(lambda: stage.get(f"/v1/flows/{name}")["flow"]["jobs"].get("cancelled"))


def test_a_task_is_enqueued_by_its_form(page: Page, stage: Stage) -> None:
    page.goto("/tasks/resize")
    page.get_by_label("name text").fill("a.png")
    page.get_by_label("width integer").fill("9007199254740993")
    page.get_by_label("kind").select_option("png")
    page.get_by_text("Options").click()
    page.get_by_label("Lane").fill("studio")
    page.get_by_label("Tags").fill("one, two")
    page.get_by_role("button", name="Enqueue").click()
    page.get_by_role("link", name="See the job").click()
    expect(page.get_by_role("region", name="Payload")).to_contain_text("9007199254740993")
    told = stage.get(f"/v1/jobs/{page.url.rsplit('/', 1)[1]}")
    assert told["payload"]["kwargs"] == {"name": "a.png", "width": 9007199254740993, "kind": "png"}
    assert (told["lane"], told["tags"]) == ("studio", ["one", "two"])


def test_the_form_says_what_is_wrong(page: Page, stage: Stage) -> None:
    page.goto("/tasks/resize")
    before = count_of(stage, "resize")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("name: this is needed")
    expect(page.get_by_label("name text")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("name text").fill("a.png")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("width: this is needed")
    for wrong in ("wide", "1.5", '"7"'):
        page.get_by_label("width integer").fill(wrong)
        page.get_by_role("button", name="Enqueue").click()
        expect(page.get_by_role("alert")).to_contain_text("width: this is not an integer")
    page.goto("/tasks/deliver")
    page.get_by_label("seconds number").fill("soon")
    page.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_role("alert")).to_contain_text("seconds: this is not a number")
    assert count_of(stage, "resize") == before


def count_of(stage: Stage, task: str) -> int:
    return len(stage.get("/v1/jobs", task=task, limit=1_000)["items"])


def test_a_task_that_lives_elsewhere_takes_any_object(page: Page, stage: Stage) -> None:
    page.goto("/tasks/translate")
    page.get_by_label("Arguments").fill('{"text": "hello"}')
    page.get_by_role("button", name="Enqueue").click()
    page.get_by_role("link", name="See the job").click()
    expect(page.get_by_role("region", name="Payload")).to_contain_text('"text": "hello"')


def test_a_task_is_paused_with_a_reason_and_resumed(page: Page, stage: Stage) -> None:
    page.goto("/tasks/notify")
    page.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the pager is broken")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    job = eventually(lambda: held(stage))
    page.goto(f"/jobs/{job}")
    expect(page.get_by_text("the pager is broken").first).to_be_visible()
    page.goto("/tasks/notify")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    stage.wait_for(job, "done")


def held(stage: Stage) -> str | None:
    """A job of the task that a worker gave back; None of one that it ran before it had heard of the pause."""
    job = stage.enqueue("notify")
    told = eventually(
        lambda: (now := stage.get(f"/v1/jobs/{job}")) and (now["held"] or now["state"] == "done") and now
    )
    return job if told["held"] else None


def test_children_of_a_job_are_named(page: Page, stage: Stage) -> None:
    job = stage.enqueue("family")
    stage.wait_for(job, "done")
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("cell", name="spawned by this")).to_have_count(2)
    page.get_by_role("link", name="ledger").first.click()
    expect(page.get_by_role("cell", name="spawned by", exact=True)).to_be_visible()
    page.goto(f"/jobs?parent={job}")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_text("spawned by")).to_be_visible()
