"""Each store in turn, for an app."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.fixtures import redis_server
from tests.broker.redis.servers import Server

__all__ = ["namespaces", "redis_server", "store"]

_namespaces = itertools.count()


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """Where an app keeps its jobs: the keywords for it."""
    namespace = f"each_{os.getpid()}_{next(_namespaces)}"
    if request.param == "redis":
        server: Server = request.getfixturevalue("redis_server")
        return {"url": server.url, "namespace": namespace}
    if request.param == "postgres":
        places: Namespaces = request.getfixturevalue("namespaces")
        return {"url": places.server.dsn, "namespace": namespace}
    if request.param == "sqlite":
        return {"url": f"sqlite:///{tmp_path / 'windlass.db'}", "namespace": namespace}
    return {"url": "memory://", "namespace": namespace}
