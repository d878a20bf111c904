"""Schedules over HTTP."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import said

NIGHTLY = {
    "name": "nightly",
    "task": "send",
    "arguments": {"to": "ops"},
    "cron": "0 3 * * *",
    "tz": "Asia/Tokyo",
}


@on_every_store
def test_a_schedule_is_made_shown_previewed_edited_paused_run_and_deleted(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            made = said(await client.post("/v1/schedules", json=NIGHTLY), 201)
            assert (made["rule"], made["queue"], made["paused"]) == ("0 3 * * * Asia/Tokyo", "mail", False)
            said(await client.post("/v1/schedules", json=NIGHTLY), 409)
            times = said(await client.get("/v1/schedules/nightly/preview", params={"count": 3}))
            assert [datetime.fromisoformat(time).hour for time in times] == [18, 18, 18]
            edited = said(await client.patch("/v1/schedules/nightly", json={"cron": "30 4 * * *"}))
            assert edited["rule"] == "30 4 * * * Asia/Tokyo"
            assert said(await client.post("/v1/schedules/nightly/pause"))["paused"] is True
            assert said(await client.post("/v1/schedules/nightly/resume"))["paused"] is False
            job = said(await client.post("/v1/schedules/nightly/run"), 201)["job"]
            assert (await (await house.app.broker()).get([job]))[0] is not None
            assert (await client.delete("/v1/schedules/nightly")).status_code == 204
            said(await client.get("/v1/schedules/nightly"), 404)
            assert said(await client.get("/v1/schedules")) == []

    house.run(story)


def test_one_that_code_declares_is_overridden_and_reset(house: House) -> None:
    async def story() -> None:
        house.app.schedule("hourly", house.add.call(1), every=3600)
        async with house.open() as client:
            edited = said(await client.patch("/v1/schedules/hourly", json={"every": "2h"}))
            assert (edited["rule"], edited["overridden"]) == ("every 7200 s", True)
            assert said(await client.post("/v1/schedules/hourly/reset"))["rule"] == "every 3600 s"

    house.run(story)


def test_the_next_times_of_a_rule_are_told_before_it_is_kept(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            times = said(await client.post("/v1/schedules/preview", json={"every": 60, "count": 4}))
            found = [datetime.fromisoformat(time) for time in times]
            assert [b - a for a, b in pairwise(found)] == [timedelta(minutes=1)] * 3
            assert found[0] > datetime.now(UTC) - timedelta(minutes=1)

    house.run(story)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"cron": "61 * * * *"}, 422),
        ({"cron": "0 3 30 2 *"}, 422),
        ({"tz": "Mars/Olympus"}, 422),
        ({"every": 5}, 422),  # besides cron
        ({"task": "nope"}, 404),
        ({"arguments": {"nope": 1}}, 422),
        ({"name": "no good"}, 422),
        ({"queue": "nope"}, 404),
        ({"catch_up": "sometimes"}, 400),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_and_nothing_is_made(
    house: House, change: dict[str, Any], status: int
) -> None:
    async def story() -> None:
        async with house.open() as client:
            said(await client.post("/v1/schedules", json={**NIGHTLY, **change}), status)
            assert said(await client.get("/v1/schedules")) == []

    house.run(story)


def test_a_bound_key_sees_and_makes_schedules_of_its_own_queues_alone(house: House) -> None:
    async def story() -> None:
        house.app.schedule("hourly", house.add.call(1), every=3600)
        await house.app.broker()
        key = await house.key("read", "operate", queues=("mail",))
        async with house.open(key) as client:
            assert said(await client.get("/v1/schedules")) == []
            for verb in ("pause", "run", "reset"):
                said(await client.post(f"/v1/schedules/hourly/{verb}"), 404)
            assert (await client.delete("/v1/schedules/hourly")).status_code == 404
            wanted = {**NIGHTLY, "arguments": {"a": 1}}
            hidden = said(await client.post("/v1/schedules", json={**wanted, "task": "add"}), 404)
            absent = said(await client.post("/v1/schedules", json={**wanted, "task": "nope"}), 404)
            assert hidden["detail"].replace("add", "nope") == absent["detail"]
            said(await client.post("/v1/schedules", json=NIGHTLY), 201)

    house.run(story)


@on_every_store
def test_a_bound_key_cannot_tell_from_a_name_whether_others_have_a_schedule(house: House) -> None:
    async def story() -> None:
        house.app.schedule("hourly", house.add.call(1), every=3600)
        await house.app.broker()
        by_queue = await house.key("read", "operate", queues=("mail",))
        by_lane = await house.key("read", "operate", lanes=("acme",))
        other = await house.key("read", "operate", lanes=("beta",))
        async with house.open(await house.key("operate")) as client:
            said(await client.post("/v1/schedules", json={**NIGHTLY, "name": "taken", "lane": "x"}), 201)
        for key, lane in ((by_queue, None), (by_lane, "acme"), (other, "beta")):
            async with house.open(key) as client:
                answers = []
                # "taken" is in the sight of the first key alone, which may well be told so.
                for name in ("hourly", "fresh", *(() if lane is None else ("taken",))):
                    wish = {**NIGHTLY, "name": name, **({} if lane is None else {"lane": lane})}
                    made = said(await client.post("/v1/schedules", json=wish), 201)
                    assert made["name"] == name
                    answers.append({**made, "name": "", "version": 0})
                    problem = said(await client.post("/v1/schedules", json=wish), 409)
                    assert problem["detail"] == f'there is a schedule "{name}" already'
                assert all(answer == answers[0] for answer in answers)
                if lane is None:
                    said(await client.post("/v1/schedules", json={**NIGHTLY, "name": "taken"}), 409)
                shown = said(await client.get("/v1/schedules/hourly"))
                assert (shown["name"], shown["task"]) == ("hourly", "send")
                for verb in ("pause", "resume", "reset"):
                    answer = await client.post(f"/v1/schedules/hourly/{verb}")
                    assert verb == "reset" or said(answer)["name"] == "hourly"
                edited = said(await client.patch("/v1/schedules/hourly", json={"cron": "5 5 * * *"}))
                assert (edited["name"], edited["rule"]) == ("hourly", "5 5 * * * Asia/Tokyo")
                assert (await client.delete("/v1/schedules/hourly")).status_code == 204
                said(await client.get("/v1/schedules/hourly"), 404)
        async with house.open(await house.key("read", "operate")) as client:
            names = [each["name"] for each in said(await client.get("/v1/schedules"))]
            assert {"hourly", "taken"} <= set(names)
            assert len([name for name in names if name.startswith("fresh@")]) == 3
            said(await client.get("/v1/schedules/fresh"), 404)

    house.run(story)


def test_the_name_of_a_bound_keys_schedule_leaves_room_for_its_mark(house: House) -> None:
    async def story() -> None:
        async with house.open(await house.key("operate", queues=("mail",))) as client:
            problem = said(await client.post("/v1/schedules", json={**NIGHTLY, "name": "n" * 100}), 422)
            assert problem["errors"][0]["field"] == "name"
            said(await client.post("/v1/schedules", json={**NIGHTLY, "name": "n" * 89}), 201)

    house.run(story)
