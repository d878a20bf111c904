"""Every kind of URL, the whole way: enqueued from a thread and from a loop, run, and its result read."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import redis
from tests.broker.redis.certificates import certificates
from tests.broker.redis.cluster import cluster, free_ports
from tests.broker.redis.sentinel import trio
from tests.broker.redis.servers import machine_binary, redis_binary, running, valkey_binary

from windlass import Windlass
from windlass.broker.redis.acl import rules

NAMESPACE = "topologies"


def whole_way(url: str) -> None:
    app = Windlass(url, namespace=NAMESPACE)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def work() -> list[int]:
        async with app.worker(concurrency=4):
            job = await double.aenqueue(3)
            blocking = await asyncio.to_thread(double.enqueue, 4)
            return [await each.aresult(timeout=30) for each in (waiting, job, blocking)]

    try:
        waiting = double.enqueue(2)
        assert asyncio.run(work()) == [4, 6, 8]
    finally:
        app.close()


@contextmanager
def over_tcp(binary: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    with running(binary, "--port", str(port)):
        yield f"redis://localhost:{port}/3"


@contextmanager
def as_user(binary: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    with running(binary, "--port", str(port)) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.execute_command("ACL", "SETUSER", "jobs", ">p@ss", *rules(NAMESPACE))
            admin.execute_command("ACL", "SETUSER", "default", "off")
        yield f"redis://jobs:p%40ss@localhost:{port}"


@pytest.mark.parametrize("binary", [redis_binary, valkey_binary, machine_binary])
@pytest.mark.parametrize("reached", [over_tcp, as_user])
def test_by_address_and_as_a_user(
    reached: Callable[[Path], AbstractContextManager[str]], binary: Callable[[], Path]
) -> None:
    with reached(binary()) as url:
        whole_way(url)


@pytest.mark.parametrize("binary", [redis_binary, valkey_binary, machine_binary])
def test_by_socket(binary: Callable[[], Path]) -> None:
    with running(binary()) as server:
        whole_way(server.url)


def test_with_tls_and_a_certificate_of_the_client(tmp_path: Path) -> None:
    made, (port,) = certificates(tmp_path), free_ports(1)
    with running(machine_binary(), *made.settings(port)):
        whole_way(f"rediss://localhost:{port}?{made.options}")


def test_with_tls_and_a_password(tmp_path: Path) -> None:
    made, (port,) = certificates(tmp_path), free_ports(1)
    with running(machine_binary(), *made.settings(port), "--tls-auth-clients", "no") as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.config_set("requirepass", "p@ss")
        whole_way(f"rediss://:p%40ss@localhost:{port}?ssl_ca_certs={made.authority}")


@pytest.mark.slow
@pytest.mark.parametrize("binary", [redis_binary, machine_binary])
def test_behind_sentinel(binary: Callable[[], Path]) -> None:
    with trio(binary()) as whole:
        whole_way(whole.url)


@pytest.mark.slow
@pytest.mark.parametrize("binary", [redis_binary, valkey_binary, machine_binary])
def test_on_a_cluster(binary: Callable[[], Path]) -> None:
    with cluster(binary()) as nodes:
        whole_way(nodes.url)
