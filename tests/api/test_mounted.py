"""The dashboard and the API under a path of another application, which has let its callers in."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from windlass import Windlass
from windlass.admin.keys import NewKey
from windlass.admin.keys import Scope as KeyScope
from windlass.admin.service import Service
from windlass.api import Mounted, Visitor
from windlass.api.routes import dashboard
from windlass.errors import InvalidOption

INDEX = b"""<!doctype html><html><head>
<meta name="windlass-base" content="/" />
<script type="module" src="/assets/index-CkT3xY9a.js"></script></head></html>"""
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def jobs() -> Windlass:
    app = Windlass("memory://")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return app


def in_starlette(queue: Mounted) -> Asgi:
    return Starlette(routes=[Mount("/queue", queue)])


def in_litestar(queue: Mounted) -> Asgi:
    @asgi("/queue", is_mount=True, copy_scope=True)
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await queue(scope, receive, send)

    return Litestar([mounted])


def in_nested_mounts(queue: Mounted) -> Asgi:
    """As behind a proxy that takes a path, too."""
    return Starlette(routes=[Mount("/", Starlette(routes=[Mount("/queue", queue)]))])


HOSTS = pytest.mark.parametrize("host", [in_starlette, in_litestar, in_nested_mounts])


@asynccontextmanager
async def asked(queue: Mounted, web: Asgi, **given: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        queue.lifespan(),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(web, raise_app_exceptions=False),
            base_url="https://shop.example",
            **given,
        ) as client,
    ):
        yield client


def run(story: Awaitable[None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await story

    asyncio.run(main())


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard as a build leaves it."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_bytes(INDEX)
    (tmp_path / "assets" / "index-CkT3xY9a.js").write_text("1")
    found = dashboard.files(tmp_path)
    monkeypatch.setattr(dashboard, "files", lambda: found)


@HOSTS
def test_pages_assets_and_links_are_under_the_path(built: None, host: Callable[[Mounted], Asgi]) -> None:
    async def story() -> None:
        queue = Mounted(jobs(), visitor=Visitor("ada"))
        async with asked(queue, host(queue)) as client:
            for path in ("/queue/", "/queue/jobs/01a1e06f", "/queue/docs"):
                page = await client.get(path)
                assert page.status_code == 200, path
                assert '<meta name="windlass-base" content="/queue/" />' in page.text
                assert 'src="/queue/assets/index-CkT3xY9a.js"' in page.text
                assert "script-src 'self'" in page.headers["content-security-policy"]
                again = await client.get(path, headers={"if-none-match": page.headers["etag"]})
                assert again.status_code == 304
            assert (await client.get("/queue/assets/index-CkT3xY9a.js")).text == "1"
            assert (await client.get("/queue/nowhere")).status_code == 404

    run(story())


@HOSTS
def test_the_api_answers_under_the_path(host: Callable[[Mounted], Asgi]) -> None:
    async def story() -> None:
        app = jobs()
        queue = Mounted(app, visitor=Visitor("ada"))
        async with asked(queue, host(queue)) as client:
            made = await client.post("/queue/v1/jobs", json={"task": "add", "payload": {"a": 1, "b": 2}})
            assert made.status_code == 201
            assert made.headers["location"] == f"/queue/v1/jobs/{made.json()['id']}"
            assert (await client.get(made.headers["location"])).json()["payload"]["kwargs"] == {
                "a": 1,
                "b": 2,
            }
            described = (await client.get("/queue/openapi.json")).json()
            assert described["servers"] == [{"url": "/queue"}]
            assert (await client.get("/queue/v1/queues/default")).json()["name"] == "default"
            assert (await client.get("/queue/v1/queues/a%2Fb")).json()["detail"] == 'there is no queue "a/b"'
            assert (await client.get("/queue/readyz")).json() == {"status": "ok"}
        app.close()

    run(story())


def test_a_queue_with_a_slash_in_its_name_is_found() -> None:
    async def story() -> None:
        app = jobs()
        app.queue("mail/slow")
        queue = Mounted(app, visitor=Visitor("ada"))
        for host in (in_starlette, in_litestar):
            async with asked(queue, host(queue)) as client:
                assert (await client.get("/queue/v1/queues/mail%2Fslow")).json()["name"] == "mail/slow"

    run(story())


def test_visitors_have_the_rights_that_the_application_gives_them_and_go_on_record() -> None:
    """By what the application knows of a request: here a session of its own."""

    def who(scope: Mapping[str, Any]) -> Visitor | None:
        user = scope["session"].get("user")
        return None if user is None else Visitor(user, scopes=["operate"] if user == "ada" else ["read"])

    async def log_in(request: Request) -> PlainTextResponse:
        request.session["user"] = request.path_params["user"]
        return PlainTextResponse("welcome")

    async def story() -> None:
        queue = Mounted(jobs(), visitor=who)
        web = Starlette(
            routes=[Route("/login/{user}", log_in), Mount("/queue", queue)],
            middleware=[Middleware(SessionMiddleware, secret_key="for the test")],
        )
        async with asked(queue, web, headers={"sec-fetch-site": "same-origin"}) as client:
            stranger = await client.get("/queue/v1/queues")
            assert (stranger.status_code, stranger.json()["type"]) == (403, "urn:windlass:forbidden")
            assert "does not let you in" in stranger.json()["detail"]
            await client.get("/login/bob")
            assert (await client.get("/queue/v1/queues")).status_code == 200
            assert (await client.post("/queue/v1/queues/default/pause")).status_code == 403
            await client.get("/login/ada")
            assert (await client.post("/queue/v1/queues/default/pause")).status_code < 300
            seen = (await client.get("/queue/v1/session")).json()
            assert (seen["name"], seen["logged_in"], seen["scopes"]) == ("visitor ada", False, ["operate"])
            (act,) = (await client.get("/queue/v1/audit")).json()["items"]
            assert (act["by"], act["what"]) == ("visitor ada", "queue paused")

    run(story())


def test_a_function_that_says_who_visits_may_be_async() -> None:
    async def who(_: Mapping[str, Any]) -> Visitor | None:
        await asyncio.sleep(0)
        return Visitor("ada", scopes="read")

    async def story() -> None:
        queue = Mounted(jobs(), visitor=who)
        async with asked(queue, in_starlette(queue)) as client:
            assert (await client.get("/queue/v1/session")).json()["scopes"] == ["read"]

    run(story())


def test_pages_of_other_sites_do_nothing_in_the_name_of_a_visitor() -> None:
    async def story() -> None:
        queue = Mounted(jobs(), visitor=Visitor("ada"))
        async with asked(queue, in_starlette(queue)) as client:
            pause = "/queue/v1/queues/default/pause"
            for headers in (
                {"sec-fetch-site": "cross-site"},
                {"origin": "https://evil.example"},
                {"cookie": "session=of-ada"},  # an old browser, which does not say what page sends it
            ):
                assert (await client.post(pause, headers=headers)).status_code == 403, headers
            assert (
                await client.get("/queue/v1/jobs", headers={"sec-fetch-site": "cross-site"})
            ).status_code == 403
            assert (
                await client.post(pause, headers={"authorization": "Bearer of the shop"})
            ).status_code < 300

    run(story())


def test_without_a_visitor_callers_show_keys_and_the_cookie_is_for_the_path() -> None:
    async def story() -> None:
        app = jobs()
        queue = Mounted(app)
        async with asked(queue, in_starlette(queue)) as client:
            assert (await client.get("/queue/v1/queues")).status_code == 503  # no key yet: nobody is let in
        async with asked(queue, in_starlette(queue)) as client:
            key, _ = await (await Service.of(app)).keys.create(NewKey(scopes=frozenset((KeyScope.READ,))))
            assert (await client.get("/queue/v1/queues")).status_code == 401
            bearer = {"authorization": f"Bearer {key}"}
            assert (await client.get("/queue/v1/queues", headers=bearer)).status_code == 200
            entered = await client.post("/queue/v1/session", json={"key": key})
            assert entered.status_code == 204
            assert "Path=/queue;" in entered.headers["set-cookie"]

    run(story())


def test_without_its_lifespan_it_says_what_to_write() -> None:
    async def story() -> None:
        queue = Mounted(jobs(), visitor=Visitor("ada"))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(in_starlette(queue)), base_url="https://shop.example"
        ) as client:
            with pytest.raises(RuntimeError, match=r"async with queue\.lifespan\(\)"):
                await client.get("/queue/")
        async with queue.lifespan():
            with pytest.raises(RuntimeError, match="enter its lifespan once"):
                async with queue.lifespan():
                    pass

    run(story())


def test_it_can_be_started_again() -> None:
    """As by each test of an application."""
    queue = Mounted(jobs(), visitor=Visitor("ada"))
    web = in_starlette(queue)

    async def story() -> None:
        async with asked(queue, web) as client:
            assert (await client.get("/queue/readyz")).json() == {"status": "ok"}

    run(story())
    run(story())


def test_a_server_may_run_it_alone() -> None:
    """It speaks the lifespan protocol."""

    async def story() -> None:
        queue = Mounted(jobs(), visitor=Visitor("ada"))
        told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        living = asyncio.create_task(queue({"type": "lifespan"}, told.get, said.put))
        await told.put({"type": "lifespan.startup"})
        assert (await said.get())["type"] == "lifespan.startup.complete"
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(queue), base_url="https://queue.example"
        ) as client:
            assert (await client.get("/v1/session")).json()["name"] == "visitor ada"
        await told.put({"type": "lifespan.shutdown"})
        assert (await said.get())["type"] == "lifespan.shutdown.complete"
        await living

    run(story())


@pytest.mark.parametrize(
    ("name", "scopes", "said"),
    [
        ("", ["read"], "1 to 100 printable characters"),
        ("a\nb", ["read"], "printable"),
        ("ada", ["rule"], "there is no scope 'rule'"),
    ],
)
def test_a_visitor_has_a_name_and_known_scopes(name: str, scopes: list[str], said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        Visitor(name, scopes=scopes)
