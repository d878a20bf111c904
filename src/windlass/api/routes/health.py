"""Probes: whether the process answers, and whether its store does. Open to all, as they tell nothing else."""

import asyncio
from typing import Any

import msgspec
from litestar import Request, Response, get

from windlass.api.access import OPEN
from windlass.api.context import SERVER_STATE
from windlass.api.server_state import ServerState
from windlass.errors import WindlassError

PATIENCE = 2.0
"""Seconds that the store has to answer a probe."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a probe."""

    status: str
    """ok, or what is not."""


@get("/healthz", guards=[OPEN], tags=["health"])
async def healthz() -> Health:
    """Whether the process answers."""
    return Health(status="ok")


@get("/readyz", guards=[OPEN], tags=["health"])
async def readyz(request: Request[Any, Any, Any]) -> Response[Health]:
    """Whether requests can be served: the store answers and has the keys that are needed, and the server is
    not about to stop.
    """
    server_state: ServerState = request.app.state[SERVER_STATE]
    if server_state.is_stopping:
        return Response(Health(status="stopping"), status_code=503)
    try:
        async with asyncio.timeout(PATIENCE):
            await (await server_state.service()).now()
            keys_are_lost = await server_state.keys.are_lost()
    except (WindlassError, TimeoutError):
        return Response(Health(status="the store does not answer"), status_code=503)
    if keys_are_lost:
        return Response(Health(status="the store has no API keys"), status_code=503)
    return Response(Health(status="ok"))


ROUTES = (healthz, readyz)
