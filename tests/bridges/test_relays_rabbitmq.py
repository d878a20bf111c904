"""Relays and tasks of Celery's with a real RabbitMQ, real workers and a real Celery."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiormq
import msgspec
import pytest
from tests.bridges.ends import Ends, kill

from windlass import Windlass
from windlass.core.state import State
from windlass.verify.brokers.rabbitmq import Rabbit

APP = """\
import os

from windlass import RetryPolicy, Windlass

app = Windlass("sqlite:///windlass.db")


@app.task(queue="mail", retry=RetryPolicy(max_attempts=1))
def send(to: str, password: str) -> None:
    raise ValueError("no such address")


app.relay(os.environ["AMQP"] + "deaths?key=jobs.{queue}.{state}", queues=["mail"], on="dead")
add = app.celery_task("proj.tasks.add", os.environ["AMQP"] + "celery")
"""
PEER = """\
import os

from celery import Celery

peer = Celery("proj", broker=os.environ["AMQP"], backend="file://" + os.environ["RESULTS"])


@peer.task(name="proj.tasks.add")
def add(a, b):
    return a + b
"""


async def connected(rabbit: Rabbit, story: Callable[[Any], Awaitable[Any]]) -> Any:
    """Ask the server through a plain client, which is not the adapter."""
    connection = await aiormq.connect(rabbit.url())
    try:
        return await story(await connection.channel())
    finally:
        await connection.close()


def bound(rabbit: Rabbit, exchange: str, queue: str, key: str) -> None:
    """Let what is published to an exchange be kept in a queue."""

    async def bind(channel: Any) -> None:
        await channel.exchange_declare(exchange, exchange_type="topic", durable=True)
        await channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await channel.queue_bind(queue, exchange, key)

    asyncio.run(connected(rabbit, bind))


def taken(rabbit: Rabbit, queue: str, *, least: int) -> list[Any]:
    """The messages of a queue, as soon as there are so many; they are acknowledged."""

    async def take(channel: Any) -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(60):
            while True:
                message = await channel.basic_get(queue, no_ack=True)
                if message.delivery_tag is not None:
                    found.append(message)
                elif len(found) >= least:
                    return found
                else:
                    await asyncio.sleep(0.02)

    return asyncio.run(connected(rabbit, take))


class Running:
    """A folder with an app, and processes that use it."""

    def __init__(self, folder: Path, rabbit: Rabbit) -> None:
        (folder / "tasks.py").write_text(APP)
        (folder / "proj.py").write_text(PEER)
        (folder / "results").mkdir()
        self._folder = folder
        self._environment = {**os.environ, "AMQP": rabbit.url(), "RESULTS": str(folder / "results")}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture
def running(tmp_path: Path, rabbit: Rabbit) -> Iterator[Running]:
    found = Running(tmp_path, rabbit)
    yield found
    found.end()


def test_a_worker_sends_dead_letters_to_an_exchange(tmp_path: Path, rabbit: Rabbit, running: Running) -> None:
    bound(rabbit, "deaths", "dead-letters", "jobs.mail.*")
    running.start("windlass", "worker", "tasks:app", "--processes", "1")
    app = Windlass(f"sqlite:///{tmp_path / 'windlass.db'}")
    app.queue("mail", emit="final")
    job = app.external("send", queue="mail").using(max_attempts=1).enqueue(to="ann", password="hunter2")
    (message,) = taken(rabbit, "dead-letters", least=1)
    said = msgspec.json.decode(message.body)
    assert message.routing_key == "jobs.mail.dead"
    assert message.header.properties.message_id.startswith(f"{job.id}:")
    assert message.header.properties.headers["windlass-state"] == "dead"
    assert said["job"]["error"]["message"] == "no such address"
    assert said["job"]["payload"]["kwargs"] == {"to": "ann", "password": "[secret]"}
    app.close()


def test_celery_runs_what_was_enqueued_with_windlass(
    tmp_path: Path, rabbit: Rabbit, running: Running
) -> None:
    """First while no Celery worker has ever been there, so there is no queue."""
    bound(rabbit, "deaths", "dead-letters", "jobs.mail.*")
    running.start("windlass", "worker", "tasks:app", "--processes", "1")
    app = Windlass(f"sqlite:///{tmp_path / 'windlass.db'}")
    add = app.external("proj.tasks.add")
    jobs = [add.using(max_attempts=1_000).enqueue(number, b=1) for number in range(20)]
    until = time.monotonic() + 60
    while jobs[0].state() is not State.SCHEDULED:
        assert time.monotonic() < until
        time.sleep(0.05)
    running.start("celery", "-A", "proj", "worker", "--pool", "solo", "--without-mingle")
    for number, job in enumerate(jobs):
        assert job.result(timeout=60) is None
        result = tmp_path / "results" / f"celery-task-meta-{job.id}"
        while not (result.exists() and result.read_bytes()):
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.05)
        assert msgspec.json.decode(result.read_bytes())["result"] == number + 1
    app.close()


@pytest.mark.slow
def test_kills_of_relay_and_server_leave_nothing_out_and_repeat_under_the_same_id(
    tmp_path: Path, rabbit: Rabbit
) -> None:
    bound(rabbit, "ends", "all-ends", "end")
    ends, drawn = Ends(tmp_path, rabbit.url("ends", options="key=end")), random.Random(11)
    running, found = [ends.start(20) for _ in range(2)], list[Any]()
    try:
        for round_ in range(30):
            ends.end(200)
            time.sleep(drawn.random())
            victim = drawn.randrange(2)
            kill(running[victim])
            running[victim] = ends.start(20)
            if round_ % 6 == 5:
                rabbit.kill()
                ends.end(200)
                rabbit.restart()
        while len({each.header.properties.message_id for each in found}) < len(ends.jobs):
            found += taken(rabbit, "all-ends", least=1)
    finally:
        kill(*running)
        ends.app.close()
    jobs = ends.jobs
    ids = [each.header.properties.message_id for each in found]
    assert sorted({each.partition(":")[0] for each in ids}) == sorted(jobs)
    assert len(set(ids)) == len(jobs)
    assert list(dict.fromkeys(each.partition(":")[0] for each in ids)) == jobs, "in order"
    assert len(ids) > len(jobs), "no kill has hit a page that was under way"
