"""A Celery app is moved live, on RabbitMQ and on Redis, while processes are killed: workers first (Celery
sends, Windlass runs) and producers first (Windlass sends, workers of Celery run).
"""

import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import chain
from tests.bridges import celery_peer
from tests.bridges.killed_app import NOTES
from tests.bridges.killed_intakes import Intakes, number_of, store_of_kind
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.core.state import State
from windlass.verify.brokers.rabbitmq import Rabbit
from windlass.verify.stores.own import free_port

ROOT = Path(__file__).parents[2]


class Peer(NamedTuple):
    """A message broker, as Celery names it and as Windlass does."""

    celery: str
    windlass: str

    @property
    def app(self) -> Any:
        return celery_peer.sender(self.celery)


@pytest.fixture(params=["rabbitmq", "redis"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    if request.param == "rabbitmq":
        rabbit: Rabbit = request.getfixturevalue("rabbit")
        yield Peer(rabbit.url("/"), rabbit.url("peer"))
        with Peer(rabbit.url("/"), "").app.connection() as connection:
            connection.default_channel.queue_delete("peer")
    else:
        port = free_port()
        with running(redis_binary(), "--port", str(port), "--bind", "127.0.0.1"):
            address = f"redis://127.0.0.1:{port}/0"
            yield Peer(address, f"{address}?list=peer&hold=2")


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What tasks write to, whoever runs them."""
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.setenv(NOTES, str(file))
    return file


@contextmanager
def worker_of_celery(peer: Peer, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A worker process of Celery's."""
    command = "-A tests.bridges.celery_peer worker -P solo -l WARNING --without-gossip --without-mingle"
    with (folder / "celery.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *command.split()],
            env={**os.environ, celery_peer.BROKER: peer.celery},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def ours(folder: Path, store: str, url: str, form: str, processes: int = 2) -> Iterator[Intakes]:
    """Processes of `windlass worker`, which run intakes as well."""
    made = Intakes(folder, store, url, form, command="worker")
    try:
        for _ in range(processes):
            made.start()
        yield made
    finally:
        made.stop()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def numbers_in(notes: Path) -> Counter[int]:
    return Counter(int(line.split()[0]) for line in notes.read_text().splitlines())


def workers_first(peer: Peer, folder: Path, count: int, kills: int) -> None:
    """Celery sends, Windlass runs."""
    draw, theirs = random.Random(1), peer.app
    with (
        store_of_kind("sqlite", folder) as store,
        theirs.connection() as connection,
        ours(folder, store.url, peer.windlass, "celery") as workers,
    ):
        parts = kills + 1
        for part in range(parts):
            for number in range(part * count // parts, (part + 1) * count // parts):
                theirs.send_task("proj.count", (number,), connection=connection, priority=number % 10)
            if part < kills:
                workers.wait_for(part * count // parts)
                workers.kill_one(draw)
        workers.wait_for(count)
        workers.until(lambda: workers.in_state(State.DONE) == count)
        assert workers.numbers(State.DONE) == Counter(range(count))


def producers_first(peer: Peer, folder: Path, notes: Path, count: int, kills: int) -> None:
    """Windlass sends, Celery runs. A message may be sent twice by who is killed, with one id."""
    draw = random.Random(2)
    with (
        store_of_kind("sqlite", folder) as store,
        worker_of_celery(peer, folder),
        ours(folder, store.url, peer.windlass, "to celery") as workers,
    ):
        note = workers.app.tasks["proj.note"]
        handles = [job.id for job in workers.app.enqueue_many([note.call(number) for number in range(count)])]
        for _ in range(kills):
            workers.until(lambda: len(numbers_in(notes)) > 0)
            workers.kill_one(draw)
        workers.until(lambda: numbers_in(notes).keys() == set(range(count)))
        workers.until(lambda: workers.in_state(State.DONE) == count)
        assert {line.split()[1] for line in notes.read_text().splitlines()} == set(handles)
        if not kills:
            assert numbers_in(notes) == Counter(range(count))


def test_workers_first(peer: Peer, tmp_path: Path) -> None:
    workers_first(peer, tmp_path, 300, kills=1)


def test_producers_first(peer: Peer, tmp_path: Path, notes: Path) -> None:
    producers_first(peer, tmp_path, notes, 100, kills=0)


def test_an_app_is_moved_while_it_runs(peer: Peer, tmp_path: Path, notes: Path) -> None:
    """Workers of both share the queue, Celery's end, and at last the producers move: all runs once."""
    theirs, numbers = peer.app, itertools.count()

    def send(count: int) -> None:
        for number in itertools.islice(numbers, count):
            theirs.send_task("proj.note", (number,), connection=connection)

    with (
        store_of_kind("sqlite", tmp_path) as store,
        theirs.connection() as connection,
        worker_of_celery(peer, tmp_path) as celery,
    ):
        send(100)
        wait_until(lambda: len(numbers_in(notes)) > 10)
        with ours(tmp_path, store.url, peer.windlass, "celery") as workers:
            workers.wait_until_they_read()
            while not any(line.endswith("windlass") for line in notes.read_text().splitlines()):
                send(50)  # until both have a share of it
            send(100)
            celery.terminate()
            send(100)
            assert celery.wait(30) == 0
            send(100)
            note = workers.app.tasks["proj.note"]
            moved = [note.enqueue(number) for number in itertools.islice(numbers, 100)]
            everything = set(range(next(numbers)))
            workers.until(lambda: numbers_in(notes).keys() == everything)
            workers.until(lambda: all(job.state() is State.DONE for job in moved))
    assert numbers_in(notes) == Counter(everything)


@pytest.mark.slow
def test_workers_first_under_load_and_kills(peer: Peer, tmp_path: Path) -> None:
    workers_first(peer, tmp_path, 10_000, kills=10)


@pytest.mark.slow
def test_producers_first_under_load_and_kills(peer: Peer, tmp_path: Path, notes: Path) -> None:
    producers_first(peer, tmp_path, notes, 3_000, kills=10)


def test_what_celery_sends_on_its_own_terms(peer: Peer, tmp_path: Path) -> None:
    """Later, as part of a chain, and pickled: run, or a dead letter that says why. What has expired already
    RabbitMQ itself may drop: Celery gives it a lifetime of zero there.
    """
    theirs = peer.app
    with store_of_kind("sqlite", tmp_path) as store:
        app = Windlass(store.url)
        app.task(lambda n: n, name="proj.count")
        with theirs.connection() as connection, ours(tmp_path, store.url, peer.windlass, "celery", 1) as it:
            send = {"connection": connection}
            theirs.send_task("proj.count", (1,), countdown=1, **send)
            count = theirs.signature("proj.count", (2,))
            chain(count, count).apply_async(**send)
            theirs.send_task("proj.count", (3,), serializer="pickle", **send)
            theirs.send_task("proj.count", (), kwargs={"n": 4}, **send)
            it.wait_for(4)
            it.until(lambda: it.in_state(State.DONE) == 2)
            jobs = it.jobs()
    done = {number_of(job) for job in jobs if job.state is State.DONE}
    why = sorted(job.error.message for job in jobs if job.state is State.DEAD and job.error is not None)
    assert done == {1, 4}
    assert any("chain" in each for each in why)
    assert any("unpickled" in each for each in why)
    assert sum(job.state is State.DEAD for job in jobs) == 2
