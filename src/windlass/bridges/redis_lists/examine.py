"""What an operator should know of a Redis that messages are in."""

from typing import Any

from windlass.bridges.redis_lists.link import Link
from windlass.bridges.redis_lists.place import RedisList

_UNACKED = "unacked"


async def warnings_of(link: Link, place: RedisList) -> list[str]:
    """Each a sentence that says what to change."""

    async def asked() -> tuple[dict[str, Any], int]:
        client = link.client
        kind = await client.type(_UNACKED)
        return await client.info(), await client.hlen(_UNACKED) if kind == b"hash" else 0

    info, unacked = await link.ask(asked)
    found: list[str] = []
    if not info.get("aof_enabled"):
        found.append(
            "Redis writes no log of what it is told: what has come since its last snapshot is gone "
            "when it is restarted; set appendonly yes"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if info.get("maxmemory") and policy != "noeviction":
        found.append(f"Redis drops keys when it is full ({policy}); set maxmemory-policy noeviction")
    if unacked:
        found.append(
            f'{unacked:,} messages are with workers of Celery, or were when these died ("{_UNACKED}"): those '
            f'come back to "{place.list}" only while a worker of Celery runs'
        )
    return found
