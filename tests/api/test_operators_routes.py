"""What operators see and do over HTTP: queues, lanes, tasks, strikes, workers, scale, overview, flows."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.api.house import House, on_every_store

from windlass import chain
from windlass.admin.service import Service
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement


class Fleet:
    """A worker's part, by hand."""

    def __init__(self, house: House, *queues: str) -> None:
        self._house = house
        self._queues = queues or ("default", "mail")
        self._seq = 0
        self._session = uuid.uuid4().hex

    async def take(self, count: int = 1) -> tuple[Lease, ...]:
        broker = await self._house.app.broker()
        info = SessionInfo(host="here", pid=7, queues=self._queues, slots=4, version="1")
        await broker.beat([Beat(session=self._session, open=info, memory=1_000)])
        self._seq += 1
        ask = Ask(session=self._session, seq=self._seq, queues=self._queues, slots=count, limit=count)
        return (await broker.claim(ask)).leases

    async def die(self, count: int = 1, kind: str = "ValueError") -> None:
        leases = await self.take(count)
        assert len(leases) == count
        error = Error(type=kind, message="no good", fingerprint=kind)
        await (await self._house.app.broker()).settle(
            [Settlement(job=each.job, fence=each.fence, outcome=Outcome.DEAD, error=error) for each in leases]
        )


async def until(look: Callable[[], Awaitable[Any]], is_it: Callable[[Any], bool]) -> Any:
    """Look until it is so; what was seen then."""
    for _ in range(1_000):
        if is_it(seen := await look()):
            return seen
        await asyncio.sleep(0.02)
    raise AssertionError(f"it never came to be; the last that was seen: {seen}")


def said(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


@on_every_store
def test_a_queue_is_shown_paused_overridden_and_reset(house: House) -> None:
    async def story() -> None:
        await house.send.aenqueue("a")
        async with house.open() as client:
            queues = {queue["name"]: queue for queue in said(await client.get("/v1/queues"))}
            assert queues["mail"]["jobs"]["ready"] == 1
            assert queues["mail"]["oldest"] >= 0
            assert queues["default"]["jobs"]["ready"] == 0
            assert said(await client.post("/v1/queues/mail/pause"))["paused"] is True
            assert said(await client.post("/v1/queues/mail/resume"))["paused"] is False
            change = {"concurrency": 2, "rate": "5/s", "emit": "final", "retention": 60, "bands": {"1": 2}}
            changed = said(await client.patch("/v1/queues/mail/override", json=change))
            assert changed["override"] == change | {"retention": 60.0}
            again = said(await client.patch("/v1/queues/mail/override", json={"concurrency": None}))
            assert again["override"] == changed["override"] | {"concurrency": None}
            assert again["settings"]["rate"] == "5/s"
            assert said(await client.delete("/v1/queues/mail/override"))["override"] == {}
            acts = said(await client.get("/v1/audit"))["items"]
            assert [act["what"] for act in reversed(acts)] == [
                "queue paused", "queue resumed", "queue overridden", "queue overridden", "queue reset",
            ]  # fmt: skip
            assert {act["by"] for act in acts} == {"local"}

    house.run(story)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"concurrency": 0}, "concurrency", "at least 1|from 1"),
        ({"rate": "many"}, "rate", "not understood"),
        ({"retention": -1}, "retention", "negative"),
        ({}, None, "say what to override"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name_and_nothing_is_changed(
    house: House, change: dict[str, Any], field: str | None, says: str
) -> None:
    async def story() -> None:
        async with house.open() as client:
            answer = await client.patch("/v1/queues/mail/override", json=change)
            problem = said(answer, 422)
            assert any(word in problem["detail"] for word in says.split("|")), problem
            if field is not None:
                assert problem["errors"][0]["field"] == field
            assert said(await client.get("/v1/queues/mail"))["override"] == {}

    house.run(story)


def test_lanes_are_listed_by_page_paused_and_overridden(house: House) -> None:
    async def story() -> None:
        for lane in ("acme", "b/c d", "zeta"):
            await house.send.using(lane=lane).aenqueue("x")
        async with house.open() as client:
            first = said(await client.get("/v1/lanes", params={"queue": "mail", "limit": 2}))
            names = [lane["lane"] for lane in first["items"]]
            rest = said(await client.get("/v1/lanes", params={"queue": "mail", "cursor": first["cursor"]}))
            assert names + [lane["lane"] for lane in rest["items"]] == ["acme", "b/c d", "zeta"]
            assert first["items"][0]["share"] == pytest.approx(1 / 3)
            place = {"queue": "mail", "lane": "b/c d"}
            assert said(await client.post("/v1/lanes/pause", json=place))["shown"]["parked"] == "paused"
            assert said(await client.post("/v1/lanes/resume", json=place))["shown"]["parked"] is None
            change = {**place, "weight": 3, "concurrency": 2, "rate": "1/s"}
            shown = said(await client.patch("/v1/lanes/override", json=change))["shown"]
            assert shown["override"] == {"weight": 3, "concurrency": 2, "rate": "1/s"}
            assert (shown["weight"], shown["concurrency"]) == (3, 2)
            assert said(await client.post("/v1/lanes/reset", json=place))["shown"]["override"] == {}
            said(await client.get("/v1/lanes", params={"queue": "nope"}), 404)

    house.run(story)


def test_a_lane_at_its_rate_says_until_when(house: House) -> None:
    async def story() -> None:
        house.app.queue("mail", lane_rate="1/h")
        for _ in range(2):
            await house.send.using(lane="acme").aenqueue("x")
        await Fleet(house, "mail").take(2)
        async with house.open() as client:
            (lane,) = said(await client.get("/v1/lanes", params={"queue": "mail"}))["items"]
            assert (lane["parked"], lane["tokens"], lane["ready"], lane["running"]) == ("rate", 0, 1, 1)
            left = datetime.fromisoformat(lane["parked_until"]) - datetime.now(UTC)
            assert timedelta(minutes=59) < left <= timedelta(hours=1)

    house.run(story)


def test_a_key_bound_to_a_lane_sees_that_lane_and_no_counts_of_queues(house: House) -> None:
    async def story() -> None:
        for lane in ("acme", "zeta"):
            await house.send.using(lane=lane).aenqueue("x")
        key = await house.key("read", "operate", lanes=("acme",))
        async with house.open(key) as client:
            lanes = said(await client.get("/v1/lanes", params={"queue": "mail"}))["items"]
            assert [lane["lane"] for lane in lanes] == ["acme"]
            said(await client.post("/v1/lanes/pause", json={"queue": "mail", "lane": "zeta"}), 404)
            for path in ("/v1/queues", "/v1/overview", "/v1/scale", "/v1/queues/mail", "/v1/alerts"):
                said(await client.get(path), 403)

    house.run(story)


def test_a_key_bound_to_a_queue_sees_that_queue_alone(house: House) -> None:
    async def story() -> None:
        await house.send.aenqueue("x")
        await house.add.aenqueue(1)
        await Fleet(house).take(2)
        key = await house.key("read", "operate", queues=("mail",))
        async with house.open(key) as client:
            assert [queue["name"] for queue in said(await client.get("/v1/queues"))] == ["mail"]
            said(await client.get("/v1/queues/default"), 404)
            said(await client.post("/v1/queues/default/pause"), 404)
            assert [task["name"] for task in said(await client.get("/v1/tasks"))] == ["send"]
            said(await client.get("/v1/tasks/add"), 404)
            overview = said(await client.get("/v1/overview"))
            assert [queue["name"] for queue in overview["queues"]] == ["mail"]
            assert overview["jobs"]["running"] == 1
            (worker,) = said(await client.get("/v1/workers"))
            assert [job["task"] for job in worker["running"]] == ["send"]
            assert worker["queues"] == ["mail"], "what else it serves is out of sight"
            scale = said(await client.get("/v1/scale"))
            assert [queue["queue"] for queue in scale["queues"]] == ["mail"]
            said(await client.get("/v1/scale", params={"queue": "default"}), 404)

    house.run(story)


def test_tasks_come_with_the_schema_of_their_arguments_and_without_secrets(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            tasks = {task["name"]: task for task in said(await client.get("/v1/tasks"))}
            assert set(tasks) == {"add", "send", "resize"}
            add = tasks["add"]
            assert add["arguments"]["properties"]["a"] == {"type": "integer"}
            assert add["arguments"]["required"] == ["a"]
            assert (add["doc"], add["queue"], add["external"]) == ("Add two numbers.", "default", False)
            assert tasks["send"]["arguments"]["properties"]["password"]["writeOnly"] is True
            assert tasks["resize"]["external"] is True
            said(await client.get("/v1/tasks/nope"), 404)

    house.run(story)


def test_a_task_is_paused_and_some_of_its_jobs_are_struck(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            paused = said(await client.post("/v1/tasks/send/pause", json={"reason": "mail is down"}))
            assert paused["changed"] is True
            assert paused["strike"]["by"] == "local"
            assert said(await client.get("/v1/tasks/send"))["paused"] is True
            assert said(await client.post("/v1/tasks/send/resume"))["changed"] is True
            assert (await client.post("/v1/tasks/send/resume")).content in (b"null", b"")
            wish = {"task": "send", "where": {"to": "x"}, "reason": "spam"}
            strike = said(await client.post("/v1/strikes", json=wish), 201)["strike"]
            assert [each["id"] for each in said(await client.get("/v1/strikes"))] == [strike["id"]]
            said(await client.delete(f"/v1/strikes/{strike['id']}"))
            said(await client.delete(f"/v1/strikes/{strike['id']}"), 404)
            said(await client.post("/v1/strikes", json={"task": "send", "where": {"password": 1}}), 422)
            said(await client.post("/v1/tasks/nope/pause"), 404)

    house.run(story)


def test_workers_are_shown_with_what_they_run(house: House) -> None:
    async def story() -> None:
        job = await house.add.aenqueue(1)
        await Fleet(house).take()
        async with house.open() as client:
            (worker,) = said(await client.get("/v1/workers"))
            assert (worker["host"], worker["pid"], worker["version"]) == ("here", 7, "1")
            assert (worker["slots"], worker["memory"]) == (4, 1_000)
            (running,) = worker["running"]
            assert (running["job"], running["task"], running["attempt"]) == (job.id, "add", 1)
            assert said(await client.get(f"/v1/workers/{worker['id']}"))["id"] == worker["id"]
            said(await client.get("/v1/workers/nope"), 404)

    house.run(story)


def test_scale_says_how_many_workers_the_load_could_keep_busy(house: House) -> None:
    async def story() -> None:
        house.app.queue("tight", concurrency=3)
        await house.app.aenqueue_many(house.add.call(number) for number in range(9))
        await house.app.aenqueue_many(house.add.using(queue="tight").call(number) for number in range(9))
        await Fleet(house).take()
        async with house.open() as client:
            scale = said(await client.get("/v1/scale", params={"slots": 4}))
            assert (scale["queued"], scale["running"], scale["workers"], scale["slots"]) == (17, 1, 1, 4)
            assert scale["wanted"] == 3  # nine in default and three in tight: twelve slots
            assert said(await client.get("/v1/scale", params={"slots": 4, "most": 2}))["wanted"] == 2
            only = said(await client.get("/v1/scale", params={"slots": 1, "queue": "tight"}))
            assert (only["queued"], only["wanted"]) == (9, 3)
            said(await client.post("/v1/queues/tight/pause"))
            assert said(await client.get("/v1/scale", params={"slots": 1, "queue": "tight"}))["wanted"] == 0
            said(await client.get("/v1/scale", params={"least": 5, "most": 2}), 422)

    house.run(story)


def told(overview: dict[str, Any]) -> list[str]:
    """The problems, but for what a store says of itself: the servers of tests keep nothing on a disk."""
    return [problem["text"] for problem in overview["problems"] if problem["kind"] != "store"]


def test_the_overview_says_what_is_wrong_in_words(house: House) -> None:
    async def story() -> None:
        house.app.alert("many", dead=0)
        async with house.open() as client:
            assert told(said(await client.get("/v1/overview"))) == [
                "no worker is alive: what is enqueued waits"
            ]
            await house.send.aenqueue("a")
            await house.add.aenqueue(1)
            fleet = Fleet(house, "default")
            await fleet.die()
            overview = said(await client.get("/v1/overview"))
            assert told(overview) == [
                "mail: 1 job ready, and no live worker serves it",
                "default: 1 dead letter",
            ]
            assert overview["workers"] == {"alive": 1, "slots": 4, "busy": 0, "crashed": 0}
            assert [alert["name"] for alert in overview["alerts"]] == ["many"]
            assert overview["jobs"]["dead"] == 1

    house.run(story)


def test_old_jobs_are_explained_by_the_lanes_that_hold_them_up(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        house.app.queue("mail", lane_concurrency=1)
        for _ in range(3):
            await house.send.using(lane="acme").aenqueue("a")
        await Fleet(house).take()
        monkeypatch.setattr("windlass.admin.overview.OLD", 0.0)
        overview = await (await Service.of(house.app)).overview()
        (problem,) = (each for each in overview.problems if each.kind != "store")
        assert problem.text.startswith("mail: oldest job 0.")
        assert problem.text.endswith(" s, lane acme at its limit of 1")

    house.run(story)


def test_a_flow_is_drawn_cancelled_and_its_failed_part_replayed(house: House) -> None:
    async def story() -> None:
        flow = await chain(house.add.call(1), house.add.call(2)).aenqueue()
        async with house.open() as client:
            assert [each["id"] for each in said(await client.get("/v1/flows"))["items"]] == [flow.id]
            await Fleet(house).die()
            graph = said(await client.get(f"/v1/flows/{flow.id}"))
            assert graph["flow"]["state"] == "stuck"
            states = {job["id"]: job["state"] for job in graph["jobs"]}
            ((parent, child),) = [(edge["parent"], edge["child"]) for edge in graph["edges"]]
            assert (states[parent], states[child]) == ("dead", "blocked")
            assert said(await client.post(f"/v1/flows/{flow.id}/replay")) == {"flow": flow.id, "jobs": 1}
            assert said(await client.post(f"/v1/flows/{flow.id}/cancel"))["jobs"] == 2
            said(await client.get("/v1/flows/nope"), 404)
            said(await client.post("/v1/flows/nope/cancel"), 404)

    house.run(story)


def test_a_waiting_job_is_explained(house: House) -> None:
    async def story() -> None:
        job = await house.add.aenqueue(1)
        async with house.open() as client:
            advice = said(await client.get(f"/v1/jobs/{job.id}/explain"))
            assert (advice["why"], advice["state"]) == ("no_worker", "ready")
            assert "start a worker" in advice["do"]
            said(await client.get("/v1/jobs/nope/explain"), 404)
        async with house.open(await house.key("read", queues=("mail",))) as client:
            said(await client.get(f"/v1/jobs/{job.id}/explain"), 404)

    house.run(story)


def test_an_explanation_names_no_queue_that_is_out_of_sight(house: House) -> None:
    async def story() -> None:
        job = await house.send.aenqueue("x")
        await Fleet(house, "default").take()
        path = f"/v1/jobs/{job.id}/explain"
        async with house.open(await house.key("read")) as client:
            assert "live workers serve: default" in said(await client.get(path))["text"]
        async with house.open(await house.key("read", queues=("mail",))) as client:
            text = said(await client.get(path))["text"]
            assert text == 'no live worker serves queue "mail"'

    house.run(story)
