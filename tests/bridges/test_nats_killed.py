"""Intakes from NATS, its server, and the leader of a cluster are killed: every message is one job."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from tests.bridges.killing import Killing, store_of
from tests.bridges.nats_server import in_loop, make_stream
from tests.bridges.servers import without

from windlass.verify.brokers.nats import OwnNats, OwnNatsCluster
from windlass.verify.brokers.places import Missing
from windlass.verify.processes import Starter

STORES = ["sqlite", "redis", "postgres"]
RETENTIONS = ["limits", "workqueue"]


def killing(server: OwnNats, folder: Path, store: str, retention: str, *, seed: int = 1) -> Killing:
    stream = in_loop(make_stream(server, retention=retention))
    url = f"{server.url()}/{stream}"
    return Killing(folder, store, url, f"{url}?subject={stream}.a", seed=seed)


@pytest.mark.parametrize("retention", RETENTIONS)
def test_a_killed_intake_loses_nothing_and_repeats_nothing(
    nats_server: OwnNats, tmp_path: Path, retention: str
) -> None:
    with store_of("sqlite", tmp_path) as store:
        killing(nats_server, tmp_path, store, retention).play(2)


@pytest.mark.slow
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("store", STORES)
def test_intakes_that_are_killed_a_hundred_times(
    nats_server: OwnNats, tmp_path: Path, store: str, retention: str
) -> None:
    with store_of(store, tmp_path) as url:
        killing(nats_server, tmp_path, url, retention, seed=2).play(100)


@pytest.mark.slow
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("store", STORES)
def test_a_server_that_is_killed(nats_server: OwnNats, tmp_path: Path, store: str, retention: str) -> None:
    async def blow() -> None:
        nats_server.kill()
        await asyncio.to_thread(nats_server.start)

    with store_of(store, tmp_path) as url:
        killing(nats_server, tmp_path, url, retention, seed=3).play(30, blow)


@pytest.fixture
def cluster(starter: Starter, tmp_path: Path) -> Iterator[OwnNatsCluster]:
    try:
        made = OwnNatsCluster(starter, tmp_path / "cluster")
    except Missing as missing:
        without(missing)
    made.start()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("store", STORES)
def test_a_leader_of_three_that_is_killed(
    cluster: OwnNatsCluster, tmp_path: Path, store: str, retention: str
) -> None:
    async def make() -> None:
        client = await nats.connect(cluster.url().removeprefix("nats://").split(","))
        await client.jetstream().add_stream(name="S", subjects=["s.>"], num_replicas=3, retention=retention)
        await client.close()

    async def blow() -> None:
        leader = None
        while leader is None:
            leader = await asyncio.to_thread(cluster.leader, "S")
        leader.kill()
        await asyncio.to_thread(leader.start)

    in_loop(make())
    url = f"{cluster.url()}/S"
    with store_of(store, tmp_path) as where:
        Killing(tmp_path, where, url, f"{url}?subject=s.a", seed=4).play(30, blow)
