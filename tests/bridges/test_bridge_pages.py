"""The programs of the pages about message brokers do what the pages say, with real servers."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from tests.bridges.kafka_ground import Kafka
from tests.bridges.rabbits import Client
from tests.snippets import snippets

from windlass.config import PREFIX
from windlass.conformance.bridges.ground import Sent
from windlass.verify.brokers.elasticmq import OwnElasticMQ
from windlass.verify.brokers.nats import OwnNats
from windlass.verify.brokers.rabbitmq import Rabbit

DOCS = Path(__file__).parents[2] / "docs"


class Reader:
    """Somebody who follows a page in an empty folder."""

    def __init__(self, page: str, folder: Path, said: str, meant: str) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        for snippet in snippets(DOCS / page):
            if snippet.file is not None and not (folder / snippet.file).exists():
                assert said in snippet.text or snippet.file not in ("tasks.py", "stream.py")
                (folder / snippet.file).write_text(snippet.text.replace(said, meant))

    def runs(self, *command: str) -> str:
        """What a command says."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode in (0, 1), done.stderr  # doctor: 1 when it warns
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def worker(self) -> Iterator[IO[str]]:
        """A worker, which must end well; what it says."""
        worker = subprocess.Popen(
            [sys.executable, "-m", "windlass", "worker", "tasks:app"],
            cwd=self._folder,
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert worker.stdout is not None
        try:
            yield worker.stdout
            worker.send_signal(signal.SIGTERM)
            worker.stdout.read()
            assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()

    def sees(self, pattern: str, *command: str) -> None:
        """A command comes to say this."""
        said = ""
        for _ in range(20):
            if re.search(pattern, said := self.runs(*command)):
                return
        raise AssertionError(f"{command} does not say {pattern}: {said}")

    def works(self, *lines: str) -> None:
        """A worker prints these lines, in any order, and finds the message that nobody can read."""
        with self.worker() as says:
            wanted, heard = set(lines), list[str]()
            for line in says:
                heard.append(line)
                wanted = {each for each in wanted if each not in line}
                if not wanted:
                    break
            assert not wanted, "".join(heard)
            self.sees("UnreadableMessage", "-m", "windlass", "dead", "tasks:app", "--json")


def follows(reader: Reader, programs: Sequence[str]) -> None:
    for program in programs:
        reader.runs(program)
    reader.works("order 7 goes to Lisbon", "order 8 goes to Oslo")


def test_the_page_about_nats(nats_server: OwnNats, tmp_path: Path) -> None:
    reader = Reader("nats.md", tmp_path, "nats://localhost:4222", nats_server.url())
    follows(reader, ["stream.py", "publish.py"])
    assert "ORDERS" in reader.runs("-m", "windlass", "intakes", "tasks:app")
    assert "replica" in reader.runs("-m", "windlass", "doctor", "tasks:app")


def test_the_page_about_sqs(sqs: OwnElasticMQ, tmp_path: Path) -> None:
    reader = Reader("sqs.md", tmp_path, "http://localhost:9324", sqs.endpoint)
    follows(reader, ["send.py"])
    assert "orders" in reader.runs("-m", "windlass", "intakes", "tasks:app")


def test_the_page_about_kafka(kafka: Kafka, tmp_path: Path) -> None:
    kafka.broker.make_topic("orders", 3)
    reader = Reader("kafka.md", tmp_path, "kafka://localhost:9092/", kafka.url(""))
    (sending,) = (each.text for each in snippets(DOCS / "kafka.md") if "orders.txt" in each.text)
    lines, _, command = sending.partition("bin/kafka-console-producer.sh")
    subprocess.run(["/bin/sh", "-c", lines], cwd=tmp_path, check=True)
    options = shlex.split(command.replace("\\\n", " ").partition("<")[0])
    options[options.index("--bootstrap-server") + 1] = kafka.broker.bootstrap
    subprocess.run(
        kafka.broker.tool("org.apache.kafka.tools.ConsoleProducer", *options),
        input=(tmp_path / "orders.txt").read_bytes(),
        check=True,
        capture_output=True,
    )
    follows(reader, [])
    assert "orders" in reader.runs("-m", "windlass", "intakes", "tasks:app", "show", "orders")
    assert "replica" in reader.runs("-m", "windlass", "doctor", "tasks:app")


def test_the_page_about_rabbitmq(rabbit: Rabbit, tmp_path: Path) -> None:
    reader = Reader("rabbitmq.md", tmp_path, "amqp://guest:guest@localhost/", rabbit.url())
    reader.runs("declare.py")

    async def told(count: int) -> list[Any]:
        client = Client(rabbit)
        try:
            return await client.found("deaths", count)
        finally:
            await client.close()

    async def order_3() -> None:
        client = Client(rabbit)
        try:
            await client.send("orders", [Sent(b'{"order": 3, "address": "Park Lane"}', id="order-3")])
        finally:
            await client.close()

    with reader.worker():
        reader.runs("send.py")
        (death,) = asyncio.run(told(1))
        assert death.delivery.routing_key == "jobs.default.dead"
        assert json.loads(death.body)["job"]["attempt"] == 3
        reader.runs("send.py")
        asyncio.run(order_3())  # what is sent again comes before it
        reader.sees('"done".*\n.*"done"', "-m", "windlass", "jobs", "tasks:app", "--state", "done", "--json")
        assert len(reader.runs("-m", "windlass", "jobs", "tasks:app", "--json").splitlines()) == 3
    assert "orders" in reader.runs("-m", "windlass", "intakes", "tasks:app")
