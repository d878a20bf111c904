"""The files of the dashboard: what is served, as what, and for how long it may be kept."""

import re
from pathlib import Path

import pytest
from tests.api.house import House

from windlass.api.routes import dashboard


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a build leaves it, in the place of the package's own."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>it</title>")
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "assets" / "index-CkT3xY9a.js").write_text("1")
    (tmp_path / "assets" / "index-CkT3xY9a.css").write_text("a{}" * 100)
    (tmp_path / "secret.key").write_text("not for you")
    found = dashboard.files(tmp_path)
    monkeypatch.setattr(dashboard, "files", lambda: found)
    return tmp_path


def test_pages_and_assets_are_served(memory_house: House, built: Path) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            for path in ("/", "/queues", "/jobs/01a1e06f", "/tasks/mail.send", "/docs", "/index.html"):
                page = await client.get(path)
                assert (page.status_code, page.headers["content-type"]) == (
                    200,
                    "text/html; charset=utf-8",
                ), path
                assert page.headers["cache-control"] == "no-cache"
                assert "script-src 'self'" in page.headers["content-security-policy"]
            script = await client.get("/assets/index-CkT3xY9a.js")
            assert script.headers["content-type"] == "text/javascript; charset=utf-8"
            assert "immutable" in script.headers["cache-control"]
            style = await client.get("/assets/index-CkT3xY9a.css")
            assert style.headers["content-type"] == "text/css; charset=utf-8"
            assert style.headers["content-encoding"] == "gzip"
            plain = await client.get(
                "/assets/index-CkT3xY9a.css", headers={"accept-encoding": "br, gzip;q=0"}
            )
            assert "content-encoding" not in plain.headers
            assert plain.text == style.text == "a{}" * 100
            icon = await client.get("/icon.svg")
            assert icon.headers["content-type"] == "image/svg+xml"
            known = await client.get("/icon.svg", headers={"if-none-match": icon.headers["etag"]})
            assert (known.status_code, known.content) == (304, b"")

    memory_house.run(story)


def test_nothing_else_is(memory_house: House, built: Path) -> None:
    async def story() -> None:
        async with memory_house.open() as client:
            for path in (
                "/secret.key",
                "/assets/missing.js",
                "/..%2fsecret.key",
                "/assets/../secret.key",
                "/assets/%2e%2e/secret.key",
                "/v1/nope",
                "/schema",
                "/schema/openapi.json",
                "/redoc",
                "/jobs.json",
                "/nowhere",
                "/queuesx",
                "/v1",
                "/enqueue",
            ):
                answer = await client.get(path)
                assert answer.status_code in (404, 405), path
                assert "not for you" not in answer.text
                assert answer.headers["content-type"] == "application/problem+json", path

    memory_house.run(story)


def test_the_pages_are_those_that_the_dashboard_shows() -> None:
    screens = (Path(__file__).parents[2] / "web" / "src" / "shell" / "Screen.svelte").read_text()
    named = re.findall(r'^    "?(\w*)"?: \["', screens, re.MULTILINE)
    assert set(named) == {"", *dashboard.PAGES}


def test_without_a_build_the_page_says_so(memory_house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "files", dict)

    async def story() -> None:
        async with memory_house.open() as client:
            answer = await client.get("/")
            assert answer.status_code == 404
            assert "no dashboard" in answer.json()["detail"]

    memory_house.run(story)
