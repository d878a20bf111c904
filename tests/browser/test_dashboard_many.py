"""Questions about tens of thousands: their numbers are exact, and what is done is what was asked."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.browser.scenes import dead_letters
from tests.browser.stage import Stage, eventually, staged

KINDS = ("ConnectionError", "KeyError", "ValueError")
EACH = 10_000
LONG = 180.0
"""Seconds that tens of thousands may take on a machine that has other things to do."""
QUESTION = re.compile(r"Discard (more than )?([\d,]+) dead letters\?")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("many"), app="calm:app", worker=False) as started:
        dead_letters(started, EACH, *KINDS)
        yield started


def discarded(page: Page, stage: Stage) -> tuple[str, int]:
    """The title of the question that is open, and how many are gone when it was answered with yes."""
    before, already = left(stage), ended(stage)
    dialog = page.get_by_role("dialog")
    title = dialog.get_by_role("heading").inner_text()
    expect(dialog.get_by_role("button", name="Discard")).to_have_text(title.rstrip("?"))
    dead_letters(stage, 4, *KINDS)  # while it is read
    dialog.get_by_label("Reason, for the record").fill("too many")
    dialog.get_by_role("button", name="Discard").click()
    eventually(lambda: ended(stage) > already, patience=LONG)
    return title, before + 4 * len(KINDS) - left(stage)


def ended(stage: Stage) -> int:
    """Operations that have come to their end."""
    return sum(each["state"] == "done" for each in stage.get("/v1/dead/operations"))


def left(stage: Stage) -> int:
    return int(stage.get("/v1/overview")["jobs"]["dead"])


def test_a_group_of_ten_thousand_is_discarded_and_no_more(page: Page, stage: Stage) -> None:
    page.goto("/dead")
    expect(page.get_by_text("more than 10,000 dead letters in 3 groups")).to_be_visible()
    group = page.get_by_role("listitem").filter(has_text="KeyError")
    expect(group.get_by_text(re.compile(r"^3,\d\d\d\+$"))).to_be_visible()
    group.get_by_role("button", name="Discard group of send").click()
    title, gone = discarded(page, stage)
    found = QUESTION.fullmatch(title)
    assert found, title
    # It counts for some seconds; a slow machine says "more than".
    assert int(found[2].replace(",", "")) == EACH or found[1], title
    assert gone == EACH


def test_all_are_discarded_and_no_more(page: Page, stage: Stage) -> None:
    wanted = left(stage)
    page.goto("/dead")
    page.get_by_role("button", name="Discard all").click()
    title, gone = discarded(page, stage)
    assert title == f"Discard {wanted:,} dead letters?"
    assert gone == wanted


def test_all_jobs_that_match_are_counted_to_the_last(page: Page, stage: Stage) -> None:
    dead_letters(stage, 8_000, *KINDS)
    wanted = left(stage)
    page.goto("/jobs?state=dead")
    page.get_by_role("button", name="Replay everything that matches").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text(f"Replay {wanted:,} jobs?", timeout=60_000)
    dialog.get_by_role("button", name="Replay").click()
    eventually(lambda: left(stage) == 0, patience=LONG)
    assert stage.get("/v1/overview")["jobs"]["ready"] == wanted


def test_a_stuck_flow_is_found_behind_fifteen_thousand_newer_jobs(page: Page, stage: Stage) -> None:
    stage.run(STUCK)
    page.goto("/")
    page.get_by_label("Problems").get_by_role("link", name="a flow is stuck: month-end").click()
    expect(page).to_have_url(re.compile(r"/flows\?stuck=true$"))
    row = page.get_by_role("row").filter(has_text="month-end")
    expect(row).to_contain_text("stuck")
    page.get_by_role("button", name="All").click()
    expect(row).to_contain_text("stuck")
    row.get_by_role("link", name="month-end").click()
    page.get_by_role("button", name="Replay 1 dead letter").click()
    expect(page.get_by_text("1 job replayed")).to_be_visible()
    page.goto("/flows?stuck=true")
    expect(page.get_by_text("No flow is stuck")).to_be_visible()


STUCK = """
import asyncio
from calm import app, send
from windlass import chain
from windlass.core.lease import Ask
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State

async def main():
    broker = await app.broker()
    while (await broker.purge("mail", State.READY, 1_000)).more:
        pass
    await chain(send.call("a"), send.call("b")).aenqueue(flow="month-end")
    await broker.beat([Beat(session="stuck", open=SessionInfo(host="here", queues=("mail",), slots=1))])
    ask = Ask(session="stuck", seq=1, queues=("mail",), slots=1, limit=1)
    [lease] = (await broker.claim(ask)).leases
    error = Error(type="ValueError", message="no good")
    await broker.settle(
        [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, error=error)]
    )
    await app.aenqueue_many(send.call(str(number)) for number in range(15_000))
    await app.aclose()

asyncio.run(main())
"""
