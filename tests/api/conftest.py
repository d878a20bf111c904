"""A server in the test's own process, on every store: real routes, gate and store.

On stores that are servers the tests `on_every_store` run always, the others in `make test-slow`.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.api.house import House, is_for_every_store
from tests.api.served import Served
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.fixtures import redis_server
from tests.broker.redis.servers import Server

__all__ = ["namespaces", "redis_server"]

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "house" in metafunc.fixturenames:
        marks = () if is_for_every_store(metafunc.function) else (pytest.mark.slow,)
        servers = [pytest.param(name, marks=marks) for name in ("redis", "postgres")]
        metafunc.parametrize("house", ["memory", "sqlite", *servers], indirect=True)


@pytest.fixture
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    made = House(_url(request, tmp_path), namespace=f"api_{os.getpid()}_{next(_numbers)}")
    yield made
    made.close()


def _url(request: pytest.FixtureRequest, folder: Path) -> str:
    match request.param:
        case "redis":
            server: Server = request.getfixturevalue("redis_server")
            return server.url
        case "postgres":
            places: Namespaces = request.getfixturevalue("namespaces")
            return places.server.dsn
        case "sqlite":
            return f"sqlite:///{folder / 'windlass.db'}"
        case _:
            return "memory://"


@pytest.fixture
def memory_house() -> Iterator[House]:
    """For what does not depend on the store."""
    made = House("memory://")
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as users start it, on a SQLite file, without keys."""
    made = Served(tmp_path_factory.mktemp("served"))
    made.start()
    yield made
    made.stop()
