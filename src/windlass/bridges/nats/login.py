"""How a process logs in to NATS without showing its password to a third party.

The client encrypts a connection if the server asks for that. If the server does not ask, the client sends
the password as it is, so an attacker between both could drop the server's request. Therefore, where the URL
asks for TLS, the client gets the password only when it wants to send it, and only if the connection is
encrypted by then.
"""

import ssl
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from windlass.bridges.addresses import Address
from windlass.bridges.nats.credentials import credentials
from windlass.errors import BridgeRefused, InvalidOption

_T = TypeVar("_T")

LOGIN_OPTIONS = ("token", "creds", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class _Context(ssl.SSLContext):
    """Knows whether the connection of this moment is encrypted with it."""

    used = False

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        self.used = True
        return super().wrap_bio(*arguments, **named)


class Login:
    """What a client is told of us."""

    def __init__(self, address: Address) -> None:
        """`InvalidOption`: its options have no meaning."""
        self._shown = address.shown
        self._context = _context(address)
        self._said = self._of(address)

    def begin(self) -> Mapping[str, Any]:
        """Options of a client that is about to connect; one at a time."""
        if self._context is not None:
            self._context.used = False
        return {"tls": self._context, **self._said}

    def check(self) -> None:
        """Require that the connection is encrypted, if it has to be."""
        if self._context is not None and not self._context.used:
            raise BridgeRefused(f"{self._shown}: the server does not speak TLS, and the URL asks for it")

    def _of(self, address: Address) -> Mapping[str, Any]:
        """A user without a password is a token, as NATS has it."""
        creds, token = address.options.get("creds"), address.options.get("token")
        if sum(way is not None for way in (creds, token, address.user)) > 1:
            raise InvalidOption(f"{address.shown}: say one of user, token= and creds=")
        if creds is not None:
            known = credentials(creds)
            return {"user_jwt_cb": known.jwt, "signature_cb": self._if_encrypted(known.sign)}
        if address.user is not None and address.password is not None:
            return {"user": address.user, "password": self._later(address.password)}
        token = token or address.user
        return {} if token is None else {"token": self._later(token)}

    def _later(self, secret: str) -> Callable[[], str]:
        return self._if_encrypted(lambda: secret)

    def _if_encrypted(self, tell: Callable[..., _T]) -> Callable[..., _T]:
        def told(*arguments: Any) -> _T:
            self.check()
            return tell(*arguments)

        return told


def _context(address: Address) -> _Context | None:
    options = address.options
    authorities, mine = options.get("ssl_ca_certs"), options.get("ssl_certfile")
    if address.scheme != "tls" and authorities is None and mine is None:
        return None
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)  # it checks certificates and names
    try:
        if authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(authorities)
        if mine is not None:
            context.load_cert_chain(mine, options.get("ssl_keyfile"))
    except OSError as error:
        raise InvalidOption(f"{address.shown}: the certificates cannot be read: {error}") from None
    return context
