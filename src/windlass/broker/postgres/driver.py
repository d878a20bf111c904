"""The driver, by the few things that are asked of it. It brings no types of its own."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from windlass.forks import CONNECTING

_asyncpg: Any = asyncpg
_errors: Any = _asyncpg.exceptions

Connection: TypeAlias = Any
"""An `asyncpg.Connection`."""
Row: TypeAlias = Any
"""An `asyncpg.Record`."""

PATIENCE: Final = 30.0
"""Seconds that a connection or an answer may take."""

Refused: Final[type[Exception]] = _errors.PostgresError
"""The server answered that it will not."""
AGAIN: Final[tuple[type[Exception], ...]] = (
    _errors.DeadlockDetectedError,
    _errors.SerializationError,
    _errors.LockNotAvailableError,
)
"""Others made a step impossible: begun anew, it may pass."""
NOT_PREPARED: Final[tuple[type[Exception], ...]] = (
    _errors.InvalidCachedStatementError,
    _errors.InvalidSQLStatementNameError,
)
"""What was prepared is of no use any more: the function is another one, or the server was told to forget."""
UNAVAILABLE: Final[tuple[type[Exception], ...]] = (
    OSError,
    TimeoutError,
    _errors.InterfaceError,
    _errors.InternalClientError,
    _errors.PostgresConnectionError,
    _errors.OperatorInterventionError,
    _errors.InsufficientResourcesError,
    _errors.ReadOnlySQLTransactionError,
)
"""The connection is lost, or the server cannot serve: it stops, starts, is full, or is a standby."""

NOT_WRITABLE: Final[tuple[type[Exception], ...]] = (
    _errors.ReadOnlySQLTransactionError,
    _errors.TargetServerAttributeNotMatched,
)
"""The server is a standby, or was told to read only."""
MISCONFIGURED: Final[type[Exception]] = _errors.ClientConfigurationError
"""The driver cannot make sense of the URL."""


def code_of(error: BaseException) -> str | None:
    """The code that the server gave for refusing."""
    return getattr(error, "sqlstate", None)


def refusal(fields: Mapping[str, str]) -> Exception:
    """What the driver would raise for an error of the server, given by its fields."""
    return _errors.PostgresError.new(fields)


_KEPT_ALIVE: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
}
"""The server learns within 20 s that a client's machine or network is gone, and takes back what it had begun:
before the client, whose patience is longer, sends the same again and waits for it.
"""


async def connect(dsn: str, *, pooled: bool) -> Connection:
    """Connect; behind a pooler in transaction mode without anything that belongs to a session."""
    settings: Mapping[str, str] | None = None
    if not pooled:
        settings = {
            # A function's later statements must see what was committed while it waited for a lock.
            "default_transaction_isolation": "read committed",
            "application_name": "windlass",
            **_KEPT_ALIVE,
        }
    async with CONNECTING.entered():
        return await _asyncpg.connect(
            dsn,
            timeout=PATIENCE,
            command_timeout=PATIENCE,
            statement_cache_size=0 if pooled else 100,
            server_settings=settings,
            # Of several hosts the primary; of one, an error that says what it is.
            target_session_attrs=None if pooled else "read-write",
        )
