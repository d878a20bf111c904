"""What every store of the run's own can do."""

import importlib.util
import os
import shutil
import signal
import socket
from abc import ABC, abstractmethod
from pathlib import Path

from windlass.errors import InvalidOption, StoreError
from windlass.verify.processes import Started, Starter, freeze_tree, send, until

ANSWERS_WITHIN = 60.0


class OwnStore(ABC):
    """A store in a folder."""

    kind: str = ""
    address: tuple[str, int] | None = None
    """Where it listens; None: it does not."""
    durable: str = ""
    """What it was told about keeping things, for the report."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        self._starter = starter
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def url(self, address: tuple[str, int] | None = None) -> str:
        """How to reach it, directly or through a door."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    @abstractmethod
    def backup(self, to: Path) -> None:
        """Keep a copy of all it holds."""

    @abstractmethod
    def restore(self, copy: Path) -> None:
        """Put a copy back. It must not run, and does not."""

    @abstractmethod
    def close(self) -> None:
        """End it for good."""


class Server(OwnStore):
    """A store that is a process."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        super().__init__(starter, folder)
        self.port = free_port()
        self.address = ("127.0.0.1", self.port)
        self.process: Started | None = None
        self._starts = 0
        self._frozen: list[int] = []

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "data"

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its settings."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it serves."""

    def user(self) -> int | None:
        """Who it runs as; None: who runs this."""
        return None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        process = self.launch()
        until(lambda: self.answers() or not process.is_running, ANSWERS_WITHIN, every=0.03)
        if not process.is_running or not self.answers():
            raise StoreError(f"the run's own {self.kind} did not start: {process.last_words()}")

    def launch(self) -> Started:
        """Start it, and do not wait: one of several that need each other."""
        self._starts += 1
        name = f"{self.kind}-{self._starts}"
        self.process = self._starter.start(name, self.command(), user=self.user(), folder=self.folder)
        return self.process

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within: float = 60.0) -> None:
        """Ask it to stop and wait until it has."""
        self.thaw()
        process, self.process = self.process, None
        if process is not None:
            process.signal(how)
            if not process.wait(within):
                process.kill_tree()
            process.kill_group()

    def kill(self) -> None:
        """End it at once, with all its processes."""
        process, self.process = self.process, None
        self._frozen = []
        if process is not None:
            process.kill_tree()

    def freeze(self) -> None:
        """Stop all of it."""
        if self.process is not None:
            self._frozen = freeze_tree(self.process.pid)

    def thaw(self) -> None:
        """Let the server continue."""
        for pid in reversed(self._frozen):
            send(pid, signal.SIGCONT)
        self._frozen = []

    def backup(self, to: Path) -> None:
        """A copy of its files; it is stopped for that, and started again."""
        self.stop()
        shutil.rmtree(to, ignore_errors=True)
        _copy(self.data, to)
        self.start()

    def restore(self, copy: Path) -> None:
        """Put the files of a copy in the place of its own."""
        shutil.rmtree(self.data)
        _copy(copy, self.data)
        sync_tree(self.folder)

    def close(self) -> None:
        """End it for good."""
        self.stop(within=10)  # killed, PostgreSQL would leave its shared memory behind


def _copy(source: Path, target: Path) -> None:
    """With its owners: a server may run as somebody else."""
    shutil.copytree(source, target, symlinks=True)
    for path in (source, *source.rglob("*")):
        owner = path.lstat()
        os.chown(target / path.relative_to(source), owner.st_uid, owner.st_gid, follow_symlinks=False)


def sync_tree(folder: Path) -> None:
    """Bring all of a folder to the disk: what was restored must not go with the next power cut."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() or path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        return link.getsockname()[1]


def package_folder(package: str, store: str) -> Path:
    """Where a wheel with a server's programs is; the package itself is not imported."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise InvalidOption(
            f"--own {store} needs the package {package.replace('_', '-')}: "
            "pip install 'windlass-queue[verify]'"
        )
    return Path(places[0])
