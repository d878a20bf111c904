"""`/metrics` and `/v1/history` of a server: what they show, and to whom."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.house import House

from windlass.core.enqueuer import BY
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setenv("WINDLASS_HISTORY", f"sqlite:///{tmp_path / 'history.db'}")
    made = House("memory://")
    yield made
    made.close()


async def copy(house: House) -> None:
    """Copy what the worker's own reader has not yet copied. That one has the turn: this one comes later."""
    sink = await open_sink(house.app.config.history or "")
    broker = await house.app.broker()
    await HistoryReader(broker, sink, house.app.config.namespace, clock=lambda: 9e9).step()
    await sink.close()


def test_metrics_are_read_by_prometheus(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            for _ in range(3):
                body = {"type": "send", "payload": {"to": "a@example.com"}}
                assert (await client.post("/enqueue", json=body)).status_code == 201
            answer = await client.get("/metrics")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            samples = {
                (sample.name, sample.labels.get("task"), sample.labels.get("state")): sample
                for family in text_string_to_metric_families(answer.text)
                for sample in family.samples
            }
            assert samples["windlass_jobs", "send", "ready"].value == 3
            assert samples["windlass_enqueued_total", "send", None].value == 3
            assert samples["windlass_store_up", None, None].labels == {"namespace": "windlass"}
            assert "example.com" not in answer.text

    house.run(story)


def test_metrics_need_a_key_that_reads_everything(house: House) -> None:
    async def story() -> None:
        read = await house.key("read")
        bound = await house.key("read", queues=("mail",))
        enqueue = await house.key("enqueue")
        for key, status in ((None, 401), (enqueue, 403), (bound, 403), (read, 200)):
            async with house.open(key) as client:
                assert (await client.get("/metrics")).status_code == status, key

    house.run(story)


def test_history_tells_how_it_went(house: House) -> None:
    async def story() -> None:
        async with house.app.worker(concurrency=2):
            for number in range(4):
                await (await house.add.aenqueue(number)).aresult(timeout=20)
        await copy(house)
        async with house.open() as client:
            answer = await client.get("/v1/history", params={"since": "1h", "step": "5m"})
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert told["total"]["attempts"] == told["total"]["done"] == 4
            assert [task["task"] for task in told["tasks"]] == ["add"]
            assert told["tasks"][0]["failure_rate"] == 0
            assert told["tasks"][0]["run"]["p95"] is not None
            assert told["step"] == 300
            assert sum(bucket["done"] for bucket in told["buckets"]) == 4
            one = (await client.get("/v1/history", params={"task": "send"})).json()
            assert (one["total"]["attempts"], one["tasks"]) == (0, [])

    house.run(story)


def test_history_tells_who_enqueued_a_job_and_who_ran_it(house: House) -> None:
    async def story() -> None:
        key = await house.key("enqueue", "read")
        other = await house.key("read", queues=("mail",))
        body = {"task": "add", "payload": {"a": 1}, "key": "sum-1", "headers": {BY: '{"app": "forged"}'}}
        async with house.open(key) as client:
            job = (await client.post("/v1/jobs", json=body)).json()["id"]
            async with house.app.worker(concurrency=2):
                await house.app.job(job).aresult(timeout=20)
            await copy(house)
            told = (await client.get(f"/v1/history/jobs/{job}")).json()
            by = told["enqueued"]
            assert (by["by_app"], by["by_host"], by["key"]) == (house.app.name, socket.gethostname(), "sum-1")
            assert by["by_key"].startswith("test (key ")
            (attempt,) = told["attempts"]
            assert (attempt["outcome"], attempt["host"]) == ("done", socket.gethostname())
            assert attempt["worker"]
            found = (await client.get("/v1/history", params={"by": "worker"})).json()
            (worker,) = [each for each in found["groups"] if each["attempts"]]
            assert (worker["name"], worker["slots"]) == (attempt["worker"], 2)
            assert (await client.get("/v1/history/jobs/nothing")).status_code == 422
            unknown = house.app.new_id()
            assert (await client.get(f"/v1/history/jobs/{unknown}")).status_code == 404
            assert (await client.get("/v1/history", params={"by": "host"})).status_code in (400, 422)
        async with house.open(other) as client:
            assert (await client.get(f"/v1/history/jobs/{job}")).status_code == 404

    house.run(story)


def test_history_says_what_is_wrong_with_a_question(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            for wrong in ({"since": "soon"}, {"step": "7s"}, {"since": "90d", "step": "1m"}, {"task": "a b"}):
                answer = await client.get("/v1/history", params=wrong)
                assert answer.status_code == 422, (wrong, answer.text)
                assert answer.json()["errors"], answer.text
            assert (await client.get("/v1/history", params={"queue": "nowhere"})).status_code == 404

    house.run(story)


def test_a_key_sees_the_history_of_its_queues(house: House) -> None:
    async def story() -> None:
        bound = await house.key("read", queues=("mail",))
        laned = await house.key("read", lanes=("acme",))
        async with house.open(bound) as client:
            assert (await client.get("/v1/history")).status_code == 403
            assert (await client.get("/v1/history", params={"queue": "default"})).status_code == 403
            assert (await client.get("/v1/history", params={"queue": "mail"})).status_code == 200
        async with house.open(laned) as client:
            assert (await client.get("/v1/history")).status_code == 403

    house.run(story)


def test_without_a_place_for_it_there_is_no_history() -> None:
    house = House("memory://")

    async def story() -> None:
        async with house.open() as client:
            answer = await client.get("/v1/history")
            assert answer.status_code == 501
            assert "WINDLASS_HISTORY" in answer.json()["detail"]

    house.run(story)
    house.close()


def test_a_server_keeps_history_itself(house: House) -> None:
    """Without a worker that does: a server that runs is enough."""

    async def story() -> None:
        async with house.open() as client, house.app.worker(concurrency=1):
            await (await house.add.aenqueue(1)).aresult(timeout=20)
            async with asyncio.timeout(30):
                while (await client.get("/v1/history")).json()["total"]["done"] != 1:  # noqa: ASYNC110 - in 5 s
                    await asyncio.sleep(0.2)

    house.run(story)
