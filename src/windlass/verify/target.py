"""The store of a run: one of its own, or the user's, with a scratch namespace that is removed."""

import contextlib
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from windlass.broker.contract import Options
from windlass.broker.registry import check_url
from windlass.config import configure
from windlass.errors import InvalidOption, StoreError
from windlass.verify.disk import Disk, why_not
from windlass.verify.ground import TIMES
from windlass.verify.processes import Starter
from windlass.verify.stores.own import OwnStore
from windlass.verify.stores.postgres import OwnPostgres
from windlass.verify.stores.redis import OwnRedis
from windlass.verify.stores.sqlite import OwnSqlite


def _own_cluster(starter: Starter, folder: Path) -> OwnStore:
    from windlass.verify.stores.cluster import OwnCluster  # noqa: PLC0415 - needs an extra

    return OwnCluster(starter, folder)


OWN: Mapping[str, Callable[[Starter, Path], OwnStore]] = {
    "sqlite": OwnSqlite,
    "redis": OwnRedis,
    "postgres": OwnPostgres,
    "cluster": _own_cluster,
}
_PORTS = {"redis": 6379, "rediss": 6379, "postgres": 5432, "postgresql": 5432}


class Target:
    """Where jobs go."""

    def __init__(self, url: str, *, own: OwnStore | None = None, disk: Disk | None = None) -> None:
        self.own = own
        self.disk = disk
        self.namespace = "windlass" if own is not None else f"verify_{uuid.uuid4().hex[:12]}"
        self.url = url if own is not None else _scratch(url, self.namespace)
        """Directly, not through the proxy."""
        self.address = own.address if own is not None else _address(url)
        self.store = urlsplit(self.url).scheme.partition("+")[0]

    def through(self, port: int | None) -> str:
        """The URL that leads through a door of the proxy."""
        if port is None:
            return self.url
        if self.own is not None:
            return self.own.url(("127.0.0.1", port))
        parts = urlsplit(self.url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    def options(self) -> Options:
        """How the run itself opens it."""
        given = {**TIMES, "url": self.url, "namespace": self.namespace}
        return configure(given, {}).broker_options()

    async def remove(self) -> None:
        """Remove the scratch namespace; `StoreError` or `OSError` if that cannot be."""
        if self.own is not None:
            self.own.close()
            if self.disk is not None:
                self.disk.remove()
            return
        match self.store:
            case "sqlite":
                _delete_file(Path("/" + urlsplit(self.url).path.lstrip("/")))
            case "postgres" | "postgresql":
                await _drop_schema(self.url, self.namespace)
            case _:
                await _delete_keys(self.url, self.namespace)


def own_store(kind: str, starter: Starter, folder: Path, *, size: int | None = None) -> Target:
    """A store of the run's own, started; on a disk of its own where that can be."""
    if kind not in OWN:
        raise InvalidOption(f'--own is one of {", ".join(OWN)}, not "{kind}"')
    disk: Disk | None = None
    if why_not() is None and kind != "cluster":
        disk = Disk(folder / "image") if size is None else Disk(folder / "image", size)
    place = folder if disk is None else disk.place
    try:
        own = OWN[kind](starter, place / "store")
        own.start()
    except BaseException:
        if disk is not None:
            disk.remove()
        raise
    return Target(own.url(), own=own, disk=disk)


def given_store(url: str) -> Target:
    """The user's store."""
    check_url(url)
    if urlsplit(url).scheme == "memory":
        raise InvalidOption("a store in memory lives in one process; verify one that is shared, or use --own")
    return Target(url)


def _scratch(url: str, namespace: str) -> str:
    """SQLite has one namespace per file: a file beside the user's, with the same disk under it."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        return url
    path = Path(parts.path.removeprefix("/")).absolute()
    return f"sqlite:///{path.with_name(f'{path.name}-{namespace}')}"


def _address(url: str) -> tuple[str, int] | None:
    """Where a proxy could stand. Not for several hosts, sockets, or TLS, whose names are checked."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "postgres", "postgresql") or "," in parts.netloc:
        return None
    if "host=" in parts.query or "sslmode=" in parts.query or parts.hostname is None:
        return None
    return parts.hostname, parts.port or _PORTS[parts.scheme]


def _delete_file(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-turn", "-lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.rmtree(f"{path}-wake", ignore_errors=True)


async def _drop_schema(url: str, namespace: str) -> None:
    from windlass.broker.postgres.driver import TROUBLE, Link  # noqa: PLC0415 - an extra
    from windlass.broker.postgres.url import read_url  # noqa: PLC0415

    try:
        link = await Link.open(read_url(url))
        try:
            await link.connection.execute(f'DROP SCHEMA IF EXISTS "{namespace}" CASCADE'.encode())
        finally:
            link.drop()
    except TROUBLE as error:
        raise StoreError(f'the schema "{namespace}" is left: {error}') from error


async def _delete_keys(url: str, namespace: str) -> None:
    import redis  # noqa: PLC0415 - an extra

    from windlass.broker.redis.keys import keys  # noqa: PLC0415
    from windlass.broker.redis.url import read_url  # noqa: PLC0415

    place = read_url(url)
    if place.kind != "direct":
        raise StoreError(f'the keys "windlass:{{{namespace}}}:*" are left: delete them on the {place.kind}')
    library: Any = redis
    client: Any = library.Redis.from_url(url.partition("?")[0], socket_timeout=60)
    try:
        client.unlink(*keys(namespace))
    except redis.RedisError as error:
        raise StoreError(f'the keys "windlass:{{{namespace}}}:*" are left: {error}') from error
    finally:
        with contextlib.suppress(redis.RedisError):
            client.close()
