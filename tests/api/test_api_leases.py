"""Workers in any language: leases over HTTP, on each store that runs in the process."""

import asyncio
from typing import Any

import httpx
import pytest
from litestar import Litestar
from tests.api.house import House, on_every_store, until

from windlass.admin.strikes import Strikes
from windlass.api.context import SERVER_STATE
from windlass.api.seals import Login, Seals
from windlass.api.server_state import ServerState
from windlass.core.ids import new_job_id


async def enqueued(client: httpx.AsyncClient, count: int = 1, **options: Any) -> list[str]:
    jobs = [{"task": "resize", "payload": {"path": f"{n}.png"}, **options} for n in range(count)]
    answer = await client.post("/v1/jobs/batch", json={"jobs": jobs})
    return [job["id"] for job in answer.json()["jobs"]]


async def claimed(client: httpx.AsyncClient, **asked: Any) -> list[dict[str, Any]]:
    answer = await client.post("/v1/leases", json={"queues": ["images"], **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()["leases"]


async def say(client: httpx.AsyncClient, lease: dict[str, Any], verb: str, **said: Any) -> httpx.Response:
    return await client.post(f"/v1/leases/{lease['lease']}/{verb}", json=said)


async def shown(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    return (await client.get(f"/v1/jobs/{job}")).json()


@on_every_store
def test_a_job_is_claimed_and_acknowledged(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            (job,) = await enqueued(client, lane="acme", headers={"trace": "abc"}, tags=["blue"])
            (lease,) = await claimed(client)
            assert lease["job"] == job
            assert lease["payload"] == {"args": [], "kwargs": {"path": "0.png"}}
            assert (lease["task"], lease["lane"], lease["attempt"]) == ("resize", "acme", 1)
            assert lease["headers"] == {"trace": "abc"}
            assert 0 < lease["visibility"] <= 30
            assert await claimed(client) == []
            answer = await say(client, lease, "settle", outcome="ack", result={"width": 640}, runtime=0.5)
            assert answer.json() == {"verdict": "applied", "outcome": "done", "state": "done"}
            again = await say(client, lease, "settle", outcome="ack", result={"width": 641})
            assert again.json()["verdict"] == "already"
            end = await shown(client, job)
            assert end["result"] == {"width": 640}
            assert end["deliveries"][0]["runtime"] == 0.5

    house.run(story)


@on_every_store
def test_a_claim_waits_for_a_job(house: House) -> None:
    async def story() -> None:
        server = house.server()
        async with house.open(server=server) as client:
            waiting = asyncio.create_task(claimed(client, wait=30))
            await until(lambda: somebody_waits(server))
            (job,) = await enqueued(client)
            assert [lease["job"] for lease in await waiting] == [job]
            assert await claimed(client, wait=0.05) == []

    house.run(story)


async def somebody_waits(server: Litestar) -> bool:
    state: ServerState = server.state[SERVER_STATE]
    return state.long_polls.total() > 0


def test_a_claim_takes_a_batch_in_the_order_of_its_queues(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            images = await enqueued(client, 3)
            mail = (await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x"}})).json()["id"]
            leases = await claimed(client, queues=["mail", "images"], limit=10)
            assert [lease["job"] for lease in leases] == [mail, *images]

    house.run(story)


@on_every_store
def test_a_nack_is_tried_again_as_the_policy_says_or_the_worker(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            job = (await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x"}})).json()["id"]
            (lease,) = await claimed(client, queues=["mail"])
            answer = await say(
                client,
                lease,
                "settle",
                outcome="nack",
                error={"type": "Timeout", "message": "slow"},
                delay=3600,
            )
            assert answer.json() == {"verdict": "applied", "outcome": "retry", "state": "scheduled"}
            assert (await shown(client, job))["error"]["message"] == "slow"
            (other,) = await enqueued(client)
            (lease,) = await claimed(client)
            await say(client, lease, "settle", outcome="nack")
            waiting = await shown(client, other)
            assert waiting["state"] == "scheduled", "thirty seconds is what the default policy begins with"
            assert waiting["attempt"] == 1

    house.run(story)


def test_the_last_nack_is_a_dead_letter_and_so_is_a_rejection(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            (job,) = await enqueued(client, max_attempts=1)
            (lease,) = await claimed(client)
            assert (await say(client, lease, "settle", outcome="nack")).json()["state"] == "dead"
            assert (await shown(client, job))["reason"] == "attempts exhausted"
            (job,) = await enqueued(client)
            (lease,) = await claimed(client)
            answer = await say(client, lease, "settle", outcome="reject", error={"message": "no such file"})
            assert answer.json()["state"] == "dead"
            assert (await shown(client, job))["error"]["retryable"] is False

    house.run(story)


@on_every_store
def test_release_snooze_and_hold_spend_no_attempt(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            (job,) = await enqueued(client)
            for said, state in (
                ({"outcome": "release"}, "ready"),
                ({"outcome": "snooze", "delay": 0}, "ready"),
                ({"outcome": "hold", "reason": "no such format"}, "scheduled"),
            ):
                (lease,) = await claimed(client)
                assert lease["attempt"] == 1
                assert (await say(client, lease, "settle", **said)).json()["state"] == state
            held = await shown(client, job)
            assert held["attempt"] == 0
            assert held["held"]["reason"] == "no such format"

    house.run(story)


@on_every_store
def test_a_lease_that_ran_out_is_stale(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            await enqueued(client)
            (first,) = await claimed(client, visibility=1)
            (second,) = await claimed(client, wait=20)
            assert second["job"] == first["job"]
            assert second["attempt"] == 2
            assert second["lease"] != first["lease"]
            for verb, said in (
                ("settle", {"outcome": "ack"}),
                ("extend", {}),
                ("progress", {"fraction": 0.5}),
            ):
                answer = await say(client, first, verb, **said)
                assert answer.status_code == 409
                assert answer.json()["type"] == "urn:windlass:lease-lost"
            assert (await say(client, second, "settle", outcome="ack")).json()["verdict"] == "applied"

    house.run(story)


def test_an_extended_lease_stands(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            (job,) = await enqueued(client)
            (lease,) = await claimed(client, visibility=1)
            assert (await say(client, lease, "extend", visibility="1m")).json()["visibility"] == 60
            assert await claimed(client, wait=2) == [], "its first deadline has passed"
            answer = await say(client, lease, "progress", fraction=0.4, message="almost", logs=["one", "two"])
            assert answer.json() == {"visibility": None, "cancel": False}
            running = await shown(client, job)
            assert running["progress"] == {"fraction": 0.4, "message": "almost"}
            assert running["logs"] == ["one", "two"]
            await client.post(f"/v1/jobs/{job}/cancel")
            assert (await say(client, lease, "extend")).json()["cancel"] is True
            assert (await say(client, lease, "settle", outcome="nack")).json()["state"] == "cancelled"
            late = await say(client, lease, "extend")
            assert late.status_code == 409, "what was settled has no time left to extend"

    house.run(story)


@on_every_store
def test_many_leases_are_settled_at_once_each_for_itself(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            await enqueued(client, 3)
            leases = await claimed(client, limit=3)
            await say(client, leases[0], "settle", outcome="ack")
            items = [{"lease": lease["lease"], "outcome": "ack"} for lease in leases]
            items[2] = {"lease": leases[2]["lease"], "outcome": "reject"}
            answer = await client.post("/v1/leases/settle", json={"items": items})
            assert [each["verdict"] for each in answer.json()["items"]] == ["already", "applied", "applied"]
            assert [each["state"] for each in answer.json()["items"]] == ["done", "done", "dead"]
            items[1] = {"lease": "nonsense", "outcome": "ack"}
            refused = await client.post("/v1/leases/settle", json={"items": items})
            assert refused.status_code == 404
            assert refused.json()["errors"][0]["field"] == "items[1].lease"

    house.run(story)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"outcome": "nack", "result": 1}, "result"),
        ({"outcome": "ack", "error": {}}, "error"),
        ({"outcome": "ack", "delay": 1}, "delay"),
        ({"outcome": "snooze"}, "delay"),
        ({"outcome": "nack", "delay": "soon"}, "delay"),
        ({"outcome": "maybe"}, "outcome"),
        ({}, "outcome"),
    ],
)
def test_a_settlement_without_meaning_is_refused_and_the_lease_stands(
    memory_house: House, said: dict[str, Any], field: str
) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            await enqueued(client)
            (lease,) = await claimed(client)
            answer = await say(client, lease, "settle", **said)
            assert answer.status_code in (400, 422)
            assert answer.json()["errors"][0]["field"] == field
            assert (await say(client, lease, "settle", outcome="ack")).json()["verdict"] == "applied"

    memory_house.run(story)


# --- tokens -------------------------------------------------------------------------------------------------


def test_a_lease_token_cannot_be_guessed_changed_or_carried_elsewhere(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            await enqueued(client, 2)
            one, two = await claimed(client, limit=2)
            token = one["lease"]
            mixed = token[:-22] + two["lease"][-22:]
            for wrong in (token[:-1], "A" * len(token), token[:-4] + "AAAA", mixed, one["job"], "x"):
                answer = await client.post(f"/v1/leases/{wrong}/settle", json={"outcome": "ack"})
                assert answer.status_code == 404, wrong
            assert (await say(client, one, "settle", outcome="ack")).status_code == 200

    house.run(story)


def test_tokens_are_of_one_namespace_one_purpose_and_one_secret() -> None:
    job = new_job_id(1, 2)
    here, there = Seals(b"secret", "here"), Seals(b"secret", "there")
    token = here.lease(job, 7)
    assert here.open_lease(token) == (job, 7)
    assert there.open_lease(token) is None
    assert Seals(b"other", "here").open_lease(token) is None
    assert here.open_session(token) is None
    assert here.open_login(token) is None
    assert here.open_lease(here.session("abc")) is None
    assert here.open_cursor(here.login(Login(id="00" * 16, until=9, holder="key")), "jobs") is None
    assert here.lease(job, 8) != token


def test_a_lease_of_another_queue_is_out_of_sight(house: House) -> None:
    async def story() -> None:
        whole = await house.key("enqueue", "work", "read")
        bound = await house.key("work", queues=("mail",))
        async with house.open(whole) as client:
            await enqueued(client)
            (lease,) = await claimed(client)
        async with house.open(bound) as client:
            hidden = await client.post("/v1/leases", json={"queues": ["images"]})
            absent = await client.post("/v1/leases", json={"queues": ["nowhere"]})
            assert hidden.status_code == absent.status_code == 404
            for verb, said in (("settle", {"outcome": "ack"}), ("extend", {}), ("progress", {})):
                assert (await say(client, lease, verb, **said)).status_code == 404
            many = {"items": [{"lease": lease["lease"], "outcome": "ack"}]}
            assert (await client.post("/v1/leases/settle", json=many)).status_code == 404
            assert await claimed(client, queues=["mail"]) == []

    house.run(story)


# --- what is kept -------------------------------------------------------------------------------------------


def test_secrets_are_taken_out_of_errors_progress_and_logs(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            secret = "hunter2hunter2"
            (job,) = await enqueued(client, payload={"path": "x", "password": secret})
            (lease,) = await claimed(client)
            assert lease["payload"]["kwargs"]["password"] == secret, "the worker needs it"
            await say(client, lease, "progress", message=f"trying {secret}", logs=[f"with {secret}"])
            error = {"type": secret, "message": f"no {secret}", "traceback": f"line 1: {secret}"}
            await say(client, lease, "settle", outcome="nack", error=error)
            text = (await client.get(f"/v1/jobs/{job}")).text
            assert secret not in text
            assert "no [secret]" in text

    house.run(story)


def test_struck_jobs_are_held_and_not_handed_out(house: House) -> None:
    async def story() -> None:
        await Strikes(house.app, await house.app.connection.broker()).pause("resize", reason="disk full")
        async with house.open() as client:
            (job,) = await enqueued(client)
            assert await claimed(client) == []
            held = await shown(client, job)
            assert held["held"]["reason"]
            assert held["attempt"] == 0

    house.run(story)


def test_python_workers_do_not_claim_external_tasks(house: House) -> None:
    async def story() -> None:
        assert "images" not in house.app.queues
        async with house.open() as client, house.app.worker():
            (job,) = await enqueued(client)
            other = (await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}})).json()["id"]
            done = (await client.get(f"/v1/jobs/{other}", params={"wait": 30})).json()
            assert done["state"] == "done"
            assert (await shown(client, job))["state"] == "ready"

    house.run(story)


# --- sessions -----------------------------------------------------------------------------------------------


@on_every_store
def test_a_session_keeps_its_leases_while_it_beats(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            opened = await client.post(
                "/v1/leases/sessions", json={"queues": ["images"], "host": "box", "pid": 7}
            )
            assert opened.status_code == 201
            session = opened.json()["session"]
            (job,) = await enqueued(client)
            (lease,) = await claimed(client, session=session, seq=1)
            assert lease["visibility"] is None
            again = await claimed(client, session=session, seq=1)
            assert [each["lease"] for each in again] == [lease["lease"]], "a lost answer is asked for again"
            assert await claimed(client, session=session, seq=2) == []
            await client.post(f"/v1/jobs/{job}/cancel")
            beat = (await client.post(f"/v1/leases/sessions/{session}/beat", json={})).json()
            assert beat == {"alive": True, "cancel": [lease["lease"]]}
            assert (await client.delete(f"/v1/leases/sessions/{session}")).status_code == 204
            assert (await client.post(f"/v1/leases/sessions/{session}/beat", json={})).json()[
                "alive"
            ] is False
            answer = await client.post(
                "/v1/leases", json={"queues": ["images"], "session": session, "seq": 3}
            )
            assert answer.json()["session"] == "lost"
            assert (await say(client, lease, "settle", outcome="ack")).status_code == 409

    house.run(story)


def test_a_session_is_known_by_its_token_alone(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            opened = (await client.post("/v1/leases/sessions", json={})).json()
            for wrong in (opened["id"], opened["session"][:-2] + "AA", "x"):
                assert (await client.post(f"/v1/leases/sessions/{wrong}/beat", json={})).status_code == 404
                asked = {"queues": ["images"], "session": wrong, "seq": 1}
                assert (await client.post("/v1/leases", json=asked)).status_code == 404
            for asked, field in (
                ({"session": opened["session"]}, "seq"),
                ({"seq": 1}, "session"),
                ({"session": opened["session"], "seq": 1, "visibility": 5}, "visibility"),
                ({"visibility": 0.5}, "visibility"),
                ({"visibility": "13h"}, "visibility"),
            ):
                answer = await client.post("/v1/leases", json={"queues": ["images"], **asked})
                assert answer.status_code == 422
                assert answer.json()["errors"][0]["field"] == field

    house.run(story)
