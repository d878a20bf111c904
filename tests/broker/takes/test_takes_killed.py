"""Intakes that are killed in the middle of a take, beside others: each message is one job."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, programs
from tests.broker.redis.servers import redis_binary, running

from windlass.broker.contract import Broker, Options
from windlass.broker.registry import open_broker
from windlass.conformance.harness import APP
from windlass.core.job import JobId
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject

pytestmark = pytest.mark.slow
MESSAGES, KILLS, NAMESPACE = 3_000, 20, "takes"
ROOT = Path(__file__).parents[3]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a store of its own."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{tmp_path}/takes.db"
        case "redis":
            with running(redis_binary(), "--appendonly", "yes") as server:
                yield server.url
        case _:
            server = Server(programs())
            try:
                yield server.dsn
            finally:
                server.remove()


def test_each_message_is_one_job_whoever_is_killed(url: str) -> None:
    asyncio.run(_declare(url))
    chance = random.Random(1)
    with _intake(url) as other:
        kills = 0
        for _ in range(KILLS):
            with _intake(url) as victim:
                assert victim.stdout is not None
                for _ in range(chance.randint(1, 3)):
                    victim.stdout.readline()
                kills += victim.poll() is None
                victim.kill()
        assert other.wait(60) == 0
    assert kills > KILLS // 2, "the log came to its end before anything was tried"
    numbers = Counter(asyncio.run(_payloads(url)))
    assert numbers == Counter(str(number).encode() for number in range(MESSAGES))


def _intake(url: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.broker.takes.intake", url, NAMESPACE, str(MESSAGES)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


async def _opened(url: str) -> Broker:
    return await open_broker(url, options=Options(namespace=NAMESPACE))


async def _declare(url: str) -> None:
    broker = await _opened(url)
    subject = Subject(Kind.QUEUE, "default")
    await broker.declare([Declaration(subject=subject, body=QueueSettings(), app=APP)])
    await broker.close()


async def _payloads(url: str) -> list[bytes]:
    broker = await _opened(url)
    jobs: list[JobId] = []
    page = await broker.list(JobQuery(), FIRST_PAGE, 1_000)
    jobs += [view.id for view in page.jobs]
    while page.cursor is not None:
        page = await broker.list(JobQuery(), page.cursor, 1_000)
        jobs += [view.id for view in page.jobs]
    found: list[bytes] = []
    for start in range(0, len(jobs), 1_000):
        found += [job.payload for job in await broker.get(jobs[start : start + 1_000]) if job is not None]
    assert [offset.at for offset in await broker.offsets()] == [str(MESSAGES)]
    await broker.close()
    return found
