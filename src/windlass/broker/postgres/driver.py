"""What is used of psycopg 3: connecting, one call at a time, and its errors."""

import os
import re
import select
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row

from windlass.broker.postgres.adapting import adapt
from windlass.broker.postgres.url import Location
from windlass.forks import CONNECTING

Row: TypeAlias = Any
"""A row by the names of its columns; those of a claim are tuples."""

PATIENCE: Final = 30.0
"""Seconds that a connection or an answer may take."""

TROUBLE: Final[tuple[type[Exception], ...]] = (psycopg.Error, OSError)
"""All that the driver raises. (A `TimeoutError` is an `OSError`.)"""
NOT_WRITABLE: Final = "25006"
"""The code of a server that only reads: a standby, or one that was told to."""
_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})
"""Others made a step impossible: begun anew, it may pass."""
_NOT_PREPARED: Final = frozenset({"0A000", "26000"})
"""What was prepared is of no use any more: the function is another one, or the server was told to forget."""
_ENDS: Final = ("08", "57P", "25P03", NOT_WRITABLE, *_NOT_PREPARED)
"""The beginnings of codes after which a connection is of no use any more."""


class NotConnected(psycopg.OperationalError):
    """No connection came about; `code` is what the server's refusal would be under, as far as it is known."""

    def __init__(self, message: str, code: str | None) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> str | None:
    """The code that the server gave for refusing."""
    return error.code if isinstance(error, NotConnected) else getattr(error, "sqlstate", None)


def may_pass(error: BaseException) -> bool:
    """Whether the same step, begun anew, may pass: on this connection or on a new one."""
    return code_of(error) in _AGAIN | _NOT_PREPARED


# --- connecting ---------------------------------------------------------------------------------------------

_PREFIX: Final = re.compile(
    r'(connection (failed|is bad): |connection to server [^"]*"[^"]*".*? failed: |FATAL:  ?)+'
)
_CONNECTING: Final = (
    (re.compile("authentication failed|no password supplied|not permitted to log in"), "28000"),
    (re.compile('no pg_hba.conf entry|role ".*" does not exist|pg_hba.conf rejects'), "28000"),
    (re.compile('database ".*" does not exist'), "3D000"),
    (re.compile("too many clients|too many connections|connection slots are reserved"), "53300"),
    (re.compile("session is read-only|is in hot standby mode"), NOT_WRITABLE),
)
"""libpq forgets the code of a server that refuses a connection, and keeps its words."""


def _not_connected(error: psycopg.Error) -> Exception:
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return TimeoutError(str(error))
    if isinstance(error, psycopg.ProgrammingError):
        return error
    said = _PREFIX.sub("", str(error).strip().splitlines()[0])
    return NotConnected(said, next((code for words, code in _CONNECTING if words.search(said)), None))


_SESSION: Final = (
    # A function's later statements must see what was committed while it waited for a lock.
    r"-c default_transaction_isolation=read\ committed"
    # The server learns within 20 s that a client's machine or network is gone, and takes back what it had
    # begun: before the client, whose patience is longer, sends the same again and waits for it.
    " -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=2"
)
_DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": int(PATIENCE),
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}


def _parameters(location: Location) -> dict[str, Any]:
    """What libpq is told: what the URL says, and what a broker needs."""
    said = conninfo_to_dict(location.dsn)
    found: dict[str, Any] = {**_DEFAULTS, **said, "client_encoding": "utf8"}
    if location.pooled:
        return found  # nothing that belongs to a session
    options = said.get("options") or os.environ.get("PGOPTIONS", "")
    found["options"] = f"{options} {_SESSION}".strip()
    found.setdefault("application_name", "windlass")
    # Of several hosts the primary; of one, an error that says what it is.
    found["target_session_attrs"] = "read-write"
    return found


def _threshold(location: Location) -> int | None:
    """When psycopg prepares statements: never behind a pooler, which may change the server in between."""
    return None if location.pooled else 5


_Cursor = TypeVar("_Cursor", bound="psycopg.RawCursor[Any] | psycopg.AsyncRawCursor[Any]")


def _adapted(cursor: _Cursor) -> _Cursor:
    cursor.format = psycopg.pq.Format.BINARY
    adapt(cursor)
    return cursor


class Link:
    """A connection for coroutines, and the cursors by which the store's functions are called on it: for rows
    by the names of their columns, and for plain ones.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self._named = _adapted(psycopg.AsyncRawCursor[Any](connection, row_factory=dict_row))
        self._plain = _adapted(psycopg.AsyncRawCursor[Any](connection, row_factory=tuple_row))

    @classmethod
    async def open(cls, location: Location) -> "Link":
        """Connect; behind a pooler in transaction mode without anything that belongs to a session."""
        try:
            async with CONNECTING.entered():
                connection = await psycopg.AsyncConnection[Any].connect(
                    autocommit=True, prepare_threshold=_threshold(location), **_parameters(location)
                )
        except psycopg.Error as error:
            raise _not_connected(error) from error
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return cls(connection)

    async def fetch(self, statement: bytes, arguments: Sequence[Any], *, named: bool) -> Sequence[Row]:
        """Call a function of the store: one statement, one transaction, one round trip."""
        cursor = self._named if named else self._plain
        await cursor.execute(statement, arguments, prepare=True)
        return await cursor.fetchall()

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in no transaction."""
        return _is_usable(self.connection)

    @property
    def is_quiet(self) -> bool:
        """Whether the server has sent nothing unasked. When it shuts down, it says so between two calls."""
        return _is_quiet(self.connection.fileno())

    def drop(self) -> None:
        """Close the connection without waiting."""
        self.connection.pgconn.finish()


class BlockingLink:
    """The same for blocking code."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._named = _adapted(psycopg.RawCursor[Any](connection, row_factory=dict_row))
        self._plain = _adapted(psycopg.RawCursor[Any](connection, row_factory=tuple_row))

    @classmethod
    def open(cls, location: Location) -> "BlockingLink":
        """Connect."""
        try:
            with CONNECTING:
                connection = psycopg.Connection[Any].connect(
                    autocommit=True, prepare_threshold=_threshold(location), **_parameters(location)
                )
        except psycopg.Error as error:
            raise _not_connected(error) from error
        connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return cls(connection)

    def fetch(self, statement: bytes, arguments: Sequence[Any], *, named: bool) -> Sequence[Row]:
        """Call a function of the store."""
        cursor = self._named if named else self._plain
        cursor.execute(statement, arguments, prepare=True)
        return cursor.fetchall()

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in no transaction."""
        return _is_usable(self.connection)

    @property
    def is_quiet(self) -> bool:
        """Whether the server has sent nothing unasked. When it shuts down, it says so between two calls."""
        return _is_quiet(self.connection.fileno())

    def cut(self) -> None:
        """End the wait for an answer in another thread: it finds the connection lost."""
        with suppress(OSError, psycopg.Error):
            wire = socket.fromfd(self.connection.fileno(), socket.AF_UNSPEC, socket.SOCK_STREAM)
            with wire:
                wire.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the connection."""
        self.connection.pgconn.finish()


def _is_usable(connection: "psycopg.AsyncConnection[Any] | psycopg.Connection[Any]") -> bool:
    return connection.pgconn.transaction_status == TransactionStatus.IDLE  # of one that is closed: UNKNOWN


def _is_quiet(descriptor: int) -> bool:
    if hasattr(select, "poll"):  # select() knows no descriptors from 1,024 on
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    return not select.select([descriptor], [], [], 0)[0]


def ends(error: BaseException) -> bool:
    """Whether a connection is of no use after this error, though it may look open."""
    return (code_of(error) or "").startswith(_ENDS)
