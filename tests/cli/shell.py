"""A user's folder with a module of tasks, and the command line run in it, inside this process."""

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.cli import main
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement

TASKS = """
from windlass import Windlass

app = Windlass()
app.queue("mail", concurrency=5, rate="100/s")


@app.task(queue="mail")
def send(to: str, subject: str = "hi") -> str:
    return to


@app.task
def add(a: int, b: int = 0) -> int:
    return a + b
"""


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Its lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """Its one line on stderr."""
        assert self.out == ""
        assert self.err.startswith("windlass: ")
        assert self.err.count("\n") == 1
        assert self.err.endswith("\n")
        return self.err.removeprefix("windlass: ").rstrip("\n")


class Shell:
    """The folder, and what a user does in it; a worker's part is done by hand."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        self._seq = 0

    def __call__(self, *tokens: str) -> Answer:
        self._capture.readouterr()
        code = main(tokens)
        return Answer(code, *self._capture.readouterr())

    def json(self, *tokens: str) -> list[Any]:
        answer = self(*tokens, "--json")
        assert (answer.code, answer.err) == (0, "")
        return answer.lines

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        importlib.invalidate_caches()  # a file made within the same tick of the folder's clock

    @property
    def app(self) -> Windlass:
        return importlib.import_module("tasks").app

    def task(self, name: str) -> Any:
        return self.app.tasks[name]

    def run(self, work: Any) -> Any:
        async def go() -> Any:
            return await work(await self.app.connection.broker())

        return self.app.connection.run(go())

    def take(self, count: int = 1) -> Sequence[Lease]:
        async def take(broker: Broker) -> Sequence[Lease]:
            info = SessionInfo(host="box", pid=4711, queues=("default", "mail"), slots=16)
            await broker.beat([Beat(session="s", open=info)])
            self._seq += 1
            ask = Ask(session="s", seq=self._seq, queues=info.queues, slots=count, limit=count)
            return (await broker.claim(ask)).leases

        return self.run(take)

    def die(self, count: int = 1, kind: str = "ValueError", message: str = "no good") -> list[str]:
        error = Error(type=kind, message=message, traceback="Traceback:\n  here")
        items = [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, runtime=1, error=error)
            for lease in self.take(count)
        ]
        self.run(lambda broker: broker.settle(items))
        return [item.job for item in items]


def forget_modules(before: set[str]) -> None:
    """Let the next test import its own `tasks`."""
    for name in set(sys.modules) - before:
        if not name.startswith(("windlass", "rich", "cyclopts")) and "." not in name:
            module = sys.modules[name]
            if str(getattr(module, "__file__", "") or "").find("pytest-of") >= 0:
                del sys.modules[name]
