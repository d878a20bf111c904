"""Huey over Redis or a SQLite file. It has no call for many tasks; a killed consumer loses the one it had."""

import os
import sys
from pathlib import Path

from bench_peer import URL, Peer, mark, ping
from huey import RedisHuey, SqliteHuey

if URL.startswith("sqlite"):
    huey = SqliteHuey("bench", results=False, filename=URL.removeprefix("sqlite://"), fsync=True)
else:
    huey = RedisHuey("bench", results=False, url=URL)


@huey.task()
def noop(_text: str) -> None:
    """Note the start."""
    mark()


@huey.task()
def pinged(sent: float) -> None:
    """Note how long it took to start."""
    ping(sent)


class HueyPeer(Peer):
    """Tasks run one at a time in each of two processes."""

    def enqueue(self, text: str) -> None:
        """One task."""
        noop(text)

    def ping(self, sent: float, priority: int) -> None:
        """A task that notes its start."""
        huey.enqueue(pinged.s(sent, priority=priority))

    def work(self) -> None:
        """Become the command that a user runs."""
        command = [str(Path(sys.executable).with_name("huey_consumer"))]
        if not Path(command[0]).exists():
            command = [sys.executable, "-m", "huey.bin.huey_consumer"]
        command += ["peer.huey", "-k", "process", "-w", "2", "-q"]
        os.execv(command[0], command)  # noqa: S606


PEER = HueyPeer()
