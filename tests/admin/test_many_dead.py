"""100,000 dead letters, replayed at a rate and discarded by a filter, by two operators at once: each once, in
memory that does not depend on their number. The operators are commands, as people give them.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.lease import Ask
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State

pytestmark = pytest.mark.slow
MANY = int(os.environ.get("MANY_DEAD", "100000"))
FEW = 1_000
RATE = 10_000
"""A second, for each of the operators."""
MEMORY = 32 << 20
"""Bytes that a command may need more for many than for few: pages of a thousand, and what the store's client
keeps, which on SQLite is a cache of 16 MiB. The letters themselves would be 100 MB."""
APP = """
import atexit, os, re
from pathlib import Path

from windlass import Windlass

@atexit.register
def tell_memory() -> None:
    # Not getrusage: what it says begins with the size of whoever started this process.
    peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    Path(f"memory-{{os.getpid()}}").write_text(str(int(peak[1]) << 10))

app = Windlass({url!r}, namespace={namespace!r})

@app.task
def flaky(number: int) -> None: ...

@app.task
def broken(number: int) -> None: ...
"""


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
    elif request.param == "redis":
        with running(redis_binary(), "--appendonly", "yes") as server:
            yield server.url
    else:
        server = Server(programs())
        try:
            yield server.dsn
        finally:
            server.remove()


class Did(NamedTuple):
    """What a command did."""

    applied: int
    passed_over: int
    """Chosen, and met as another had left them."""
    seconds: float
    memory: int
    """Bytes, at the most."""
    text: str


def at_once(folder: Path, *commands: list[str]) -> list[Did]:
    """Give commands at the same time."""
    begun = time.monotonic()
    started: list[subprocess.Popen[str]] = []
    for number, command in enumerate(commands):
        with (folder / f"errors-{number}").open("wb") as errors:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "windlass", *command],
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            )
    did: list[Did] = []
    for number, process in enumerate(started):
        assert process.stdout is not None
        text = process.stdout.read()  # short: it comes at the end
        process.wait()
        process.stdout.close()
        said = text + (folder / f"errors-{number}").read_text()
        found = re.search(r"^([\d,]+) (?:replayed|discarded)$", text, re.MULTILINE)
        assert found, said
        memory = int((folder / f"memory-{process.pid}").read_text())
        did.append(Did(_number(found[1]), _passed_over(said), time.monotonic() - begun, memory, said))
    return did


def _passed_over(said: str) -> int:
    """Some are named, the rest counted."""
    named = len(re.findall(r"^windlass: job \S+ was not ", said, re.MULTILINE))
    more = re.search(r"^windlass: ([\d,]+) more were not ", said, re.MULTILINE)
    return named + (_number(more[1]) if more else 0)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


class Cemetery:
    """An app in a folder of its own, with dead letters of two tasks."""

    def __init__(self, folder: Path, url: str, namespace: str, count: int) -> None:
        self.folder = folder / namespace
        self.folder.mkdir()
        if url.startswith("sqlite"):
            url = f"sqlite:///{self.folder / 'store.db'}"
        (self.folder / "graves.py").write_text(APP.format(url=url, namespace=namespace))
        self.app = Windlass(url, namespace=namespace)
        for name in ("flaky", "broken"):
            self.app.task(name=name)(_take)
        for name, wanted in (("flaky", count * 6 // 10), ("broken", count - count * 6 // 10)):
            self.app.enqueue_many(self.app.tasks[name].call(number) for number in range(wanted))
        self.app.run(self._bury())

    async def _bury(self) -> None:
        broker = await self.app.broker()
        info = SessionInfo(host="test", queues=("default",), slots=1_000)
        await broker.beat([Beat(session="undertaker", open=info)])
        await _die(broker)

    def counts(self) -> dict[tuple[str, State], int]:
        rows = self.app.run(self._counts())
        return {key: count for key, count in rows.items() if count}

    async def _counts(self) -> dict[tuple[str, State], int]:
        rows = (await (await self.app.broker()).counts()).rows
        return {(row.task, row.state): row.count for row in rows}

    def operate(self, *words: str, times: int = 2) -> list[Did]:
        return at_once(self.folder, *([["dead", "graves:app", *words, "--yes"]] * times))


def _take(number: int) -> None: ...


async def _die(broker: Broker) -> None:
    """Everything that is ready, of an error that its task tells."""
    number = 0
    while True:
        number += 1
        claimed = await broker.claim(
            Ask(session="undertaker", seq=number, queues=("default",), slots=1_000, limit=1_000)
        )
        if not claimed.leases:
            return
        await broker.settle(
            [
                Settlement(
                    job=lease.job,
                    fence=lease.fence,
                    outcome=Outcome.DEAD,
                    runtime=1,
                    error=Error(
                        type="ValueError", message=f"{lease.task} is no good", traceback="here " * 40
                    ),
                )
                for lease in claimed.leases
            ]
        )
        await asyncio.sleep(0)


def test_many_dead_letters(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    few, many = Cemetery(tmp_path, url, "few", FEW), Cemetery(tmp_path, url, "many", MANY)
    flaky, broken = MANY * 6 // 10, MANY - MANY * 6 // 10
    assert many.counts() == {("flaky", State.DEAD): flaky, ("broken", State.DEAD): broken}

    small = few.operate("replay", "--task", "flaky", "--rate", f"{RATE}/s", times=1)[0]
    assert small.applied == FEW * 6 // 10
    replayed = many.operate("replay", "--task", "flaky", "--rate", f"{RATE}/s")
    assert sum(did.applied for did in replayed) == flaky, [did.text for did in replayed]
    # One that keeps half a page behind the other finds each letter replayed: it was at work all the same.
    assert all(did.applied or did.passed_over for did in replayed), "they were not at work at the same time"
    assert max(did.applied / did.seconds for did in replayed) <= RATE
    assert many.counts() == {("flaky", State.READY): flaky, ("broken", State.DEAD): broken}

    few.operate("discard", "--error", "broken is NO GOOD", times=1)
    discarded = many.operate("discard", "--error", "broken is NO GOOD")
    assert sum(did.applied for did in discarded) == broken, [did.text for did in discarded]
    assert many.counts() == {("flaky", State.READY): flaky}

    more = [did.memory - small.memory for did in (*replayed, *discarded)]
    with capsys.disabled():
        print(  # noqa: T201 - for the docs
            f"\n{url.partition(':')[0]}: {MANY:,} dead letters, two operators at once: replayed in "
            f"{max(did.seconds for did in replayed):.1f} s at {RATE:,}/s each, discarded by their error in "
            f"{max(did.seconds for did in discarded):.1f} s; {max(more) >> 20} MiB more than for {FEW:,}"
        )
    assert max(more) < MEMORY
    few.app.close()
    many.app.close()
