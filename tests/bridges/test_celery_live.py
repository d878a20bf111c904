"""A Celery app is moved live, on RabbitMQ and on Redis, while processes are killed: workers first (Celery
sends, Windlass runs) and producers first (Windlass sends, workers of Celery run).
"""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import chain
from tests.bridges import celery_peer
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
        return celery_peer.build(self.celery)


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


@contextmanager
def worker_of_celery(peer: Peer, folder: Path) -> Iterator[Path]:
    """A worker process of Celery's; the file that its tasks write to."""
    notes = folder / "notes"
    notes.touch()
    command = "-A tests.bridges.celery_peer worker -P solo -l WARNING --without-gossip --without-mingle"
    with (folder / "celery.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *command.split()],
            env={**os.environ, celery_peer.BROKER: peer.celery, celery_peer.FILE: str(notes)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield notes
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


def producers_first(peer: Peer, folder: Path, count: int, kills: int) -> None:
    """Windlass sends, Celery runs. A message may be sent twice by who is killed, with one id."""
    draw = random.Random(2)
    with (
        store_of_kind("sqlite", folder) as store,
        worker_of_celery(peer, folder) as notes,
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


def test_producers_first(peer: Peer, tmp_path: Path) -> None:
    producers_first(peer, tmp_path, 100, kills=0)


@pytest.mark.slow
def test_workers_first_under_load_and_kills(peer: Peer, tmp_path: Path) -> None:
    workers_first(peer, tmp_path, 10_000, kills=10)


@pytest.mark.slow
def test_producers_first_under_load_and_kills(peer: Peer, tmp_path: Path) -> None:
    producers_first(peer, tmp_path, 3_000, kills=10)


def test_what_celery_sends_on_its_own_terms(peer: Peer, tmp_path: Path) -> None:
    """Later, expired, as part of a chain, and pickled: run, or a dead letter that says why."""
    theirs = peer.app
    with store_of_kind("sqlite", tmp_path) as store:
        app = Windlass(store.url)
        app.task(lambda n: n, name="proj.count")
        with theirs.connection() as connection, ours(tmp_path, store.url, peer.windlass, "celery", 1) as it:
            send = {"connection": connection}
            theirs.send_task("proj.count", (1,), countdown=1, **send)
            theirs.send_task("proj.count", (2,), expires=-5, **send)
            count = theirs.signature("proj.count", (3,))
            chain(count, count).apply_async(**send)
            theirs.send_task("proj.count", (4,), serializer="pickle", **send)
            theirs.send_task("proj.count", (), kwargs={"n": 5}, **send)
            it.wait_for(5)
            it.until(lambda: it.in_state(State.DONE) == 2)
            jobs = it.jobs()
    done = {number_of(job) for job in jobs if job.state is State.DONE}
    why = sorted(job.error.message for job in jobs if job.state is State.DEAD and job.error is not None)
    assert done == {1, 5}
    assert any("chain" in each for each in why)
    assert any("unpickled" in each for each in why)
    assert sum(job.state is State.DEAD for job in jobs) == 3
