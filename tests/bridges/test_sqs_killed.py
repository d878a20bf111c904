"""Intakes from SQS are killed, and what stands in for SQS misbehaves: every message is one job."""

import asyncio
from pathlib import Path

import pytest
from tests.bridges.killing import Killing, store_of
from tests.bridges.sqs_proxy import Mischief
from tests.bridges.sqs_server import make_queue

from windlass.verify.brokers.elasticmq import OwnElasticMQ

STORES = ["sqlite", "redis", "postgres"]
KINDS = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])


def killing(server: OwnElasticMQ, folder: Path, store: str, endpoint: str, *, fifo: bool) -> Killing:
    """What was handed out to the dead, or in a lost answer, is visible again after two seconds."""
    queue = asyncio.run(make_queue(server, fifo=fifo, VisibilityTimeout="2"))
    url = f"sqs://user:password@elasticmq/{queue}?endpoint={endpoint}"
    return Killing(folder, store, url, url)


def test_a_queue_that_repeats_reorders_delays_and_loses(sqs: OwnElasticMQ, tmp_path: Path) -> None:
    with Mischief(sqs.endpoint, seed=1) as mischief, store_of("sqlite", tmp_path) as store:
        killing(sqs, tmp_path, store, mischief.endpoint, fifo=False).play(2, burst=60)
    assert mischief.done["lost answer"] + mischief.done["asked twice"] > 0


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("store", STORES)
def test_intakes_that_are_killed_behind_a_queue_that_misbehaves(
    sqs: OwnElasticMQ, tmp_path: Path, store: str, fifo: bool
) -> None:
    with Mischief(sqs.endpoint, seed=2) as mischief, store_of(store, tmp_path) as url:
        killing(sqs, tmp_path, url, mischief.endpoint, fifo=fifo).play(30, burst=60)
    assert all(
        mischief.done[what] for what in ("lost request", "lost answer", "asked twice", "once more", "late")
    )


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_intakes_that_are_killed_a_hundred_times(sqs: OwnElasticMQ, tmp_path: Path, store: str) -> None:
    with store_of(store, tmp_path) as url:
        killing(sqs, tmp_path, url, sqs.endpoint, fifo=False).play(100, burst=60)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_server_that_is_killed(sqs: OwnElasticMQ, tmp_path: Path, store: str) -> None:
    async def blow() -> None:
        sqs.kill()
        await asyncio.to_thread(sqs.start)

    with store_of(store, tmp_path) as url:
        killing(sqs, tmp_path, url, sqs.endpoint, fifo=False).play(30, blow, burst=60)
