"""A power cut: what was acknowledged is in the file, and no call that was not exists by half.

Killing a process does not show this, since the page cache survives it. Here the file lives on an image of a
file system: the
image is copied while the producer is stopped, and what it had not synced is not in the copy.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from windlass import Windlass
from windlass.broker.contract import Broker

PRODUCER = """
import json, sys
from windlass import Windlass

app = Windlass(f"sqlite:///{sys.argv[1]}")

@app.task
def send(number: int) -> None: ...

def say(what, calls):
    print(json.dumps([what, [call.job.id for call in calls]]), flush=True)

number = 0
while True:
    for size in (1, 1, 1, 50):
        calls = [send.call(number := number + 1) for _ in range(size)]
        say("tried", calls)
        app.enqueue_many(calls)
        say("kept", calls)
"""


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not Path("/dev/loop-control").exists():
        pytest.skip("a power cut needs root, mkfs.ext4 and loop devices")
    made = tmp_path / "disk"
    with made.open("wb") as file:
        file.truncate(400 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", str(made)], check=True)
    return made


def produce_until_the_cut(image: Path, place: Path, acknowledgements: int) -> tuple[Path, list[list[str]]]:
    """The image as a power cut leaves it, and the groups that were acknowledged before it."""
    after = image.with_name("after")
    with mounted(image, place):
        command = [sys.executable, "-c", PRODUCER, str(place / "windlass.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
            assert producer.stdout is not None
            groups = [json.loads(producer.stdout.readline()) for _ in range(2 * acknowledgements)]
            producer.send_signal(signal.SIGSTOP)
            shutil.copyfile(image, after)
            producer.kill()
    return after, [ids for what, ids in groups if what == "kept"]


async def kept_of(broker: Broker, ids: list[str]) -> list[str]:
    return [job.id for job in await broker.get(ids) if job is not None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_survives(image: Path, tmp_path: Path, seed: int) -> None:
    acknowledgements = random.Random(seed).randrange(50, 400)
    after, acknowledged = produce_until_the_cut(image, tmp_path / "before", acknowledgements)
    with mounted(after, tmp_path / "restored") as place:
        path = place / "windlass.db"
        app = Windlass(f"sqlite:///{path}")
        try:
            for ids in acknowledged:
                assert app.connection.run(_kept(app, ids)) == ids
            total = app.connection.run(_total(app))
        finally:
            app.close()
        check = apsw.Connection(str(path))
        try:
            assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            check.close()
    # What lies beyond the acknowledged is the one call under way, whole: of one job or of fifty.
    sent = sum(len(ids) for ids in acknowledged)
    sizes = [1, 1, 1, 50]
    following = [
        sum(sizes[(len(acknowledged) + place) % 4] for place in range(count)) for count in range(200)
    ]
    assert total - sent in following


async def _kept(app: Windlass, ids: list[str]) -> list[str]:
    return await kept_of(await app.connection.broker(), ids)


async def _total(app: Windlass) -> int:
    return sum(row.count for row in (await (await app.connection.broker()).counts()).rows)
