"""What is wrong with the server, in one line that says what to do. It names the host, never a password.

Every error of the server becomes one of ours, by its SQLSTATE; nothing of the driver's leaves the store.
"""

import random
import re
from typing import Final
from urllib.parse import parse_qs, urlsplit

import psycopg

from windlass.broker.postgres.driver import NOT_WRITABLE, NotConnected, code_of, may_pass
from windlass.broker.postgres.url import Location
from windlass.errors import InvalidOption, StoreError, StoreUnavailable, WindlassError

NOT_THE_PRIMARY: Final = (
    "is not the primary: it only reads; connect to the primary, or name every host of the cluster in the URL"
)
_OWN: Final = "WL"
"""Codes that the functions of the store use begin with it."""
_LOGIN: Final = "28"
"""Codes of a login that was refused begin with it."""
_NO_DATABASE: Final = "3D000"
_FORBIDDEN: Final = "42501"
_MISSING: Final = frozenset({"3F000", "42883", "42P01", "42703", "42704"})
"""A schema, function, table, column or another object that is not there."""
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_FULL: Final = "53100"
_TOO_MANY: Final = "53300"
_PASSING: Final = ("08", "40", "53", "57", "58", "25006", "25P0", "55P03", "26", "0A000")
"""Codes of what may pass begin with them: lost connections, rollbacks that others caused, want of resources,
an operator's hand, the disk, a standby, an idle transaction that was ended, a lock, and statements that the
server has forgotten.
"""
_BAD_VALUE: Final = re.compile(r"invalid \w+ value: ")
"""How libpq says that an option of the URL has a value that it does not know."""


class Refusal(StoreError):
    """The server answered that it will not."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


def in_words(error: BaseException, location: Location) -> WindlassError:
    """What to raise for an error of the driver."""
    said, code = _first_line(error), code_of(error)
    if code is not None and code.startswith(_OWN):
        return Refusal(said, code)
    where = _where(location)
    if code == NOT_WRITABLE:
        return StoreUnavailable(f"PostgreSQL at {where} {NOT_THE_PRIMARY} ({said})")
    if code is None and (isinstance(error, psycopg.ProgrammingError) or _BAD_VALUE.match(said)):
        return InvalidOption(f"the URL of PostgreSQL cannot be used: {said}")
    told = None if code is None else _said_by_server(code, said, where)
    return told or _not_answered(error, said, where)


def _said_by_server(code: str, said: str, where: str) -> StoreError | None:
    """What an answer means; None if all that is known is that it may pass."""
    if code.startswith(_LOGIN):
        return StoreError(
            f"PostgreSQL at {where} refused the login: {said}; see user and password of the URL"
            " (or PGPASSWORD, a passfile), and pg_hba.conf"
        )
    if code == _NO_DATABASE:
        return StoreError(f"PostgreSQL at {where}: {said}; create it, or correct the URL")
    if code == _TOO_MANY:
        return StoreUnavailable(
            f"PostgreSQL at {where} has no connection left: {said}; raise max_connections, or use a pooler"
        )
    if code == _FULL:
        return StoreUnavailable(f"the disk of PostgreSQL at {where} is full: {said}; make room")
    if code.startswith(_PASSING):
        return None
    return Refusal(f"PostgreSQL at {where} refused: {said} ({code}){_advice(code)}", code)


def _not_answered(error: BaseException, said: str, where: str) -> StoreUnavailable:
    if "SSL" in said:
        return StoreUnavailable(
            f"no TLS with PostgreSQL at {where}: {said}; see sslmode and sslrootcert in the URL"
        )
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"PostgreSQL at {where} did not answer in time")
    if "refused" in said and isinstance(error, NotConnected):
        return StoreUnavailable(
            f"nothing listens where PostgreSQL at {where} should be; is it running? check host and port"
        )
    if "resolve host" in said:
        return StoreUnavailable(f"PostgreSQL at {where}: the name of the host is not known; check the URL")
    if isinstance(error, (OSError, NotConnected)):
        return StoreUnavailable(f"PostgreSQL does not answer at {where}: {said}; is it running?")
    return StoreUnavailable(f"PostgreSQL at {where} did not answer: {said}")


def _advice(code: str) -> str:
    """What to do about a refusal."""
    if code == _FORBIDDEN:
        return "; give this role the rights that docs/postgres.md lists"
    if code in _MISSING:
        return (
            "; something of the namespace was dropped: restore it from a backup, or make it anew with the"
            " script that `windlass migrate --sql` prints for an empty database"
        )
    if code in _DAMAGED:
        return "; the database is damaged: restore it from a backup"
    return ""


def lost_within(location: Location) -> StoreUnavailable:
    """What to raise if a connection is lost while a transaction is open on it."""
    return StoreUnavailable(
        f"the connection to PostgreSQL at {_where(location)} was lost within a transaction: it was rolled"
        " back, unless the server had been told to commit"
    )


def forbidden(error: BaseException, namespace: str) -> StoreError | None:
    """What to raise if a role lacks the rights to bring a namespace up to date; None if it was not that."""
    if code_of(error) != _FORBIDDEN:
        return None
    return StoreError(
        f'this role may not make or renew the namespace "{namespace}" ({_first_line(error)}): run'
        " `windlass migrate` as a role that may, or GRANT CREATE ON DATABASE to this one"
    )


def _where(location: Location) -> str:
    """Host and port: of the URL, or of the environment and the defaults of libpq."""
    parts = urlsplit(location.dsn)
    named = parts.netloc.rpartition("@")[2]
    return named or ",".join(parse_qs(parts.query).get("host", ())) or "the default host"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


TRIES: Final = 6
"""How often a step is begun anew that others made impossible: a deadlock, a serialization failure."""
_FIRST_PAUSE: Final = 0.005


class Tries:
    """The tries of one step, and the pauses between them."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._made = 0

    def after(self, error: BaseException) -> float:
        """Seconds to wait before the next try of the step. Raises an error of Windlass if no try can help."""
        if not may_pass(error):
            raise in_words(error, self._location) from error
        self._made += 1
        if self._made == TRIES:
            raise StoreUnavailable(
                f"PostgreSQL could not serialize the step in {TRIES} tries: {_first_line(error)}; try again"
            ) from error
        return _FIRST_PAUSE * 2 ** (self._made - 1) * random.uniform(0.5, 1)  # noqa: S311 - jitter, not a secret
