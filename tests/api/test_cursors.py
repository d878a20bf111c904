"""A cursor is good for the listing that it came from, for who may see the same, and for nothing else."""

from typing import Any

import httpx
from litestar.enums import ParamType
from litestar.params import ParameterKwarg
from tests.api.house import House, on_every_store
from tests.api.test_events_routes import listening, serving
from tests.api.test_operators_routes import said

Asked = tuple[str, dict[str, str]]

LISTINGS: dict[str, Asked] = {
    "jobs": ("/v1/jobs", {}),
    "jobs of a queue": ("/v1/jobs", {"queue": "mail"}),
    "jobs of a lane": ("/v1/jobs", {"lane": "l1"}),
    "jobs of a state": ("/v1/jobs", {"state": "ready"}),
    "jobs that are dead": ("/v1/jobs", {"state": "dead"}),
    "jobs of a flow": ("/v1/jobs", {"flow": "f"}),
    "jobs of a task": ("/v1/jobs", {"task": "send"}),
    "dead": ("/v1/dead", {}),
    "dead of a queue": ("/v1/dead", {"queue": "mail"}),
    "lanes of mail": ("/v1/lanes", {"queue": "mail"}),
    "lanes of default": ("/v1/lanes", {"queue": "default"}),
}
GARBAGE = (
    "",
    "a",
    "abc",
    "eHh4",
    "0",
    "-1",
    "99999999999999999999999999",
    "00000000-0000-0000-0000-000000000000",
    "é",
    "\x00",
    "\x00" * 40,
    ">" * 100,
    "A" * 7_999,
    "A" * 8_001,
    "=" * 8,
    "' OR 1=1 --",
    "null",
    "\ud7ff\U0010ffff",
)


async def filled(house: House) -> None:
    for number in range(6):
        for lane in range(3):
            await house.send.using(lane=f"l{lane}", flow="f").aenqueue(str(number))
            await house.add.using(lane=f"l{lane}").aenqueue(number)
    dying = [
        await house.send.using(lane=f"l{lane}", delay=3600, expires=0.000_001).aenqueue("x")
        for lane in (0, 1, 2, 0, 1, 2)
    ]
    broker = await house.app.broker()
    while (await broker.sweep(limit=1_000)).more:
        pass
    for job in await broker.get([job.id for job in dying]):
        assert job is not None
        assert job.state == "dead"


async def asked(client: httpx.AsyncClient, listing: str, **more: Any) -> httpx.Response:
    path, given = LISTINGS[listing]
    return await client.get(path, params={**given, "limit": 1, **more})


def refused(answer: httpx.Response) -> None:
    problem = said(answer, 400)
    assert problem["type"] == "urn:windlass:invalid"
    assert problem["errors"][0]["field"] == "cursor", problem


@on_every_store
def test_a_cursor_is_good_for_its_own_listing_alone(house: House) -> None:
    async def story() -> None:
        await filled(house)
        events = await event_id(house)
        async with house.open() as client:
            cursors: dict[str, str] = {}
            for listing in LISTINGS:
                page = said(await asked(client, listing))
                assert page["cursor"], listing
                cursors[listing] = page["cursor"]
            for listing in LISTINGS:
                for other, cursor in {**cursors, "events": events}.items():
                    answer = await asked(client, listing, cursor=cursor)
                    if other == listing:
                        assert answer.status_code == 200, (listing, answer.text)
                    else:
                        refused(answer)
                whole = cursors[listing]
                for wrong in (whole[:-1], whole[1:], whole + "A", whole[: len(whole) // 2], *GARBAGE):
                    refused(await asked(client, listing, cursor=wrong))
            for cursor in (*cursors.values(), events[:-2], *GARBAGE):
                if cursor and cursor.isascii() and cursor.isprintable():
                    problem = await client.get("/v1/events", headers={"last-event-id": cursor})
                    assert said(problem, 400)["errors"][0]["field"].replace("_", "-") == "last-event-id"

    house.run(story)


@on_every_store
def test_a_cursor_of_other_sight_or_another_namespace_is_none(house: House) -> None:
    async def story() -> None:
        await filled(house)
        keys = {
            "all": await house.key("read"),
            "mail": await house.key("read", queues=("mail",)),
            "l1": await house.key("read", lanes=("l1",)),
        }
        found: dict[tuple[str, str], str] = {}
        for name, key in keys.items():
            async with house.open(key) as client:
                for listing in ("jobs", "dead"):
                    found[name, listing] = said(await asked(client, listing))["cursor"]
        same = await house.key("read", queues=("mail",))
        async with house.open(same) as client:
            assert (await asked(client, "jobs", cursor=found["mail", "jobs"])).status_code == 200
            for name, listing in (("all", "jobs"), ("l1", "jobs"), ("all", "dead"), ("l1", "dead")):
                refused(await asked(client, listing, cursor=found[name, listing]))
        async with house.open(keys["l1"]) as client:
            refused(await asked(client, "lanes of mail", cursor=found["all", "jobs"]))
        other = House("memory://", namespace="other")
        async with other.open() as client:
            refused(await asked(client, "jobs", cursor=found["all", "jobs"]))
        await other.app.aclose()

    house.run(story)


def test_every_route_with_a_cursor_is_looked_at(memory_house: House) -> None:
    paths = {
        route.path
        for route in memory_house.server().routes
        for handler in getattr(route, "route_handlers", ())
        for parameter in handler.parsed_fn_signature.parameters.values()
        if isinstance(kwarg := parameter.kwarg_definition, ParameterKwarg)
        and (kwarg.name == "cursor" or (kwarg.param_type is ParamType.HEADER and "event" in str(kwarg.name)))
    }
    # Without a limit: tests/api/test_counted_dead.py and test_forget_routes.py look at their cursors.
    counted = {"/v1/dead/count", "/v1/forget/count"}
    assert paths == {path for path, _ in LISTINGS.values()} | {"/v1/events"} | counted


async def event_id(house: House) -> str:
    """The id that a stream of events begins with."""
    async with serving(house) as server, listening(server) as listener:
        return (await listener.told()).id
