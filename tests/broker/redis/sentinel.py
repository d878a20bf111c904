"""A primary, a replica, and three Sentinels on loopback."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from tests.broker.redis.cluster import free_ports, until

NAME = "main"


class Trio:
    """Three Sentinels that watch a primary."""

    def __init__(self, servers: list[int], sentinels: list[int]) -> None:
        self.servers = [redis.Redis(port=port, decode_responses=True) for port in servers]
        self.sentinels = [redis.Redis(port=port, decode_responses=True) for port in sentinels]
        self.url = "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in sentinels) + f"/{NAME}/0"

    def primary(self) -> int:
        """The port that the Sentinels agree on; 0 if they do not."""
        said = {sentinel.sentinel_get_master_addr_by_name(NAME) for sentinel in self.sentinels}
        return int(next(iter(said))[1]) if len(said) == 1 and None not in said else 0

    def ready(self) -> bool:
        """Whether a failover can be asked for."""
        seen = [sentinel.sentinel_master(NAME) for sentinel in self.sentinels]
        return all(one["num-other-sentinels"] == 2 and one["num-slaves"] == 1 for one in seen)

    def fail_over(self) -> None:
        """Let the replica take over, and wait until everybody knows."""
        before = self.primary()
        until(self._has_begun, 30)
        until(lambda: self.primary() not in (0, before), 60)

    def _has_begun(self) -> bool:
        try:
            self.sentinels[0].execute_command("SENTINEL", "FAILOVER", NAME)
        except redis.ResponseError as error:
            if "NOGOODSLAVE" not in str(error):  # it may not have heard of the replica lately
                raise
            return False
        return True

    def close(self) -> None:
        """Let go."""
        for each in (*self.servers, *self.sentinels):
            each.close()


@contextmanager
def trio(binary: Path) -> Iterator[Trio]:
    """Start five processes; stop them afterwards."""
    primary, replica, *sentinels = free_ports(5)
    with tempfile.TemporaryDirectory(prefix="windlass-sentinel-") as name:
        started: list[subprocess.Popen[bytes]] = []

        def start(port: int, *settings: str) -> None:
            folder = Path(name) / str(port)
            folder.mkdir()
            where = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
            command = [str(binary), *settings, *where, "--logfile", str(folder / "log")]
            started.append(subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL))

        try:
            start(primary, "--save", "", "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
            start(replica, "--save", "", "--replicaof", "127.0.0.1", str(primary))
            for port in sentinels:
                config = Path(name) / f"{port}.conf"
                config.write_text(
                    f"sentinel monitor {NAME} 127.0.0.1 {primary} 2\n"
                    f"sentinel down-after-milliseconds {NAME} 2000\nsentinel failover-timeout {NAME} 10000\n"
                )
                start(port, str(config), "--sentinel")
            whole = Trio([primary, replica], sentinels)
            until(lambda: _answers(whole) and whole.ready())
            yield whole
            whole.close()
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(10)


def _answers(whole: Trio) -> bool:
    try:
        return all(each.ping() for each in (*whole.servers, *whole.sentinels))
    except redis.ConnectionError:
        return False
