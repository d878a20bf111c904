"""RabbitMQ of one's own on the loopback: one node, or several that are one cluster.

Each has its files in a folder of its own, and epmd (Erlang's register of names) listens at a port of its own,
so nothing meets another RabbitMQ of this machine. All of it is ended by the numbers it was started with.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from windlass.verify.brokers.places import Missing, servers_folder
from windlass.verify.guardian import Guardian
from windlass.verify.processes import Started, Starter, until
from windlass.verify.stores.own import free_port

_ANSWERS_WITHIN = 60.0
_GREETING = b"AMQP\x00\x00\x09\x01"


def programs_in(folder: Path) -> Path:
    """Where `make servers` puts the programs."""
    return folder / "rabbitmq"


class _Node(msgspec.Struct):
    name: str
    port: int
    dist_port: int
    process: Started | None = None


class Rabbit:
    """A server, or a cluster of several nodes."""

    def __init__(self, nodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are lines of rabbitmq.conf. `Missing`: it is not on this machine."""
        programs = programs_in(servers_folder())
        if not programs.exists():
            raise Missing("RabbitMQ is not on this machine: make servers ARGS=rabbitmq")
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-rabbit-"))
        # As Debian's package does it: not as root.
        self._user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        self._programs = programs if _open_to_others(programs) else self._copied(programs)
        self._nodes = [
            _Node(f"rabbit-{number}@localhost", free_port(), free_port()) for number in range(1, nodes + 1)
        ]
        self._epmd_port = free_port()
        self._write(dict(settings or {}))
        self._guardian = Guardian()
        self._starter = Starter(self.folder / "logs", self._guardian)
        self._epmd: Started | None = None
        self._starts = 0

    @property
    def ports(self) -> list[int]:
        """Where the nodes listen."""
        return [node.port for node in self._nodes]

    def url(self, name: str = "", *, node: int | None = None, options: str = "") -> str:
        """How to reach a queue or an exchange, of one node or of all."""
        ports = self.ports if node is None else [self.ports[node]]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"amqp://guest:guest@{hosts}/{name}{options and '?' + options}"

    def start(self) -> None:
        """Start all nodes, and wait until they answer."""
        self._epmd = self._run(
            "epmd", [str(self._erlang / "bin/epmd"), "-port", str(self._epmd_port), "-address", "127.0.0.1"]
        )
        # The first founds the cluster that the others join.
        for node in self._nodes[:1], self._nodes[1:]:
            for each in node:
                self._start(each)
            for each in node:
                self._await(each)

    def restart(self, node: int = 0) -> None:
        """Start a node that was ended."""
        self._start(self._nodes[node])
        self._await(self._nodes[node])

    def kill(self, node: int = 0) -> None:
        """End a node at once, with all its processes."""
        one, self._nodes[node].process = self._nodes[node].process, None
        if one is not None:
            one.kill_tree()

    def stop(self, node: int = 0) -> None:
        """Ask a node to stop, and wait until it has."""
        one, self._nodes[node].process = self._nodes[node].process, None
        if one is not None:
            one.signal(signal.SIGTERM)
            if not one.wait(_ANSWERS_WITHIN):
                one.kill_tree()
            one.kill_group()

    def control(self, *arguments: str, node: int = 0) -> str:
        """What `rabbitmqctl` answers; it takes more than a second."""
        done = subprocess.run(  # noqa: S603 - the server's own program
            [str(self._home / "sbin/rabbitmqctl"), "-q", *arguments],
            env=self._environment(self._nodes[node]),
            user=self._user,
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def close(self) -> None:
        """End all of it, and remove its files."""
        for number in range(len(self._nodes)):
            self.kill(number)
        if self._epmd is not None:
            self._epmd.kill_tree()
        self._guardian.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _erlang(self) -> Path:
        return self._programs / "erlang"

    @property
    def _home(self) -> Path:
        return next((self._programs / "rabbitmq/lib").glob("rabbitmq_server-*"))

    def _write(self, settings: dict[str, str]) -> None:
        for node in self._nodes:
            self._config(node).write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
            # Those behind the first join it. The first would wait for the others, did it know of them.
            settings["cluster_formation.peer_discovery_backend"] = "classic_config"
            settings["cluster_formation.classic_config.nodes.1"] = self._nodes[0].name
        (self.folder / "plugins").write_text("[].\n")
        # The nodes know each other by it. Erlang wants it closed to everybody else.
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text("windlass")
        cookie.chmod(0o400)
        if self._user is not None:
            for path in (self.folder, cookie):
                os.chown(path, self._user, -1)

    def _config(self, node: _Node) -> Path:
        return self.folder / f"{node.name}.conf"

    def _start(self, node: _Node) -> None:
        command = [str(self._home / "sbin/rabbitmq-server")]
        node.process = self._run(node.name.partition("@")[0], command, node)

    def _run(self, name: str, command: Sequence[str], node: _Node | None = None) -> Started:
        self._starts += 1
        return self._starter.start(
            f"{name}-{self._starts}",
            command,
            environment=self._environment(node),
            user=self._user,
            folder=self.folder,
        )

    def _environment(self, node: _Node | None) -> dict[str, str]:
        mine: dict[str, str] = {}
        if node is not None:
            mine = {
                "RABBITMQ_NODENAME": node.name,
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(node.port),
                "RABBITMQ_DIST_PORT": str(node.dist_port),
                "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
                "RABBITMQ_LOG_BASE": str(self.folder / "own-logs"),
                "RABBITMQ_CONFIG_FILE": str(self._config(node)),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null",
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
                # So that its script becomes the server, and is not a process beside it.
                "RUNNING_UNDER_SYSTEMD": "true",
            }
        return {
            "PATH": f"{self._erlang / 'bin'}:{os.environ.get('PATH', '')}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            **mine,
        }

    def _await(self, node: _Node) -> None:
        process = node.process
        assert process is not None
        until(lambda: _answers(node.port) or not process.is_running, _ANSWERS_WITHIN, every=0.05)
        if not process.is_running or not _answers(node.port):
            raise RuntimeError(f"{node.name} did not start: {process.last_words()}")

    def _copied(self, programs: Path) -> Path:
        """The programs where the other user may run them: a checkout may be in a closed folder."""
        copies = self.folder / "programs"
        shutil.copytree(programs, copies, symlinks=True)
        return copies


def _answers(port: int) -> bool:
    """Whether a node greets who connects: it listens before it serves."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=2) as link,
    ):
        link.sendall(_GREETING)
        return link.recv(1) == b"\x01"
    return False


def _open_to_others(path: Path) -> bool:
    """Whether every folder on the way may be passed by anybody."""
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))
