"""Forgetting over HTTP: counted page by page, done in the background, told and on record."""

from typing import Any

import pytest
from tests.api.house import House, on_every_store
from tests.api.test_dead_routes import ended
from tests.api.test_operators_routes import Fleet, said

from windlass.core.state import State

TAG = "user:42"


async def mine(house: House, count: int, **options: Any) -> list[str]:
    add = house.add.using(tags=(TAG,), **options)
    return [job.id for job in await house.app.aenqueue_many(add.call(number) for number in range(count))]


@on_every_store
def test_jobs_of_a_tag_are_counted_and_forgotten(house: House) -> None:
    async def story() -> None:
        jobs = [*await mine(house, 3), *await mine(house, 2, delay=60)]
        (other,) = await house.app.aenqueue_many([house.add.call(1)])
        async with house.open(await house.key("operate")) as client:
            counted = said(await client.get("/v1/forget/count", params={"tag": TAG}))
            assert counted == {"jobs": 5, "waiting": 5, "running": 0, "cursor": None}
            wish = {"tag": TAG, "reason": "she asked"}
            started = said(await client.post("/v1/forget", json=wish), 202)
            assert (started["verb"], started["chosen"]) == ("forget", {"tag": TAG})
            shown = await ended(client, started["id"])
            assert (shown["state"], shown["applied"], shown["wanted"]) == ("done", 5, 5)
            assert shown["progress"] == 1.0
            assert said(await client.get("/v1/forget/count", params={"tag": TAG}))["jobs"] == 0
            newest, begun = said(await client.get("/v1/audit"))["items"]
            assert (begun["what"], begun["chosen"]) == ("forget begun", {"tag": TAG})
            assert (newest["what"], newest["jobs"], newest["wanted"]) == ("forgotten", 5, 5)
            assert newest["reason"] == "she asked"
            assert newest["by"].startswith("key ")
            assert newest["chosen"] == {"tag": TAG, "cancelled": "5"}
        found = await (await house.app.broker()).get([*jobs, other.id])
        assert [job is not None and not job.pruned for job in found] == [False] * 5 + [True]

    house.run(story)


def test_what_runs_is_left_and_said(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        (job,) = await mine(house, 1)
        await Fleet(house, "default").take(1)
        async with house.open() as client:
            assert said(await client.get("/v1/forget/count", params={"tag": TAG}))["running"] == 1
            shown = await ended(client, said(await client.post("/v1/forget", json={"tag": TAG}), 202)["id"])
            assert (shown["state"], shown["applied"], shown["passed"]) == ("failed", 0, 1)
            assert shown["error"] == (
                "1 still running, and asked to stop: forget it again when they have ended"
            )
            newest = said(await client.get("/v1/audit"))["items"][0]
            assert (newest["what"], newest["chosen"]) == ("forgotten", {"tag": TAG, "running": "1"})
        (left,) = await (await house.app.broker()).get([job])
        assert left is not None
        assert (left.state, left.cancel_requested) == (State.RUNNING, True)

    house.run(story)


def test_many_are_counted_by_pages(memory_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.routes.forget.MOST_COUNTED", 10)
    house = memory_house

    async def story() -> None:
        await mine(house, 25)
        async with house.open() as client:
            counts: list[int] = []
            params = {"tag": TAG}
            while True:
                told = said(await client.get("/v1/forget/count", params=params))
                counts.append(told["jobs"])
                if told["cursor"] is None:
                    break
                params["cursor"] = told["cursor"]
            assert counts == [10, 10, 5]
            said(await client.get("/v1/forget/count", params={**params, "tag": "other"}), 400)

    house.run(story)


def test_it_needs_a_key_that_operates_on_everything(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        bound = await house.key("operate", queues=("mail",))
        for key in (await house.key("read", "work", "enqueue"), bound):
            async with house.open(key) as client:
                said(await client.post("/v1/forget", json={"tag": TAG}), 403)
                said(await client.get("/v1/forget/count", params={"tag": TAG}), 403)
        async with house.open(await house.key("operate")) as client:
            said(await client.post("/v1/forget", json={"tag": ""}), 422)
            said(await client.post("/v1/forget", json={}), 400)
            said(await client.get("/v1/forget/count", params={"tag": ""}), 422)

    house.run(story)
