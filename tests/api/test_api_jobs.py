"""Producers: enqueueing, waiting, listing, cancelling and sending back, over HTTP."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from tests.api.house import House, on_every_store, until

from windlass.admin.audit import Audit
from windlass.core.job import JobDetail
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


async def kept(house: House, job: str) -> JobDetail:
    found = (await (await house.app.connection.broker()).get([job]))[0]
    assert found is not None
    return found


def fields(answer: httpx.Response) -> list[str]:
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["detail"]
    return [each["field"] for each in said.get("errors", ())]


@on_every_store
def test_the_plain_form_enqueues_a_task(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            answer = await client.post("/enqueue", json={"type": "add", "payload": {"a": 1}, "run_at": "now"})
            assert answer.status_code == 201
            assert set(answer.json()) == {"task_id"}
            job = await kept(house, answer.json()["task_id"])
            assert (job.task, job.queue, job.state) == ("add", "default", "ready")
            later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
            answer = await client.post("/enqueue", json={"type": "add", "payload": {"a": 1}, "run_at": later})
            assert (await kept(house, answer.json()["task_id"])).state == "scheduled"
            answer = await client.post("/enqueue", json={"type": "send", "payload": {"to": "x"}})
            assert answer.status_code == 201, "run_at may be left out"

    house.run(story)


@on_every_store
def test_a_job_has_the_states_of_the_plain_form_beside_its_own(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            broker = await house.app.connection.broker()

            async def enqueued() -> str:
                answer = await client.post("/enqueue", json={"type": "add", "payload": {"a": 1}})
                return answer.json()["task_id"]

            async def status(job: str) -> str:
                return (await client.get(f"/v1/jobs/{job}")).json()["status"]

            async def run(outcome: Outcome | None) -> None:
                ask = Ask(queues=("default",), slots=1, limit=1, visibility=10**7)
                [lease] = (await broker.claim(ask)).leases
                if outcome is not None:
                    await broker.settle([Settlement(job=lease.job, fence=lease.fence, outcome=outcome)])

            for outcome, seen in ((None, "RUNNING"), (Outcome.DONE, "DONE"), (Outcome.DEAD, "FAILED")):
                job = await enqueued()
                assert await status(job) == "PENDING"
                await run(outcome)
                assert await status(job) == seen
            job = await enqueued()
            await client.post(f"/v1/jobs/{job}/cancel")
            assert await status(job) == "CANCELLED"
            listed = (await client.get("/v1/jobs", params={"state": "cancelled"})).json()["items"]
            assert [(each["id"], each["status"]) for each in listed] == [(job, "CANCELLED")]

    house.run(story)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"type": "nope", "payload": {}}, 404, "type"),
        ({"type": "add", "payload": {"a": "one"}}, 422, "payload"),
        ({"type": "add", "payload": {"c": 1}}, 422, "payload"),
        ({"type": "add", "payload": [1]}, 422, "payload"),
        ({"type": "add", "payload": {"a": 2**70}}, 422, "payload"),
        ({"type": "add", "payload": {"a": 1}, "run_at": "tomorrow"}, 422, "run_at"),
        ({"type": "add", "payload": {"a": 1}, "run_at": "2030-01-31T08:00:00"}, 422, "run_at"),
        ({"type": 7, "payload": {"a": 1}}, 400, "type"),
        ({"payload": {"a": 1}}, 400, "type"),
        ({"type": "add", "payload": {"a": 1}, "colour": "red"}, 400, "colour"),
        ([], 400, "body"),
    ],
)
def test_what_is_wrong_with_the_plain_form_is_named(
    memory_house: House, body: Any, status: int, field: str
) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            answer = await client.post("/enqueue", json=body)
            assert answer.status_code == status, answer.text
            assert fields(answer) == [field]

    memory_house.run(story)


@on_every_store
def test_every_option_of_using_is_taken(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            parent = (await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}})).json()["id"]
            options = {
                "queue": "default",
                "lane": "acme",
                "priority": 7,
                "delay": "5m",
                "expires": 3600,
                "key": "order-42",
                "mode": "throttle",
                "window": "1h",
                "after": [parent],
                "on_failure": "run",
                "max_attempts": 2,
                "headers": {"trace": "abc"},
                "tags": ["blue"],
                "flow": "orders",
            }
            answer = await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x"}, **options})
            assert answer.status_code == 201, answer.text
            assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"
            job = await kept(house, answer.json()["id"])
            assert (job.queue, job.lane, job.priority, job.key) == ("default", "acme", 7, "order-42")
            assert (job.max_attempts, job.tags, job.flow) == (2, ("blue",), "orders")
            assert dict(job.headers)["trace"] == "abc"
            assert [(edge.parent, edge.on_failure) for edge in job.after] == [(parent, "run")]
            assert job.expires_at is not None

    house.run(story)


@pytest.mark.parametrize(
    ("option", "value", "status"),
    [
        ("priority", 101, 422),
        ("delay", "soon", 422),
        ("delay", -1, 400),
        ("lane", "x" * 300, 422),
        ("tags", [str(n) for n in range(20)], 422),
        ("headers", {"bad name\n": "x"}, 422),
        ("key", "", 422),
        ("max_attempts", 0, 422),
        ("mode", "sometimes", 400),
        ("after", ["x"], 422),
        ("after", [UNKNOWN], 422),
        ("on_failure", "run", 422),
        ("queue", "nowhere", 404),
        ("queue", "no such\nname", 422),
        ("run_at", "2030-01-31T08:00:00", 422),
        ("flow", "a b", 422),
    ],
)
def test_an_option_that_is_wrong_is_named(
    memory_house: House, option: str, value: object, status: int
) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            answer = await client.post(
                "/v1/jobs", json={"task": "send", "payload": {"to": "x"}, option: value}
            )
            assert answer.status_code == status, answer.text
            assert [name.partition("[")[0] for name in fields(answer)] == [option]

    memory_house.run(story)


@on_every_store
def test_a_unique_key_answers_200_with_the_job_that_stands(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            body = {"task": "send", "payload": {"to": "x"}, "key": "order-42"}
            first = await client.post("/v1/jobs", json=body)
            second = await client.post("/v1/jobs", json=body)
            assert (first.status_code, second.status_code) == (201, 200)
            assert second.json() == {**first.json(), "created": False}

    house.run(story)


@on_every_store
def test_a_batch_is_accepted_whole_or_not_at_all(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            good = {"task": "add", "payload": {"a": 1}}
            answer = await client.post("/v1/jobs/batch", json={"jobs": [good] * 3})
            assert answer.status_code == 201
            assert len({job["id"] for job in answer.json()["jobs"]}) == 3
            for bad, status, field in (
                ({"task": "add", "payload": {"a": "x"}}, 422, "jobs[1].payload"),
                ({"task": "nope"}, 404, "jobs[1].task"),
                ({**good, "queue": "nowhere"}, 404, "jobs[1].queue"),
                ({**good, "after": [UNKNOWN]}, 422, "jobs[1].after"),
                ({**good, "priority": 101}, 422, "jobs[1].priority"),
            ):
                answer = await client.post("/v1/jobs/batch", json={"jobs": [good, bad, good]})
                assert answer.status_code == status, answer.text
                assert fields(answer) == [field]
            listed = (await client.get("/v1/jobs")).json()["items"]
            assert len(listed) == 3, "nothing of the refused batches exists"
            many = await client.post("/v1/jobs/batch", json={"jobs": [good] * 1_001})
            assert many.status_code == 400
            assert fields(many) == ["jobs"]
            full = await client.post("/v1/jobs/batch", json={"jobs": [good] * 1_000})
            assert full.status_code == 201

    house.run(story)


# --- idempotency --------------------------------------------------------------------------------------------


@on_every_store
def test_an_idempotency_key_gives_the_same_answer(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            body = {"task": "add", "payload": {"a": 1}}
            own = {"idempotency-key": "k-1"}
            answers = await asyncio.gather(
                *(client.post("/v1/jobs", json=body, headers=own) for _ in range(5))
            )
            assert {answer.status_code for answer in answers} == {201}
            assert len({answer.text for answer in answers}) == 1
            assert len((await client.get("/v1/jobs")).json()["items"]) == 1
            other = await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 2}}, headers=own)
            assert other.status_code == 422
            assert fields(other) == ["Idempotency-Key"]
            batch = {"idempotency-key": "k-2"}
            first = await client.post("/v1/jobs/batch", json={"jobs": [body, body]}, headers=batch)
            again = await client.post("/v1/jobs/batch", json={"jobs": [body, body]}, headers=batch)
            assert first.json() == again.json()
            plain = {"idempotency-key": "k-3"}
            one = await client.post("/enqueue", json={"type": "add", "payload": {"a": 1}}, headers=plain)
            two = await client.post("/enqueue", json={"type": "add", "payload": {"a": 1}}, headers=plain)
            assert one.json() == two.json()

    house.run(story)


def test_an_idempotency_key_belongs_to_its_api_key(house: House) -> None:
    async def story() -> None:
        ids = set()
        for _ in range(2):
            async with house.open(await house.key("enqueue")) as client:
                answer = await client.post(
                    "/v1/jobs",
                    json={"task": "add", "payload": {"a": 1}},
                    headers={"idempotency-key": "shared"},
                )
                ids.add(answer.json()["id"])
        assert len(ids) == 2

    house.run(story)


def test_a_refused_request_frees_its_idempotency_key(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            own = {"idempotency-key": "k"}
            bad = {"task": "add", "payload": {"a": 1}, "queue": "nowhere"}
            assert (await client.post("/v1/jobs", json=bad, headers=own)).status_code == 404
            good = {"task": "add", "payload": {"a": 1}}
            assert (await client.post("/v1/jobs", json=good, headers=own)).status_code == 201

    house.run(story)


def test_an_idempotency_key_outlives_the_job(tmp_path: Any) -> None:
    """Also where nothing is kept of finished jobs, and the resend window is over."""
    house = House(f"sqlite:///{tmp_path / 'windlass.db'}")
    house.app.queue("default", retention=0, result_ttl=0)

    async def story() -> None:
        async with house.open() as client:
            own = {"idempotency-key": "k"}
            body = {"task": "add", "payload": {"a": 1}}
            first = (await client.post("/v1/jobs", json=body, headers=own)).json()["id"]
            async with house.app.worker():
                await until(lambda: _is_gone(client, first))
            again = (await client.post("/v1/jobs", json=body, headers=own)).json()["id"]
            assert again == first
            assert (await client.get("/v1/jobs")).json()["items"] == []

    house.run(story)
    house.close()


async def _is_gone(client: httpx.AsyncClient, job: str) -> bool:
    return (await client.get(f"/v1/jobs/{job}")).status_code == 404


# --- reading ------------------------------------------------------------------------------------------------


@on_every_store
def test_waiting_for_a_job_returns_when_it_ends(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            body = {"task": "add", "payload": {"a": 1, "b": 2}}
            job = (await client.post("/v1/jobs", json=body)).json()["id"]
            early = await client.get(f"/v1/jobs/{job}", params={"wait": 0.05})
            assert early.json()["state"] == "ready"
            waiting = asyncio.create_task(client.get(f"/v1/jobs/{job}", params={"wait": 30}))
            began = asyncio.get_running_loop().time()
            async with house.app.worker():
                answer = await waiting
            assert answer.json()["state"] == "done"
            assert answer.json()["result"] == 3
            assert asyncio.get_running_loop().time() - began < 25, "it did not wait for its time to be over"

    house.run(story)


def test_payloads_are_shown_without_secrets_unless_an_operator_asks(house: House) -> None:
    async def story() -> None:
        whole = await house.key("enqueue", "read", "operate")
        reader = await house.key("read")
        body = {"task": "send", "payload": {"to": "x", "password": "hunter2hunter2"}}
        async with house.open(whole) as client:
            job = (await client.post("/v1/jobs", json=body)).json()["id"]
        async with house.open(reader) as client:
            masked = await client.get(f"/v1/jobs/{job}")
            assert masked.json()["payload"]["kwargs"] == {"to": "x", "password": "[secret]"}
            assert "hunter2" not in masked.text
            refused = await client.get(f"/v1/jobs/{job}", params={"secrets": True})
            assert refused.status_code == 403
        async with house.open(whole) as client:
            assert "hunter2" not in (await client.get(f"/v1/jobs/{job}")).text
            shown = await client.get(f"/v1/jobs/{job}", params={"secrets": True})
            assert shown.json()["payload"]["kwargs"]["password"] == "hunter2hunter2"
            acts = [act async for act in Audit(await house.app.connection.broker()).acts()]
            assert [(act.what, act.by, act.chosen) for act in acts] == [
                ("secrets shown", f"key {whole.split('_')[1]}", {"job": job})
            ]

    house.run(story)


@on_every_store
def test_listings_are_filtered_and_paged(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            jobs = [
                {
                    "task": "send",
                    "payload": {"to": str(n)},
                    "lane": "even" if n % 2 == 0 else "odd",
                    "flow": "f",
                }
                for n in range(7)
            ]
            made = [
                job["id"] for job in (await client.post("/v1/jobs/batch", json={"jobs": jobs})).json()["jobs"]
            ]
            await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}, "delay": 60})
            seen: list[str] = []
            cursor = None
            for _ in range(20):
                asked = {"queue": "mail", "limit": 3} | ({} if cursor is None else {"cursor": cursor})
                page = (await client.get("/v1/jobs", params=asked)).json()
                seen += [job["id"] for job in page["items"]]
                cursor = page["cursor"]
                if cursor is None:
                    break
            assert sorted(seen) == sorted(made)

            async def count(**asked: Any) -> int:
                return len((await client.get("/v1/jobs", params=asked)).json()["items"])

            assert await count(lane="even") == 4
            assert await count(task="add") == 1
            assert await count(flow="f") == 7
            assert await count(state="scheduled") == 1
            assert await count(state=["scheduled", "ready"]) == 8
            assert await count(state="done") == 0
            for wrong, field in (("cursor", "abc"), ("limit", 0), ("limit", 1_001), ("state", "odd")):
                answer = await client.get("/v1/jobs", params={wrong: field})
                assert answer.status_code in (400, 422), wrong

    house.run(story)


@on_every_store
def test_a_waiting_job_is_cancelled_and_a_dead_one_is_sent_back(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            body = {"task": "send", "payload": {"to": "x"}}
            job = (await client.post("/v1/jobs", json=body)).json()["id"]
            assert (await client.post(f"/v1/jobs/{job}/cancel")).json()["state"] == "cancelled"
            assert (await client.post(f"/v1/jobs/{job}/cancel")).status_code == 409
            assert (await client.post(f"/v1/jobs/{job}/replay")).status_code == 409
            assert (await client.post(f"/v1/jobs/{UNKNOWN}/cancel")).status_code == 404
            dead = (await client.post("/v1/jobs", json=body)).json()["id"]
            broker = await house.app.connection.broker()
            lease = (await broker.claim(Ask(queues=("mail",), slots=1, limit=1, visibility=10**7))).leases[0]
            assert lease.job == dead
            await broker.settle([Settlement(job=dead, fence=lease.fence, outcome=Outcome.DEAD)])
            assert (await client.post(f"/v1/jobs/{dead}/replay")).json()["state"] == "ready"
            assert (await kept(house, dead)).state == "ready"
            lease = (await broker.claim(Ask(queues=("mail",), slots=1, limit=1, visibility=10**7))).leases[0]
            flagged = (await client.post(f"/v1/jobs/{dead}/cancel")).json()
            assert flagged["effect"] == "flagged"

    house.run(story)


def test_jobs_of_another_namespace_are_found(tmp_path: Any) -> None:
    house = House(f"sqlite:///{tmp_path / 'windlass.db'}")
    house.app.queue("hot", namespace="hot")

    @house.app.task(queue="hot")
    def burn(a: int) -> int:
        return a

    async def story() -> None:
        async with house.open() as client:
            job = (await client.post("/v1/jobs", json={"task": "burn", "payload": {"a": 1}})).json()["id"]
            assert (await client.get(f"/v1/jobs/{job}")).json()["queue"] == "hot"
            mixed = [{"task": "burn", "payload": {"a": 1}}, {"task": "add", "payload": {"a": 1}}]
            refused = await client.post("/v1/jobs/batch", json={"jobs": mixed})
            assert refused.status_code == 422
            assert "several namespaces" in refused.json()["detail"]
            assert (await client.post(f"/v1/jobs/{job}/cancel")).json()["state"] == "cancelled"

    house.run(story)
    house.close()
