"""The token of a server without keys, keys that were lost, and what strangers are told."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import redis
from litestar import Request
from tests.api.house import TOKEN, House, on_every_store, until
from tests.api.served import AS_LOCAL, PATIENCE, Served, environment, free_port
from tests.api.test_api_access import routes
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.admin.keys import Keys
from windlass.api.access import LOCAL, Caller
from windlass.api.options import ServeOptions
from windlass.api.problems import CALLER, on_windlass_error
from windlass.api.server import build
from windlass.core.settings import Kind
from windlass.errors import StoreUnavailable

ENQUEUE = {"type": "add", "payload": {"a": 1}}
PROXIES = (
    {},
    {"x-forwarded-for": "1.2.3.4"},
    {"x-forwarded-host": "tasks.example.com"},
    {"x-forwarded-proto": "https"},
    {"cf-connecting-ip": "1.2.3.4"},
    {"x-client-ip": "1.2.3.4"},
    {"true-client-ip": "1.2.3.4"},
    {"x-real-ip": "1.2.3.4"},
    {"forwarded": "for=1.2.3.4"},
    {"via": "1.1 proxy"},
)


# --- the token ----------------------------------------------------------------------------------------------


def test_a_server_without_keys_does_nothing_without_its_token(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with house.open("", server=server) as client:
            for method, path, asked, scopes in routes(server):
                if scopes is not None:
                    answer = await client.request(method, asked)
                    assert answer.status_code == 401, (method, path, answer.text)
                    assert "token" in answer.json()["detail"]
            for headers in PROXIES:
                assert (await client.post("/enqueue", json=ENQUEUE, headers=headers)).status_code == 401
            for path in ("/healthz", "/readyz"):
                assert (await client.get(path)).status_code == 200
        for wrong in ("x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"):
            async with house.open(server=server) as client:
                bearer = {"authorization": f"Bearer {wrong}".encode()}
                assert (await client.post("/enqueue", json=ENQUEUE, headers=bearer)).status_code == 401
        async with house.open(TOKEN, server=server) as client:
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 201

    house.run(story)


def test_guessing_the_token_is_slowed_down_and_the_right_one_is_let_in(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        server = house.server()
        async with house.open("guess", server=server) as client:
            while (await client.get("/v1/session")).status_code != 429:
                pass
            own = {"authorization": f"Bearer {TOKEN}"}
            assert (await client.get("/v1/session", headers=own)).status_code == 200

    house.run(story)


def test_an_application_that_is_given_no_token_lets_nobody_in(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        for key in ("", "None", TOKEN):
            async with house.open(key, server=build(house.app, ServeOptions())) as client:
                assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 401

    house.run(story)


def test_a_browser_that_comes_with_the_token_gets_a_cookie(house: House) -> None:
    async def story() -> None:
        async with house.open("") as client:
            wrong = await client.get("/jobs", params={"token": "guess", "state": "dead"})
            assert (wrong.status_code, wrong.headers["location"]) == (303, "/jobs?state=dead")
            assert "set-cookie" not in wrong.headers
            for path in ("//evil.com/", "/%2F/evil.com", "/\\evil.com"):
                elsewhere = await client.get(f"http://localhost{path}", params={"token": TOKEN})
                client.cookies.clear()
                assert elsewhere.status_code == 404 or re.match(
                    r"/[^/\\]", elsewhere.headers["location"] + "x"
                ), path
            right = await client.get("/jobs", params={"token": TOKEN, "state": "dead"})
            assert (right.status_code, right.headers["location"]) == (303, "/jobs?state=dead")
            assert TOKEN not in right.headers["set-cookie"]
            assert "HttpOnly" in right.headers["set-cookie"]
            assert "SameSite=strict" in right.headers["set-cookie"]
            assert (await client.get("/v1/session")).json()["name"] == "local"
            bare = await client.post("/enqueue", json=ENQUEUE)
            assert bare.status_code == 403, "a cookie alone proves nothing about who sent it"
            own = await client.post("/enqueue", json=ENQUEUE, headers={"origin": "http://localhost"})
            assert own.status_code == 201
        async with house.open("", token="another-token-after-a-restart") as other:
            other.cookies = client.cookies
            assert (await other.get("/v1/session")).status_code == 401, "it was shown another token"

    house.run(story)


@on_every_store
def test_a_login_with_the_token_ends_when_somebody_logs_out(house: House) -> None:
    async def story() -> None:
        first, second = house.server(), house.server()  # as two processes have them
        async with house.open("", server=first) as client, house.open("", server=second) as other:
            for _ in range(3):
                assert (await client.post("/v1/session", json={"key": TOKEN})).status_code == 204
                cookies = [client.cookies["windlass_session"]]
                client.cookies.clear()
            await client.post("/v1/session", json={"key": TOKEN})
            mine = {"cookie": f"windlass_session={client.cookies['windlass_session']}"}
            theirs = {"cookie": f"windlass_session={cookies[0]}"}
            client.cookies.clear()
            assert (await other.get("/v1/session", headers=mine)).status_code == 200
            own = {**mine, "origin": "http://localhost"}
            assert (await client.request("DELETE", "/v1/session", headers=own)).status_code == 204
            assert (await client.get("/v1/session", headers=mine)).status_code == 401
            assert (await other.get("/v1/session", headers=mine)).status_code == 401
            assert (await other.get("/v1/session", headers=theirs)).status_code == 200, (
                "another login goes on"
            )
            assert (await client.request("DELETE", "/v1/session", headers=own)).status_code == 204

    house.run(story)


def test_the_token_opens_nothing_once_there_are_keys(house: House) -> None:
    async def story() -> None:
        async with house.open() as client:
            login = await client.get("/", params={"token": TOKEN})
            assert "set-cookie" in login.headers
            await house.key("read")

            async def is_shut() -> bool:
                return (await client.get("/v1/session")).status_code == 401

            await until(is_shut, within=5)
            cookie = {"cookie": login.headers["set-cookie"].partition(";")[0], "authorization": "none"}
            assert (await client.get("/v1/session", headers=cookie)).status_code == 401
            assert "set-cookie" not in (await client.get("/", params={"token": TOKEN})).headers

    house.run(story)


@pytest.mark.parametrize("headers", [{"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}])
def test_a_page_of_another_site_does_not_even_make_a_record(
    memory_house: House, headers: dict[str, str]
) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:
            job = (await client.post("/enqueue", json=ENQUEUE)).json()["task_id"]
        path = f"/v1/jobs/{job}?secrets=true"
        async with house.open("", trust_local=True, token=None) as client:
            assert (await client.get(path, headers=headers)).status_code == 401
        async with house.open("") as client:
            await client.get("/", params={"token": TOKEN})
            assert (await client.get(path, headers=headers)).status_code == 401
            assert (await client.get(path, headers={"origin": "http://evil.com"})).status_code == 401
            broker = await house.app.connection.broker()
            assert not await broker.documents(Kind.AUDIT)
            assert (await client.get(path, headers={"sec-fetch-site": "same-origin"})).status_code == 200
            assert len(await broker.documents(Kind.AUDIT)) == 1

    house.run(story)


def test_who_trusts_the_machine_is_asked_for_nothing_and_still_refuses_what_a_proxy_names(
    memory_house: House,
) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open("", trust_local=True, token=None) as client:
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 201
            for headers in PROXIES[1:]:
                refused = await client.post("/enqueue", json=ENQUEUE, headers=headers)
                assert refused.status_code == 403, headers
            foreign = await client.post("/enqueue", json=ENQUEUE, headers={"origin": "http://evil.com"})
            assert foreign.status_code == 403
        everywhere = build(house.app, ServeOptions(trust_local=True, host="0.0.0.0"))  # noqa: S104
        async with house.open("", server=everywhere) as client:
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 401

    house.run(story)


def started(folder: Path, *options: str, **variables: str) -> tuple["subprocess.Popen[str]", str]:
    """A server, and the first line that it prints."""
    own = {name: value for name, value in environment().items() if name != "WINDLASS_TOKEN"}
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "serve", "tasks:app", *options],
        cwd=folder,
        env={**own, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline()


def ended(process: "subprocess.Popen[str]") -> str:
    """What a server that is told to stop has said besides."""
    process.terminate()
    return process.communicate(timeout=PATIENCE)[1]


def test_the_first_line_has_the_address_with_the_token(tmp_path: Path) -> None:
    port = str(Served(tmp_path).port)
    first, line = started(tmp_path, "--port", port)
    try:
        found = re.fullmatch(r"Serving tasks:app on (http://127\.0\.0\.1:\d+)/\?token=([\w-]{32})\n", line)
        assert found is not None, line
        own = {"authorization": f"Bearer {found[2]}"}
        assert (
            httpx.post(f"{found[1]}/enqueue", json=ENQUEUE, headers=own, timeout=PATIENCE).status_code == 201
        )
        assert httpx.post(f"{found[1]}/enqueue", json=ENQUEUE, timeout=PATIENCE).status_code == 401
    finally:
        ended(first)
    again, line = started(tmp_path, "--port", port, "--json")
    try:
        shown = json.loads(line)
        assert shown["token"] == found[2], "a restart does not change it"
        assert parse_qs(urlsplit(shown["url"]).query)["token"] == [found[2]]
        assert shown["address"] == found[1]
        assert shown["needs_keys"] is False
    finally:
        ended(again)
    chosen, line = started(tmp_path, "--port", port, WINDLASS_TOKEN="chosen-by-me")
    ended(chosen)
    assert line.endswith("/?token=chosen-by-me\n")
    trusting, line = started(tmp_path, "--port", port, "--trust-local")
    try:
        assert line == f"Serving tasks:app on {found[1]}\n"
        assert httpx.post(f"{found[1]}/enqueue", json=ENQUEUE, timeout=PATIENCE).status_code == 201
    finally:
        assert "may do everything" in ended(trusting)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--token", "short"), "at least 8 characters"),
        (("--token", "with a space in it"), "letters, digits"),
        (("--token", "long-enough", "--trust-local"), "cannot be used together"),
        (("--connections", "0"), "from 10 to 100,000"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    Served(tmp_path)
    process, _ = started(tmp_path, *options)
    error = process.communicate(timeout=PATIENCE)[1]
    assert said in error
    assert process.returncode != 0


# --- keys that are lost -------------------------------------------------------------------------------------


async def lose_keys(app: Windlass) -> None:
    """As a store that was emptied."""
    broker = await app.connection.broker()
    for document in await broker.documents(Kind.KEY):
        await broker.override(document.subject, None, document.version)
    assert [each async for each in Keys(broker).all()] == []


async def _is_let_in(client: httpx.AsyncClient, key: str) -> bool:
    own = {"authorization": f"Bearer {key}"}
    return (await client.post("/enqueue", json=ENQUEUE, headers=own)).status_code == 201


@on_every_store
def test_keys_that_are_lost_open_nothing(house: House, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        key = await house.key("read", "enqueue")
        async with house.open(key) as client:
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 201
            await lose_keys(house.app)

            async def is_closed() -> bool:
                answer = await client.post("/enqueue", json=ENQUEUE)
                assert answer.status_code in (201, 503)
                return answer.status_code == 503

            await until(is_closed, within=10)
            for shown in (f"Bearer {key}", f"Bearer {TOKEN}", "nothing"):
                answer = await client.post("/enqueue", json=ENQUEUE, headers={"authorization": shown})
                assert (answer.status_code, answer.json()["type"]) == (503, "urn:windlass:keys-missing")
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            assert "its store has none" in caplog.text
            again = await house.key("enqueue")
            await until(lambda: _is_let_in(client, again))

    house.run(story)


@pytest.mark.parametrize("trust", [True, False])
def test_a_server_that_requires_keys_is_closed_while_there_are_none(memory_house: House, trust: bool) -> None:
    house = memory_house

    async def story() -> None:
        for key in ("", TOKEN):
            async with house.open(key, require_keys=True, trust_local=trust) as client:
                assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 503
                page = await client.get("/", params={"token": TOKEN})
                assert "set-cookie" not in page.headers

    house.run(story)


def test_processes_of_a_server_agree_that_keys_are_needed(memory_house: House, tmp_path: Path) -> None:
    house = memory_house

    async def story() -> None:
        options = ServeOptions(token=TOKEN)
        async with house.open(server=build(house.app, options, folder=tmp_path)) as seen:
            assert (await seen.post("/enqueue", json=ENQUEUE)).status_code == 201
            key = await house.key("enqueue")
            await until(lambda: _is_let_in(seen, key))
            await lose_keys(house.app)
            async with house.open(server=build(house.app, options, folder=tmp_path)) as other:
                answer = await other.post("/enqueue", json=ENQUEUE)
                assert answer.status_code == 503, "it has seen no key itself"

    house.run(story)


def test_a_server_whose_temporary_files_were_tidied_up_reads_its_keys(
    memory_house: House, tmp_path: Path
) -> None:
    house = memory_house

    async def story() -> None:
        server = build(house.app, ServeOptions(token=TOKEN), folder=tmp_path / "gone")
        async with house.open(server=server) as client:
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 201
            key = await house.key("enqueue")
            await until(lambda: _is_let_in(client, key))
            assert (await client.post("/enqueue", json=ENQUEUE)).status_code == 401

    house.run(story)


def test_a_redis_that_was_emptied_opens_nothing(tmp_path: Path) -> None:
    with running(redis_binary()) as server:
        _emptied(server.url, tmp_path)


def test_servers_of_a_redis_that_was_emptied_agree_on_what_they_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.server_state.SECRET_FRESH", 0.0)  # the two seconds are over
    with running(redis_binary()) as server:
        earlier, later = House(server.url, namespace="emptied"), House(server.url, namespace="emptied")

        async def story() -> None:
            async with earlier.open("") as first:
                old = await _login(first)
                _flush(server.url)
                async with later.open("") as second:  # as a process that takes the place of one that has died
                    new = await _login(second)
                await later.app.aclose()
                first.cookies.clear()
                answers = [
                    (await first.get("/v1/session", headers=cookie)).status_code for cookie in (new, old)
                ]
                assert answers == [200, 401]

        earlier.run(story)


async def _login(client: httpx.AsyncClient) -> dict[str, str]:
    """The headers of a browser that has logged in."""
    login = await client.post("/v1/session", json={"key": TOKEN})
    return {"cookie": login.headers["set-cookie"].partition(";")[0]}


def _emptied(url: str, tmp_path: Path) -> None:
    served = Served(tmp_path, "--workers", "2")
    tasks = (tmp_path / "tasks.py").read_text()
    (tmp_path / "tasks.py").write_text(
        re.sub(r"app = Windlass\(.*\)", f"app = Windlass({url!r}, namespace='emptied')", tasks)
    )
    served.start()
    try:
        key = served.command("keys", "tasks:app", "create", "--scope", "read", "--scope", "enqueue").strip()
        own = {"authorization": f"Bearer {key}"}
        assert httpx.get(f"{served.url}/v1/session", headers=own, timeout=PATIENCE).status_code == 200
        _flush(url)
        deadline = time.monotonic() + PATIENCE
        answers: list[int] = []
        while answers[-10:] != [503] * 10:
            assert time.monotonic() < deadline, answers
            with httpx.Client(timeout=PATIENCE) as anew:  # a connection for each: either process may have it
                answers.append(anew.get(f"{served.url}/v1/jobs").status_code)
                assert anew.post(f"{served.url}/enqueue", json=ENQUEUE, headers=AS_LOCAL).status_code != 201
        assert 200 not in answers
    finally:
        served.stop()
    assert "its store has none" in served.log.read_text()
    closed = Served(tmp_path, "--require-keys")
    (tmp_path / "tasks.py").write_text(tasks.replace("windlass.db", "new.db"))
    process, line = started(tmp_path, "--port", str(closed.port), "--require-keys")
    try:
        assert "token" not in line
        answer = httpx.post(f"{closed.url}/enqueue", json=ENQUEUE, timeout=PATIENCE)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:windlass:keys-missing")
    finally:
        ended(process)


def _flush(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushdb()


# --- what strangers are told --------------------------------------------------------------------------------


def test_strangers_are_not_told_where_the_store_is() -> None:
    port = free_port()
    house = House(f"redis://127.0.0.1:{port}/0")

    async def story() -> None:
        server = house.server(sweep=False)
        async with house.open("", server=server) as client:
            asked = [(method, path) for method, _, path, _ in routes(server)]
            cookie = {"cookie": "windlass_session=x", "origin": "http://localhost"}
            for method, path in {
                ("GET", "/readyz"),
                *asked[:10],
                ("POST", "/v1/session"),
                ("DELETE", "/v1/session"),
            }:
                for headers in ({}, {"authorization": "Bearer windlass_a_b"}, cookie):
                    answer = await client.request(method, path, headers=headers, json={"key": "windlass_a_b"})
                    assert answer.status_code in (200, 503), (method, path, answer.text)
                    for secret in (str(port), "127.0.0.1", "redis", "Redis"):
                        assert secret not in answer.text, (method, path)

    house.run(story)
    house.close()


def test_only_those_who_are_known_are_told_why_the_store_fails() -> None:
    error = StoreUnavailable("the Redis server at 10.0.0.1:6379 does not answer")

    def answer(caller: Caller | None) -> bytes:
        scope: Any = {"type": "http", "state": {CALLER: caller}}
        return on_windlass_error(Request(scope), error).content

    assert b"10.0.0.1" not in answer(None)
    assert b"10.0.0.1" in answer(LOCAL)
