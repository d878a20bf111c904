"""A power cut of the server: what it loses is what its settings say."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.redis.servers import redis_binary, running_in, valkey_binary
from tests.disks import cut, make_image, mounted, why_not

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.core.job import JobDetail
from windlass.core.state import State

pytestmark = pytest.mark.slow
BOTH = pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])
SLACK = 2.0
"""Seconds that `everysec` may lose."""

PRODUCER = """
import asyncio, itertools, json, os, sys, time
from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Retention, Subject
from windlass.core.settlement import Settlement

def say(what, ids):
    print(json.dumps([what, time.monotonic(), ids]), flush=True)

async def main(url):
    broker = await RedisBroker.open(url, options=Options(retention=Retention()))
    await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")])
    await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
    for seq in itertools.count(1):
        for size in (1, 1, 50):
            group = [
                NewJob(id=new_job_id(time.time_ns() // 1_000_000, os.urandom(10)), task="t", queue="q")
                for _ in range(size)
            ]
            await broker.enqueue([group])
            say("kept", [job.id for job in group])
        leases = (await broker.claim(Ask(session="s", seq=seq, queues=("q",), slots=20, limit=20))).leases
        items = [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1) for lease in leases
        ]
        answers = (await broker.settle(items)).answers
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        say("done", [lease.job for lease in leases])

asyncio.run(main(sys.argv[1]))
"""


class Said(NamedTuple):
    """What a producer was told before the cut."""

    what: str
    at: float
    jobs: list[str]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if (why := why_not()) is not None:
        pytest.skip(why)
    return make_image(tmp_path / "disk")


def written_until_the_cut(
    image: Path, place: Path, binary: Path, fsync: str, seconds: float
) -> tuple[Path, list[Said], float]:
    """The image as the cut leaves it, what was acknowledged before, and when it was cut."""
    settings = ("--appendonly", "yes", "--appendfsync", fsync)
    with mounted(image, place), running_in(place, binary, *settings) as server:
        command = [sys.executable, "-c", PRODUCER, server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
            assert producer.stdout is not None
            lines = [producer.stdout.readline()]
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                lines.append(producer.stdout.readline())
            at = time.monotonic()
            after = cut(image, image.with_name("after"), [server.process.pid])
            producer.kill()
            lines += producer.stdout.readlines()
        server.process.kill()
        server.process.wait(10)
    return after, [Said(*json.loads(line)) for line in lines if line.endswith("]\n")], at


async def read_back(url: str, jobs: list[str]) -> dict[str, JobDetail]:
    broker = await RedisBroker.open(url, options=Options())
    found: dict[str, JobDetail] = {}
    for at in range(0, len(jobs), 1_000):
        found |= {job.id: job for job in await broker.get(jobs[at : at + 1_000]) if job is not None}
    await broker.close()
    return found


def lost(after: Path, place: Path, binary: Path, said: list[Said]) -> list[Said]:
    """What the producer was told that the server, started on what is left, does not know."""
    with mounted(after, place), running_in(place, binary, "--appendonly", "yes") as server:
        found = asyncio.run(
            read_back(server.url, [job for each in said if each.what == "kept" for job in each.jobs])
        )
    return [each for each in said if not all(_is_kept(each.what, found.get(job)) for job in each.jobs)]


def _is_kept(what: str, job: JobDetail | None) -> bool:
    return job is not None and (what == "kept" or job.state is State.DONE)


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_with_appendfsync_always_nothing_is_lost(
    image: Path, tmp_path: Path, binary: Callable[[], Path], seed: int
) -> None:
    seconds = random.Random(seed).uniform(0.3, 3)
    after, said, _ = written_until_the_cut(image, tmp_path / "before", binary(), "always", seconds)
    assert {each.what for each in said} == {"kept", "done"}
    assert not lost(after, tmp_path / "restored", binary(), said)


@BOTH
def test_with_everysec_no_more_is_lost_than_is_said(
    image: Path, tmp_path: Path, binary: Callable[[], Path]
) -> None:
    after, said, at = written_until_the_cut(image, tmp_path / "before", binary(), "everysec", 4.5)
    gone = lost(after, tmp_path / "restored", binary(), said)
    assert gone, "a cut that loses nothing shows nothing"
    assert len(gone) < len(said)
    assert min(each.at for each in gone) > at - SLACK
