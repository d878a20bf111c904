"""Dead letters over HTTP: listed, grouped, edited, replayed and discarded, also in the background."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import Fleet, said, until

from windlass.admin.operations import Operations

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


async def dead(house: House, count: int, kind: str = "ValueError") -> list[str]:
    jobs = await house.app.aenqueue_many(house.add.call(number) for number in range(count))
    await Fleet(house, "default").die(count, kind)
    return [job.id for job in jobs]


async def ended(client: httpx.AsyncClient, operation: str) -> Any:
    async def look() -> Any:
        return said(await client.get(f"/v1/dead/operations/{operation}"))

    return await until(look, lambda shown: shown["state"] != "running")


@on_every_store
def test_dead_letters_are_listed_with_their_errors_and_grouped(house: House) -> None:
    async def story() -> None:
        await dead(house, 3)
        async with house.open() as client:
            page = said(await client.get("/v1/dead", params={"limit": 2}))
            assert [letter["error"]["type"] for letter in page["items"]] == ["ValueError"] * 2
            rest = said(await client.get("/v1/dead", params={"cursor": page["cursor"]}))
            assert len(rest["items"]) == 1
            assert said(await client.get("/v1/dead", params={"error": "KEYERROR"}))["items"] == []
            assert said(await client.get("/v1/dead", params={"older_than": "1h"}))["items"] == []
            (group,) = said(await client.get("/v1/dead/groups"))["groups"]
            assert (group["task"], group["fingerprint"], group["count"]) == ("add", "ValueError", 3)
            said(await client.get("/v1/dead", params={"older_than": "soon"}), 422)
            said(await client.get("/v1/dead", params={"queue": "nope"}), 404)
            said(await client.get("/v1/dead", params={"cursor": "eHh4"}), 400)

    house.run(story)


@on_every_store
def test_dead_letters_are_replayed_and_discarded_by_id(house: House) -> None:
    async def story() -> None:
        one, two, three = await dead(house, 3)
        async with house.open() as client:
            answers = said(await client.post("/v1/dead/replay", json={"ids": [one, two, UNKNOWN, one]}))
            assert [(each["job"], each["effect"]) for each in answers] == [
                (one, "applied"), (two, "applied"), (UNKNOWN, "not found"),
            ]  # fmt: skip
            again = said(await client.post("/v1/dead/replay", json={"ids": [one]}))
            assert again[0]["effect"] == "wrong state"
            for without in ({}, {"reason": " "}):
                refused = said(await client.post("/v1/dead/discard", json={"ids": [three], **without}), 422)
                assert [each["field"] for each in refused["errors"]] == ["reason"]
            wish = {"ids": [three], "reason": "the customer has left"}
            gone = said(await client.post("/v1/dead/discard", json=wish))
            assert gone[0]["effect"] == "applied"
            said(await client.post("/v1/dead/replay", json={"ids": ["nope"]}), 422)
            said(await client.post("/v1/dead/replay", json={"ids": []}), 422)
            acts = said(await client.get("/v1/audit"))["items"]
            assert [(act["what"], act["jobs"], act["wanted"], act["reason"]) for act in acts] == [
                ("discarded", 1, 1, "the customer has left"), ("replayed", 0, 1, ""), ("replayed", 2, 3, ""),
            ]  # fmt: skip

    house.run(story)


def test_a_dead_letter_is_edited_and_replayed(house: House) -> None:
    async def story() -> None:
        (job,) = await dead(house, 1)
        async with house.open() as client:
            said(await client.patch(f"/v1/dead/{job}", json={"arguments": {"a": "x"}}), 422)
            said(await client.patch(f"/v1/dead/{job}", json={}), 422)
            change = {"arguments": {"a": 5}, "max_attempts": 2, "replay": True}
            assert said(await client.patch(f"/v1/dead/{job}", json=change))["effect"] == "applied"
            (lease,) = await Fleet(house, "default").take()
            assert house.add.signature.decode(lease.payload) == ((), {"a": 5})
            said(await client.patch(f"/v1/dead/{job}", json=change), 409)
            said(await client.patch(f"/v1/dead/{UNKNOWN}", json=change), 404)

    house.run(story)


def test_a_bound_key_that_replays_an_edited_letter_has_it_read_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        (job,) = await dead(house, 1)
        broker = await house.app.connection.broker()
        key = await house.key("operate", queues=("default",))
        reads: list[str] = []
        get = broker.get

        async def counted(jobs: Sequence[str], **options: Any) -> Any:
            reads.extend(jobs)
            return await get(jobs, **options)

        monkeypatch.setattr(broker, "get", counted)
        async with house.open(key) as client:
            change = {"priority": 3, "replay": True}
            assert said(await client.patch(f"/v1/dead/{job}", json=change))["effect"] == "applied"
        assert reads == [job]

    house.run(story)


def test_a_filter_is_replayed_in_the_background_and_its_progress_asked_for(house: House) -> None:
    async def story() -> None:
        await dead(house, 25)
        await dead(house, 5, "KeyError")
        async with house.open() as client:
            wish = {"verb": "replay", "error": "valueerror"}
            started = said(await client.post("/v1/dead/operations", json=wish), 202)
            assert (started["wanted"], started["chosen"]) == (30, {"error": "valueerror"})
            shown = await ended(client, started["id"])
            assert (shown["state"], shown["applied"], shown["progress"]) == ("done", 25, 1.0)
            assert said(await client.get("/v1/queues/default"))["jobs"]["dead"] == 5
            assert [each["id"] for each in said(await client.get("/v1/dead/operations"))] == [shown["id"]]
            wish = {"verb": "discard", "all": True, "reason": "a bad day"}
            shown = await ended(client, said(await client.post("/v1/dead/operations", json=wish), 202)["id"])
            assert (shown["applied"], shown["reason"]) == (5, "a bad day")

            async def on_record() -> Any:
                return said(await client.get("/v1/audit"))["items"][0]

            act = await until(on_record, lambda act: act["what"] == "discarded")
            assert (act["chosen"], act["reason"]) == ({"all": "yes"}, "a bad day")
            said(await client.post("/v1/dead/operations", json={"verb": "replay"}), 422)
            wrong = await client.post(
                "/v1/dead/operations", json={"verb": "replay", "all": True, "rate": "x"}
            )
            assert said(wrong, 422)["errors"][0]["field"] == "rate"
            said(await client.get("/v1/dead/operations/nope"), 404)

    house.run(story)


def test_an_operation_is_stopped_by_another_server(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.admin.operations.TOLD_EVERY", 0.02)

    async def story() -> None:
        await dead(house, 30)
        async with house.open() as client:
            wish = {"verb": "replay", "all": True, "rate": "1/s"}
            started = said(await client.post("/v1/dead/operations", json=wish), 202)
            elsewhere = Operations(house.app, await house.app.broker())
            assert (await elsewhere.stop(started["id"])).state in ("stopping", "stopped")
            await until(lambda: elsewhere.one(started["id"]), lambda shown: shown.state == "stopped")
            shown = said(await client.get(f"/v1/dead/operations/{started['id']}"))
            assert shown["applied"] < 30
            assert said(await client.get("/v1/queues/default"))["jobs"]["dead"] == 30 - shown["applied"]

    house.run(story)


def test_an_operation_ends_with_its_server_and_says_so(house: House) -> None:
    async def story() -> None:
        await dead(house, 30)
        async with house.open() as client:
            wish = {"verb": "discard", "all": True, "rate": "1/s"}
            started = said(await client.post("/v1/dead/operations", json=wish), 202)
        shown = await Operations(house.app, await house.app.broker()).one(started["id"])
        assert (shown.state, shown.error) == ("stopped", "its server was stopped")

    house.run(story)


def test_a_bound_key_acts_on_its_own_dead_letters_alone(house: House) -> None:
    async def story() -> None:
        (job,) = await dead(house, 1)
        await house.send.using(lane="acme").aenqueue("x")
        await Fleet(house, "mail").die()
        key = await house.key("read", "operate", queues=("mail",))
        async with house.open(key) as client:
            assert [letter["task"] for letter in said(await client.get("/v1/dead"))["items"]] == ["send"]
            assert [group["task"] for group in said(await client.get("/v1/dead/groups"))["groups"]] == [
                "send"
            ]
            assert said(await client.post("/v1/dead/replay", json={"ids": [job]}))[0]["effect"] == "not found"
            said(await client.patch(f"/v1/dead/{job}", json={"priority": 1}), 404)
            said(await client.post("/v1/dead/operations", json={"verb": "discard", "all": True}), 403)
            wish = {"verb": "discard", "queue": "default"}
            said(await client.post("/v1/dead/operations", json=wish), 403)
            wish = {"verb": "discard", "queue": "mail"}
            started = said(await client.post("/v1/dead/operations", json=wish), 202)
            assert (await ended(client, started["id"]))["applied"] == 1
        other = await house.key("read", queues=("mail",))
        async with house.open(other) as client:
            hidden = said(await client.get(f"/v1/dead/operations/{started['id']}"), 404)
            absent = said(await client.get("/v1/dead/operations/none"), 404)
            assert hidden["detail"].replace(started["id"], "none") == absent["detail"]
        assert (await (await house.app.broker()).get([job]))[0] is not None

    house.run(story)
