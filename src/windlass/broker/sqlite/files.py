"""Opening a file: which SQLite, which file, which layout; and errors in words."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import apsw

from windlass.broker.sqlite.descriptors import opening
from windlass.broker.sqlite.handle import Connection, Handle
from windlass.broker.sqlite.library import library
from windlass.broker.sqlite.lock import FileLock
from windlass.broker.sqlite.statements import migrations
from windlass.errors import InvalidOption, StoreError, StoreUnavailable

APPLICATION_ID = 0x57494E44
_BUSY = 10_000
"""Milliseconds for what the lock beside the file does not cover: other programs, recovery after a crash."""
_STATEMENTS = 400
_CACHE_KIB = 16 * 1024


def check_library(version: str) -> None:
    """Refuse a SQLite that can corrupt a file when its WAL is reset."""
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if (3, 7, 0) <= numbers <= (3, 51, 2):
        raise StoreError(
            f"SQLite {version} can corrupt a file when its WAL is reset (3.7.0 to 3.51.2 do); "
            "install an apsw that ships 3.51.3 or later"
        )


def connect(path: Path, *, writes: bool) -> Handle:
    """A connection that survives a power cut (WAL, synchronous=FULL), or that only reads. The caller has
    entered the library.

    It makes no file: where one was deleted, only `prepare` makes a new one.
    """
    with opening, in_words(path):
        connection = library.open(str(path), flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=_STATEMENTS)
        handle = Handle(connection, library.generation)
        library.close_with(handle, connection)
        # Without this SQLite plans a statement over a partial index anew whenever other values are bound to
        # it: a seek takes 12 to 33 µs instead of 2 to 6. No plan depends on values: nobody runs ANALYZE.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.set_busy_timeout(_BUSY)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        if writes:
            # What is deleted is overwritten on pages that are written anyway. (The rest: `operate`.)
            connection.execute("PRAGMA secure_delete = FAST")
            _keep_freed_memory()
        else:
            connection.execute("PRAGMA query_only = ON")
        _number(connection, "SELECT COUNT(*) FROM sqlite_schema")  # from here on its log is open, too
    return handle


def _keep_freed_memory() -> None:
    """Let the allocator keep what SQLite frees.

    A transaction that comes after one of another process frees all pages in memory and reads them anew. glibc
    gives such memory back to the system, and faults it in again, until it has once seen as large a block come
    and go; others do not mind.
    """
    bytes(_CACHE_KIB * 1024)


def prepare(path: Path, namespace: str, lock: FileLock) -> None:
    """Bring a file to the newest layout, made anew if there is none; every step is one transaction.

    A process that is killed between two steps leaves the file at the earlier one, from which the next goes
    on.
    """
    scripts = migrations()
    with _opened(path) as connection:
        _check_owner(connection, path)
        if _number(connection, "PRAGMA user_version") >= len(scripts):
            _check_version(connection, path, len(scripts))
            _check_namespace(connection, path, namespace)
            if connection.pragma("journal_mode") != "wal":  # a copy that `VACUUM INTO` has made
                connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
    lock.acquire()  # outside the library: a fork need not wait for other processes
    try:
        with _opened(path) as connection:
            _migrate(connection, scripts, namespace)
            _check_version(connection, path, len(scripts))
            _check_namespace(connection, path, namespace)
    finally:
        lock.release()


@contextmanager
def _opened(path: Path) -> Generator[Connection]:
    """A connection for a moment, which leaves the log to those that follow."""
    with library, opening, in_words(path):
        connection = library.open(str(path))
        try:
            connection.set_busy_timeout(_BUSY)
            yield connection
        finally:
            library.leave(connection)


def _check_owner(connection: Connection, path: Path) -> None:
    # In this order: another process may be making the file, and gives it tables and owner at once.
    has_tables = _number(connection, "SELECT COUNT(*) FROM sqlite_schema") > 0
    owner = _number(connection, "PRAGMA application_id")
    if owner != APPLICATION_ID and (owner or has_tables):
        raise InvalidOption(f'"{path}" is the SQLite file of another program; name a file of its own')


def _migrate(connection: Connection, scripts: tuple[str, ...], namespace: str) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for number, script in enumerate(scripts, 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Another process may have been quicker while this one waited for the lock.
            if _number(connection, "PRAGMA user_version") < number:
                connection.execute(script)
                if number == 1:
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute("INSERT INTO namespace (one, name) VALUES (1, ?1)", (namespace,))
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _check_version(connection: Connection, path: Path, newest: int) -> None:
    version = _number(connection, "PRAGMA user_version")
    if version > newest:
        raise StoreError(
            f'"{path}" was written by a newer Windlass (layout {version}, this one knows {newest}); '
            "upgrade this process"
        )


def _check_namespace(connection: Connection, path: Path, namespace: str) -> None:
    kept = connection.execute("SELECT name FROM namespace").fetchall()[0][0]
    if kept != namespace:
        raise InvalidOption(
            f'"{path}" holds the namespace "{kept}", not "{namespace}"; a file holds one: name another file'
        )


def _number(connection: Connection, sql: str) -> int:
    return connection.execute(sql).fetchall()[0][0]


@contextmanager
def in_words(path: Path) -> Generator[None]:
    """Raise errors of SQLite as errors that say what they mean for the file."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, path) from error


def translated(error: apsw.Error, path: Path) -> StoreError:
    """What an error of SQLite means for the file."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f'"{path}" is locked by another program; close it there and try again')
        case apsw.FullError():
            return StoreError(
                f'the disk is full where "{path}" is; nothing was written: make room and try again'
            )
        case apsw.NotADBError():
            return StoreError(f'"{path}" is not a SQLite database; name another file')
        case apsw.CorruptError():
            return StoreError(f'"{path}" is damaged ({error}); restore it from a backup')
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(f'"{path}" cannot be opened for writing ({error}); check its permissions')
        case apsw.IOError():
            return StoreError(
                f'"{path}" or its log cannot be read or written ({error}). Either the disk fails, or '
                f'"{path}-wal" or "{path}-shm" was deleted or replaced while processes had them open: then '
                "stop all processes that use the file, and start them again (docs/backup.md)"
            )
        case _:
            return StoreError(f'"{path}": {error}')
