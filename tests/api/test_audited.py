"""Every route that changes something leaves a record of who did it; what does not has a reason."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from tests.api.house import House
from tests.api.test_operators_routes import said

from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.core.take import Source, Take

PRODUCERS = "what producers enqueue is the jobs themselves, which can be listed"
WORKERS = "what workers say is kept with their jobs, and in the log of events"
UNRECORDED = {
    ("POST", "/enqueue"): PRODUCERS,
    ("POST", "/v1/jobs"): PRODUCERS,
    ("POST", "/v1/jobs/batch"): PRODUCERS,
    ("POST", "/v1/leases"): WORKERS,
    ("POST", "/v1/leases/settle"): WORKERS,
    ("POST", "/v1/leases/{lease:str}/settle"): WORKERS,
    ("POST", "/v1/leases/{lease:str}/extend"): WORKERS,
    ("POST", "/v1/leases/{lease:str}/progress"): WORKERS,
    ("POST", "/v1/leases/sessions"): WORKERS,
    ("POST", "/v1/leases/sessions/{session:str}/beat"): WORKERS,
    ("DELETE", "/v1/leases/sessions/{session:str}"): WORKERS,
    ("POST", "/v1/schedules/preview"): "it changes nothing",
    ("POST", "/v1/session"): "it changes nothing: the cookie is the caller's own",
    ("DELETE", "/v1/session"): "it changes nothing: the cookie is the caller's own",
}
URL = "https://example.com/hooks"
NIGHTLY = {"name": "nightly", "task": "send", "arguments": {"to": "ops"}, "cron": "0 3 * * *"}


class Scene:
    """What a request may need to be there."""

    def __init__(self, house: House, client: httpx.AsyncClient) -> None:
        self.house = house
        self.client = client

    async def waiting(self) -> str:
        return (await self.house.add.using(delay=3600, flow="f").aenqueue(1)).id

    async def dead(self) -> str:
        broker = await self.house.app.broker()
        job = NewJob(id=self.house.app.new_id(), task="send", queue="mail", payload=b'{"v":1}', flow="f")
        await broker.enqueue([[job]])
        (lease,) = (await broker.claim(Ask(queues=("mail",), slots=1, limit=1, visibility=10**8))).leases
        await broker.settle([Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD)])
        return lease.job

    async def schedule(self) -> None:
        await self.house.app.broker()
        if (await self.client.get("/v1/schedules/nightly")).status_code == 404:
            said(await self.client.post("/v1/schedules", json=NIGHTLY), 201)

    async def declared(self) -> None:
        """A schedule of code that is overridden."""
        said(await self.client.patch("/v1/schedules/hourly", json={"every": 60}))

    async def hook(self) -> None:
        said(await self.client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL}))

    async def strike(self) -> str:
        made = said(await self.client.post("/v1/strikes", json={"task": "add", "where": {"a": 7}}), 201)
        return made["strike"]["id"]

    async def taken(self) -> None:
        """An offset of the intake `orders`, once."""
        broker = await self.house.app.broker()
        await broker.take(Take(source=Source("orders/3", "one"), expect=None, then="1042"))

    async def operation(self) -> str:
        for _ in range(3):
            await self.dead()
        wish = {"verb": "replay", "all": True, "rate": "1/h"}
        return said(await self.client.post("/v1/dead/operations", json=wish), 202)["id"]


Request = tuple[str, Any]
Act = Callable[[Scene], Awaitable[Request]]


def plain(path: str, body: Any = None) -> Act:
    async def act(_: Scene) -> Request:
        return path, body

    return act


def with_job(kind: str, path: str, body: Any = None) -> Act:
    async def act(scene: Scene) -> Request:
        job = await (scene.dead() if kind == "dead" else scene.waiting())
        if body == "ids with a reason":
            return path, {"ids": [job], "reason": "a test"}
        return path.format(job=job), {"ids": [job]} if body == "ids" else body

    return act


def after(step: str, path: str, body: Any = None) -> Act:
    async def act(scene: Scene) -> Request:
        made = await getattr(scene, step)()
        return path.format(made), body

    return act


LANE = {"queue": "mail", "lane": "acme"}
RECORDED: dict[tuple[str, str], Act] = {
    ("POST", "/v1/dead/replay"): with_job("dead", "/v1/dead/replay", "ids"),
    ("POST", "/v1/dead/discard"): with_job("dead", "/v1/dead/discard", "ids with a reason"),
    ("PATCH", "/v1/dead/{job:str}"): with_job("dead", "/v1/dead/{job}", {"priority": 3}),
    ("POST", "/v1/dead/operations"): plain("/v1/dead/operations", {"verb": "replay", "all": True}),
    ("DELETE", "/v1/dead/operations/{operation:str}"): after("operation", "/v1/dead/operations/{}"),
    ("POST", "/v1/flows/{flow:str}/cancel"): with_job("waiting", "/v1/flows/f/cancel"),
    ("POST", "/v1/flows/{flow:str}/replay"): with_job("dead", "/v1/flows/f/replay"),
    ("POST", "/v1/forget"): plain("/v1/forget", {"tag": "user:42"}),
    ("POST", "/v1/intakes/{name:str}/pause"): plain("/v1/intakes/orders/pause"),
    ("POST", "/v1/intakes/{name:str}/resume"): plain("/v1/intakes/orders/resume"),
    ("POST", "/v1/intakes/{name:str}/move"): after(
        "taken", "/v1/intakes/orders/move", {"partition": "3", "to": "7", "identity": "one"}
    ),
    ("POST", "/v1/intakes/{name:str}/forget"): plain("/v1/intakes/orders/forget"),
    ("POST", "/v1/jobs/cancel"): with_job("waiting", "/v1/jobs/cancel", "ids"),
    ("POST", "/v1/jobs/replay"): with_job("dead", "/v1/jobs/replay", "ids"),
    ("PATCH", "/v1/jobs/{job:str}"): with_job("waiting", "/v1/jobs/{job}", {"priority": 3}),
    ("POST", "/v1/jobs/{job:str}/cancel"): with_job("waiting", "/v1/jobs/{job}/cancel"),
    ("POST", "/v1/jobs/{job:str}/replay"): with_job("dead", "/v1/jobs/{job}/replay"),
    ("POST", "/v1/lanes/pause"): plain("/v1/lanes/pause", LANE),
    ("POST", "/v1/lanes/resume"): plain("/v1/lanes/resume", LANE),
    ("PATCH", "/v1/lanes/override"): plain("/v1/lanes/override", {**LANE, "weight": 3}),
    ("POST", "/v1/lanes/reset"): plain("/v1/lanes/reset", LANE),
    ("POST", "/v1/queues/{queue:str}/pause"): plain("/v1/queues/mail/pause"),
    ("POST", "/v1/queues/{queue:str}/resume"): plain("/v1/queues/mail/resume"),
    ("PATCH", "/v1/queues/{queue:str}/override"): plain("/v1/queues/mail/override", {"concurrency": 3}),
    ("DELETE", "/v1/queues/{queue:str}/override"): plain("/v1/queues/mail/override"),
    ("POST", "/v1/relays/{name:str}/pause"): plain("/v1/relays/ends/pause"),
    ("POST", "/v1/relays/{name:str}/resume"): plain("/v1/relays/ends/resume"),
    ("POST", "/v1/schedules"): plain("/v1/schedules", NIGHTLY),
    ("PATCH", "/v1/schedules/{name:str}"): after("schedule", "/v1/schedules/nightly", {"cron": "1 1 * * *"}),
    ("POST", "/v1/schedules/{name:str}/reset"): after("declared", "/v1/schedules/hourly/reset"),
    ("POST", "/v1/schedules/{name:str}/pause"): after("schedule", "/v1/schedules/nightly/pause"),
    ("POST", "/v1/schedules/{name:str}/resume"): after("schedule", "/v1/schedules/nightly/resume"),
    ("POST", "/v1/schedules/{name:str}/run"): after("schedule", "/v1/schedules/nightly/run"),
    ("DELETE", "/v1/schedules/{name:str}"): after("schedule", "/v1/schedules/nightly"),
    ("POST", "/v1/tasks/{task:str}/pause"): plain("/v1/tasks/add/pause", {}),
    ("POST", "/v1/tasks/{task:str}/resume"): plain("/v1/tasks/add/resume"),
    ("POST", "/v1/strikes"): plain("/v1/strikes", {"task": "add", "where": {"a": 5}}),
    ("DELETE", "/v1/strikes/{strike:str}"): after("strike", "/v1/strikes/{}"),
    ("PUT", "/v1/webhooks/{name:str}"): plain("/v1/webhooks/crm", {"queue": "mail", "url": URL}),
    ("DELETE", "/v1/webhooks/{name:str}"): after("hook", "/v1/webhooks/crm"),
    ("POST", "/v1/webhooks/secret"): plain("/v1/webhooks/secret", {"url": URL}),
    ("POST", "/v1/webhooks/rotate"): plain("/v1/webhooks/rotate"),
}


@pytest.fixture(autouse=True)
def _with_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")


def unsafe_routes(house: House) -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for route in house.server().routes
        for handler in getattr(route, "route_handlers", ())
        for method in handler.http_methods
        if method not in ("GET", "HEAD", "OPTIONS")
    }


def test_every_unsafe_route_is_recorded_or_says_why_not(memory_house: House) -> None:
    assert unsafe_routes(memory_house) == RECORDED.keys() | UNRECORDED.keys()
    assert not RECORDED.keys() & UNRECORDED.keys()
    assert all(UNRECORDED.values())


def test_what_each_changes_is_on_record_with_who_did_it(house: House) -> None:
    async def story() -> None:
        house.app.schedule("hourly", house.add.call(1), every=3600)
        house.app.intake("kafka://localhost:1/orders", task=house.send, name="orders")
        house.app.relay("amqp://localhost:1/ends", on="dead", name="ends")
        key = await house.key("operate")
        async with house.open(key) as client:
            scene = Scene(house, client)

            async def acts() -> list[dict[str, Any]]:
                return said(await client.get("/v1/audit", params={"limit": 1_000}))["items"]

            for (method, template), act in RECORDED.items():
                path, body = await act(scene)
                before = len(await acts())
                answer = await client.request(method, path, **({} if body is None else {"json": body}))
                assert answer.is_success, (method, template, answer.text)
                newest = await acts()
                assert len(newest) > before, (method, template)
                assert newest[0]["by"].startswith("key "), (method, template, newest[0])

    house.run(story)
