"""Transfers between accounts by workers that are killed and stopped: each is applied exactly once."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.postgres.transfer_app import ACCOUNTS, TABLES, build
from tests.worker.blackbox.fleet import Fleet, Supervisor, eventually, fleet_in, measured, send, tree_of

_APP = "tests.broker.postgres.transfer_app:app"
_QUICK = {"WINDLASS_SESSION_TTL": "2s", "WINDLASS_BEAT": "0.4s", "WINDLASS_GRACE": "5s"}
_PAST_TTL = 3.5


class Bank:
    """Accounts, transfers between them, and a fleet that is ill-treated."""

    def __init__(self, fleet: Fleet, connection: psycopg.Connection[Any], seed: int) -> None:
        self.fleet = fleet
        self._connection = connection
        self._random = random.Random(seed)
        self._transfers: list[tuple[int, int, int]] = []
        self._stopped: list[tuple[float, list[int]]] = []
        self.did: Counter[str] = Counter()

    def start(self, workers: int, options: str) -> None:
        self._options = options
        for worker in [self.fleet.start(options, app=_APP, wait=False) for _ in range(workers)]:
            worker.started()

    def order(self, count: int) -> None:
        for _ in range(count):
            source, target = self._random.sample(range(ACCOUNTS), 2)
            self._transfers.append((source, target, self._random.randint(1, 50)))
        task = self.fleet.app.tasks["transfer"]
        self.fleet.app.enqueue_many(task.call(at, *each) for at, each in enumerate(self._transfers))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement.encode()).fetchall()

    @property
    def applied(self) -> int:
        return self.query("SELECT count(*) FROM applied")[0][0]

    # --- ill-treatment --------------------------------------------------------------------------------------

    def kill_a_child(self) -> None:
        children = self._alive().children
        if children and send(self._random.choice(children), signal.SIGKILL):
            self.did["killed children"] += 1

    def kill_a_tree(self) -> None:
        self._alive().kill_tree()
        self.did["killed workers"] += 1
        self.fleet.start(self._options, app=_APP, wait=False)

    def stop_a_tree(self) -> None:
        """Until others have taken its jobs; then it goes on as if nothing had happened."""
        if self._stopped:
            return  # the others have to sweep
        pids = tree_of(self._alive().pid)
        self.fleet.freeze(*pids)
        self._stopped.append((time.monotonic() + _PAST_TTL, pids))
        self.did["stopped workers"] += 1

    def stop_a_child(self) -> None:
        """Its supervisor beats for it: it keeps its jobs, and the server its transaction, for a TTL."""
        eventually("the stopped go on", self._all_go_on)
        children = self._alive().children
        if children:
            self.fleet.freeze(children[0])
            self._stopped.append((time.monotonic() + _PAST_TTL, children[:1]))
            self.did["stopped children"] += 1

    def thaw(self, *, all_of_them: bool = False) -> None:
        now = time.monotonic()
        for until, pids in tuple(self._stopped):
            if all_of_them or until <= now:
                self.fleet.thaw(*pids)
                self._stopped.remove((until, pids))

    def _all_go_on(self) -> bool:
        self.thaw()
        return not self._stopped

    def _alive(self) -> Supervisor:
        stopped = {pid for _, pids in self._stopped for pid in pids}
        alive = [
            each
            for each in self.fleet.supervisors
            if each.process.poll() is None and each.pid not in stopped and each.said("worker started")
        ]
        return self._random.choice(alive)

    def ill_treat(self, acts: list[Callable[[], None]], *, every: int) -> None:
        """One act after every so many transfers."""
        for act in acts:
            aim = min(self.applied + every, len(self._transfers))
            eventually("transfers go on", lambda aim=aim: self._went_on(aim), hint=self.fleet.trouble)
            act()

    def _went_on(self, aim: int) -> bool:
        self.thaw()
        return self.applied >= aim

    # --- the account ----------------------------------------------------------------------------------------

    def check(self, *, within: float) -> None:
        def ended() -> bool:
            self.thaw()
            return not self.fleet.unfinished()

        eventually("all jobs end", ended, within=within, every=0.2, hint=self.fleet.trouble)
        count = len(self._transfers)
        assert self.fleet.counts()["done"] == count
        assert self.query("SELECT count(*), count(DISTINCT transfer) FROM applied") == [(count, count)]
        expected = dict.fromkeys(range(ACCOUNTS), 1_000)
        for source, target, amount in self._transfers:
            expected[source] -= amount
            expected[target] += amount
        assert dict(self.query("SELECT id, balance FROM account")) == expected
        jobs = self.fleet.details(self.fleet.listed())
        again = sum(job.attempt > 1 for job in jobs.values())
        measured(f"{count} transfers, {again} of them begun more than once, {dict(self.did)}")
        assert again, "the ill-treatment met nobody"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(programs(), max_connections="100")
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def bank(server: Server, tmp_path: Path) -> Iterator[Bank]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(TABLES.format(accounts=ACCOUNTS).encode())
        with fleet_in(tmp_path, build, url=server.dsn, **_QUICK) as fleet:
            made = Bank(fleet, connection, seed=7)
            try:
                yield made
            finally:
                made.thaw(all_of_them=True)


def test_transfers_by_workers_that_are_killed_and_stopped(bank: Bank) -> None:
    bank.start(2, "concurrency=4")
    bank.order(90)
    bank.ill_treat([bank.kill_a_child, bank.stop_a_tree, bank.kill_a_child], every=10)
    bank.check(within=60)


@pytest.mark.slow
def test_five_thousand_transfers(bank: Bank) -> None:
    bank.start(3, "processes=2, concurrency=4")
    bank.order(5_000)
    acts = [bank.kill_a_child, bank.stop_a_tree, bank.kill_a_tree, bank.stop_a_child, bank.kill_a_child] * 6
    bank.ill_treat(acts, every=100)
    bank.check(within=240)
    assert len(bank.did) == 4
    assert bank.did.total() >= 15
