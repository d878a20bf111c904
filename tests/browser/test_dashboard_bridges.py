"""The page of intakes and relays: what it shows, and that its buttons do what they say."""

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.stage import Stage, staged
from tests.browser.test_dashboard_looks import AXE, LOOKS, PICTURES, overflow, picture, problems
from tests.browser.watching import Complaints, watched

SCENE = "import asyncio, bridged; asyncio.run(bridged.{}())"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("bridged"), app="bridged:app", worker=False) as started:
        started.run(SCENE.format("scene"))
        yield started


def test_partitions_lag_owners_and_trouble_are_shown(page: Page) -> None:
    page.goto("/bridges")
    orders = (
        page.get_by_label("Intakes", exact=True).get_by_role("listitem").filter(has_text="localhost:1/orders")
    )
    expect(orders.get_by_role("heading")).to_contain_text("stopped")
    expect(orders).to_contain_text("12,411")
    expect(orders).to_contain_text("lane from headers.tenant, priority is 5")
    expect(orders).to_contain_text("has one replica")
    expect(orders).not_to_contain_text("hunter2")
    row = orders.get_by_role("row").filter(has_text="1042")
    expect(row).to_contain_text("12,408")
    expect(row).to_contain_text("212/s")
    expect(row).to_contain_text("box-0 pid 4700")
    expect(orders).to_contain_text("stopped: orders/2 is another log")
    returns = page.get_by_role("listitem").filter(has_text="amqp://localhost:1/returns")
    expect(returns.get_by_role("columnheader", name="Reader")).to_be_visible()
    relay = page.get_by_label("Relays", exact=True).get_by_role("listitem")
    expect(relay).to_contain_text("jobs.{queue}.{state}")
    expect(relay).to_contain_text("10,400")


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, stage: Stage, complaints: Complaints, look: str
) -> None:
    made = browser.new_context(base_url=stage.url, timezone_id="Europe/Berlin", locale="en-GB", **LOOKS[look])
    stage.enter(made)
    page = watched(made.new_page(), complaints)
    page.goto("/bridges")
    expect(page.get_by_role("heading", name="deaths")).to_be_visible()
    page.evaluate(AXE.read_text())
    if os.environ.get(PICTURES) and look == "light":
        picture(page, "bridges")
    assert problems(page) + overflow(page) == []
    made.close()


def test_the_first_page_leads_here(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name='intake "orders" has stopped in partition 2').click()
    expect(page.get_by_role("heading", name="Bridges")).to_be_visible()


def test_processes_that_run_intakes_are_no_workers(page: Page) -> None:
    page.goto("/workers")
    expect(page.get_by_text("0 worker processes alive with 0 slots")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="pid 4700")
    expect(row).to_contain_text("the intakes orders, returns")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", name="Bridges")).to_be_visible()


def test_an_intake_and_a_relay_are_paused_and_resumed(page: Page, stage: Stage) -> None:
    page.goto("/bridges")
    for name, path in (("returns", "intakes"), ("deaths", "relays")):
        page.get_by_role("button", name=f"Pause {name}").click()
        expect(page.get_by_role("button", name=f"Resume {name}")).to_be_visible()
        assert stage.get(f"/v1/{path}/{name}")["state"] == "paused"
        page.get_by_role("button", name=f"Resume {name}").click()
        expect(page.get_by_role("button", name=f"Pause {name}")).to_be_visible()
        assert not stage.get(f"/v1/{path}/{name}")["paused"]


def test_a_stopped_partition_is_moved_after_a_question(page: Page, stage: Stage) -> None:
    page.goto("/bridges")
    page.get_by_role("button", name="Move partition 2 of orders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Its offset is 1001.")
    expect(dialog.get_by_label("Go on at")).to_have_value("begin")
    dialog.get_by_role("button", name="Back").click()
    assert offset(stage, "2") == "1001"
    page.get_by_role("button", name="Move partition 2 of orders").click()
    dialog.get_by_label("Go on at").fill("0")
    dialog.get_by_label("Identity of the log").fill("q9Lm")
    dialog.get_by_role("button", name="Move").click()
    expect(page.get_by_text("orders, partition 2: goes on at 0")).to_be_visible()
    assert offset(stage, "2") == "0"
    (act, *_) = stage.get("/v1/audit")["items"]
    assert act["chosen"] == {"intake": "orders", "partition": "2", "from": "1001", "to": "0"}


def test_a_message_broker_that_does_not_answer_is_said(
    page: Page, stage: Stage, complaints: Complaints
) -> None:
    complaints.expect("Failed to load resource")
    page.goto("/bridges")
    page.get_by_role("button", name="Move partition 0 of orders").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Go on at").fill("end")
    dialog.get_by_role("button", name="Move").click()
    expect(page.get_by_role("status").get_by_text("kafka")).to_be_visible(timeout=20_000)
    assert offset(stage, "0") == "1042"


def test_what_nobody_runs_is_forgotten_after_a_question(page: Page, stage: Stage) -> None:
    stage.run(SCENE.format("leave"))
    page.goto("/bridges")
    page.get_by_role("button", name="Forget orders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 offsets of it will be gone")
    dialog.get_by_role("button", name="Forget").click()
    expect(page.get_by_text("orders is forgotten")).to_be_visible()
    assert stage.get("/v1/intakes/orders")["partitions"] == []


def offset(stage: Stage, partition: str) -> object:
    partitions = stage.get("/v1/intakes/orders")["partitions"]
    return next(each["offset"] for each in partitions if each["partition"] == partition)
