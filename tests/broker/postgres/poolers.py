"""pgbouncer in transaction mode in front of a test's server, ended by the id it was started with."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.broker.postgres.servers import Server, free_port

_ANSWERS_WITHIN = 20.0
_CONFIG = """
[databases]
postgres = host={folder} port=5432 user=windlass dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = {servers}
logfile = {folder}/pgbouncer.log
ignore_startup_parameters = extra_float_digits
"""


def pgbouncer() -> str:
    """Where the program is; without it the test is left out, aloud."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if found is None:
        pytest.skip("pgbouncer is not installed: apt install pgbouncer (or another package of it)")
    return found


class Pooler:
    """A pooler that lends a server's connection for the length of a transaction. It has few of them, so that
    clients change places all the time.
    """

    def __init__(self, server: Server, *, servers: int = 3) -> None:
        program = pgbouncer()
        self._port = free_port()
        config = server.folder / f"pgbouncer-{self._port}.ini"
        config.write_text(_CONFIG.format(folder=server.folder, port=self._port, servers=servers))
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None  # it refuses to run as root
        if user is not None:
            os.chown(config, user, -1)
        self._process = subprocess.Popen(
            [program, "-q", str(config)],
            user=user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            cwd=server.folder,
        )
        self._await_answer(server.folder / "pgbouncer.log")

    @property
    def dsn(self) -> str:
        """How to connect, and that this is a pooler."""
        return f"{self.plain}?pooler=transaction"

    @property
    def plain(self) -> str:
        """How drivers connect."""
        return f"postgres://windlass@127.0.0.1:{self._port}/postgres"

    def _await_answer(self, log: Path) -> None:
        end = time.monotonic() + _ANSWERS_WITHIN
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.02)
        self.stop()
        raise TimeoutError(log.read_text() if log.exists() else "no log")

    def stop(self) -> None:
        """End it. Killed: which signal means at once, differs between its versions."""
        self._process.kill()
        self._process.wait(20)
