"""The short way and the framework's: the same answers to the same requests, whichever is taken."""

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from litestar import Litestar, post
from litestar.di import Provide
from litestar.params import FromPath, JSONBody
from tests.api.house import TOKEN, House

from windlass.admin.keys import Scope
from windlass.api import server as servers
from windlass.api.access import OPEN, requires
from windlass.api.desk import RUNNING, AtDesk, at_desk
from windlass.api.options import ServeOptions
from windlass.api.running import Running
from windlass.api.server import build
from windlass.api.short import SHORT, ShortWay

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SEND: dict[str, Any] = {"task": "send", "payload": {"to": "x"}}
ENQUEUE: dict[str, Any] = {"type": "add", "payload": {"a": 1}}

ASKED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "enqueue": ("/enqueue", ENQUEUE),
    "enqueue later": ("/enqueue", {**ENQUEUE, "run_at": "2090-01-31T08:00:00Z"}),
    "enqueue at no time": ("/enqueue", {**ENQUEUE, "run_at": "soon"}),
    "enqueue without a zone": ("/enqueue", {**ENQUEUE, "run_at": "2090-01-31T08:00:00"}),
    "enqueue of an unknown task": ("/enqueue", {"type": "nope"}),
    "enqueue with a wrong argument": ("/enqueue", {"type": "add", "payload": {"a": "x"}}),
    "enqueue with an unknown field": ("/enqueue", {**ENQUEUE, "delay": 1}),
    "enqueue of a payload that is no object": ("/enqueue", {"type": "add", "payload": [1]}),
    "enqueue without a task": ("/enqueue", {}),
    "single": ("/v1/jobs", SEND),
    "single with options": (
        "/v1/jobs",
        {**SEND, "lane": "acme", "priority": 5, "tags": ["a"], "delay": "1h"},
    ),
    "single under a unique key": ("/v1/jobs", {**SEND, "key": "only one"}),
    "single with a priority out of range": ("/v1/jobs", {**SEND, "priority": 1_000}),
    "single with a priority that is text": ("/v1/jobs", {**SEND, "priority": "high"}),
    "single for an unknown queue": ("/v1/jobs", {**SEND, "queue": "nowhere"}),
    "single after an unknown job": (
        "/v1/jobs",
        {**SEND, "after": ["0192e4a0-5b3c-7abc-8def-0123456789ab"]},
    ),
    "batch": ("/v1/jobs/batch", {"jobs": [SEND, SEND]}),
    "batch with one that is wrong": ("/v1/jobs/batch", {"jobs": [SEND, {**SEND, "priority": 1_000}]}),
    "batch of none": ("/v1/jobs/batch", {"jobs": []}),
    "claim": ("/v1/leases", {"queues": ["images"]}),
    "claim that waits": ("/v1/leases", {"queues": ["images"], "wait": 0.01}),
    "claim from an unknown queue": ("/v1/leases", {"queues": ["nowhere"]}),
    "claim with a wrong limit": ("/v1/leases", {"queues": ["images"], "limit": 0}),
    "settle what is no lease": ("/v1/leases/settle", {"items": [{"lease": "x", "outcome": "ack"}]}),
}


def by_framework(house: House, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Litestar:
    """A server without the short way."""
    with monkeypatch.context() as patch:
        patch.setattr(servers, "ShortWay", lambda inner, _: inner)
        return house.server(**options)


def short_only(house: House, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Litestar:
    """A server with the short way alone: what needs the framework fails."""

    async def nobody(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(f"{scope['path']} needed the framework")

    with monkeypatch.context() as patch:
        patch.setattr(servers, "ShortWay", lambda _, server: ShortWay(nobody, server))
        return house.server(**options)


def compared(answer: httpx.Response) -> tuple[int, dict[str, str], Any]:
    """An answer without what differs from job to job."""
    headers = {name: _ID.sub("ID", value) for name, value in answer.headers.items()}
    return answer.status_code, headers, json.loads(_ID.sub("ID", answer.text))


@pytest.mark.parametrize("what", ASKED)
def test_both_ways_answer_the_same(memory_house: House, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    house, (path, body) = memory_house, ASKED[what]
    whole = by_framework(house, monkeypatch)
    short = short_only(house, monkeypatch)

    async def story() -> None:
        scopes = [scope.value for scope in Scope]
        keys = {
            "all": await house.key(*scopes),
            "bound": await house.key("enqueue", "work", queues=("mail",)),
            "bound to a lane": await house.key("enqueue", lanes=("acme",)),
            "no scope for it": await house.key("read"),
            "none": None,
            "wrong": "windlass_abc_def",
        }
        for name, key in keys.items():
            answers: list[tuple[int, dict[str, str], Any]] = []
            for server in (whole, short):
                async with house.open(key, server=server) as client:
                    answers.append(compared(await client.post(path, json=body)))
                    if "key" in body and answers[-1][0] == 201:  # the second one stands for the first
                        answers[-1] = compared(await client.post(path, json=body))
            assert answers[0] == answers[1], name

    house.run(story)


BODIES: Mapping[str, tuple[bytes, dict[str, str]]] = {
    "no JSON": (b"{", {}),
    "not UTF-8": (b'{"type": "\xff"}', {}),
    "text": (b'"add"', {}),
    "nested deeply": (b'{"type": "add", "payload": {"a": ' + b"[" * 9_000 + b"]" * 9_000 + b"}}", {}),
    "another type": (b"{}", {"content-type": "text/plain"}),
    "no type": (b"{}", {"content-type": ""}),
    "JSON by another name": (
        b'{"type": "add", "payload": {"a": 1}}',
        {"content-type": "application/vnd.x+json; charset=utf-8"},
    ),
    "too large": (b'{"type": "' + b"x" * 2_000_000 + b'"}', {}),
    "a length that is a lie": (b'{"type": "' + b"x" * 2_000_000 + b'"}', {"content-length": "10"}),
}


@pytest.mark.parametrize("what", BODIES)
def test_bodies_are_refused_in_the_same_words(
    memory_house: House, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    house, (body, headers) = memory_house, BODIES[what]
    whole = by_framework(house, monkeypatch)
    short = short_only(house, monkeypatch)

    async def story() -> None:
        said = {"content-type": "application/json", **headers}
        answers: list[tuple[int, dict[str, str], Any]] = []
        for server in (whole, short):
            async with house.open(server=server) as client:
                answers.append(compared(await client.post("/enqueue", content=body, headers=said)))
        assert answers[0] == answers[1]

    house.run(story)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/enqueue?x=1", {}, 201),
        ("POST", "/v1/jobs?x=1", {}, 400),
        ("POST", "/enqueue/", {}, 201),
        ("GET", "/enqueue", {}, 405),
        ("POST", "/enqueue", {"idempotency-key": "k"}, 201),
        ("POST", "/enqueue", {"idempotency-key": "k" * 300}, 400),
        ("POST", "/enqueue", {"Idempotency-Key": ""}, 400),
    ],
)
def test_what_is_not_plain_goes_the_frameworks_way(
    memory_house: House, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:
            answer = await client.request(method, path, json=ENQUEUE, headers=headers)
            assert answer.status_code == status, answer.text

    house.run(story)


def test_an_empty_body_is_refused_either_way(memory_house: House) -> None:
    house = memory_house

    async def story() -> None:
        async with house.open() as client:
            answer = await client.post("/enqueue", headers={"content-type": "application/json"})
            assert answer.status_code == 400
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"] == "body: there is none: send JSON"

    house.run(story)


@pytest.mark.parametrize("query", [b"", b"framework=1"], ids=["short", "framework"])
def test_half_a_body_of_a_caller_that_left_makes_no_job_and_no_noise(
    memory_house: House, caplog: pytest.LogCaptureFixture, query: bytes
) -> None:
    house = memory_house
    server = house.server()
    whole = json.dumps(ENQUEUE).encode()
    words = itertools.chain(
        [
            {"type": "http.request", "body": whole, "more_body": True},  # it reads as whole, and is not
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(words)

    async def send(message: Any) -> None:
        sent.append(message)

    async def story() -> None:
        async with house.open(server=server) as client:
            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            headers.append((b"authorization", f"Bearer {TOKEN}".encode()))
            headers.append((b"content-length", b"%d" % (len(whole) + 1)))
            scope = {"type": "http", "method": "POST", "path": "/enqueue", "raw_path": b"/enqueue"}
            scope |= {"query_string": query, "headers": headers, "state": {}, "client": ("127.0.0.1", 1)}
            await server(scope, receive, send)  # type: ignore[arg-type]
            assert bool(sent) == bool(query), "the framework answers, to nobody"
            assert (await client.get("/v1/jobs")).json()["items"] == []
            assert not [record for record in caplog.records if record.name.startswith("windlass")]

    house.run(story)


def test_a_fault_of_ours_is_told_without_its_text(
    memory_house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    house = memory_house

    async def broken(_: Running) -> None:
        raise KeyError("hunter2")

    server = short_only(house, monkeypatch)
    monkeypatch.setattr(Running, "seals", broken)

    async def story() -> None:
        async with house.open(server=server) as client:
            answer = await client.post("/enqueue", json=ENQUEUE)
            assert answer.status_code == 500
            assert answer.json()["type"] == "urn:windlass:internal"
            assert "hunter2" not in answer.text
        assert "unexpected KeyError" in caplog.text

    house.run(story)


def test_a_route_that_needs_more_than_a_body_cannot_be_short(memory_house: House) -> None:
    @post("/v1/one/{name:str}", guards=[requires(Scope.READ)], opt={SHORT: True})
    async def by_name(desk: AtDesk, name: FromPath[str], data: JSONBody[dict[str, int]]) -> str:
        return name

    @post("/v1/two", guards=[OPEN], opt={SHORT: True})
    async def by_anybody(desk: AtDesk, data: JSONBody[dict[str, int]]) -> str:
        return ""

    @post("/v1/three", guards=[requires(Scope.READ)], opt={SHORT: True})
    async def without_a_body(desk: AtDesk) -> str:
        return ""

    running = Running(memory_house.app, ServeOptions())
    for route in (by_name, by_anybody, without_a_body):
        server = Litestar([route], dependencies={"desk": Provide(at_desk)}, openapi_config=None)
        server.state[RUNNING] = running
        with pytest.raises(ValueError, match="cannot be called the short way"):
            ShortWay(server.asgi_handler, server)


def test_the_routes_that_many_ask_for_are_short(memory_house: House) -> None:
    found = {path for path, handler in servers.handlers(build(memory_house.app)) if handler.opt.get(SHORT)}
    assert found == {"/enqueue", "/v1/jobs", "/v1/jobs/batch", "/v1/leases", "/v1/leases/settle"}
