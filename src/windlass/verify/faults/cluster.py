"""Faults that only a Redis Cluster knows: another node takes a namespace over, with and without a move."""

import asyncio

from windlass.verify.faults.kind import Kind
from windlass.verify.scene import Scene
from windlass.verify.stores.cluster import OwnCluster

NAMESPACE = "windlass"
"""Of a store of the run's own."""


def _cluster(scene: Scene) -> OwnCluster:
    assert isinstance(scene.own, OwnCluster)
    return scene.own


async def failover(scene: Scene) -> None:
    """The replica takes over from its primary, which hands everything on first."""
    own = _cluster(scene)

    def hand_over() -> bool:
        replica = own.replica_of(own.owner(own.slot(NAMESPACE)))
        return replica is not None and bool(own.say(replica, "CLUSTER", "FAILOVER"))

    async with scene.fault("cluster failover", "store") as said:
        said["handed over"] = "yes" if await asyncio.to_thread(hand_over) else "no"
        await asyncio.sleep(3)


async def reshard(scene: Scene) -> None:
    """The namespace's slot moves to another primary, key by key, while it is in use."""
    own = _cluster(scene)

    def move() -> int:
        slot = own.slot(NAMESPACE)
        others = [port for port in own.primaries() if port != own.owner(slot)]
        return own.move(slot, scene.draw.choice(others))

    async with scene.fault("cluster reshard", "store", outage="yes") as said:
        said["keys"] = str(await asyncio.to_thread(move))


def _no_cluster(scene: Scene) -> str | None:
    return None if isinstance(scene.own, OwnCluster) else "for a cluster of the run's own (--own cluster)"


CLUSTER = (
    Kind("cluster failover", "store", failover, _no_cluster),
    Kind("cluster reshard", "store", reshard, _no_cluster),
)
