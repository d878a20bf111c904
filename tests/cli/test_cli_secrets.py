"""Attack 14, end to end: a real worker with log files, and every command that shows something. Canaries are
in payloads, headers, arguments of exceptions, log lines and progress; they are found where they belong, and
nowhere else.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.canary_tasks import WORD, arguments, build

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.event import FROM_START
from windlass.core.secret import MASK
from windlass.core.settings import Kind
from windlass.errors import JobFailed

ROOT = Path(__file__).parents[2]
APP = "tests.worker.canary_tasks:app"
KINDS = ("loop", "thread", "process")
ENDS = ("error", "arguments", "chain", "gives up", "fine")

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


class Shop:
    """A folder with a store, a worker that has run everything, and commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.app: Windlass = build(self.url, kinds=KINDS)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
        self.environment = {
            **clean,
            "WINDLASS_URL": self.url,
            "PYTHONPATH": str(ROOT),
            "WINDLASS_LOG_LEVEL": "debug",
            "COLUMNS": "500",
        }
        self.log = folder / "worker.log"
        self.failures: list[str] = []
        """What callers were told of jobs that failed."""

    def work(self) -> list[str]:
        """Let a worker run a job of each kind and end; their ids."""
        calls = [
            self.app.tasks[f"says_{kind}"]
            .using(headers={"authorization": f"Bearer {WORD}"})
            .call(**arguments(how))
            for kind in KINDS
            for how in ENDS
        ]
        jobs = self.app.enqueue_many(calls)
        with self.log.open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "windlass", "worker", APP, "--processes", "1"],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                for job in jobs:
                    try:
                        job.result(timeout=60)
                    except JobFailed as failure:
                        self.failures.append(str(failure))
            finally:
                worker.send_signal(signal.SIGTERM)
                worker.wait(30)
        return [job.id for job in jobs]

    def command(self, *words: str) -> str:
        """All that a command says."""
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, list[str]]]:
    made = Shop(tmp_path_factory.mktemp("canary"))
    yield made, made.work()
    made.app.close()


def clean(text: str, where: str) -> None:
    at = text.find(WORD)
    assert at < 0, f"{where}: ...{text[max(0, at - 200) : at + 200]}"


def test_the_worker_s_log_has_none(shop: tuple[Shop, list[str]]) -> None:
    text = shop[0].log.read_text()
    assert "says_thread" in text, "it has logged what failed"
    clean(text, "the log of the worker")


def test_callers_are_told_none(shop: tuple[Shop, list[str]]) -> None:
    assert len(shop[0].failures) == len(KINDS) * (len(ENDS) - 1)
    clean(repr(shop[0].failures), "what callers are told")


SHOWING = [
    ("jobs", APP),
    ("jobs", APP, "--json"),
    ("jobs", APP, "show", "{dead}"),
    ("jobs", APP, "show", "{dead}", "--json"),
    ("jobs", APP, "show", "{dead}", "--payload"),
    ("jobs", APP, "show", "{dead}", "--payload", "--json"),
    ("jobs", APP, "show", "{done}", "--payload", "--json"),
    ("explain", APP, "{dead}"),
    ("dead", APP),
    ("dead", APP, "--json"),
    ("dead", APP, "show", "{dead}"),
    ("dead", APP, "groups"),
    ("dead", APP, "groups", "--json"),
    ("dead", APP, "audit", "--json"),
    ("control", APP, "--json"),
    ("control", APP, "strikes", "--json"),
    ("queues", APP, "--json"),
    ("workers", APP, "--json"),
    ("schedules", APP, "--json"),
    ("check", APP),
    ("doctor", APP),
]


def _given(words: tuple[str, ...]) -> Any:
    """A process each: most of them with the slow tests."""
    quick = words[0] == "dead" or "--payload" in words
    marks = () if quick and "--json" in words else pytest.mark.slow
    return pytest.param(words, id=" ".join((words[0], *words[2:])), marks=marks)


@pytest.mark.parametrize("words", [_given(words) for words in SHOWING])
def test_no_command_shows_one(shop: tuple[Shop, list[str]], words: tuple[str, ...]) -> None:
    made, jobs = shop
    text = made.command(*(word.format(dead=jobs[0], done=jobs[ENDS.index("fine")]) for word in words))
    clean(text, " ".join(words))
    if "{dead}" in words and words[0] != "explain":
        assert MASK in text, "it was taken out, not left out"


def test_who_asks_for_them_is_shown_them_and_is_on_record(shop: tuple[Shop, list[str]]) -> None:
    made, jobs = shop
    shown = made.command("jobs", APP, "show", jobs[0], "--payload", "--secrets", "--json")
    assert WORD in shown
    audit = made.command("dead", APP, "audit", "--json")
    assert jobs[0] in audit
    clean(audit, "the record")


def test_an_export_has_payloads_whole_and_nothing_else(shop: tuple[Shop, list[str]]) -> None:
    made, _ = shop
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "export", APP],
        cwd=made.folder,
        env=made.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(KINDS) * (len(ENDS) - 1)
    for line in lines:
        assert line.pop("payload")
        assert WORD in line.pop("headers")["authorization"], "what a job was sent with is exported whole"
        clean(repr(line), "an exported line")


def test_a_replay_and_a_strike_put_none_on_record(shop: tuple[Shop, list[str]]) -> None:
    made, jobs = shop
    assert "called like a secret" in made.command(
        "control", APP, "strike", "says_loop", "--where", f"password={WORD}"
    )
    made.command("control", APP, "strike", "says_loop", "--where", "how=error", "--reason", "broken")
    assert "1 replayed" in made.command("dead", APP, "replay", jobs[0], "--yes")
    for words in (("dead", APP, "audit", "--json"), ("control", APP, "strikes", "--json")):
        clean(made.command(*words), " ".join(words))


def test_the_store_keeps_them_in_payloads_alone(shop: tuple[Shop, list[str]]) -> None:
    made, jobs = shop

    async def read(broker: Broker) -> None:
        for detail in await broker.get(jobs):
            assert detail is not None
            assert WORD.encode() in detail.payload, "the task needs it whole"
            clean(
                repr((detail.error, detail.logs, detail.progress, detail.deliveries, detail.reason)),
                detail.id,
            )
        events = await broker.events(FROM_START, 1_000, 0)
        assert events.items
        clean(repr(events), "events")
        for kind in Kind:
            clean(repr(await broker.documents(kind)), f"documents of kind {kind}")
        clean(repr(await broker.sessions()), "sessions")

    async def opened() -> None:
        await read(await made.app.broker())
        await made.app.aclose()

    asyncio.run(opened())
