"""Orders: workers are killed. Each order is placed once, for its tenant; each dead letter is one event."""

import contextlib
import functools
import gzip
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from sentry_sdk.envelope import Envelope
from tests.api.served import free_port
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running
from tests.examples.programs import Programs, eventually

TENANTS = ("acme", "corner-shop", "globex", "initech")
SHELF = 100_000
ROWS = "SELECT tenant, order_id, customer FROM placed_order"


class Sentry(ThreadingHTTPServer):
    """Takes events as Sentry does, and keeps them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taken)
        self.events: list[dict[str, Any]] = []

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self.server_port}/1"

    def of_jobs(self) -> list[dict[str, Any]]:
        """Events of runs. That a process has died is an event, too, and belongs to no job."""
        return [event for event in self.events if "job" in event.get("tags", {})]


class Taken(BaseHTTPRequestHandler):
    """One envelope."""

    server: Sentry

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        items = Envelope.deserialize(body).items
        self.server.events += [
            msgspec.json.decode(item.get_bytes()) for item in items if item.type == "event"
        ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Orders(Programs):
    """The shop as its page says how to start it, with a database of its own."""

    def __init__(self, folder: Path, store: str, database: str, sentry: Sentry) -> None:
        self.database = database
        self.sentry = sentry
        self.invoices = folder / "invoices"
        port = free_port()
        self.web = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        super().__init__(
            "orders",
            folder,
            WINDLASS_URL=store,
            WINDLASS_NAMESPACE=f"n{random.randrange(1 << 40):x}",
            WINDLASS_BEAT="2s",
            WINDLASS_SESSION_TTL="10s",
            ORDERS_DATABASE=database.replace("postgres:", "postgresql+asyncpg:"),
            ORDERS_INVOICES=str(self.invoices),
            SENTRY_DSN=sentry.dsn,
        )
        self.run("-m", "orders.database")
        self.start("uvicorn", "orders.web:web", "--port", str(port), "--log-level", "warning")

    def answers(self) -> bool:
        try:
            return self.web.get("/jobs/none", headers={"x-tenant": "acme"}).status_code == 404
        except httpx.TransportError:
            return False

    def __exit__(self, *how: object) -> None:
        self.web.close()
        super().__exit__(*how)

    def work(self) -> "subprocess.Popen[bytes]":
        return self.start("windlass", "worker", "orders.tasks:app", "--processes", "1")

    def put(self, tenant: str, number: int, *, sku: str = "tea", customer: str = "") -> str:
        """Send an order; its job."""
        line = {"sku": sku, "count": 1 + number % 3, "price": "1.50"}
        order = {"customer": customer or f"{tenant} {number}", "lines": [line]}
        answer = self.web.put(f"/orders/{number}", json=order, headers={"x-tenant": tenant})
        assert answer.status_code == 202, answer.text + self.log()
        return answer.json()["job"]

    def withdraw(self, tenant: str, number: int) -> None:
        assert self.web.delete(f"/orders/{number}", headers={"x-tenant": tenant}).status_code == 204

    def rows(self, query: str) -> list[Any]:
        with psycopg.connect(self.database) as connection:
            return connection.execute(query).fetchall()

    def until_placed(self, count: int) -> None:
        eventually(lambda: len(self.rows(ROWS)) >= count, hint=self.log)

    def state(self, job: str) -> str:
        return self.web.get(f"/jobs/{job}", headers={"x-tenant": "acme"}).json()["state"]

    def dead(self) -> list[dict[str, Any]]:
        said = self.run("-m", "windlass", "dead", "orders.tasks:app", "list", "--json")
        return [msgspec.json.decode(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server(programs())
    yield started
    started.remove()


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with running(redis_binary()) as started:
        yield started.url


@pytest.fixture
def database(server: Server) -> str:
    name = f"orders{random.randrange(1 << 40)}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.dsn.replace("/postgres?", f"/{name}?")


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    taking = Sentry()
    thread = Thread(target=taking.serve_forever)
    thread.start()
    yield taking
    taking.shutdown()
    thread.join()
    taking.server_close()


@pytest.fixture(params=["redis", "postgres"])
def orders(request: pytest.FixtureRequest, tmp_path: Path, database: str, sentry: Sentry) -> Iterator[Orders]:
    store = database if request.param == "postgres" else request.getfixturevalue("redis")
    with Orders(tmp_path, store, database, sentry) as started:
        yield started


def kill_child(pid: int) -> bool:
    """Kill a process that this one has started; false if it has none just now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    with contextlib.suppress(ProcessLookupError):
        for child in random.sample(children, min(1, len(children))):
            os.kill(int(child), signal.SIGKILL)
            return True
    return False


def survive(orders: Orders, count: int, kills: Sequence[str]) -> None:
    """Send orders of all tenants, kill processes on the way, and account for every order."""
    wanted = {(tenant, number) for tenant in TENANTS for number in range(1, 1 + count // len(TENANTS))}
    workers = [orders.work() for _ in range(2 if "worker" in kills else 1)]
    eventually(orders.answers, hint=orders.log)
    orders.withdraw("acme", 9_001)
    withdrawn = orders.put("acme", 9_001)
    with ThreadPoolExecutor(4) as several:
        jobs = dict(zip(wanted, several.map(lambda one: orders.put(*one), wanted), strict=True))
    for number, kill in enumerate(kills, 1):
        orders.until_placed(count * number // (len(kills) + 2))
        victim = workers.pop(0)
        if kill == "worker":
            victim.kill()
            workers.append(orders.work())
        else:
            eventually(functools.partial(kill_child, victim.pid), hint=orders.log)
            workers.append(victim)
    orders.until_placed(count)
    eventually(lambda: all(orders.state(job) == "done" for job in jobs.values()), hint=orders.log)
    assert orders.state(withdrawn) == "cancelled"

    assert orders.put("acme", 1) == jobs["acme", 1], "a second click is the same job"
    sold_out = [orders.put(tenant, 9_002, sku="gold") for tenant in TENANTS]
    unprintable = orders.put("globex", 9_003, customer="Łukasz")  # by its invoice, which is another job
    invoices = {orders.invoices / tenant / f"{number}.txt" for tenant, number in wanted}
    eventually(lambda: invoices == set(orders.invoices.glob("*/*.txt")), hint=orders.log)
    eventually(lambda: len(orders.sentry.of_jobs()) > len(sold_out), hint=orders.log)
    assert orders.state(unprintable) == "done"
    orders.stop(*workers)  # Sentry has been told what there is to tell

    placed = {(tenant, number): customer for tenant, number, customer in orders.rows(ROWS)}
    expected = {(tenant, number): f"{tenant} {number}" for tenant, number in wanted}
    assert placed == {**expected, ("globex", 9_003): "Łukasz"}
    sold = SHELF - orders.rows("SELECT available FROM stock WHERE sku = 'tea'")[0][0]
    assert sold == sum(1 + number % 3 for _, number in wanted) + 1 + 9_003 % 3
    assert all(path.read_text().startswith(f"{path.parent.name}: invoice {path.stem}\n") for path in invoices)
    dead = {letter["id"]: letter for letter in orders.dead()}
    assert set(sold_out) < set(dead)
    events = orders.sentry.of_jobs()
    assert Counter(event["tags"]["job"] for event in events) == Counter(list(dead))
    for event in events:
        letter = dead[event["tags"]["job"]]
        assert event["tags"]["tenant"] == event["tags"]["lane"] == letter["lane"]
        assert event["transaction"] == letter["task"]


def test_each_order_is_placed_once_though_a_process_is_killed(orders: Orders) -> None:
    survive(orders, 40, ["child"])


@pytest.mark.slow
def test_two_hundred_orders_survive_many_kills(orders: Orders) -> None:
    survive(orders, 200, ["child", "worker", "child", "worker"])


def test_the_tests_of_the_shop_pass_without_servers(tmp_path: Path) -> None:
    with Programs("orders", tmp_path) as programs:
        assert "7 passed" in programs.run("-m", "pytest", "-p", "no:cacheprovider", "test_orders.py")
