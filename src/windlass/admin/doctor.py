"""The state of health: store, clock, files, workers and settings, each with what to do if it is not well."""

import os
import platform
import stat
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import msgspec

from windlass.admin.advice import length
from windlass.admin.doctor_bridges import examine_bridges
from windlass.admin.findings import Finding, Level
from windlass.admin.migration import Migration
from windlass.admin.reading import documents, store_time, workers
from windlass.broker.contract import Broker, Capabilities
from windlass.client.app import Windlass
from windlass.config import PREFIX, Config
from windlass.core.session import SessionState, SessionView
from windlass.core.settings import Kind
from windlass.core.spelling import closest
from windlass.core.state import State
from windlass.core.units import SECOND, Micros
from windlass.errors import ValuesError, WindlassError
from windlass.version import __version__

CLOCK_TOLERANCE: Micros = 2 * SECOND
MEBIBYTE = 1024 * 1024
OTHER_VARIABLES = frozenset(
    (
        "WINDLASS_APP",
        "WINDLASS_DEBUG",
        "WINDLASS_LOG_FORMAT",
        "WINDLASS_LOG_LEVEL",
        "WINDLASS_METRICS_TOKEN",
        "WINDLASS_TOKEN",
    )
)
"""Variables of the command line, which are no settings of an app."""


async def examine(app: Windlass, environment: Mapping[str, str]) -> AsyncIterator[Finding]:
    """Look at everything; a store that does not open is a finding, not an error."""
    for finding in _program(app):
        yield finding
    for finding in _settings(app.config, environment):
        yield finding
    yield Finding("store", Level.OK, safe_url(app.config.url))
    yield Finding("namespace", Level.OK, app.config.namespace)
    async for finding in _values(app):
        yield finding
    try:
        for finding in _file(app.config):
            yield finding
        async for finding in _migrations(app.config):
            yield finding
        broker = await app.connection.broker()
        async for finding in _store(app, broker):
            yield finding
    except (WindlassError, OSError) as error:
        yield Finding("store", Level.PROBLEM, str(error), "see the message: nothing works without the store")


async def _store(app: Windlass, broker: Broker) -> AsyncIterator[Finding]:
    for finding in _capabilities(broker.capabilities):
        yield finding
    for warning in await broker.warnings():
        yield Finding("store", Level.WARNING, warning)
    yield _clock(await store_time(broker))
    fleet = [session async for session in workers(broker)]
    for finding in _workers(fleet):
        yield finding
    async for finding in _jobs(broker, {queue for worker in fleet for queue in _queues(worker)}):
        yield finding
    async for finding in examine_bridges(app, broker):
        yield finding
    async for finding in _documents(app, broker):
        yield finding


async def _values(app: Windlass) -> AsyncIterator[Finding]:
    values = app.values
    if values is None:
        return
    try:
        await values.try_out()
    except ValuesError as error:
        fix = "until it works, large payloads are refused, and jobs that have one wait"
        yield Finding("values", Level.PROBLEM, str(error), fix)
    else:
        over = f"payloads and results over {app.config.values_over:,} bytes are put there"
        yield Finding("values", Level.OK, f"{values.shown} takes objects and gives them back: {over}")


def _program(app: Windlass) -> Iterator[Finding]:
    yield Finding("windlass", Level.OK, __version__)
    yield Finding("python", Level.OK, f"{platform.python_version()} on {platform.system()}")
    tasks = f"{len(app.tasks):,} task{'' if len(app.tasks) == 1 else 's'}"
    yield Finding("app", Level.OK, f'"{app.name}", revision {app.revision}, {tasks}')
    if not app.tasks:
        yield Finding(
            "app", Level.WARNING, "it has no tasks", "import the modules with @app.task where the app is made"
        )


def _settings(config: Config, environment: Mapping[str, str]) -> Iterator[Finding]:
    known = {PREFIX + name.upper() for name in Config.__struct_fields__} | OTHER_VARIABLES
    for variable in sorted(name for name in environment if name.startswith(PREFIX) and name not in known):
        near = closest(variable, known)
        fix = "unset it: nothing reads it" if near is None else f"did you mean {near}?"
        yield Finding("settings", Level.WARNING, f"{variable} is not a setting", fix)
    if config.session_ttl < 3 * config.beat:
        yield Finding(
            "settings",
            Level.WARNING,
            f"session_ttl ({length(config.session_ttl)}) is less than 3 beats ({length(config.beat)} each)",
            "one lost beat may cost a healthy worker its jobs: raise session_ttl, or lower beat",
        )


def safe_url(url: str) -> str:
    """A URL without what may be secret: a password, and the values of options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = "" if parts.username is None else f"{parts.username}@"
    options = "&".join(f"{name}=…" for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    return f"{parts.scheme}://{user}{host}{parts.path}" + (f"?{options}" if options else "")


# --- the file -----------------------------------------------------------------------------------------------


def store_file(config: Config) -> Path | None:
    """The file that an embedded store lives in; None for other stores."""
    if urlsplit(config.url).scheme != "sqlite":
        return None
    from windlass.broker.sqlite import read_url  # noqa: PLC0415 - stores are imported by those who use them

    return read_url(config.url).path


def _file(config: Config) -> Iterator[Finding]:
    path = store_file(config)
    if path is None:
        return
    import apsw  # noqa: PLC0415 - likewise

    yield Finding("sqlite", Level.OK, apsw.sqlite_lib_version())
    if not path.exists():
        yield Finding("file", Level.NOTE, f"{path.absolute()} is not there yet")
        return
    found = path.stat()
    # The journal beside the file is part of the store.
    size = sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.exists())
    yield Finding("file", Level.OK, f"{path.absolute()}, {_mebibytes(size)}, {stat.filemode(found.st_mode)}")
    yield from _permissions(path, found)
    yield from _room(config, path, size)


def _permissions(path: Path, found: os.stat_result) -> Iterator[Finding]:
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "permissions",
            Level.PROBLEM,
            f"this user may not read and write {path}",
            "give this user access to it",
        )
    if found.st_mode & stat.S_IWOTH:
        yield Finding(
            "permissions", Level.PROBLEM, f"every user of this machine may write {path}", f"chmod o-w {path}"
        )
    elif found.st_mode & stat.S_IROTH:
        yield Finding(
            "permissions",
            Level.NOTE,
            f"every user of this machine may read {path}, payloads included",
            f"chmod o-r {path}",
        )


def _room(config: Config, path: Path, size: int) -> Iterator[Finding]:
    from windlass.broker.sqlite.filesystem import RESERVE  # noqa: PLC0415 - likewise

    limit = "no max_size" if config.max_size is None else f"max_size {_mebibytes(config.max_size)}"
    place = os.statvfs(path.parent)
    free = place.f_bavail * place.f_frsize
    if free < RESERVE:
        yield Finding(
            "space",
            Level.PROBLEM,
            f"{_mebibytes(free)} are free where {path} is: nothing is accepted",
            f"make room: at least {_mebibytes(RESERVE)}",
        )
    elif config.max_size is not None and size > 0.9 * config.max_size:
        # The file also holds what was freed and not yet used again, so nobody can tell from here.
        yield Finding(
            "space",
            Level.NOTE,
            f"the file has {_mebibytes(size)}; nothing is accepted once payloads and results pass {limit}",
            "run or cancel waiting jobs, discard dead letters, or raise max_size",
        )
    else:
        yield Finding("space", Level.OK, f"{_mebibytes(free)} free, {limit}")


def _mebibytes(size: int) -> str:
    return f"{size / MEBIBYTE:,.1f} MiB"


# --- the schema ---------------------------------------------------------------------------------------------


async def _migrations(config: Config) -> AsyncIterator[Finding]:
    """Asked before the store is opened, which makes those that are missing where it may."""
    migration = Migration(config)
    if not migration.is_needed:
        return
    layout_state = await migration.layout_state()
    text = f"layout {layout_state.layout} of {layout_state.latest}, functions {layout_state.functions}"
    if layout_state.is_current:
        yield Finding("migrations", Level.OK, text)
    else:
        fix = (
            "windlass migrate APP --sql shows what is missing; a worker whose role may makes it as it starts"
        )
        yield Finding("migrations", Level.NOTE, text, fix)


# --- the store ----------------------------------------------------------------------------------------------


def _capabilities(capabilities: Capabilities) -> Iterator[Finding]:
    level, fix = Level.OK, ""
    if not capabilities.durable:
        level = Level.PROBLEM if capabilities.shared else Level.WARNING
        fix = "have the server write to disk, or use a store that does; as it is, it is for tests only"
    yield Finding("durability", level, f"an accepted job is {capabilities.durability}", fix)
    said = msgspec.structs.asdict(capabilities)
    can = [name.replace("_", " ") for name, value in said.items() if value is True]
    cannot = [name.replace("_", " ") for name, value in said.items() if value is False]
    text = (", ".join(can) or "none") + (f"; not: {', '.join(cannot)}" if cannot else "")
    yield Finding("capabilities", Level.OK, text)
    if not capabilities.shared:
        yield Finding(
            "capabilities",
            Level.WARNING,
            "the store lives inside one process: this command does not see what others enqueued",
            "share a store: sqlite:///windlass.db, say",
        )


def _clock(now: Micros) -> Finding:
    ahead = now - time.time_ns() // 1_000
    text = (
        f"the store's clock is {abs(ahead) / SECOND:.1f} s {'ahead of' if ahead > 0 else 'behind'} this one"
    )
    if abs(ahead) <= CLOCK_TOLERANCE:
        return Finding("clock", Level.OK, text)
    return Finding(
        "clock",
        Level.WARNING,
        text,
        "only the store's counts; set the clocks by NTP, or people misread times",
    )


def _workers(sessions: list[SessionView]) -> Iterator[Finding]:
    alive = [session for session in sessions if session.state is SessionState.ALIVE]
    hosts = {session.info.host for session in alive}
    slots = sum(session.info.slots for session in alive)
    if alive:
        text = f"{len(alive):,} alive on {len(hosts):,} host{'' if len(hosts) == 1 else 's'}, {slots:,} slots"
        yield Finding("workers", Level.OK, text)
    else:
        yield Finding("workers", Level.NOTE, "none is alive", "windlass worker APP")
    silent = [session for session in alive if session.silent_for > session.info.ttl / 2]
    for session in silent:
        yield Finding(
            "workers",
            Level.WARNING,
            f"process {session.info.pid} on {session.info.host} is silent for {length(session.silent_for)}",
            f"look after it: after {length(session.info.ttl)} its jobs are given to others",
        )
    crashed = sum(session.cause is not None and session.cause.kind != "stop" for session in sessions)
    if crashed:
        yield Finding(
            "workers",
            Level.WARNING,
            f"{crashed:,} crashed or were lost within the last hour",
            "windlass workers APP",
        )


def _queues(session: SessionView) -> tuple[str, ...]:
    return session.info.queues if session.state is SessionState.ALIVE else ()


async def _jobs(broker: Broker, served: set[str]) -> AsyncIterator[Finding]:
    counts = await broker.counts()
    totals = {state: sum(row.count for row in counts.rows if row.state is state) for state in State}
    text = ", ".join(f"{count:,} {state}" for state, count in totals.items() if count) or "none yet"
    yield Finding("jobs", Level.OK, text)
    if dead := totals[State.DEAD]:
        yield Finding(
            "jobs",
            Level.NOTE,
            "1 dead letter waits for you" if dead == 1 else f"{dead:,} dead letters wait for you",
            "windlass dead APP",
        )
    ready = {row.queue for row in counts.rows if row.state is State.READY and row.count}
    for queue in sorted(ready - served):
        yield Finding(
            "jobs",
            Level.WARNING,
            f'queue "{queue}" has ready jobs, and no live worker serves it',
            f"windlass worker APP --queues {queue}",
        )


async def _documents(app: Windlass, broker: Broker) -> AsyncIterator[Finding]:
    async for document in documents(broker, Kind.QUEUE):
        name = document.subject.name
        if document.override is not None:
            yield Finding(
                "settings", Level.NOTE, f'queue "{name}" is overridden by an operator', "windlass queues APP"
            )
        if document.app == app.name and document.revision > app.revision:
            yield Finding(
                "settings",
                Level.NOTE,
                f'queue "{name}" has settings of revision {document.revision}; this code is {app.revision}',
                "deploy the newer code here, too",
            )
