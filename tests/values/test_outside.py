"""Large values as operators, callers over HTTP and other programs see them."""

import asyncio
import io
import json
from typing import Any

import msgspec
import pytest
from tests.api.house import House
from tests.values.seen import is_held, seen

from windlass import Windlass
from windlass.admin.doctor import examine
from windlass.admin.findings import Level
from windlass.admin.jobs import JobChange
from windlass.admin.leases import Ending, Failure, Leases
from windlass.admin.service import Service
from windlass.core.codec import is_reference
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.query import JobQuery
from windlass.errors import PayloadTooLarge
from windlass.testing import testing
from windlass.values.values import Values

ASK = Ask(queues=("mail", "images", "default"), slots=1, limit=1, visibility=60_000_000)


class Outside(House):
    """A house whose large values are elsewhere."""

    def __init__(self, values_url: str) -> None:
        super().__init__("memory://", values=values_url)
        assert self.app.values is not None
        self.values: Values = self.app.values

    async def service(self) -> Service:
        return Service(self.app, await self.app.broker())

    async def leases(self) -> Leases:
        return Leases(self.app, await self.app.broker())


@pytest.fixture
def outside(values_url: str) -> Outside:
    return Outside(values_url)


def test_the_api_shows_what_is_not_too_large_without_secrets(outside: Outside) -> None:
    async def story() -> None:
        job = await outside.send.aenqueue("x" * 100_000, password="planted")
        async with outside.open() as client:
            shown = (await client.get(f"/v1/jobs/{job.id}")).json()
            assert shown["payload_stored"] is True
            assert shown["payload_bytes"] > 100_000
            assert shown["payload"]["kwargs"]["to"] == "x" * 100_000
            assert shown["payload"]["kwargs"]["password"] != "planted"
            large = await outside.send.aenqueue("x" * 2_000_000)
            shown = (await client.get(f"/v1/jobs/{large.id}")).json()
            assert shown["payload"] == f"{shown['payload_bytes']:,} bytes, in object storage"

    outside.run(story)


def test_the_bytes_come_through_the_api_or_by_a_signed_link_and_go_on_record(outside: Outside) -> None:
    async def story() -> None:
        job = await outside.send.aenqueue("x" * 2_000_000)
        async with outside.open() as client:
            answer = await client.get(f"/v1/jobs/{job.id}/payload")
            if outside.values.bucket.place.kind == "file":
                assert answer.status_code == 200
                assert answer.headers["content-type"] == "application/json"
                assert answer.headers["content-disposition"].endswith(f'"{job.id}.payload.json"')
                assert answer.json()["k"] == {"to": "x" * 2_000_000}
            else:
                assert answer.status_code == 307
                assert f"/p/windlass/{job.id}?" in answer.headers["location"]
            assert (await client.get(f"/v1/jobs/{job.id}/result")).status_code == 404
            records = [each async for each in (await outside.service()).audit.acts()]
            assert [each.what for each in records] == ["secrets shown"]
        async with outside.open(await outside.key("read")) as client:
            assert (await client.get(f"/v1/jobs/{job.id}/payload")).status_code == 403

    outside.run(story)


def test_a_bucket_that_is_away_is_told_apart_over_http(bucket: str, unused_port: int) -> None:
    outside = Outside(f"s3://{bucket}?region=us-east-1&endpoint=http://127.0.0.1:{unused_port}")

    async def story() -> None:
        async with outside.open() as client:
            answer = await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x" * 100_000}})
            assert answer.status_code == 503
            assert answer.json()["type"] == "urn:windlass:object-storage-unavailable"
            small = await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x"}})
            assert small.status_code == 201

    outside.run(story)


def test_a_body_may_be_as_large_as_a_value(outside: Outside) -> None:
    async def story() -> None:
        async with outside.open() as client:
            answer = await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x" * 9_000_000}})
            assert answer.status_code == 201
            found = await (await outside.service()).jobs.one(answer.json()["id"])
            assert is_reference(found.payload)

    outside.run(story)


def test_workers_over_http_get_large_payloads_and_give_large_results(outside: Outside) -> None:
    async def story() -> None:
        job = await outside.resize.aenqueue("x" * 100_000)
        leases = await outside.leases()
        (handed,) = (await leases.claim(ASK)).handed
        assert msgspec.json.decode(handed.payload.a[0]) == "x" * 100_000
        done = Ending(
            job=job.id, fence=handed.lease.fence, outcome=Outcome.DONE, result="y" * 100_000, has_result=True
        )
        await leases.settle([done])
        found = await (await outside.service()).jobs.one(job.id)
        assert found.result is not None
        assert is_reference(found.result)
        assert await job.aresult(10) == "y" * 100_000

    outside.run(story)


def test_errors_of_workers_over_http_are_rid_of_secrets_that_are_elsewhere(outside: Outside) -> None:
    async def story() -> None:
        job = await outside.send.aenqueue("x" * 100_000, password="planted-secret")
        (handed,) = (await (await outside.leases()).claim(ASK)).handed
        failure = Failure(type="Refused", message="no login with planted-secret")
        ending = Ending(job=job.id, fence=handed.lease.fence, outcome=Outcome.DEAD, error=failure)
        another_server = await outside.leases()
        await another_server.settle([ending])
        found = await (await outside.service()).jobs.one(job.id)
        assert found.error is not None
        assert "planted-secret" not in found.error.message
        assert found.error.message.startswith("no login with ")

    outside.run(story)


def test_an_export_holds_large_payloads_and_an_import_puts_them(outside: Outside, values_url: str) -> None:
    other = Windlass("memory://", values=values_url, namespace="other")

    @other.task(name="send", queue="mail")
    def send(to: str, password: str = "") -> int:
        return len(to)

    async def story() -> None:
        job = await outside.send.aenqueue("x" * 300_000)
        service = await outside.service()
        lines = [line async for line in service.exported(JobQuery(), left=lambda _: None)]
        file = io.BytesIO(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        moved = Service(other, await other.broker())
        assert (await moved.imported(file, dead="keep", told=lambda _: None)).created == 1
        assert is_reference((await moved.jobs.one(job.id)).payload)
        async with other.worker():
            assert await other.job(job.id).aresult(20) == 300_000
        await other.aclose()

    outside.run(story)


def test_new_arguments_of_a_job_stay_in_the_store(outside: Outside) -> None:
    async def story() -> None:
        job = await outside.send.using(delay=60).aenqueue("x" * 100_000)
        jobs = (await outside.service()).jobs
        found = await jobs.one(job.id)
        await jobs.edit(found, JobChange(arguments=json.dumps({"to": "y" * 200_000}).encode()))
        assert not is_reference((await jobs.one(job.id)).payload)
        with pytest.raises(PayloadTooLarge, match="a payload that is changed is kept in the store"):
            await jobs.edit(found, JobChange(arguments=json.dumps({"to": "y" * 2_000_000}).encode()))

    outside.run(story)


def test_a_strike_by_an_argument_finds_it_there(outside: Outside) -> None:
    @outside.app.task(name="report")
    def report(kind: str, text: str) -> str:
        return kind

    async def story() -> None:
        await (await outside.service()).strikes.strike("report", {"kind": "bad"})
        async with outside.app.worker():
            struck = await report.aenqueue("bad", "x" * 70_000)
            assert await (await report.aenqueue("good", "x" * 70_000)).aresult(20) == "good"
            held = await seen(outside.app, struck.id, is_held)
            assert held.held is not None
            assert held.held.key.startswith("strike:")
            assert held.attempt == 0

    outside.run(story)


def test_doctor_says_whether_it_can_be_reached(outside: Outside, bucket: str, unused_port: int) -> None:
    async def told(app: Windlass) -> list[Any]:
        found = [each async for each in examine(app, {}) if each.check == "values"]
        await app.aclose()
        return found

    (well,) = asyncio.run(told(outside.app))
    assert well.level is Level.OK
    assert "takes objects and gives them back" in well.text
    gone = Windlass(
        "memory://", values=f"s3://{bucket}?region=us-east-1&endpoint=http://127.0.0.1:{unused_port}"
    )
    (ill,) = asyncio.run(told(gone))
    assert ill.level is Level.PROBLEM
    assert "planted-secret" not in ill.text
    assert asyncio.run(told(Windlass("memory://"))) == []
    assert asyncio.run(outside.values.bucket.page("t/", "", 10)) == []


def test_nothing_is_left_of_the_trial(outside: Outside) -> None:
    async def main() -> None:
        await outside.values.try_out()
        assert await outside.values.bucket.page("t/", "", 10) == []

    asyncio.run(main())


def test_a_test_keeps_everything_in_its_store(outside: Outside) -> None:
    @outside.app.task(name="length")
    def length(text: str) -> int:
        return len(text)

    with testing(outside.app) as t:
        job = length.enqueue("x" * 2_000_000)
        t.drain()
        assert job.result() == 2_000_000
    assert asyncio.run(outside.values.bucket.page("p/", "", 10)) == []
    outside.app.close()
