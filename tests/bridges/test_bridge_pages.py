"""The programs of the pages about NATS and SQS do what the pages say, with real servers."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.snippets import snippets

from windlass.config import PREFIX
from windlass.verify.brokers.elasticmq import OwnElasticMQ
from windlass.verify.brokers.nats import OwnNats

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

    def works(self, *lines: str) -> None:
        """A worker prints these lines, in any order, and finds the message that nobody can read."""
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
            wanted, heard = set(lines), list[str]()
            for line in worker.stdout:
                heard.append(line)
                wanted = {each for each in wanted if each not in line}
                if not wanted:
                    break
            assert not wanted, "".join(heard)
            for _ in range(20):
                if "UnreadableMessage" in self.runs("-m", "windlass", "dead", "tasks:app", "--json"):
                    break
            else:
                raise AssertionError("order 9 is no dead letter")
            worker.send_signal(signal.SIGTERM)
            worker.stdout.read()
            assert worker.wait(60) == 0
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


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
