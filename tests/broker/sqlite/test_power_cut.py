"""A power cut: what was acknowledged is in the file, and no call that was not exists by half."""

import json
import random
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from tests.disks import cut, make_image, mounted, why_not

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


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if (why := why_not()) is not None:
        pytest.skip(why)
    return make_image(tmp_path / "disk", mebibytes=400)


def produce_until_the_cut(image: Path, place: Path, acknowledgements: int) -> tuple[Path, list[list[str]]]:
    """The image as a power cut leaves it, and the groups that were acknowledged before it."""
    after = image.with_name("after")
    with mounted(image, place):
        command = [sys.executable, "-c", PRODUCER, str(place / "windlass.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
            assert producer.stdout is not None
            groups = [json.loads(producer.stdout.readline()) for _ in range(2 * acknowledgements)]
            cut(image, after, [producer.pid])
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
