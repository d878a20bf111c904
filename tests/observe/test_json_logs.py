"""Structured logs: one JSON object per line, with the job that was running."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from windlass import Windlass, current
from windlass.errors import InvalidOption
from windlass.observe import logs
from windlass.observe.logs import JsonFormatter

_log = logging.getLogger("shop.mail")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    yield stream
    _log.removeHandler(handler)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_tells_when_who_and_what(lines: io.StringIO) -> None:
    _log.info(
        "sent %d of\n%s", 3, "many", extra={"host": "mx1", "tries": 2, "whole": {"a": 1}, "job": "fake"}
    )
    (line,) = read(lines)
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == ("info", "shop.mail", "sent 3 of\nmany")
    assert (line["host"], line["tries"]) == ("mx1", 2)
    assert not {"whole", "job", "task", "args", "msg", "taskName"} & line.keys()


def test_an_error_is_told_with_its_class_and_traceback(lines: io.StringIO) -> None:
    try:
        [].index("gone")
    except ValueError:
        _log.exception("no luck")
    (line,) = read(lines)
    assert line["error"] == "ValueError"
    assert line["traceback"].endswith("ValueError: 'gone' is not in list")


def test_a_line_that_cannot_be_made_is_not_lost() -> None:
    record = logging.LogRecord("shop", logging.INFO, __file__, 1, "%d apples", ("three",), None)
    line = json.loads(JsonFormatter().format(record))
    assert line["message"].startswith("%d apples (its arguments cannot be shown: TypeError")


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_inside_a_task_a_line_tells_the_job(lines: io.StringIO, kind: str) -> None:
    app = Windlass("memory://", poll_floor=0.05)
    told: dict[str, Any] = {}

    def tell(password: str) -> None:
        told.update(job=current.job.id, fence=current.fence)
        _log.warning("trying %s", password, extra={"note": password})

    if kind == "loop":

        @app.task(queue="mail", name="send")
        async def send(to: str, password: str) -> None:
            tell(password)
    else:

        @app.task(queue="mail", name="send")
        def send(to: str, password: str) -> None:
            tell(password)

    async def main() -> None:
        async with asyncio.timeout(30), app.worker(concurrency=1):
            await (await send.using(lane="acme").aenqueue("a@example.com", "hunter2-hunter2")).aresult(20)
        await app.aclose()

    asyncio.run(main())
    (line,) = read(lines)
    assert {name: line[name] for name in ("job", "task", "queue", "lane", "attempt", "fence")} == {
        "task": "send", "queue": "mail", "lane": "acme", "attempt": 1, **told,
    }  # fmt: skip
    assert "hunter2" not in lines.getvalue(), "a secret that it was called with"
    assert "example.com" not in lines.getvalue()
    _log.info("after")
    assert "job" not in read(lines)[-1]


def test_a_worker_logs_as_it_is_told() -> None:
    program = """
import logging, os, sys
os.environ.update(WINDLASS_LOG_FORMAT="json", WINDLASS_LOG_LEVEL="warning")
from windlass.observe.logs import begin_logging
begin_logging()
logging.getLogger("windlass.worker").info("too quiet")
logging.getLogger("windlass.worker").error("loud")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["message"] == "loud"


@pytest.mark.parametrize(
    ("variable", "value"), [("WINDLASS_LOG_FORMAT", "xml"), ("WINDLASS_LOG_LEVEL", "loud")]
)
def test_a_wish_that_has_no_meaning_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidOption, match=variable):
        logs.begin_logging()
