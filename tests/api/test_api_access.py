"""Who may do what: on every route that there is, by table."""

import re
from collections.abc import Iterator

import httpx
import pytest
from litestar import Litestar, get
from tests.api.house import House, on_every_store, until

from windlass import Windlass
from windlass.admin.keys import Keys, Scope
from windlass.api.access import Open, declared
from windlass.api.options import ServeOptions
from windlass.api.server import build, check_routes, handlers
from windlass.core.units import SECOND

OPEN = {"/healthz", "/readyz", "/v1/session", "/", "/{path:path}"}
"""What anybody may ask: probes, logging in and out, and the files of the dashboard."""


def routes(server: Litestar) -> Iterator[tuple[str, str, str, frozenset[Scope] | None]]:
    """Method, path as declared, path to ask, and the scopes of which one is needed; None: open."""
    for path, handler in handlers(server):
        guard = declared(handler)
        assert guard is not None, path
        for method in handler.http_methods:
            asked = re.sub(r"\{[^}]*\}", "x", path)
            yield str(method), path, asked, None if isinstance(guard, Open) else frozenset(guard.scopes)


async def _is_shut(client: httpx.AsyncClient) -> bool:
    return (await client.get("/v1/session")).status_code == 401


def test_every_route_declares_what_it_requires() -> None:
    found = list(routes(build(Windlass("memory://"))))
    assert len(found) > 20
    assert {path for _, path, _, scopes in found if scopes is None} <= OPEN


def test_a_route_that_declares_nothing_is_not_served() -> None:
    @get("/v1/secret-door")
    async def door() -> str:
        return "in"

    with pytest.raises(ValueError, match="/v1/secret-door declares no scope"):
        check_routes(Litestar([door], openapi_config=None))


def test_without_a_key_every_route_answers_401(house: House) -> None:
    async def story() -> None:
        await house.key("read")
        server = house.server()
        async with house.open("", server=server) as client:
            for method, path, asked, scopes in routes(server):
                if scopes is None:
                    continue
                answer = await client.request(method, asked)
                assert answer.status_code == 401, (method, path, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.headers["content-type"] == "application/problem+json"

    house.run(story)


@pytest.mark.parametrize("scope", list(Scope))
def test_a_key_without_the_scope_is_told_403_on_every_route(house: House, scope: Scope) -> None:
    async def story() -> None:
        key = await house.key(scope)
        server = house.server()
        refused = 0
        async with house.open(key, server=server) as client:
            for method, path, asked, scopes in routes(server):
                if scopes is None or scope in scopes or (scope is Scope.OPERATE and Scope.READ in scopes):
                    continue
                answer = await client.request(method, asked)
                assert answer.status_code == 403, (method, path, answer.text)
                refused += 1
        assert refused > 3

    house.run(story)


def test_keys_that_are_none_open_nothing(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        other = key[:-1] + ("A" if key[-1] != "A" else "B")
        for wrong in (
            other,
            key.upper(),
            "",
            "windlass_x_y",
            "windlass__",
            "x" * 5_000,
            key.rpartition("_")[0],
        ):
            async with house.open(wrong) as client:
                assert (await client.get("/v1/session")).status_code == 401, wrong
        async with house.open() as client:
            basic = await client.get("/v1/session", headers={"authorization": f"Basic {key}"})
            assert basic.status_code == 401
        async with house.open(key) as client:
            assert (await client.get("/v1/session")).json()["scopes"] == ["read"]

    house.run(story)


def test_only_hashes_are_kept(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        secret = key.rpartition("_")[2]
        broker = await house.app.connection.broker()
        kept = [each async for each in Keys(broker).all()]
        assert len(kept) == 1
        assert secret not in repr(kept[0].digest)
        assert secret not in str(kept)

    house.run(story)


def test_a_revoked_key_opens_nothing_after_five_seconds(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        server = house.server()
        async with house.open(key, server=server) as client:
            assert (await client.get("/v1/session")).status_code == 200
            await Keys(await house.app.connection.broker()).revoke(key.split("_")[1])
            await until(lambda: _is_shut(client), within=5)
            assert (await client.get("/v1/session")).status_code == 401

    house.run(story)


def test_revoking_the_last_key_does_not_open_the_door(house: House) -> None:
    async def story() -> None:
        key = await house.key("operate")
        await Keys(await house.app.connection.broker()).revoke(key.split("_")[1])
        async with house.open() as client:
            assert (await client.get("/v1/jobs")).status_code == 401

    house.run(story)


def test_an_expired_key_opens_nothing(house: House) -> None:
    async def story() -> None:
        key = await house.key("read", expires=SECOND)
        async with house.open(key) as client:
            await until(lambda: _is_shut(client), within=5)
            assert (await client.get("/v1/session")).status_code == 401

    house.run(story)


def test_a_server_on_another_address_is_closed_although_there_is_no_key(house: House) -> None:
    async def story() -> None:
        async with house.open(server=build(house.app, ServeOptions(host="0.0.0.0"))) as client:  # noqa: S104
            assert (await client.get("/v1/jobs")).status_code == 401

    house.run(story)


# --- what is out of sight -----------------------------------------------------------------------------------


@on_every_store
def test_a_bound_key_sees_its_queue_alone(house: House) -> None:
    async def story() -> None:
        whole = await house.key("enqueue", "read", "operate")
        async with house.open(whole) as client:
            mail = (await client.post("/v1/jobs", json={"task": "send", "payload": {"to": "x"}})).json()["id"]
            plain = (await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}})).json()["id"]
        bound = await house.key("enqueue", "read", "operate", queues=("mail",))
        async with house.open(bound) as client:
            assert (await client.get(f"/v1/jobs/{mail}")).status_code == 200
            assert [job["id"] for job in (await client.get("/v1/jobs")).json()["items"]] == [mail]
            unknown = "0192e4a0-5b3c-7abc-8def-0123456789ab"
            for method, path in (
                ("GET", "/v1/jobs/{}"),
                ("GET", "/v1/jobs/{}?secrets=true"),
                ("POST", "/v1/jobs/{}/cancel"),
                ("POST", "/v1/jobs/{}/replay"),
                ("GET", "/v1/jobs/{}/explain"),
            ):
                hidden = await client.request(method, path.format(plain))
                absent = await client.request(method, path.format(unknown))
                assert hidden.status_code == absent.status_code == 404, path
                assert hidden.text.replace(plain, unknown) == absent.text
            hidden = await client.get("/v1/jobs", params={"queue": "default"})
            absent = await client.get("/v1/jobs", params={"queue": "nowhere"})
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text.replace("default", "nowhere") == absent.text
            hidden = await client.post("/v1/jobs", json={"task": "add", "payload": {"a": 1}})
            absent = await client.post("/v1/jobs", json={"task": "nope", "payload": {"a": 1}})
            assert hidden.status_code == absent.status_code == 404
            assert hidden.text.replace('"add', '"nope').replace("add\\", "nope\\") == absent.text
            elsewhere = {"task": "send", "payload": {"to": "x"}, "queue": "default"}
            assert (await client.post("/v1/jobs", json=elsewhere)).status_code == 404
            after = {"task": "send", "payload": {"to": "x"}, "after": [plain]}
            refused = await client.post("/v1/jobs", json=after)
            assert refused.status_code == 422
            assert refused.json()["errors"][0]["field"] == "after"

    house.run(story)


@on_every_store
def test_a_bound_key_runs_tasks_of_its_queues_alone_wherever_it_wants_them(house: House) -> None:
    async def story() -> None:
        whole = await house.key("enqueue", "operate")
        async with house.open(whole) as client:
            wish = {"task": "add", "payload": {"a": 1}, "queue": "mail", "delay": 3600}
            lent = (await client.post("/v1/jobs", json=wish)).json()["id"]
        bound = await house.key("enqueue", "read", "operate", queues=("mail",))
        async with house.open(bound) as client:
            known = [task["name"] for task in (await client.get("/v1/tasks")).json()]
            assert known == ["send"]
            for task, payload in (("add", {"a": 1}), ("resize", {}), ("nope", {})):
                for queue in ({}, {"queue": "mail"}):
                    wish = {"task": task, "payload": payload, **queue}
                    for path, body, field in (
                        ("/v1/jobs", wish, "task"),
                        ("/v1/jobs/batch", {"jobs": [wish]}, "jobs[0].task"),
                        ("/v1/schedules", {"name": "s", "task": task, "every": 60, **queue}, "task"),
                    ):
                        answer = await client.post(path, json=body)
                        assert answer.status_code == 404, (path, answer.text)
                        problem = answer.json()
                        assert problem["detail"] == f'there is no task "{task}"'
                        assert problem["errors"][0]["field"] == field
                plain = await client.post("/enqueue", json={"type": task, "payload": payload})
                assert plain.status_code == 404
                assert plain.json()["errors"][0]["field"] == "type"
            # What others have put into its queue it may send back or put first, but not call anew.
            edited = await client.patch(f"/v1/jobs/{lent}", json={"arguments": {"a": 2}})
            assert (edited.status_code, edited.json()["errors"][0]["field"]) == (404, "task")
            assert (await client.patch(f"/v1/jobs/{lent}", json={"priority": 2})).status_code == 200
            assert (await client.post(f"/v1/jobs/{lent}/cancel")).status_code == 200
            wish = {"task": "send", "payload": {"to": "x"}, "queue": "mail"}
            assert (await client.post("/v1/jobs", json=wish)).status_code == 201
            mine = (await client.post("/v1/jobs", json={**wish, "delay": 3600})).json()["id"]
            assert (
                await client.patch(f"/v1/jobs/{mine}", json={"arguments": {"to": "y"}})
            ).status_code == 200

    house.run(story)


def test_a_key_bound_to_a_lane_sees_that_lane_alone(house: House) -> None:
    async def story() -> None:
        key = await house.key("enqueue", "read", lanes=("acme",))
        whole = await house.key("enqueue")
        async with house.open(whole) as client:
            body = {"task": "send", "payload": {"to": "x"}, "lane": "other"}
            other = (await client.post("/v1/jobs", json=body)).json()["id"]
        async with house.open(key) as client:
            assert (await client.post("/v1/jobs", json=body)).status_code == 404
            del body["lane"]
            mine = (await client.post("/v1/jobs", json=body)).json()
            assert mine["lane"] == "acme", "the one lane that it has is where its jobs go"
            assert [job["id"] for job in (await client.get("/v1/jobs")).json()["items"]] == [mine["id"]]
            assert (await client.get(f"/v1/jobs/{other}")).status_code == 404
            assert (await client.get("/v1/jobs", params={"lane": "other"})).status_code == 404

    house.run(story)


# --- hosts and origins --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8700", 200),
        ("127.0.0.1:8700", 200),
        ("[::1]:8700", 200),
        ("10.1.2.3", 200),
        ("LOCALHOST.", 200),
        ("tasks.example.com", 200),
        ("evil.example.com", 421),
        ("localhost.evil.example.com", 421),
        ("127.0.0.1.evil.example.com", 421),
        ("", 400),
    ],
)
def test_only_known_hosts_are_answered(memory_house: House, host: str, status: int) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open(hosts=("tasks.example.com",)) as client:
            answer = await client.get("/v1/session", headers={"host": host})
            assert answer.status_code == status
            probe = await client.get("/healthz", headers={"host": host})
            assert probe.status_code == 200, "a probe asks by whatever name it has"

    house.run(story)


@pytest.mark.parametrize(
    "host",
    [
        ".",
        "[::1]evil.com",
        "[::1]:80evil.com",
        "[evil.com]",
        "127.0.0.1:80@evil.com",
        "evil.com@127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:80:80",
        "127.0.0.1/evil.com",
        "127.0.0.1, evil.com",
        "127.0.0.1 evil.com",
        "::1",
        "localhost\t",
    ],
)
def test_a_host_that_is_neither_a_name_nor_an_address_is_refused(memory_house: House, host: str) -> None:
    house = memory_house

    async def story() -> None:
        for hosts in ((), ("*",), ("evil.com",)):
            async with house.open(hosts=hosts) as client:
                answer = await client.get("/v1/session", headers={"host": host})
                assert answer.status_code == 400

    house.run(story)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"origin": "http://localhost"}, 201),
        ({"sec-fetch-site": "same-origin"}, 201),
        ({"origin": "http://evil.example.com"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"x-forwarded-for": "1.2.3.4"}, 201),  # who shows the token may come through a proxy
    ],
)
def test_pages_of_other_sites_do_nothing_on_a_server_without_keys(
    memory_house: House, headers: dict[str, str], status: int
) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:
            body = {"type": "add", "payload": {"a": 1}}
            assert (await client.post("/enqueue", json=body, headers=headers)).status_code == status

    house.run(story)


def test_logging_in_gives_a_cookie_that_other_sites_cannot_use(house: House) -> None:
    async def story() -> None:
        key = await house.key("read", "operate", "enqueue")
        async with house.open("") as client:
            assert (await client.post("/v1/session", json={"key": key + "x"})).status_code == 401
            answer = await client.post("/v1/session", json={"key": key})
            assert answer.status_code == 204
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert key not in cookie
            assert (await client.get("/v1/session")).json()["name"].startswith("key ")
            body = {"type": "add", "payload": {"a": 1}}
            bare = await client.post("/enqueue", json=body)
            assert bare.status_code == 403, "a cookie alone proves nothing about who sent it"
            own = await client.post("/enqueue", json=body, headers={"origin": "http://localhost"})
            assert own.status_code == 201
            alien = await client.post("/enqueue", json=body, headers={"origin": "http://evil.example.com"})
            assert alien.status_code == 403
            kept = client.cookies["windlass_session"]
            out = await client.request("DELETE", "/v1/session", headers={"origin": "http://localhost"})
            assert out.status_code == 204
            assert (await client.get("/v1/session")).status_code == 401
            client.cookies.set("windlass_session", kept)
            assert (await client.get("/v1/session")).status_code == 401, (
                "a copy of the cookie is worth nothing"
            )
            assert (await client.post("/v1/session", json={"key": key})).status_code == 204

    house.run(story)


def test_a_login_ends_with_its_key_and_cannot_be_forged(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        server = house.server()
        async with house.open("", server=server) as client:
            await client.post("/v1/session", json={"key": key})
            good = client.cookies["windlass_session"]
            for forged in (good[:-2] + "AA", "Z" + good[1:], "x", ""):
                client.cookies.set("windlass_session", forged)
                assert (await client.get("/v1/session")).status_code == 401, forged
            client.cookies.clear()
            client.cookies.set("windlass_session", good)
            assert (await client.get("/v1/session")).status_code == 200
            await Keys(await house.app.connection.broker()).revoke(key.split("_")[1])
            await until(lambda: _is_shut(client), within=5)

    house.run(story)


def test_behind_tls_the_cookie_is_for_tls_alone(house: House) -> None:
    async def story() -> None:
        key = await house.key("read")
        async with house.open(secure=True) as client:
            answer = await client.post("/v1/session", json={"key": key})
            assert "Secure" in answer.headers["set-cookie"]

    house.run(story)


def test_every_answer_carries_the_headers_that_protect_it(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            for path in ("/healthz", "/v1/session", "/v1/nope", "/v1/jobs/x", "/openapi.json", "/"):
                answer = await client.get(path)
                assert answer.headers["x-content-type-options"] == "nosniff", path
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"], path
                assert "unsafe" not in answer.headers["content-security-policy"], path
                assert answer.headers["referrer-policy"] == "no-referrer", path
            wrong = await client.get("/v1/session", headers={"host": "evil.example.com"})
            assert wrong.headers["x-content-type-options"] == "nosniff"
            assert wrong.json()["type"] == "urn:windlass:wrong-host"

    house.run(story)
