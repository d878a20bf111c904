"""Every route, asked by keys that are bound to a queue or a lane for what belongs to others."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tests.api.house import House, on_every_store

from windlass.api.server import handlers

WORDS = ("hushlane", "hushtag", "hushflow", "hushkey", "hushvalue", "hushtick", "hushhook", "hushcause")
"""Only in what belongs to others."""
SCOPES = ("enqueue", "read", "operate", "work")
BOUND = {"a queue": {"queues": ("images",)}, "a lane": {"lanes": ("acme",)}}


@pytest.fixture(autouse=True)
def _with_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")


class Others:
    """What belongs to others, in a queue and a lane of their own."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.ids: dict[str, str] = {}

    async def make(self) -> None:
        job = {
            "task": "send",
            "payload": {"to": "hushvalue"},
            "lane": "hushlane",
            "tags": ["hushtag"],
            "flow": "hushflow",
        }
        self.ids["waiting"] = await self._post("/v1/jobs", {**job, "key": "hushkey", "delay": 3600})
        self.ids["ready"] = await self._post("/v1/jobs", job)
        claimed = await self.client.post("/v1/leases", json={"queues": ["mail"], "visibility": 600})
        lease = claimed.json()["leases"][0]
        self.ids["dead"] = lease["job"]
        ended = {"outcome": "reject", "error": {"type": "Hush", "message": "hushcause"}}
        assert (await self.client.post(f"/v1/leases/{lease['lease']}/settle", json=ended)).status_code == 200
        self.ids["held"] = await self._post("/v1/jobs", job)
        held = (await self.client.post("/v1/leases", json={"queues": ["mail"], "visibility": 600})).json()[
            "leases"
        ][0]
        self.ids["lease"] = held["lease"]
        tick = {
            "name": "hushtick",
            "task": "send",
            "arguments": {"to": "x"},
            "lane": "hushlane",
            "every": 86400,
        }
        assert (await self.client.post("/v1/schedules", json=tick)).status_code == 201
        hook = {"queue": "mail", "url": "https://example.com/hushhook"}
        assert (await self.client.put("/v1/webhooks/hushhook", json=hook)).status_code == 200
        lane = {"queue": "mail", "lane": "hushlane", "weight": 7}
        assert (await self.client.patch("/v1/lanes/override", json=lane)).status_code == 200

    async def _post(self, path: str, body: Mapping[str, Any]) -> str:
        answer = await self.client.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def look(self) -> list[Any]:
        """All that there is of it, but for what time changes."""
        listed = ("/v1/jobs?lane=hushlane", "/v1/dead", "/v1/schedules", "/v1/webhooks", "/v1/strikes")
        found = [_sorted((await self.client.get(path)).json()) for path in listed]
        found.append((await self.client.get("/v1/queues/mail")).json()["settings"])
        found.append(
            [
                lane["weight"]
                for lane in (await self.client.get("/v1/lanes?queue=mail")).json()["items"]
                if lane["lane"] == "hushlane"
            ]
        )
        return json.loads(re.sub(r'"(age|oldest|now)": [0-9.]+', r'"\1": 0', json.dumps(found)))


def _sorted(listed: Any) -> list[Any]:
    """Redis lists jobs in no order."""
    return sorted(listed if isinstance(listed, list) else listed["items"], key=str)


@on_every_store
@pytest.mark.parametrize("bound", BOUND)
def test_a_bound_key_neither_sees_nor_changes_what_is_outside(house: House, bound: str) -> None:
    async def story() -> None:
        server = house.server(rate=1_000_000)
        whole = await house.key(*SCOPES)
        scopes = SCOPES if bound == "a queue" else SCOPES[:3]  # workers claim from whole queues
        key = {"authorization": f"Bearer {await house.key(*scopes, **BOUND[bound])}"}
        async with house.open(whole, server=server) as client:
            others = Others(client)
            await others.make()
            before = await others.look()
            seen = 0
            for path, handler in handlers(server):
                if path.startswith(("/v1/session", "/v1/events", "/{", "/v1/leases/sessions")):
                    continue
                for method, url, body in _asked(path, sorted(handler.http_methods), others.ids):
                    answer = await client.request(method, url, json=body, headers=key)
                    said = f"{url} {json.dumps(body)}"
                    told = [word for word in (*WORDS, *others.ids.values()) if word in answer.text]
                    assert [word for word in told if word not in said] == [], (method, url, answer.text)
                    assert answer.status_code not in (401, 429, 500, 503), (method, url, answer.text)
                    seen += 1
            assert seen > 100
            flows = (await client.get("/v1/flows", headers=key)).json()
            assert flows["examined"] < 5, "nor does it learn how many jobs others have"
            assert await others.look() == before

    house.run(story)


@on_every_store
@pytest.mark.parametrize("bound", BOUND)
def test_flows_of_others_do_not_crowd_out_those_that_a_bound_key_sees(house: House, bound: str) -> None:
    async def story() -> None:
        await house.app.tasks["send"].using(queue="mail", flow="before").aenqueue("a")
        await house.add.using(queue="images", lane="acme", flow="own").aenqueue(1)
        await house.app.tasks["send"].using(queue="mail", flow="after").aenqueue("a")
        async with house.open(await house.key("read", **BOUND[bound])) as client:
            page = (await client.get("/v1/flows", params={"limit": 1})).json()
            assert [flow["id"] for flow in page["items"]] == ["own"]

    house.run(story)


@on_every_store
@pytest.mark.parametrize("door", ["/v1/jobs", "/v1/jobs/batch"])
@pytest.mark.parametrize("bound", BOUND)
def test_a_bound_key_cannot_add_to_a_flow_of_others_nor_learn_that_it_is_there(
    house: House, bound: str, door: str
) -> None:
    async def story() -> None:
        server = house.server()
        await house.app.tasks["send"].using(queue="mail", lane="hushlane", flow="theirs").aenqueue("a")
        key = await house.key("enqueue", "read", **BOUND[bound])
        async with house.open(key, server=server) as client:
            answers = []
            for flow in ("theirs", "nobodys"):
                job = {"task": "resize", "lane": "acme", "queue": "images", "flow": flow, "payload": {}}
                answer = await client.post(door, json={"jobs": [job]} if "batch" in door else job)
                made = answer.json()["jobs"][0] if "batch" in door else answer.json()
                shown = (await client.get(f"/v1/jobs/{made['id']}")).json()
                listed = (await client.get("/v1/jobs", params={"flow": flow})).json()["items"]
                graph = (await client.get(f"/v1/flows/{flow}")).json()
                assert [each["id"] for each in (*listed, *graph["jobs"])] == [made["id"]] * 2
                names = (shown["flow"], listed[0]["flow"], graph["flow"]["id"], graph["jobs"][0]["flow"])
                assert names == (flow,) * 4
                answers.append((answer.status_code, sorted(made), sorted(shown)))
            assert answers[0] == answers[1]
            flows = (await client.get("/v1/flows")).json()["items"]
            assert {flow["id"] for flow in flows} == {"theirs", "nobodys"}
        view = await house.app.flow("theirs").aview()
        assert view.total == 1

    house.run(story)


@on_every_store
def test_a_worker_with_a_bound_key_is_told_the_flow_by_its_own_name(house: House) -> None:
    async def story() -> None:
        async with house.open(await house.key("enqueue", "work", queues=("images",))) as client:
            job = {"task": "resize", "flow": "mine", "payload": {}}
            assert (await client.post("/v1/jobs", json=job)).status_code == 201
            work = (await client.post("/v1/leases", json={"queues": ["images"], "visibility": 60})).json()
            assert [lease["flow"] for lease in work["leases"]] == ["mine"]

    house.run(story)


@on_every_store
def test_a_bound_key_sees_its_part_of_a_flow_that_the_application_has_made(house: House) -> None:
    async def story() -> None:
        mine = await house.add.using(queue="images", lane="acme", flow="whole").aenqueue(1)
        await house.app.tasks["send"].using(queue="mail", flow="whole").aenqueue("a")
        async with house.open(await house.key("read", queues=("images",))) as client:
            graph = (await client.get("/v1/flows/whole")).json()
            assert [job["id"] for job in graph["jobs"]] == [mine.id]
            listed = (await client.get("/v1/jobs", params={"flow": "whole"})).json()["items"]
            assert [job["id"] for job in listed] == [mine.id]

    house.run(story)


def _asked(path: str, methods: list[str], ids: Mapping[str, str]) -> list[tuple[str, str, Any]]:
    """Requests for a route that mean what belongs to others."""
    values = {
        "job": [ids["waiting"], ids["dead"], ids["held"]],
        "lease": [ids["lease"]],
        "queue": ["mail"],
        "task": ["send", "add"],
        "flow": ["hushflow"],
        "name": ["hushtick", "hushhook"],
        "strike": ["x"],
        "worker": ["x"],
        "operation": ["x"],
    }
    names = re.findall(r"\{(\w+)(?::\w+)?\}", path)
    urls = []
    for chosen in itertools.product(*(values.get(name, ["x"]) for name in names)):
        url = path
        for name, value in zip(names, chosen, strict=True):
            url = re.sub(rf"\{{{name}(:\w+)?\}}", value, url)
        urls.append(url)
    queries = ["", "?queue=mail", "?lane=hushlane", "?flow=hushflow", "?task=send", "?queue=images"]
    return [
        (method, url + query, body)
        for method in methods
        if method != "OPTIONS"
        for url in urls
        for query in (queries if method == "GET" else [""])
        for body in (_bodies(path, ids) if method != "GET" else [None])
    ]


def _bodies(path: str, ids: Mapping[str, str]) -> list[Any]:
    job = {"task": "send", "payload": {"to": "x"}, "flow": "mine"}
    dead = [{"verb": verb, "queue": "mail", "all": True} for verb in ("replay", "discard")]
    tick = {"name": "hushtick", "task": "send", "arguments": {"to": "x"}, "every": 86400, "lane": "hushlane"}
    several = [{"ids": [ids["waiting"], ids["dead"], ids["held"]]}]
    lane = [{"queue": "mail", "lane": "hushlane"}, {"queue": "mail", "lane": "hushlane", "weight": 1}]
    known: dict[str, list[Any]] = {
        "/v1/jobs": [
            job,
            {**job, "lane": "hushlane"},
            {**job, "lane": "hushlane", "key": "hushkey", "mode": "replace"},
            {**job, "after": [ids["waiting"]]},
            {**job, "queue": "images", "lane": "hushlane"},
        ],
        "/v1/jobs/batch": [
            {"jobs": [job, {**job, "lane": "hushlane"}]},
            {"jobs": [{**job, "after": [ids["dead"]]}]},
        ],
        "/v1/jobs/cancel": several,
        "/v1/jobs/replay": several,
        "/v1/dead/replay": several,
        "/v1/dead/discard": [{**each, "reason": "a test"} for each in several],
        "/v1/dead/operations": [
            *dead,
            *({**each, "queue": "images", "lane": "hushlane"} for each in dead),
            *({"verb": each["verb"], "all": True} for each in dead),
        ],
        "/v1/leases": [{"queues": ["mail"]}, {"queues": ["images", "mail"]}],
        "/v1/leases/settle": [{"items": [{"lease": ids["lease"], "outcome": "ack"}]}],
        "/v1/leases/{lease:str}/settle": [{"outcome": "ack"}],
        "/v1/leases/{lease:str}/extend": [{"visibility": 60}],
        "/v1/schedules": [tick, {**tick, "queue": "mail"}, {**tick, "queue": "images"}],
        "/v1/lanes/pause": lane,
        "/v1/lanes/resume": lane,
        "/v1/lanes/reset": lane,
        "/v1/lanes/override": lane,
        "/v1/webhooks/{name:str}": [{"queue": "mail", "url": "https://example.com/mine"}],
        "/v1/queues/{queue:str}/override": [{"concurrency": 1}],
    }
    anything = [None, {}, {"priority": 9, "arguments": {"to": "y"}}, {"reason": "x"}, {"every": 5}]
    return known.get(path, anything)
