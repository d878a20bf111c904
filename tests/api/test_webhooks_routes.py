"""Webhooks over HTTP: who is told, and the secrets of receivers; callbacks of jobs."""

import pytest
from tests.api.house import House, on_every_store
from tests.api.test_operators_routes import said

from windlass.core.query import JobQuery
from windlass.core.webhook import CALLBACK, CALLBACKS, QUEUE

URL = "https://example.com/hooks/secret-path"


@pytest.fixture(autouse=True)
def _with_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of apps that are made from now on."""
    monkeypatch.setenv("WINDLASS_WEBHOOKS", "true")


def test_a_webhook_is_set_listed_and_removed(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            wish = {"queue": "mail", "url": URL, "on": ["dead"]}
            made = said(await client.put("/v1/webhooks/crm", json=wish))
            assert (made["name"], made["queue"], made["on"]) == ("crm", "mail", ["dead"])
            (shown,) = said(await client.get("/v1/webhooks"))
            assert (shown["url"], shown["by"]) == (URL, "local")
            changed = said(await client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL}))
            assert changed["on"] == ["done", "dead"]
            assert (await client.delete("/v1/webhooks/crm")).status_code == 204
            assert said(await client.get("/v1/webhooks")) == []
            said(await client.delete("/v1/webhooks/crm"), 404)
            acts = said(await client.get("/v1/audit"))["items"]
            assert [act["what"] for act in acts] == ["webhook removed", "webhook set", "webhook set"]
            assert "secret-path" not in str(acts)

    house.run(story)


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"url": "http://user@example.com"}, 422, "url"),
        ({"url": "https://127.0.0.1/"}, 422, None),
        ({"url": "https://[::ffff:169.254.169.254]/"}, 422, None),
        ({"on": []}, 422, "on"),
        ({"on": ["cancelled"]}, 400, None),
        ({"queue": "nope"}, 404, "queue"),
        ({"queue": QUEUE}, 422, None),
        ({"more": 1}, 400, None),
    ],
)
def test_what_makes_no_sense_is_refused(
    house: House, change: dict[str, object], status: int, field: str | None
) -> None:
    async def story() -> None:
        async with house.open() as client:
            answer = await client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL, **change})
            problem = said(answer, status)
            if field is not None:
                assert problem["errors"][0]["field"] == field
            assert said(await client.get("/v1/webhooks")) == []

    house.run(story)


def test_who_only_reads_sees_no_path_and_bound_keys_their_own_queue(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            said(await client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL}))
            said(await client.put("/v1/webhooks/other", json={"queue": "default", "url": URL}))
        async with house.open(await house.key("read", queues=("mail",))) as client:
            (shown,) = said(await client.get("/v1/webhooks"))
            assert (shown["name"], shown["url"]) == ("crm", "https://example.com/…")
        bound = await house.key("read", "operate", queues=("mail",))
        async with house.open(bound) as client:
            said(await client.delete("/v1/webhooks/other"), 404)
            # Names are the key's own: one that others have taken does not tell so.
            for name in ("other", "fresh"):
                made = said(await client.put(f"/v1/webhooks/{name}", json={"queue": "mail", "url": URL}))
                assert (made["name"], made["queue"]) == (name, "mail")
            names = [hook["name"] for hook in said(await client.get("/v1/webhooks"))]
            assert names == ["crm", "fresh", "other"]
            said(await client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL, "on": ["dead"]}))
            assert (await client.delete("/v1/webhooks/other")).status_code == 204
            said(await client.put("/v1/webhooks/new", json={"queue": "default", "url": URL}), 404)
            said(await client.post("/v1/webhooks/secret", json={"url": URL}), 403)
            said(await client.post("/v1/webhooks/rotate"), 403)
        async with house.open(await house.key("read", "operate", lanes=("acme",))) as client:
            said(await client.put("/v1/webhooks/new", json={"queue": "mail", "url": URL}), 403)
        async with house.open(await house.key("read", "operate")) as client:
            hooks = {hook["name"].partition("@")[0]: hook for hook in said(await client.get("/v1/webhooks"))}
            assert sorted(hooks) == ["crm", "fresh", "other"]
            assert (hooks["other"]["queue"], hooks["crm"]["on"]) == ("default", ["dead"])

    house.run(story)


def test_the_secret_of_a_receiver_is_told_on_record_and_replaced(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            one = said(await client.post("/v1/webhooks/secret", json={"url": URL}))
            assert one["receiver"] == "https://example.com"
            assert one["secret"].startswith("whsec_")
            same = said(await client.post("/v1/webhooks/secret", json={"url": "https://example.com:443/x"}))
            assert same == one
            other = said(await client.post("/v1/webhooks/secret", json={"url": "https://example.org/"}))
            assert other["secret"] != one["secret"]
            said(await client.post("/v1/webhooks/rotate"))
            new = said(await client.post("/v1/webhooks/secret", json={"url": URL}))
            assert new["secret"] != one["secret"]
            acts = [act["what"] for act in said(await client.get("/v1/audit"))["items"]]
            assert acts.count("webhook secret read") == 4
            assert "webhook secrets rotated" in acts

    house.run(story)


def test_a_job_may_bring_its_own_url(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            wish = {"task": "send", "payload": {"to": "x"}, "callback": URL}
            answer = await client.post("/v1/jobs", json=wish)
            assert answer.status_code == 201, answer.text
            broker = await house.app.broker()
            page = await broker.list(JobQuery(queue="mail"))
            (job,) = await broker.get([page.jobs[0].id])
            assert job is not None
            assert job.headers[CALLBACK] == URL
            names = [hook["name"] for hook in said(await client.get("/v1/webhooks"))]
            assert names == [CALLBACKS + "mail"]
            refused = await client.post("/v1/jobs", json={**wish, "callback": "file:///etc/passwd"})
            assert refused.status_code == 422

    house.run(story)


@on_every_store
def test_a_header_that_names_a_url_is_checked_like_a_callback(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            wrong = ("file:///etc/passwd", "", "https://10.1.2.3/", "http://169.254.169.254/", "https://a b/")
            for url in (*wrong, "https://example.com/" + "x" * 3_000, "http://example.com/"):
                wish = {"task": "send", "payload": {"to": "x"}, "headers": {CALLBACK: url}}
                for answer in (
                    await client.post("/v1/jobs", json=wish),
                    await client.post("/v1/jobs", json=wish, headers={"idempotency-key": url[:50] or "k"}),
                ):
                    problem = said(answer, 400)
                    assert problem["errors"][0]["field"] == "headers"
                    assert CALLBACK in problem["detail"]
                    assert "passwd" not in problem["detail"]
                problem = said(await client.post("/v1/jobs/batch", json={"jobs": [wish]}), 400)
                assert problem["errors"][0]["field"] == "jobs[0].headers"
            broker = await house.app.broker()
            assert (await broker.list(JobQuery(queue="mail"))).jobs == ()
            wish = {"task": "send", "payload": {"to": "x"}, "headers": {CALLBACK: URL, "a": "b"}}
            said(await client.post("/v1/jobs", json=wish), 201)
            names = [hook["name"] for hook in said(await client.get("/v1/webhooks"))]
            assert names == [CALLBACKS + "mail"]  # so that it is told

    house.run(story)


def test_without_webhooks_none_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDLASS_WEBHOOKS")
    plain = House("memory://")

    async def story() -> None:
        async with plain.open() as client:
            said(await client.put("/v1/webhooks/crm", json={"queue": "mail", "url": URL}), 409)
            wish = {"task": "send", "payload": {"to": "x"}, "callback": URL}
            assert (await client.post("/v1/jobs", json=wish)).status_code == 422
            wish = {"task": "send", "payload": {"to": "x"}, "headers": {CALLBACK: URL}}
            assert "needs webhooks" in said(await client.post("/v1/jobs", json=wish), 400)["detail"]

    plain.run(story)
    plain.close()
