"""Who calls: by an API key, by the cookie of a login, or, while there are no keys, by the server's token.

A server without keys has a token, which it prints when it starts. A request with it comes from somebody who
can read what the server prints. That a request arrives at the loopback address proves nothing: a proxy on
the same machine may have passed it on.
"""

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable

import msgspec

from windlass.admin.service import Service
from windlass.api.access import LOCAL, Caller, caller_of
from windlass.api.hosts import is_loopback
from windlass.api.keyring import KeyRing
from windlass.api.options import ServeOptions
from windlass.api.rates import Rates
from windlass.api.seals import Login, Seals
from windlass.core.units import HOUR, SECOND, Micros

LOGIN_TTL: Micros = 12 * HOUR
_LOGIN_BYTES = 16


class Callers:
    """Finds the caller of a request."""

    def __init__(
        self,
        options: ServeOptions,
        keys: KeyRing,
        seals: Callable[[], Awaitable[Seals]],
        service: Callable[[], Awaitable[Service]],
    ) -> None:
        self._keys = keys
        self._seals = seals
        self._service = service
        self._token = options.token
        self._trusts_local = options.trust_local and is_loopback(options.host)
        self._failures = Rates(rate=10, burst=50)
        """Keys that are not valid, by address."""

    async def with_key(self, text: str, address: str) -> Caller | None:
        """The caller that shows a key, or the token. 429 for an address that has shown too many wrong ones.

        A key that is known is let in from there, too: behind a proxy, or a NAT, all callers have one address.
        """
        if self._is_token(text) and not await self._keys.are_required():
            return LOCAL
        key = await self._keys.find(text, look=False)
        if key is None and not self._failures.is_over(address):
            key = await self._keys.find(text)
        if key is None:
            self._failures.take(address, "keys that are not valid")
            return None
        return caller_of(key)

    async def with_cookie(self, cookie: str) -> Caller | None:
        """The caller that has logged in. A login that is over is no guess at a key, and is not counted."""
        login = (await self._seals()).open_login(cookie)
        return None if login is None else await self._logged_in(login)

    async def without(self) -> Caller | None:
        """The caller that shows nothing."""
        return LOCAL if self._trusts_local and not await self._keys.are_required() else None

    async def is_still(self, caller: Caller) -> bool:
        """Whether a caller that was let in would be let in again."""
        if caller.is_visitor:
            return True  # the application was asked when the request began
        if caller.login is not None:
            return await self.with_cookie(caller.login) is not None
        if caller.key is None:
            return not await self._keys.are_required()
        return await self._keys.by_id(caller.key) is not None

    async def wants_token(self) -> bool:
        """Whether the token is what a caller has to show."""
        return self._token is not None and not await self._keys.are_required()

    # --- logging in and out ---------------------------------------------------------------------------------

    async def log_in(self, text: str, address: str) -> tuple[str, int] | None:
        """A cookie for who shows a key or the token, and the seconds that it is good for."""
        caller = await self.with_key(text, address)
        if caller is None:
            return None
        now = self._keys.now()
        until = now + LOGIN_TTL
        key = None if caller.key is None else await self._keys.by_id(caller.key)
        if key is not None and key.expires_at is not None:
            until = min(until, key.expires_at)
        holder = self._token_tag() if caller.key is None else caller.key
        login = Login(id=secrets.token_hex(_LOGIN_BYTES), until=until, holder=holder)
        return (await self._seals()).login(login), max(1, (until - now) // SECOND)

    async def log_out(self, cookie: str) -> None:
        """End a login: its cookie opens nothing any more, at no server of this namespace."""
        login = (await self._seals()).open_login(cookie)
        if login is not None and login.until > self._keys.now():
            await (await self._service()).logins.end(login.id, login.until)

    async def _logged_in(self, login: Login) -> Caller | None:
        caller = await self._holder(login.holder)
        if caller is None or login.until <= self._keys.now():
            return None
        if await (await self._service()).logins.has_ended(login.id, login.until):
            return None
        return msgspec.structs.replace(caller, login=(await self._seals()).login(login))

    async def _holder(self, holder: str) -> Caller | None:
        key = await self._keys.by_id(holder)
        if key is not None:
            return caller_of(key)
        is_local = self._token is not None and hmac.compare_digest(holder, self._token_tag())
        return LOCAL if is_local and not await self._keys.are_required() else None

    # --- the token ------------------------------------------------------------------------------------------

    def _is_token(self, text: str) -> bool:
        given = text.encode("utf-8", "replace")
        return self._token is not None and hmac.compare_digest(given, self._token.encode())

    def _token_tag(self) -> str:
        """What stands for the token in a login: one with another token was not shown this one."""
        return "token " + hashlib.sha256((self._token or "").encode()).hexdigest()[:32]
