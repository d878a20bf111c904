"""Listening: an application is answered for at a socket, for as long as a block runs."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from litestar.types import ASGIApp

from windlass.api.connection import Connection, Deadlines
from windlass.api.connections import Connections

BACKLOG = 1_024
"""Connections that wait to be accepted. Fewer than a process may have, so that those of one burst do not take
each other's places.
"""
STOPPING = 5.0
"""Seconds that requests under way are given when the server stops."""


@asynccontextmanager
async def serve_socket(
    app: ASGIApp, at: socket.socket, *, most: int, deadlines: Deadlines | None = None
) -> AsyncGenerator[Connections]:
    """Answer requests that come in at a socket. In the end requests under way are answered, no others."""
    connections = Connections(most)
    until = deadlines or Deadlines()
    watching = asyncio.create_task(connections.watch())
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(app, connections, until), sock=at, backlog=BACKLOG
    )
    try:
        yield connections
    finally:
        server.close()
        await connections.close(STOPPING)
        watching.cancel()
