"""Intakes and relays over HTTP: listed, paused, moved and forgotten; who may, and what goes on record."""

from typing import Any

import msgspec
import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import said

from windlass.core.intake import IntakeStatus, PartitionStatus, runs_intake, status_of
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, SessionInfo
from windlass.core.take import Source, Take

SECRET = "hunter2"


class Bridges:
    """A house with the intake `orders` into queue mail, `wide` with queues unknown, and the relay `ends`."""

    def __init__(self, house: House) -> None:
        self.house = house
        house.app.intake(f"kafka://me:{SECRET}@localhost:1/orders", task=house.send, name="orders")
        house.app.intake("kafka://localhost:1/wide", task=house.add, queue="headers.queue", name="wide")
        house.app.relay(f"amqp://me:{SECRET}@localhost:1/ends", on="dead", queues=["mail"], name="ends")

    async def take(self, then: str, identity: str = "one") -> None:
        broker = await self.house.app.connection.broker()
        await broker.take(Take(source=Source("orders/3", identity), expect=None, then=then))

    async def run(self, *, stopped: bool = False) -> None:
        """As the process does that runs the intake."""
        broker = await self.house.app.connection.broker()
        info = SessionInfo(host="box", pid=7, queues=(runs_intake("orders"),))
        await broker.beat([Beat(session="s1", open=info)])
        now = (await broker.schedules(limit=1)).now
        error = "another log" if stopped else ""
        part = PartitionStatus(owner="s1", host="box", pid=7, lag=4, stopped=stopped, error=error, as_of=now)
        status = IntakeStatus(partitions={"3": part})
        await broker.override(status_of("orders"), msgspec.json.encode(status), 0)


@pytest.fixture
def bridges(house: House) -> Bridges:
    return Bridges(house)


async def acts(client: Any) -> list[tuple[str, dict[str, str]]]:
    return [(act["what"], act["chosen"]) for act in said(await client.get("/v1/audit"))["items"]]


@on_every_store
def test_an_intake_is_seen_paused_moved_and_the_acts_are_on_record(house: House, bridges: Bridges) -> None:
    async def story() -> None:
        async with house.open() as client:
            await bridges.take("1042")
            await bridges.run(stopped=True)
            answer = await client.get("/v1/intakes")
            assert SECRET not in answer.text
            shown = {each["name"]: each for each in said(answer)}
            assert {name: each["state"] for name, each in shown.items()} == {
                "orders": "stopped",
                "wide": "unread",
            }
            (partition,) = shown["orders"]["partitions"]
            assert (partition["offset"], partition["identity"], partition["lag"]) == ("1042", "one", 4)
            for verb, paused in (("pause", True), ("pause", True), ("resume", False)):
                assert said(await client.post(f"/v1/intakes/orders/{verb}"))["paused"] is paused
            wish = {"partition": "3", "to": "7", "identity": "two", "expect": "1042"}
            moved = said(await client.post("/v1/intakes/orders/move", json=wish))
            assert (moved["before"], moved["offset"], moved["identity"]) == ("1042", "7", "two")
            raced = said(await client.post("/v1/intakes/orders/move", json=wish), 409)
            assert raced["errors"][0]["field"] == "expect"
            assert said(await client.get("/v1/intakes/orders"))["partitions"][0]["offset"] == "7"
            assert await acts(client) == [
                ("intake moved", {"intake": "orders", "partition": "3", "from": "1042", "to": "7"}),
                ("intake resumed", {"intake": "orders"}),
                ("intake paused", {"intake": "orders"}),
            ]

    house.run(story)


def test_a_relay_is_seen_paused_and_resumed(house: House, bridges: Bridges) -> None:
    async def story() -> None:
        async with house.open() as client:
            (shown,) = said(await client.get("/v1/relays"))
            assert (shown["name"], shown["state"], shown["url"]) == (
                "ends",
                "unread",
                "amqp://localhost:1/ends",
            )
            assert said(await client.post("/v1/relays/ends/pause"))["state"] == "paused"
            assert said(await client.get("/v1/relays/ends"))["paused"] is True
            assert said(await client.post("/v1/relays/ends/resume"))["paused"] is False
            assert [what for what, _ in await acts(client)] == ["relay resumed", "relay paused"]

    house.run(story)


@pytest.mark.parametrize(
    ("wish", "status", "field"),
    [
        ({"partition": "4", "to": "7", "identity": "one"}, 422, "to"),
        ({"partition": "3", "to": "end", "identity": "one"}, 422, "to"),
        ({"partition": "3"}, 400, "to"),
        ({"partition": "3", "to": "7", "more": 1}, 400, None),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(
    house: House, bridges: Bridges, wish: dict[str, object], status: int, field: str | None
) -> None:
    async def story() -> None:
        async with house.open() as client:
            await bridges.take("1042")
            problem = said(await client.post("/v1/intakes/orders/move", json=wish), status)
            if field == "to" and status == 422:
                assert problem["errors"][0]["field"] == field
            assert await acts(client) == []

    house.run(story)


def test_an_intake_is_forgotten_once_nobody_runs_it(house: House, bridges: Bridges) -> None:
    async def story() -> None:
        async with house.open() as client:
            await bridges.take("1042")
            await bridges.run()
            said(await client.post("/v1/intakes/orders/forget"), 409)
            broker = await house.app.connection.broker()
            await broker.end_session("s1", Cause(CauseKind.STOP))
            del house.app.intakes["orders"]
            said(await client.post("/v1/intakes/orders/pause"), 409)
            assert said(await client.post("/v1/intakes/orders/forget")) == {"intake": "orders", "offsets": 1}
            said(await client.get("/v1/intakes/orders"), 404)
            assert await acts(client) == [("intake forgotten", {"intake": "orders", "offsets": "1"})]

    house.run(story)


def test_who_sees_and_changes_them(house: House, bridges: Bridges) -> None:
    async def story() -> None:
        async with house.open(await house.key("enqueue")) as client:
            said(await client.get("/v1/intakes"), 403)
        async with house.open(await house.key("read")) as client:
            assert len(said(await client.get("/v1/intakes"))) == 2
            for path in ("intakes/orders/pause", "intakes/orders/forget", "relays/ends/pause"):
                said(await client.post(f"/v1/{path}"), 403)
            said(await client.post("/v1/intakes/orders/move", json={"partition": "3", "to": "end"}), 403)
        async with house.open(await house.key("read", "operate", queues=("mail",))) as client:
            assert [each["name"] for each in said(await client.get("/v1/intakes"))] == ["orders"]
            assert [each["name"] for each in said(await client.get("/v1/relays"))] == ["ends"]
            said(await client.post("/v1/intakes/wide/pause"), 404)
            said(await client.post("/v1/intakes/orders/pause"))
        for bound in ({"queues": ("default",)}, {"lanes": ("acme",)}):
            async with house.open(await house.key("read", "operate", **bound)) as client:  # type: ignore[arg-type]
                assert said(await client.get("/v1/intakes")) == []
                assert said(await client.get("/v1/relays")) == []
                said(await client.post("/v1/relays/ends/pause"), 404)
                said(await client.post("/v1/intakes/orders/forget"), 404)

    house.run(story)


def test_processes_that_run_intakes_are_told_as_what_they_are(house: House, bridges: Bridges) -> None:
    async def story() -> None:
        async with house.open() as client:
            await bridges.run()
            (worker,) = said(await client.get("/v1/workers"))
            assert (worker["intakes"], worker["queues"]) == (["orders"], [])
            assert said(await client.get("/v1/overview"))["workers"]["alive"] == 0
            assert said(await client.get("/v1/scale"))["workers"] == 0
        async with house.open(await house.key("read", queues=("mail",))) as client:
            assert said(await client.get("/v1/workers")) == []

    house.run(story)
