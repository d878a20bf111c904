"""How safe jobs are on a server: read when a broker opens, for `doctor` and for receipts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windlass.broker.contract import Capabilities, Pacing


class Durability(NamedTuple):
    """The facts."""

    server: str
    append_only: bool
    fsync: str
    """always, everysec, no; "" where the server does not say"""
    snapshots: bool
    max_memory: int
    policy: str
    replicas_confirm: int = 0

    @property
    def evicts(self) -> bool:
        """Whether the server deletes jobs when it is at its memory limit."""
        return self.policy not in ("", "noeviction")

    @property
    def durable(self) -> bool:
        """Whether accepted jobs outlive the server's process, and its memory limit."""
        return (self.append_only or self.snapshots) and not self.evicts

    def words(self) -> str:
        """Where a job is safe when `enqueue` returns, in words."""
        confirmed = f", and confirmed by {self.replicas_confirm} replicas" if self.replicas_confirm else ""
        deleted = f"; AT ITS MEMORY LIMIT THE SERVER DELETES JOBS ({self.policy})" if self.evicts else ""
        return f"in the memory of {self.server}, {self._file()}{confirmed}{deleted}"

    def _file(self) -> str:
        if not self.append_only:
            lost = "everything since the last snapshot" if self.snapshots else "everything"
            return f"without an append-only file: a crash of the server loses {lost}"
        match self.fsync:
            case "always":
                return "synced to its append-only file: it survives a power cut"
            case "everysec":
                return "written to its append-only file: a power cut loses up to 2 seconds"
            case "no":
                return "written to its append-only file: a power cut loses up to about 30 seconds"
            case _:
                return "written to its append-only file, synced as the server is configured"

    def warnings(self) -> tuple[str, ...]:
        """What an operator must know before jobs are trusted to this server; empty if all is well."""
        said: list[str] = []
        if self.evicts:
            said.append(
                f"maxmemory-policy is {self.policy}: at its memory limit the server DELETES JOBS. "
                "Set maxmemory-policy noeviction"
            )
        if not self.append_only:
            said.append(f"{self._file()}. Set appendonly yes (and appendfsync always to survive a power cut)")
        elif self.fsync == "no":
            said.append(f"{self._file()}. Set appendfsync everysec or always")
        return tuple(said)

    def capabilities(self) -> Capabilities:
        """As every store declares them."""
        return Capabilities(
            store="redis",
            durability=self.words(),
            durable=self.durable,
            shared=True,
            transactional_enqueue=False,
            transactional_completion=False,
            pacing=Pacing(ahead=2_000, serial=True),
        )


def read_durability(info: bytes, config: Sequence[Any], replicas: int) -> Durability:
    """The facts from `INFO` and, where it is permitted, `CONFIG GET`."""
    said = _read_info(info)
    settings = {_text(config[at]): _text(config[at + 1]) for at in range(0, len(config), 2)}
    name = "Valkey" if "valkey_version" in said else "Redis"
    version = said.get("valkey_version") or said.get("redis_version", "")
    return Durability(
        server=f"{name} {version}".strip(),
        append_only=said.get("aof_enabled") == "1",
        fsync=settings.get("appendfsync", ""),
        snapshots=bool(settings.get("save", "")),
        max_memory=int(said.get("maxmemory", 0)),
        policy=said.get("maxmemory_policy", ""),
        replicas_confirm=replicas,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _read_info(info: bytes) -> Mapping[str, str]:
    lines = (line.partition(":") for line in info.decode().splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}
