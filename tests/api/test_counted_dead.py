"""What is counted before dead letters are replayed or discarded: exactly, and no more are touched."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.api.house import House, on_every_store
from tests.api.test_dead_routes import dead, ended
from tests.api.test_operators_routes import Fleet, said, until

from windlass.admin.groups import mark
from windlass.core.outcome import Error

KINDS = ("ConnectionError", "KeyError", "ValueError")
MANY = 30_000
BATCH = 1_000


async def many_dead(house: House) -> int:
    """As many of each kind, all of one task; how many in all. The model sorts all its jobs for each page: it
    has a tenth of them.
    """
    is_model = (await house.app.broker()).capabilities.store == "memory"
    batch = BATCH // 10 if is_model else BATCH
    for number in range(MANY // BATCH):
        await dead(house, batch, KINDS[number % len(KINDS)])
    return batch * (MANY // BATCH)


async def counted(client: httpx.AsyncClient, wanted: Mapping[str, str]) -> tuple[int, str]:
    """Count to the end; how many, and of which moment."""
    first = told = said(await client.get("/v1/dead/count", params=wanted))
    total = first["count"]
    while told["cursor"] is not None:
        rest = {**wanted, "until": first["at"], "cursor": told["cursor"]}
        told = said(await client.get("/v1/dead/count", params=rest))
        total += told["count"]
    return total, first["at"]


async def operated(client: httpx.AsyncClient, **wish: Any) -> Any:
    started = said(await client.post("/v1/dead/operations", json=wish), 202)
    return await ended(client, started["id"])


@pytest.mark.slow
def test_thirty_thousand_are_counted_and_no_more_are_discarded(house: House) -> None:
    async def story() -> None:
        many = await many_dead(house)
        async with house.open() as client:
            assert (await counted(client, {}))[0] == many
            assert (await counted(client, {"task": "add"}))[0] == many
            group = {"task": "add", "group": "KeyError"}
            count, at = await counted(client, group)
            assert count == many // 3
            await dead(house, 5, "KeyError")  # while somebody reads the question
            done = await operated(client, verb="discard", **group, until=at, most=count)
            assert (done["applied"], done["wanted"], done["progress"]) == (count, count, 1.0)
            assert (await counted(client, group))[0] == 5
            count, at = await counted(client, {})
            assert count == 2 * many // 3 + 5
            await dead(house, 7)
            done = await operated(client, verb="replay", all=True, until=at, most=count)
            assert (done["applied"], done["wanted"]) == (count, count)
            assert (await counted(client, {}))[0] == 7

    house.run(story, within=300)


@on_every_store
def test_an_operation_touches_what_was_counted_and_nothing_else(house: House) -> None:
    async def story() -> None:
        await dead(house, 3)
        async with house.open() as client:
            told = said(await client.get("/v1/dead/count"))
            assert (told["count"], told["cursor"]) == (3, None)
            await dead(house, 2)
            done = await operated(client, verb="discard", all=True, until=told["at"], most=told["count"])
            assert (done["applied"], done["wanted"]) == (3, 3)
            assert (await operated(client, verb="discard", all=True, most=1))["applied"] == 1
            assert said(await client.get("/v1/dead/count"))["count"] == 1
            wish = {"verb": "discard", "all": True}
            said(await client.post("/v1/dead/operations", json={**wish, "most": 0}), 400)
            said(await client.post("/v1/dead/operations", json={**wish, "until": "2030-01-01T00:00:00"}), 422)
            said(await client.get("/v1/dead/count", params={"until": "soon"}), 422)
            said(await client.get("/v1/dead/count", params={"queue": "nope"}), 404)

    house.run(story)


def test_a_count_goes_on_by_its_own_cursor_alone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.routes.dead.MOST_COUNTED", 2)

    async def story() -> None:
        await dead(house, 5)
        async with house.open() as client:
            assert (await counted(client, {"error": "valueerror"}))[0] == 5
            first = said(await client.get("/v1/dead/count", params={"error": "valueerror"}))
            assert first["count"] == 2
            listed = said(await client.get("/v1/dead", params={"limit": 1}))["cursor"]
            for wrong in (listed, first["cursor"][:-1], "eHh4"):
                answer = await client.get("/v1/dead/count", params={"error": "x", "cursor": wrong})
                assert said(answer, 400)["errors"][0]["field"] == "cursor"

    house.run(story)


def test_a_bound_key_counts_its_own(house: House) -> None:
    async def story() -> None:
        await dead(house, 2)
        await house.send.using(lane="acme").aenqueue("x")
        await Fleet(house, "mail").die()
        async with house.open(await house.key("read", queues=("mail",))) as client:
            assert (await counted(client, {}))[0] == 1
            assert (await counted(client, {"queue": "mail"}))[0] == 1
            said(await client.get("/v1/dead/count", params={"queue": "default"}), 404)
        async with house.open(await house.key("read", lanes=("globex",))) as client:
            assert (await counted(client, {}))[0] == 0

    house.run(story)


def test_a_group_without_an_error_is_acted_on_as_it_is_shown(house: House) -> None:
    async def story() -> None:
        await dead(house, 2)
        await house.add.using(expires=0.001).aenqueue(1)
        broker = await house.app.broker()
        async with house.open() as client:

            async def groups() -> dict[str, int]:
                await broker.sweep(limit=100)
                found = said(await client.get("/v1/dead/groups"))["groups"]
                return {each["fingerprint"]: each["count"] for each in found}

            shown = await until(groups, lambda found: len(found) == 2)
            (expired,) = shown.keys() - {"ValueError"}
            assert shown[expired] == 1
            wanted = {"task": "add", "group": expired}
            assert (await counted(client, wanted))[0] == 1
            assert (await operated(client, verb="discard", **wanted))["applied"] == 1
            assert await groups() == {"ValueError": 2}

    house.run(story)


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        (Error(type="KeyError", message="", fingerprint="abc"), "gave up", "abc"),
        (Error(type="KeyError", message=""), "gave up", "KeyError"),
        (None, "expired", "expired"),
        (None, None, "unknown"),
    ],
)
def test_the_mark_of_a_group_is_never_empty(error: Error | None, reason: str | None, expected: str) -> None:
    assert mark(error, reason) == expected
