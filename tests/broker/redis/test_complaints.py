"""What goes wrong between a program and its server is said in one line that names a fix."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from tests.broker.redis.certificates import Certificates, certificates
from tests.broker.redis.cluster import free_ports, until
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.servers import machine_binary, redis_binary, running, valkey_binary

from windlass import Windlass
from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.acl import rules
from windlass.errors import StoreError, StoreUnavailable

SECRET = "hunter2"
BOTH = pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])


def opening(url: str, options: Options | None = None) -> StoreError:
    """How opening fails, for coroutines and for threads alike."""

    async def main() -> None:
        await RedisBroker.open(url, options=options or new_namespace(Options()))

    with pytest.raises(StoreError) as caught:
        asyncio.run(main())
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said
    return caught.value


@pytest.fixture(scope="module")
def locked() -> Iterator[int]:
    """The port of a server that wants a password."""
    (port,) = free_ports(1)
    with running(redis_binary(), "--port", str(port)) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            admin.config_set("requirepass", SECRET)
        yield port


def test_a_port_where_nothing_listens() -> None:
    (port,) = free_ports(1)
    error = opening(f"redis://127.0.0.1:{port}")
    assert isinstance(error, StoreUnavailable)
    assert f"nothing listens where the Redis server at 127.0.0.1:{port} should be; is it running?" in str(
        error
    )


def test_a_host_that_is_not_known() -> None:
    error = opening("redis://nowhere.invalid")
    assert isinstance(error, StoreUnavailable)
    assert "nowhere.invalid:6379: the name of the host is not known" in str(error)


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    assert f"there is no socket of the Redis server at {tmp_path}/none" in str(
        opening(f"unix://{tmp_path}/none")
    )


def test_a_password_that_is_missing(locked: int) -> None:
    error = opening(f"redis://127.0.0.1:{locked}")
    assert f"127.0.0.1:{locked} wants a password" in str(error)
    assert not isinstance(error, StoreUnavailable), "to try again is of no use"


@pytest.mark.parametrize(("user", "named"), [("", "default"), ("jobs", "jobs")])
def test_a_password_that_is_wrong(locked: int, user: str, named: str) -> None:
    error = opening(f"redis://{user}:{SECRET}x@127.0.0.1:{locked}")
    assert f'refuses the user "{named}": user name or password is wrong' in str(error)
    assert not isinstance(error, StoreUnavailable)


def test_a_database_that_is_not_there(locked: int) -> None:
    assert "no database of that number" in str(opening(f"redis://:{SECRET}@127.0.0.1:{locked}/99"))


@pytest.mark.parametrize(
    ("without", "named"), [("+eval", "eval"), ("+subscribe", "subscribe"), ("~windlass", "permission")]
)
@BOTH
def test_a_right_that_is_missing(binary: Callable[[], Path], without: str, named: str) -> None:
    options = new_namespace(Options())

    async def main(url: str) -> None:
        broker = await RedisBroker.open(url, options=options)
        try:
            await broker.wait(["q"], 0.01)
        finally:
            await broker.close()

    with running(binary()) as server:
        with redis.Redis(unix_socket_path=str(server.socket)) as admin:
            given = [rule for rule in rules(options.namespace) if not rule.startswith(without)]
            admin.execute_command("ACL", "SETUSER", "jobs", f">{SECRET}", *given)
        with pytest.raises(StoreError, match="the Redis user lacks a right") as caught:
            asyncio.run(main(f"unix://jobs@{server.socket}?password={SECRET}"))
        assert named in str(caught.value)
        assert not isinstance(caught.value, StoreUnavailable)


@BOTH
def test_a_replica(binary: Callable[[], Path]) -> None:
    with running(binary(), "--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "yes") as server:
        error = opening(f"{server.url}?timeout=1")
    assert isinstance(error, StoreUnavailable)
    assert "is a replica and takes no writes (READONLY); name its primary" in str(error)


def test_a_server_that_loads(tmp_path: Path) -> None:
    with (
        running(valkey_binary(), "--rdbcompression", "no", "--dir", str(tmp_path)) as server,
        redis.Redis(unix_socket_path=str(server.socket)) as admin,
    ):
        admin.mset({f"key{number}": "x" * 3_000 for number in range(10_000)})
        admin.save()
    slow = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")  # µs, bytes
    (port,) = free_ports(1)
    command = [str(valkey_binary()), "--port", str(port), "--dir", str(tmp_path), *slow]
    with subprocess.Popen([*command, "--logfile", str(tmp_path / "log")], cwd=tmp_path) as process:
        try:
            until(lambda: _loads(port))
            error = opening(f"redis://127.0.0.1:{port}?timeout=1")
        finally:
            process.kill()
    assert isinstance(error, StoreUnavailable)
    assert "is loading its data; try again when it has" in str(error)


def _loads(port: int) -> bool:
    with redis.Redis(port=port) as client:
        try:
            client.ping()
        except redis.BusyLoadingError:
            return True
        except redis.ConnectionError:
            return False
    raise AssertionError("it has loaded everything already")


def test_a_full_server() -> None:
    full = r"at its memory limit \(maxmemory\): drain queues, or raise"
    with running(redis_binary(), "--maxmemory", "100kb") as server, pytest.raises(StoreError, match=full):
        asyncio.run(_opened(server.url))


async def _opened(url: str) -> None:
    """A namespace that is not there yet: nothing of it can be made."""
    app = Windlass(url)
    try:
        await app.broker()
    finally:
        await app.aclose()


# --- TLS ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ports(made: Certificates) -> Iterator[tuple[int, int]]:
    """Of a server: with TLS, and without."""
    secure, plain = free_ports(2)
    with running(machine_binary(), *made.settings(secure), "--port", str(plain)):
        yield secure, plain


def test_a_server_that_speaks_tls_only(ports: tuple[int, int]) -> None:
    error = opening(f"redis://localhost:{ports[0]}")
    assert "closed the connection before it answered; if it speaks TLS, the URL begins with rediss://" in str(
        error
    )


def test_a_server_that_speaks_no_tls(ports: tuple[int, int], made: Certificates) -> None:
    error = opening(f"rediss://localhost:{ports[1]}?timeout=1&{made.options}")
    assert "if it does not speak TLS, the URL begins with redis://" in str(error)


def test_an_authority_that_is_not_known(ports: tuple[int, int]) -> None:
    error = opening(f"rediss://localhost:{ports[0]}")
    assert f"certificate of the Redis server at localhost:{ports[0]} is not accepted: self" in str(error)
    assert "name its CA: ?ssl_ca_certs=" in str(error)


def test_a_certificate_for_another_host(ports: tuple[int, int], made: Certificates) -> None:
    error = opening(f"rediss://127.0.0.1:{ports[0]}?{made.options}")
    assert "is not valid for '127.0.0.1'; name a host that it is for" in str(error)


def test_a_client_certificate_that_is_missing(ports: tuple[int, int], made: Certificates) -> None:
    url = f"rediss://localhost:{ports[0]}?ssl_ca_certs={made.authority}"
    assert "wants a client certificate: ?ssl_certfile=" in str(opening(url))


def test_a_file_that_is_missing(ports: tuple[int, int], tmp_path: Path) -> None:
    url = f"rediss://localhost:{ports[0]}?ssl_ca_certs={tmp_path}/none"
    assert f"files that do not exist: {tmp_path}/none" in str(opening(url))


# --- as a user sees it --------------------------------------------------------------------------------------


def test_the_command_line_says_it_in_one_line(locked: int, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("from windlass import Windlass\napp = Windlass()\n")
    done = subprocess.run(
        [sys.executable, "-m", "windlass", "queues", "shop:app", "list"],
        cwd=tmp_path,
        env={**os.environ, "WINDLASS_URL": f"redis://:{SECRET}x@127.0.0.1:{locked}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f'windlass: the Redis server at 127.0.0.1:{locked} refuses the user "default"')


def test_a_producer_is_told_at_once(locked: int) -> None:
    app = Windlass(f"redis://:{SECRET}x@127.0.0.1:{locked}")

    @app.task
    def send() -> None: ...

    with pytest.raises(StoreError, match="user name or password is wrong"):
        send.enqueue()
    app.close()
