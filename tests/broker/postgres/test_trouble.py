"""What is wrong with a server, in one line: where, what, and what to do; never a password."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from tests.broker.postgres.servers import Server, free_port, programs

from windlass.broker.contract import Options
from windlass.broker.registry import open_broker
from windlass.errors import InvalidOption, StoreError, StoreUnavailable, WindlassError


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(programs())
    try:
        yield server
    finally:
        server.remove()


def _trouble(url: str, kind: type[WindlassError], namespace: str = "trouble") -> str:
    async def opening() -> None:
        broker = await open_broker(url, options=Options(namespace=namespace))
        await broker.close()

    with pytest.raises(kind) as caught:
        asyncio.run(opening())
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message
    return message


def test_nobody_there() -> None:
    message = _trouble("postgres://u:secret@127.0.0.1:1/d", StoreUnavailable)
    assert message == (
        "nothing listens where PostgreSQL at 127.0.0.1:1 should be; is it running? check host and port"
    )


def test_no_such_host() -> None:
    message = _trouble("postgres://u:secret@nowhere.invalid/d", StoreUnavailable)
    assert message == "PostgreSQL at nowhere.invalid: the name of the host is not known; check the URL"


def test_no_such_port() -> None:
    assert "the port must be from 1 to 65535" in _trouble(
        "postgres://u:secret@localhost:99999/d", InvalidOption
    )


def test_no_such_database(server: Server) -> None:
    url = server.dsn.replace("/postgres?", "/nowhere?")
    assert 'database "nowhere" does not exist; create it, or correct the URL' in _trouble(url, StoreError)


def test_no_such_role(server: Server) -> None:
    url = server.dsn.replace("windlass@", "nobody_here:secret@")
    assert 'refused the login: role "nobody_here" does not exist' in _trouble(url, StoreError)


def test_a_wrong_password(server: Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all guarded scram-sha-256\n{before}")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
    url = server.dsn.replace("windlass@", "guarded:secret@")
    message = _trouble(url, StoreError)
    assert 'refused the login: password authentication failed for user "guarded"; see user' in message


def test_a_bad_sslmode(server: Server) -> None:
    assert "the URL of PostgreSQL cannot be used" in _trouble(f"{server.dsn}&sslmode=never", InvalidOption)


def test_a_server_that_only_reads_is_not_the_primary(server: Server) -> None:
    """A standby, or a primary that was told to."""
    reads = "options=-c%20default_transaction_read_only%3Don"
    assert "is not the primary: it only reads" in _trouble(f"{server.dsn}&{reads}", StoreUnavailable)


def test_a_server_that_begins_to_only_read_is_left(server: Server) -> None:
    async def test() -> None:
        broker = await open_broker(server.dsn, options=Options(namespace="demoted"))
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'windlass'"
            )
            for _ in range(2):  # the connection is lost; the next one is refused
                with pytest.raises(StoreUnavailable) as caught:
                    await broker.sweep(limit=1)
            assert "is not the primary" in str(caught.value)
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        await broker.sweep(limit=1)
        await broker.close()

    asyncio.run(test())


def test_no_right_to_create_a_schema(server: Server) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")
    message = _trouble(server.dsn.replace("windlass@", "guest@"), StoreError)
    assert 'may not make or renew the namespace "trouble" (permission denied for database' in message
    assert "`windlass migrate`" in message


def test_no_tls_where_it_is_asked_for() -> None:
    port = free_port()
    server = Server(programs(), listen_addresses="127.0.0.1", port=str(port))
    try:
        url = f"postgres://windlass:secret@127.0.0.1:{port}/postgres?sslmode=require"
        message = _trouble(url, StoreUnavailable)
        assert message.startswith(f"no TLS with PostgreSQL at 127.0.0.1:{port}: ")
        assert message.endswith("see sslmode and sslrootcert in the URL")
    finally:
        server.remove()
