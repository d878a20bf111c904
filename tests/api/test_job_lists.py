"""Jobs in numbers over HTTP: filters, counts, and what is done to many by their ids; and edits of one."""

from typing import Any

import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import Fleet, said, until

from windlass import chain
from windlass.admin.audit import LONGEST_REASON

UNKNOWN = "0192e4a0-5b3c-7abc-8def-0123456789ab"


@on_every_store
def test_jobs_are_listed_and_counted_by_tag_text_time_and_parent(house: House) -> None:
    async def story() -> None:
        one = (await house.send.using(tags=["eu"], lane="acme").aenqueue("a")).id
        two = (await house.add.using(tags=["eu", "late"], delay=60).aenqueue(1)).id
        three = (await house.add.aenqueue(2)).id
        async with house.open() as client:

            async def found(**asked: Any) -> set[str]:
                page = said(await client.get("/v1/jobs", params=asked))
                counted = said(await client.get("/v1/jobs/count", params=asked))
                assert counted == {"count": len(page["items"]), "more": False}
                return {job["id"] for job in page["items"]}

            assert await found() == {one, two, three}
            assert await found(tag="eu") == {one, two}
            assert await found(tag="eu", state="ready") == {one}
            assert await found(text="LATE") == {two}
            assert await found(text=three) == {three}
            assert await found(since="1h", queue="default") == {two, three}
            assert await found(until="2020-01-01T00:00:00Z") == set()
            assert await found(parent=one) == set()
            first = said(await client.get("/v1/jobs", params={"text": "add", "limit": 1}))
            rest = said(await client.get("/v1/jobs", params={"text": "add", "cursor": first["cursor"]}))
            assert {job["id"] for job in first["items"] + rest["items"]} == {two, three}

    house.run(story)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("since", "soon"), ("until", "2026-01-01T00:00:00"), ("parent", "nobody"), ("tag", "x" * 150)],
)
def test_a_filter_that_has_no_meaning_is_refused_by_its_name(
    memory_house: House, parameter: str, value: str
) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            for path in ("/v1/jobs", "/v1/jobs/count"):
                refused = said(await client.get(path, params={parameter: value}), 422)
                assert [each["field"] for each in refused["errors"]] == [parameter]

    memory_house.run(story)


def test_a_parameter_that_is_none_is_refused_with_those_there_are(memory_house: House) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            refused = said(await client.get("/v1/jobs", params={"desk": "x"}), 400)
            assert refused["detail"] == (
                'there is no parameter "desk"; parameters are: '
                "cursor, flow, lane, limit, parent, queue, since, state, tag, task, text, until"
            )
            refused = said(await client.get("/v1/overview", params={"x": "1"}), 400)
            assert refused["detail"] == 'there is no parameter "x"; parameters are: none'
            refused = said(await client.get("/v1/jobs", params={"state": "redy"}), 400)
            assert [each["field"] for each in refused["errors"]] == ["state"]

    memory_house.run(story)


def test_what_is_misspelt_in_a_body_or_an_address_is_named(memory_house: House) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            call = {"task": "add", "payload": {"a": 1}}
            refused = said(await client.post("/v1/jobs", json={**call, "dealy": "5m"}), 400)
            assert refused["errors"] == [
                {"field": "dealy", "detail": 'there is no field "dealy"; did you mean "delay"?'}
            ]
            refused = said(await client.post("/v1/jobs/cancel", json={"jobs": []}), 400)
            assert refused["detail"] == 'there is no field "jobs"; fields are: ids, reason'
            refused = said(await client.post("/v1/jobs/batch", json={"jobs": [{**call, "dealy": 1}]}), 400)
            assert refused["errors"][0]["field"] == "jobs[0].dealy"
            for method, path, status in (("GET", "/v1/jbos", 404), ("DELETE", "/v1/jobs", 405)):
                refused = said(await client.request(method, path), status)
                assert refused["detail"] == (
                    f"there is no route {method} {path}; openapi.json describes those there are"
                )

    memory_house.run(story)


@on_every_store
def test_a_bound_key_lists_and_counts_its_own_alone(house: House) -> None:
    async def story() -> None:
        await house.add.aenqueue(1)
        mine = (await house.send.using(lane="acme", tags=["x"]).aenqueue("a")).id
        await house.send.using(lane="other", tags=["x"]).aenqueue("b")
        by_lane = await house.key("read", "operate", lanes=("acme",))
        async with house.open(by_lane) as client:
            for asked in ({}, {"tag": "x"}, {"state": "ready"}, {"queue": "mail"}):
                page = said(await client.get("/v1/jobs", params=asked))
                assert [job["id"] for job in page["items"]] == [mine]
                assert said(await client.get("/v1/jobs/count", params=asked))["count"] == 1
            said(await client.get("/v1/jobs", params={"lane": "other"}), 404)
        by_queue = await house.key("read", queues=("mail",))
        async with house.open(by_queue) as client:
            assert said(await client.get("/v1/jobs/count", params={"state": "ready"}))["count"] == 2
            said(await client.get("/v1/jobs/count", params={"queue": "default"}), 404)

    house.run(story)


@on_every_store
def test_many_jobs_are_cancelled_by_their_ids_with_a_reason_on_record(house: House) -> None:
    async def story() -> None:
        running = (await house.add.aenqueue(0)).id
        assert [lease.job for lease in await Fleet(house, "default").take()] == [running]
        waiting = [job.id for job in await house.app.aenqueue_many(house.add.call(n) for n in range(3))]
        async with house.open() as client:
            wish = {"ids": [*waiting, running, UNKNOWN, waiting[0]], "reason": " not needed "}
            answers = said(await client.post("/v1/jobs/cancel", json=wish))
            assert [(each["job"], each["effect"]) for each in answers] == [
                *((job, "applied") for job in waiting), (running, "flagged"), (UNKNOWN, "not found"),
            ]  # fmt: skip
            assert said(await client.get("/v1/jobs/count", params={"state": "cancelled"}))["count"] == 3
            again = said(await client.post("/v1/jobs/cancel", json={"ids": waiting[:1]}))
            assert (again[0]["effect"], again[0]["state"]) == ("wrong state", "cancelled")
            newest, oldest = said(await client.get("/v1/audit"))["items"]
            assert (oldest["what"], oldest["jobs"], oldest["wanted"]) == ("cancelled", 4, 5)
            assert (oldest["reason"], newest["reason"]) == ("not needed", "")
            for wrong in (
                {"ids": []},
                {"ids": ["x"]},
                {"ids": waiting, "reason": "x" * (LONGEST_REASON + 1)},
            ):
                assert (await client.post("/v1/jobs/cancel", json=wrong)).status_code in (400, 422)

    house.run(story)


def test_dead_letters_among_many_jobs_are_replayed_by_their_ids(house: House) -> None:
    async def story() -> None:
        dead = (await house.add.aenqueue(1)).id
        await Fleet(house, "default").die()
        ready = (await house.add.aenqueue(2)).id
        async with house.open() as client:
            answers = said(await client.post("/v1/jobs/replay", json={"ids": [dead, ready]}))
            assert [each["effect"] for each in answers] == ["applied", "wrong state"]
            bound = await house.key("operate", queues=("mail",))
        async with house.open(bound) as client:
            answers = said(await client.post("/v1/jobs/cancel", json={"ids": [ready]}))
            assert answers[0]["effect"] == "not found"

    house.run(story)


@on_every_store
def test_a_waiting_job_is_changed_and_a_running_one_is_not(house: House) -> None:
    async def story() -> None:
        job = (await house.add.using(delay=3_600).aenqueue(1)).id
        async with house.open() as client:
            path = f"/v1/jobs/{job}"
            change = {"arguments": {"a": 5}, "priority": 7, "max_attempts": 2, "tags": ["x", "y"]}
            assert said(await client.patch(path, json=change)) == {
                "id": job, "effect": "applied", "state": "scheduled",
            }  # fmt: skip
            shown = said(await client.get(path))
            assert shown["payload"] == {"args": [], "kwargs": {"a": 5}}
            assert (shown["priority"], shown["max_attempts"], shown["tags"]) == (7, 2, ["x", "y"])
            said(await client.patch(path, json={"tags": []}))
            assert said(await client.get(path))["tags"] == []
            for wrong in ({"arguments": {"a": "x"}}, {"priority": 101}, {"max_attempts": 0}, {"tags": [""]}):
                refused = said(await client.patch(path, json=wrong), 422)
                assert [each["field"] for each in refused["errors"]] == list(wrong)
            said(await client.patch(path, json={}), 422)
            said(await client.patch(path, json={"due_at": "now"}), 400)
            said(await client.patch(f"/v1/jobs/{UNKNOWN}", json=change), 404)
            acts = said(await client.get("/v1/audit"))["items"]
            assert acts[-1]["chosen"] == {
                "job": job, "arguments": "new", "priority": "new", "max_attempts": "new", "tags": "new",
            }  # fmt: skip

            running = (await house.add.aenqueue(1)).id
            assert [lease.job for lease in await Fleet(house, "default").take()] == [running]
            refused = said(await client.patch(f"/v1/jobs/{running}", json={"priority": 1}), 409)
            assert refused["detail"] == f"job {running} is running: it cannot be changed"

    house.run(story)


@on_every_store
def test_pages_of_a_filter_have_every_job_once_and_short_cursors(house: House) -> None:
    async def story() -> None:
        calls = (house.add.using(tags=["odd"] if n % 2 else []).call(n) for n in range(300))
        jobs = [job.id for job in await house.app.aenqueue_many(calls)]
        async with house.open() as client:
            for asked, wanted in (({"queue": "default"}, jobs), ({"tag": "odd"}, jobs[1::2])):
                seen: list[str] = []
                cursor: str | None = ""
                while cursor is not None:
                    more = {"cursor": cursor} if cursor else {}
                    page = said(await client.get("/v1/jobs", params={**asked, **more, "limit": 40}))
                    assert len(page["items"]) <= 40
                    seen += [job["id"] for job in page["items"]]
                    cursor = page["cursor"]
                    assert len(cursor or "") < 300
                assert sorted(seen) == sorted(wanted)

    house.run(story)


def test_a_server_looks_at_alerts_as_workers_do(house: House) -> None:
    async def story() -> None:
        house.app.alert("many", dead=0)
        await house.add.aenqueue(1)
        await Fleet(house, "default").die()
        async with house.open() as client:

            async def look() -> Any:
                return said(await client.get("/v1/alerts"))

            (alert,) = await until(look, lambda alerts: alerts[0]["raised"])
            assert alert["name"] == "many"

    house.run(story)


def test_a_listing_of_flows_says_when_it_was_cut(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        for name in ("a", "b"):
            await house.add.using(flow=name).aenqueue(1)
        async with house.open() as client:
            page = said(await client.get("/v1/flows"))
            assert ([each["id"] for each in page["items"]], page["more"]) == (["b", "a"], False)
            assert said(await client.get("/v1/flows", params={"limit": 1}))["more"]
            monkeypatch.setattr("windlass.admin.flows.LOOKED_AT", 2)
            assert said(await client.get("/v1/flows"))["more"]

    house.run(story)


@on_every_store
def test_flows_that_are_stuck_are_found_behind_newer_jobs(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come first, and alone if they are asked for; the overview calls them a problem."""
    monkeypatch.setattr("windlass.admin.flows.LOOKED_AT", 1_000)

    async def story() -> None:
        stuck = await chain(house.add.call(1), house.add.call(2)).aenqueue(flow="stuck")
        await Fleet(house).die()
        await house.app.aenqueue_many([house.add.using(flow="going").call(3)])
        for _ in range(3):
            await house.app.aenqueue_many([house.add.call(n) for n in range(1_000)])
        async with house.open() as client:
            page = said(await client.get("/v1/flows"))
            assert [(each["id"], each["unfinished"], each["stuck"]) for each in page["items"]] == [
                ("stuck", True, True),
                ("going", True, False),
            ]
            assert page["items"][0]["jobs"] == {"blocked": 1, "dead": 1}
            only = said(await client.get("/v1/flows", params={"stuck": True}))
            assert ([each["id"] for each in only["items"]], only["more"]) == (["stuck"], False)
            overview = said(await client.get("/v1/overview"))
            (problem,) = [each for each in overview["problems"] if each["kind"] == "flow"]
            assert (problem["level"], problem["text"]) == ("problem", "a flow is stuck: stuck")
            await client.post(f"/v1/flows/{stuck.id}/replay")
            assert said(await client.get("/v1/flows", params={"stuck": True}))["items"] == []

    house.run(story)
