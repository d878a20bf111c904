"""What the server seals with the namespace's secret: lease tokens, sessions of workers, logins, cursors.

A token has its subject as plain text, and then a MAC of 128 bits over the namespace and that text. Only a
server of this namespace can make one. Nobody can guess a token, or make it from another.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from uuid import UUID

import msgspec

from windlass.admin.server_secret import derived
from windlass.core.units import Cursor, Fence, JobId, Micros, SessionId

MAC_BYTES = 16
_LEASE = struct.Struct(">16sQ")
_LOGIN = struct.Struct(">Q16s")


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a login cookie says."""

    id: str
    """32 hex digits, different for every login."""
    until: Micros
    holder: str
    """The id of the key that was shown, or what stands for the local token."""


class Seals:
    """Makes and reads the tokens of one namespace."""

    def __init__(self, secret: bytes, namespace: str) -> None:
        self._lease = derived(secret, f"lease:{namespace}")
        self._session = derived(secret, f"session:{namespace}")
        self._login = derived(secret, f"login:{namespace}")
        self._cursor = derived(secret, f"cursor:{namespace}")

    def lease(self, job: JobId, fence: Fence) -> str:
        """The token of a lease."""
        return _sealed(self._lease, _LEASE.pack(UUID(job).bytes, fence))

    def open_lease(self, token: str) -> tuple[JobId, Fence] | None:
        """The job and the fence of a lease; None for what is no token of this namespace."""
        said = _opened(self._lease, token)
        if said is None or len(said) != _LEASE.size:
            return None
        job, fence = _LEASE.unpack(said)
        return str(UUID(bytes=job)), fence

    def session(self, session: SessionId) -> str:
        """The token of a session: its id can be read by every operator, this cannot."""
        return _sealed(self._session, session.encode())

    def open_session(self, token: str) -> SessionId | None:
        """The id of a session."""
        said = _opened(self._session, token)
        return None if said is None else said.decode("utf-8", "replace")

    def login(self, login: Login) -> str:
        """The cookie of somebody who showed a key."""
        return _sealed(self._login, _LOGIN.pack(login.until, bytes.fromhex(login.id)) + login.holder.encode())

    def open_login(self, cookie: str) -> Login | None:
        """The login of a cookie; None for what is no cookie of this namespace."""
        said = _opened(self._login, cookie)
        if said is None or len(said) < _LOGIN.size:
            return None
        until, login = _LOGIN.unpack_from(said)
        return Login(id=login.hex(), until=until, holder=said[_LOGIN.size :].decode("utf-8", "replace"))

    def cursor(self, place: Cursor, listing: str) -> str:
        """A place in a listing, for the outside."""
        return _sealed(derived(self._cursor, listing), b">" + place.encode())

    def open_cursor(self, cursor: str, listing: str) -> Cursor | None:
        """The place; None for what no page of this listing came with."""
        said = _opened(derived(self._cursor, listing), cursor)
        return None if said is None else Cursor(said[1:].decode("utf-8", "replace"))


def _sealed(key: bytes, said: bytes) -> str:
    return base64.urlsafe_b64encode(said + _mac(key, said)).decode().rstrip("=")


def _opened(key: bytes, token: str) -> bytes | None:
    try:
        whole = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    said, mac = whole[:-MAC_BYTES], whole[-MAC_BYTES:]
    return said if hmac.compare_digest(mac, _mac(key, said)) and said else None


def _mac(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, hashlib.sha256)[:MAC_BYTES]
