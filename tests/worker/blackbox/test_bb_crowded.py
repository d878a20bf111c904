"""A full backlog in one queue: the other queues get their share, and callbacks and alerts arrive at once."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.worker.blackbox.conftest import QUICK
from tests.worker.blackbox.crowded_app import build
from tests.worker.blackbox.fleet import Fleet, eventually, fleet_in, measured

from windlass.core.state import State

pytestmark = pytest.mark.slow
APP = "tests.worker.blackbox.crowded_app:app"
AT_ONCE = 5.0
"""Seconds within which a message arrives."""


class Receiver:
    """Keeps the messages that it is sent, by what they are about."""

    def __init__(self) -> None:
        got = self.got = list[dict[str, Any]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - it is called so

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def told(self, kind: str) -> int:
        return sum(each["type"] == kind for each in self.got)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def crowd(request: pytest.FixtureRequest, tmp_path: Path, receiver: Receiver) -> Iterator[Fleet]:
    """On each store, without workers yet."""
    with contextlib.ExitStack() as stack:
        url = None
        if request.param == "redis":
            url = stack.enter_context(running(redis_binary(), "--appendonly", "yes")).url
        elif request.param == "postgres":
            server = Server(programs())
            stack.callback(server.remove)
            url = server.dsn
        settings = {**QUICK, "BB_RECEIVER": receiver.url}
        yield stack.enter_context(fleet_in(tmp_path, build, url=url, **settings))


def test_callbacks_and_alerts_arrive_while_every_slot_is_taken(crowd: Fleet, receiver: Receiver) -> None:
    """The message about a backlog does not wait for its end, nor for a slot of the jobs it tells of."""
    app, gate = crowd.app, crowd.folder / "gate"
    brief = app.tasks["brief"]
    done = [brief.using(callback=receiver.url).enqueue() for _ in range(3)]
    crowd.start("processes=1, concurrency=2", app=APP)
    for job in done:
        job.result(timeout=30)
    # Not before the workers start: they look at once, and then it is the next look that must come in time.
    assert not receiver.told("alert.raised")
    app.enqueue_many(app.tasks["gated"].call(str(gate)) for _ in range(100))
    began = time.monotonic()
    eventually("callbacks arrive", lambda: receiver.told("job.done") == 3, within=AT_ONCE, hint=crowd.trouble)
    callbacks = time.monotonic() - began
    left = AT_ONCE - callbacks
    eventually("the alert arrives", lambda: receiver.told("alert.raised"), within=left, hint=crowd.trouble)
    measured(f"callbacks after {callbacks:.2f} s, the alert after {time.monotonic() - began:.2f} s")
    assert crowd.counts()["running"] == 2
    assert crowd.counts()["ready"] > 90
    gate.touch()


def test_callbacks_arrive_under_a_steady_backlog(crowd: Fleet, receiver: Receiver) -> None:
    app = crowd.app
    app.enqueue_many(app.tasks["brief"].call() for _ in range(5_000))
    crowd.start("processes=1, concurrency=4", app=APP)
    for _ in range(3):
        before = receiver.told("job.done")
        app.tasks["brief"].using(queue="high", callback=receiver.url).enqueue().result(timeout=AT_ONCE)
        eventually(
            "the callback arrives",
            lambda before=before: receiver.told("job.done") > before,
            within=AT_ONCE,
            hint=crowd.trouble,
        )
    assert crowd.counts()["ready"] > 1_000


@pytest.mark.parametrize("named", [False, True])
def test_a_queue_gets_its_share_beside_a_backlog(crowd: Fleet, *, named: bool) -> None:
    """Unless the worker is told to empty the backlog first."""
    app = crowd.app
    app.enqueue_many(app.tasks["brief"].call() for _ in range(1_000))
    high = app.enqueue_many(app.tasks["brief"].using(queue="high").call() for _ in range(100))
    strict = ', queues=("default", "high")' if named else ""
    crowd.start(f"processes=1, concurrency=8{strict}", app=APP)
    high[-1].result(timeout=60)
    left = len(crowd.listed(queue="default", states=frozenset({State.READY})))
    measured(f"when a hundred jobs of the second queue had run, {left} of 1,000 of the first were ready")
    assert left < 20 if named else left > 600
