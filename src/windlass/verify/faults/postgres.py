"""Faults that only a PostgreSQL server knows."""

import asyncio
import signal

from windlass.verify.faults.kind import Kind
from windlass.verify.faults.store import start_again
from windlass.verify.processes import send
from windlass.verify.scene import Scene
from windlass.verify.stores.postgres import OwnPostgres

_OTHERS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def _postgres(scene: Scene) -> OwnPostgres:
    assert isinstance(scene.own, OwnPostgres)
    return scene.own


async def terminated(scene: Scene) -> None:
    """An operator terminates all backends, again and again, whatever they are doing."""
    async with scene.fault("backends terminated", "store") as said:
        count = 0
        for _ in range(5):
            count += int(await _postgres(scene).say(_OTHERS))
            await asyncio.sleep(scene.draw.uniform(0.1, 0.6))
        said["backends"] = str(count)


async def stopped_at_once(scene: Scene) -> None:
    """`pg_ctl stop -m immediate`, and a start: it recovers from its log."""
    async with scene.fault("store stopped at once", "store"):
        try:
            await asyncio.to_thread(_postgres(scene).stop, signal.SIGQUIT)
        finally:
            await asyncio.shield(start_again(scene))


async def backend_killed(scene: Scene) -> None:
    """Kill -9 of one backend: the server throws everybody out and recovers."""
    async with scene.fault("backend killed", "store"):
        backends = _postgres(scene).backends()
        if backends:
            send(scene.draw.choice(backends), signal.SIGKILL)
        await asyncio.sleep(2)
        await start_again(scene)


def _no_postgres(scene: Scene) -> str | None:
    return (
        None if isinstance(scene.own, OwnPostgres) else "for a PostgreSQL of the run's own (--own postgres)"
    )


POSTGRES = tuple(
    Kind(name, "store", inject, _no_postgres, share=0.7)
    for name, inject in (
        ("backends terminated", terminated),
        ("store stopped at once", stopped_at_once),
        ("backend killed", backend_killed),
    )
)
