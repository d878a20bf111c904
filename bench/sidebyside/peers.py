"""The peers: a folder each in `bench/peers`, with an environment of its own made from its pinned versions."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sidebyside.processes import answer_of, started

BENCH = Path(__file__).parent.parent
ENVIRONMENTS = BENCH / ".peers"
PROTOCOL = BENCH / "protocol"
_ANSWERS_WITHIN = 300.0


@dataclass(frozen=True)
class Peer:
    """One system that is measured."""

    name: str
    folder: Path
    stores: tuple[str, ...]
    runtime: str
    settings: str
    after_kill: str
    survives: bool
    gate: tuple[str, ...]  # the stores where it is one of those to beat
    drain: int
    def_tasks: bool = True  # it runs plain functions, and not coroutines alone
    at_least: Mapping[str, int] = field(default_factory=dict[str, int])  # the oldest server that it can use
    source: Path | None = None

    @property
    def title(self) -> str:
        """Its name in tables and plots."""
        return self.name if self.survives else f"{self.name} (not crash safe)"

    @property
    def home(self) -> Path:
        """Its environment."""
        return ENVIRONMENTS / self.name

    def command(self, *words: str) -> list[str]:
        """How its runner is called."""
        if self.runtime == "node":
            return ["node", str(self.home / "peer.mjs"), *words]
        if self.runtime == "ruby":
            return ["ruby", str(self.folder / "peer.rb"), *words]
        if self.runtime == "go":
            return [str(self.home / "peer"), *words]
        python = sys.executable if self.runtime == "windlass" else str(self.home / "bin" / "python")
        return [python, str(PROTOCOL / "run_peer.py"), *words]

    def install(self) -> None:
        """Make its environment, if its pins have changed."""
        if self.runtime == "windlass":
            return
        if self.runtime == "ruby":
            self._find_gem()
            return
        if self.runtime == "go":
            self._build_go()
            return
        pins = self.folder / ("package.json" if self.runtime == "node" else "requirements.txt")
        made = self.home / ".made-from"
        if not (made.exists() and made.read_text() == pins.read_text()):
            shutil.rmtree(self.home, ignore_errors=True)
            self.home.mkdir(parents=True)
            install = self._install_node if self.runtime == "node" else self._install_python
            install(pins)
            made.write_text(pins.read_text())
        if self.runtime == "node":  # which looks for packages beside the file that imports them
            shutil.copy(self.folder / "peer.mjs", self.home / "peer.mjs")
            shutil.copy(PROTOCOL / "peer.mjs", self.home / "protocol.mjs")

    def _find_gem(self) -> None:
        """Ruby's are used as the system has them: nothing is installed."""
        package = f"ruby-{self.name}"
        if shutil.which("ruby") is None:
            raise RuntimeError(f"there is no ruby here; Debian has it: apt-get install {package}")
        _run("ruby", "-e", f'require "{self.name}"  # apt-get install {package}', folder=self.folder)

    def _build_go(self) -> None:
        """Build its program with the pinned modules; Go rebuilds only what has changed."""
        if shutil.which("go") is None:
            raise RuntimeError("there is no Go here: `go` is not on the path")
        self.home.mkdir(parents=True, exist_ok=True)
        for file in ("go.mod", "go.sum", "peer.go"):
            shutil.copy(self.folder / file, self.home / file)
        shutil.copy(PROTOCOL / "peer.go", self.home / "protocol.go")
        _run("go", "build", "-mod=readonly", "-buildvcs=false", "-o", "peer", ".", folder=self.home)

    def _install_node(self, pins: Path) -> None:
        shutil.copy(pins, self.home / "package.json")
        _run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent", folder=self.home)

    def _install_python(self, pins: Path) -> None:
        _run(sys.executable, "-m", "venv", str(self.home), folder=self.home)
        pip = [str(self.home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run(*pip, "--disable-pip-version-check", "-r", str(pins), folder=self.home)


def _run(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:4])} failed: {done.stderr.strip()[-400:]}")


def all_peers() -> dict[str, Peer]:
    """Every peer that has a folder, by name."""
    found = {}
    for path in sorted(BENCH.glob("peers/*/peer.toml")):
        told = tomllib.loads(path.read_text())
        told |= {"stores": tuple(told["stores"]), "gate": tuple(told["gate"])}
        found[path.parent.name] = Peer(name=path.parent.name, folder=path.parent, **told)
    return found


class Stage:
    """A peer in front of an empty store, ready to be asked for what the protocol has."""

    def __init__(self, peer: Peer, url: str, marks: Path, extra: Mapping[str, str]) -> None:
        self.peer = peer
        self.url = url
        self.marks = marks
        self._environment = {
            **os.environ,
            "BENCH_URL": url,
            "BENCH_MARKS": str(marks),
            "PYTHONPATH": os.pathsep.join(map(str, (PROTOCOL, peer.folder, peer.source or BENCH, BENCH))),
            **extra,
        }

    def ask(self, *words: object) -> dict[str, float]:
        """What its runner answers."""
        command = self.peer.command(*(str(word) for word in words))
        return json.loads(answer_of(command, self.peer.folder, self._environment, _ANSWERS_WITHIN))

    def ask_file(self, file: str, *words: object) -> list[dict[str, float]]:
        """What another program of its folder answers."""
        command = [self.peer.command()[0], file, *(str(word) for word in words)]
        return json.loads(answer_of(command, self.peer.folder, self._environment, _ANSWERS_WITHIN))

    @contextlib.contextmanager
    def working(self) -> Iterator[int]:
        """Run its workers; their root process."""
        log = self.marks / "log"
        with started(self.peer.command("work"), self.peer.folder, self._environment, log) as process:
            yield process.pid


@contextlib.contextmanager
def staged(peer: Peer, url: str, **extra: str) -> Iterator[Stage]:
    """Prepare an empty store for a peer."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-marks-") as marks:
        stage = Stage(peer, url, Path(marks), extra)
        stage.ask("prepare")
        yield stage
