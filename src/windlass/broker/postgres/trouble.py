"""What is wrong with the server, in one line that says what to do. It names the host, never a password."""

import ssl
from typing import Final
from urllib.parse import parse_qs, urlsplit

from windlass.broker.postgres.driver import MISCONFIGURED, NOT_WRITABLE, code_of
from windlass.broker.postgres.url import Place
from windlass.errors import InvalidOption, StoreError, StoreUnavailable, WindlassError

NOT_THE_PRIMARY: Final = (
    "is not the primary: it only reads; connect to the primary, or name every host of the cluster in the URL"
)
_LOGIN: Final = "28"
"""Codes of a login that was refused begin with it."""
_NO_DATABASE: Final = "3D000"
_FORBIDDEN: Final = "42501"
_TOO_MANY: Final = "53300"


def in_words(error: BaseException, place: Place) -> WindlassError:
    """What to raise for an error of the driver."""
    where, said = _where(place), _first_line(error)
    code = code_of(error)
    if isinstance(error, NOT_WRITABLE):
        return StoreUnavailable(f"PostgreSQL at {where} {NOT_THE_PRIMARY}")
    if isinstance(error, MISCONFIGURED):
        return InvalidOption(f"the URL of PostgreSQL cannot be used: {said}")
    if code is not None and code.startswith(_LOGIN):
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
    if code is not None and code.startswith("42"):
        return StoreError(f"PostgreSQL at {where} refused: {said}")
    if isinstance(error, ssl.SSLError) or "SSL" in said:
        return StoreUnavailable(
            f"no TLS with PostgreSQL at {where}: {said}; see sslmode and sslrootcert in the URL"
        )
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"PostgreSQL at {where} did not answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"PostgreSQL does not answer at {where}: {said}; is it running?")
    return StoreUnavailable(f"PostgreSQL at {where} did not answer: {said}")


def lost_within(place: Place) -> StoreUnavailable:
    """What to raise if a connection is lost while a transaction is open on it."""
    return StoreUnavailable(
        f"the connection to PostgreSQL at {_where(place)} was lost within a transaction: it was rolled back,"
        " unless the server had been told to commit"
    )


def forbidden(error: BaseException, namespace: str) -> StoreError | None:
    """What to raise if a role lacks the rights to bring a namespace up to date; None if it was not that."""
    if code_of(error) != _FORBIDDEN:
        return None
    return StoreError(
        f'this role may not make or renew the namespace "{namespace}" ({_first_line(error)}): run'
        " `windlass migrate` as a role that may, or GRANT CREATE ON DATABASE to this one"
    )


def _where(place: Place) -> str:
    """Host and port: of the URL, or of the environment and the defaults of libpq."""
    parts = urlsplit(place.dsn)
    named = parts.netloc.rpartition("@")[2]
    return named or ",".join(parse_qs(parts.query).get("host", ())) or "the default host"


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
