"""The table of jobs and the page of one: filters in the address, keys, many at once, and every action."""

import re
from uuid import uuid4

from playwright.sync_api import Locator, Page, expect
from tests.browser.stage import Stage, eventually
from tests.browser.watching import Complaints


def shelve(stage: Stage, count: int, **options: object) -> tuple[str, list[str]]:
    """Jobs that wait, under a tag of their own."""
    tag = f"t{uuid4().hex[:8]}"
    jobs = [
        {"task": "shelve", "payload": {"box": f"{tag}-{n}"}, "tags": [tag], **options} for n in range(count)
    ]
    return tag, stage.enqueue_many(jobs)


def rows(page: Page) -> Locator:
    return page.locator("tbody tr")


def test_filters_are_in_the_address_and_come_back_from_it(page: Page, stage: Stage) -> None:
    tag, _ = shelve(stage, 3, lane="north")
    page.goto("/jobs")
    page.get_by_label("Tag").fill(tag)
    expect(rows(page)).to_have_count(3)
    page.get_by_role("checkbox", name="ready").check()
    page.get_by_label("Queue").select_option("archive")
    page.get_by_label("Task").select_option("shelve")
    page.get_by_label("Lane").fill("north")
    page.get_by_label("Accepted").select_option("1h")
    expect(page).to_have_url(re.compile("last=1h"))
    expect(page).to_have_url(re.compile("lane=north"))
    expect(rows(page)).to_have_count(3)
    page.goto(page.url)
    expect(rows(page)).to_have_count(3)
    expect(page.get_by_role("checkbox", name="ready")).to_be_checked()
    expect(page.get_by_label("Lane")).to_have_value("north")
    page.get_by_label("Lane").fill("south")
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page).to_have_url(f"{stage.url}/jobs")


def test_text_finds_a_job_by_its_id(page: Page, stage: Stage) -> None:
    _, [job] = shelve(stage, 1)
    page.goto("/jobs?state=ready")
    page.get_by_label("Text").fill(job[:30])
    expect(rows(page)).to_have_count(1)
    expect(page.get_by_role("link", name="shelve")).to_have_attribute("href", f"/jobs/{job}")


def test_a_time_from_to_is_understood_in_the_viewers_zone(page: Page, stage: Stage) -> None:
    tag, _ = shelve(stage, 1)
    page.goto(f"/jobs?tag={tag}")
    expect(rows(page)).to_have_count(1)
    page.get_by_label("Accepted").select_option("custom")
    page.get_by_label("Accepted until").fill("2020-01-01T12:00")
    expect(page.get_by_text("No job matches")).to_be_visible()
    expect(page).to_have_url(re.compile("until=2020-01-01T11%3A00%3A00"))


def test_the_keyboard_moves_selects_and_opens(page: Page, stage: Stage) -> None:
    tag, ids = shelve(stage, 3)
    page.goto(f"/jobs?tag={tag}")
    expect(rows(page)).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("j")
    at = page.locator("tr.at")
    expect(at).to_have_attribute("id", f"row-{ids[1]}")
    page.keyboard.press("k")
    expect(at).to_have_attribute("id", f"row-{ids[2]}")
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("a")
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Everything that matches (3):")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Text")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{stage.url}/jobs/{ids[2]}")
    page.go_back()
    expect(rows(page)).to_have_count(3)


def test_a_selection_is_cancelled_after_a_count_and_a_question(page: Page, stage: Stage) -> None:
    tag, ids = shelve(stage, 4)
    page.goto(f"/jobs?tag={tag}")
    for job in ids[:2]:
        page.get_by_label(f"Select job {job}").check()
    page.get_by_role("button", name="Cancel 2", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 2 jobs?")
    dialog.get_by_role("button", name="Back").click()
    assert stage.state(ids[0]) == "ready"
    page.get_by_role("button", name="Cancel 2", exact=True).click()
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("2 of 2 jobs cancelled")).to_be_visible()
    assert [stage.state(job) for job in ids] == ["cancelled", "cancelled", "ready", "ready"]


def test_everything_that_matches_is_cancelled_and_nothing_else(page: Page, stage: Stage) -> None:
    tag, ids = shelve(stage, 130)
    other, spared = shelve(stage, 2)
    page.goto(f"/jobs?tag={tag}&state=ready")
    expect(rows(page)).to_have_count(100)
    expect(page.get_by_text("100 jobs on this page, 130 match")).to_be_visible()
    page.get_by_role("button", name="Older").click()
    expect(rows(page)).to_have_count(30)
    page.get_by_role("button", name="Newest").click()
    expect(rows(page)).to_have_count(100)
    page.get_by_role("button", name="Cancel everything that matches").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 130 jobs?")
    expect(dialog).to_contain_text(f"tag {tag}")
    dialog.get_by_label("Reason, for the record").fill("sent twice")
    dialog.get_by_role("button", name="Cancel 130 jobs").click()
    expect(page.get_by_text("130 of 130 jobs cancelled")).to_be_visible(timeout=60_000)
    assert {stage.state(job) for job in (ids[0], ids[64], ids[-1])} == {"cancelled"}
    assert {stage.state(job) for job in spared} == {"ready"}
    expect(page.get_by_text("No job matches")).to_be_visible()
    assert other != tag
    [act, *_] = stage.get("/v1/audit")["items"]
    assert (act["what"], act["jobs"], act["wanted"], act["reason"]) == ("cancelled", 130, 130, "sent twice")


def test_dead_letters_that_match_are_replayed_from_the_table(page: Page, stage: Stage) -> None:
    tag = f"t{uuid4().hex[:8]}"
    ids = stage.enqueue_many([{"task": "charge", "payload": {"order": n}, "tags": [tag]} for n in range(3)])
    for job in ids:
        stage.wait_for(job, "dead")
    page.goto(f"/jobs?tag={tag}&state=dead")
    page.get_by_role("button", name="Replay everything that matches").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay 3 jobs").click()
    expect(page.get_by_text("3 of 3 jobs replayed")).to_be_visible()
    eventually(lambda: all(stage.get(f"/v1/jobs/{job}")["replays"] == 1 for job in ids))


def test_a_waiting_job_is_cancelled(page: Page, stage: Stage) -> None:
    _, [job] = shelve(stage, 1)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("heading", name="shelve cancelled")).to_be_visible()


def test_a_waiting_job_is_edited(page: Page, stage: Stage, complaints: Complaints) -> None:
    complaints.expect("422")
    _, [job] = shelve(stage, 1)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Arguments by name (JSON)").fill('{"box": "another box"}')
    dialog.get_by_label("Priority").fill("9")
    dialog.get_by_label("Tags").fill("one, two")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    expect(page.get_by_role("region", name="Payload")).to_contain_text("another box")
    told = stage.get(f"/v1/jobs/{job}")
    assert (told["priority"], told["tags"], told["state"]) == (9, ["one", "two"], "ready")
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog.get_by_label("Priority").fill("900")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").get_by_text("priority")).to_be_visible()
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Nothing was changed")).to_be_visible()


def test_a_running_job_is_asked_to_stop(page: Page, stage: Stage) -> None:
    job = stage.enqueue("film", {"name": "short.mov"})
    stage.wait_for(job, "running")
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_role("heading", name="film cancelled")).to_be_visible(timeout=30_000)


def dead(stage: Stage, **payload: object) -> str:
    job = stage.enqueue("charge", {"order": 7, **payload})
    stage.wait_for(job, "dead")
    return job


def test_a_dead_letter_is_replayed(page: Page, stage: Stage) -> None:
    job = dead(stage)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_text("replayed 1 times")).to_be_visible()


def test_a_dead_letter_is_edited_and_replayed(page: Page, stage: Stage) -> None:
    job = dead(stage)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Edit and replay").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Arguments by name (JSON)")
    expect(field).to_have_value(re.compile('"order": 7'))
    field.fill('{"order": 9223372036854775807}')
    dialog.get_by_role("button", name="Save and replay").click()
    expect(page.get_by_text("the bank does not answer for order 9223372036854775807").first).to_be_visible()
    assert stage.get(f"/v1/jobs/{job}")["payload"]["kwargs"] == {"order": 2**63 - 1}


def test_what_cannot_be_is_refused_with_the_reason(page: Page, stage: Stage, complaints: Complaints) -> None:
    complaints.expect("422")
    job = dead(stage)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Edit and replay").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Arguments by name (JSON)").fill('{"order": "seven"}')
    dialog.get_by_role("button", name="Save and replay").click()
    expect(page.get_by_role("status").get_by_text("order")).to_be_visible()
    assert stage.state(job) == "dead"


def test_secrets_are_masked_and_shown_only_to_edit_and_on_record(page: Page, stage: Stage) -> None:
    made = stage.enqueue("send", {"to": "a@example.com", "subject": "hi", "password": "hunter2"}, delay=3_600)
    page.goto(f"/jobs/{made}")
    expect(page.get_by_role("region", name="Payload")).to_contain_text("[secret]")
    assert "hunter2" not in page.content()
    page.get_by_role("button", name="Duplicate").click()
    page.get_by_role("dialog").get_by_role("button", name="Show them").click()
    expect(page.get_by_role("dialog").get_by_label("by name (JSON)")).to_have_value(re.compile("hunter2"))
    acts = stage.get("/v1/audit")["items"]
    assert any(act["what"] == "secrets shown" and act["chosen"]["job"] == made for act in acts)


def test_a_job_is_duplicated_with_its_arguments_by_place_named(page: Page, stage: Stage) -> None:
    job = stage.run(
        "from shop import app, shelve; print(shelve.using(tags=['x']).enqueue('big box').id); app.close()"
    )
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Duplicate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Arguments of shelve by name (JSON)")).to_have_value(
        re.compile('"box": "big box"')
    )
    dialog.get_by_role("button", name="Enqueue").click()
    expect(page.get_by_text("Enqueued: this is the new job")).to_be_visible()
    new = page.url.rsplit("/", 1)[1]
    assert new != job
    told = stage.get(f"/v1/jobs/{new}")
    assert (told["payload"]["kwargs"], told["tags"]) == ({"box": "big box"}, ["x"])


def test_a_dead_letter_is_discarded_with_a_reason_that_goes_on_record(page: Page, stage: Stage) -> None:
    job = dead(stage)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Discard").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Discard")).to_be_disabled()
    dialog.get_by_label("Reason, for the record").fill("the order was paid otherwise")
    dialog.get_by_role("button", name="Discard").click()
    expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    eventually(lambda: is_gone(stage, job))
    [act, *_] = stage.get("/v1/audit")["items"]
    assert (act["what"], act["reason"]) == ("discarded", "the order was paid otherwise")


def is_gone(stage: Stage, job: str) -> bool:
    return all(each["id"] != job for each in stage.get("/v1/dead", limit=1_000)["items"])
