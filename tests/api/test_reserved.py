"""Tasks and queues of Windlass itself cannot be named from outside: who could would sign webhooks."""

from typing import Any

import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import said

from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.query import JobQuery
from windlass.core.settlement import Settlement
from windlass.core.webhook import QUEUE, TASK
from windlass.worker.delivering import delivery

URL = "https://example.com/hooks"
FORGED = {"url": URL, "event": {"type": "job.done", "forged": True}}


@pytest.fixture(autouse=True)
def _with_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")


def names_the_prefix(problem: dict[str, Any], field: str | None = None) -> None:
    assert '"windlass."' in problem["detail"], problem
    if field is not None:
        assert problem["errors"][0]["field"] == field, problem


async def pending(house: House) -> NewJob:
    """A delivery, as the server itself enqueues it."""
    job = delivery(house.app.new_id(), URL, {"type": "job.done"})
    receipts = await (await house.app.broker()).enqueue([[job]])
    assert str(receipts[0][0].status) == "created"
    return job


@on_every_store
def test_no_producer_names_a_task_or_a_queue_of_windlass(house: House) -> None:
    async def story() -> None:
        async with house.open(await house.key("enqueue", "operate")) as client:
            for task in (TASK, "windlass.", "windlass.anything"):
                plain = {"type": task, "payload": FORGED}
                names_the_prefix(said(await client.post("/enqueue", json=plain), 422), "type")
                asked = {"Idempotency-Key": task}  # the framework's way to the same route
                said(await client.post("/enqueue", json=plain, headers=asked), 422)
                wish = {"task": task, "payload": FORGED}
                names_the_prefix(said(await client.post("/v1/jobs", json=wish), 422), "task")
                many = {"jobs": [{"task": "send", "payload": {"to": "x"}}, wish]}
                names_the_prefix(said(await client.post("/v1/jobs/batch", json=many), 422), "jobs[1].task")
                wanted = {"name": "s", "task": task, "arguments": FORGED, "every": 60}
                names_the_prefix(said(await client.post("/v1/schedules", json=wanted), 422), "task")
            for queue in (QUEUE, "windlass.other"):
                wish = {"task": "send", "payload": {"to": "x"}, "queue": queue}
                names_the_prefix(said(await client.post("/v1/jobs", json=wish), 422), "queue")
                wanted = {
                    "name": "s",
                    "task": "send",
                    "arguments": {"to": "x"},
                    "every": 60,
                    "queue": queue,
                }
                names_the_prefix(said(await client.post("/v1/schedules", json=wanted), 422), "queue")
        broker = await house.app.broker()
        assert (await broker.list(JobQuery())).jobs == ()
        assert (await broker.schedules()).schedules == ()

    house.run(story)


@on_every_store
def test_no_worker_over_http_is_handed_the_jobs_of_windlass(house: House) -> None:
    async def story() -> None:
        job = await pending(house)
        async with house.open(await house.key("work")) as client:
            for queues in ([QUEUE], ["mail", QUEUE]):
                names_the_prefix(
                    said(await client.post("/v1/leases", json={"queues": queues}), 422), "queues"
                )
                wait = {"queues": queues, "wait": 1}
                names_the_prefix(said(await client.post("/v1/leases", json=wait), 422), "queues")
                opened = await client.post("/v1/leases/sessions", json={"queues": queues})
                names_the_prefix(said(opened, 422), "queues")
            session = said(await client.post("/v1/leases/sessions", json={}), 201)["session"]
            wish = {"queues": [QUEUE], "session": session, "seq": 1}
            names_the_prefix(said(await client.post("/v1/leases", json=wish), 422), "queues")
        (found,) = await (await house.app.broker()).get([job.id])
        assert found is not None
        assert (found.state, found.attempt) == ("ready", 0)

    house.run(story)


@on_every_store
def test_a_job_of_windlass_in_another_queue_is_left_to_workers_that_have_its_task(house: House) -> None:
    """Such as one that was enqueued before its name was reserved."""

    async def story() -> None:
        broker = await house.app.broker()
        job = NewJob(id=house.app.new_id(), task=TASK, queue="mail", payload=(await pending(house)).payload)
        await broker.enqueue([[job]])
        async with house.open(await house.key("work")) as client:
            assert said(await client.post("/v1/leases", json={"queues": ["mail"]}))["leases"] == []
        (found,) = await (await house.app.broker()).get([job.id])
        assert found is not None
        assert found.held is not None
        assert found.attempt == 0

    house.run(story)


@on_every_store
def test_what_windlass_says_is_not_edited_but_can_be_sent_back_and_cancelled(house: House) -> None:
    async def story() -> None:
        broker = await house.app.broker()
        waiting, dead = await pending(house), await pending(house)
        lease = (await broker.claim(Ask(queues=(QUEUE,), slots=1, limit=1, visibility=10**8))).leases[0]
        waiting, dead = (dead, waiting) if lease.job == waiting.id else (waiting, dead)
        await broker.settle([Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD)])
        async with house.open(await house.key("operate")) as client:
            for change in ({"arguments": FORGED}, {"priority": 5}, {"tags": ["x"]}, {"max_attempts": 1}):
                names_the_prefix(said(await client.patch(f"/v1/jobs/{waiting.id}", json=change), 422))
                names_the_prefix(said(await client.patch(f"/v1/jobs/{lease.job}", json=change), 422))
                both = {**change, "replay": True}
                names_the_prefix(said(await client.patch(f"/v1/dead/{lease.job}", json=both), 422))
            for job in (waiting, dead):
                (found,) = await broker.get([job.id])
                assert found is not None
                assert found.payload == job.payload
            assert said(await client.post(f"/v1/jobs/{lease.job}/replay"))["state"] == "ready"
            assert said(await client.post(f"/v1/jobs/{waiting.id}/cancel"))["state"] == "cancelled"

    house.run(story)


def test_operators_still_see_and_pause_the_queue_of_deliveries(house: House) -> None:
    async def story() -> None:
        await pending(house)
        async with house.open(await house.key("operate")) as client:
            assert said(await client.get("/v1/jobs", params={"queue": QUEUE}))["items"][0]["task"] == TASK
            assert said(await client.post(f"/v1/queues/{QUEUE}/pause"))["paused"] is True
            assert said(await client.post(f"/v1/queues/{QUEUE}/resume"))["paused"] is False
            tasks = [task["name"] for task in said(await client.get("/v1/tasks"))]
            assert tasks == ["add", "resize", "send"]  # each of them can be enqueued

    house.run(story)
