"""A connection to Redis. The client opens it when it is needed, and anew after it was lost."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final, TypeVar

from redis import exceptions
from redis.asyncio import Redis, RedisError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from windlass.bridges.addresses import Address
from windlass.bridges.redis_lists.place import RedisList
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption

_T = TypeVar("_T")

ANSWERS_WITHIN = 10.0
"""Seconds that Redis may take for an answer."""
_REFUSALS: Final = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
    exceptions.ResponseError,
    exceptions.DataError,
)
_FOR_NOW: Final = (
    exceptions.BusyLoadingError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)


class Link:
    """One server."""

    def __init__(self, address: Address, place: RedisList) -> None:
        host, port = address.hosts[0]
        self.shown = f"{address.shown}?list={place.list}"
        self.client: Any = Redis(
            host=host,
            port=6379 if port is None else port,
            db=place.database,
            username=address.user or None,
            password=address.password,
            socket_timeout=ANSWERS_WITHIN,
            socket_connect_timeout=ANSWERS_WITHIN,
            # What is tried again may be done twice: who calls decides.
            retry=Retry(NoBackoff(), 0),
            client_name="windlass",
            **_tls(address),
        )

    def script(self, name: str) -> Any:
        """A script of ours: `lua/NAME.lua`."""
        return self.client.register_script(
            (files("windlass.bridges.redis_lists") / "lua" / f"{name}.lua").read_text()
        )

    async def ask(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Call, and say what went wrong in our words."""
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                return await call()
        except _FOR_NOW as error:
            raise BridgeUnavailable(f"{self.shown}: {_text(error)}") from None
        except _REFUSALS as error:
            raise BridgeRefused(f"{self.shown}: {_text(error)}") from None
        except TimeoutError:
            raise BridgeUnavailable(f"{self.shown} did not answer within {ANSWERS_WITHIN:g} s") from None
        except (RedisError, OSError) as error:
            raise BridgeUnavailable(f"{self.shown}: {_text(error)}") from error
        except TypeError as error:
            # Python 3.13: a write to a connection that was lost calls a method that is None by then. The
            # client has dropped the connection.
            if "'NoneType' object is not callable" not in str(error):
                raise
            raise BridgeUnavailable(f"{self.shown}: the connection was lost") from error

    async def close(self) -> None:
        """Let go of the connections."""
        await self.client.aclose()


def _tls(address: Address) -> dict[str, Any]:
    if address.scheme != "rediss":
        return {}
    for option in ("cafile", "certfile"):
        if option in address.options:
            try:
                ssl.create_default_context(cafile=address.options.get("cafile"))
            except (OSError, ssl.SSLError) as error:
                raise InvalidOption(f"{address.shown}: {option} cannot be used: {error}") from None
    return {
        "ssl": True,
        "ssl_ca_certs": address.options.get("cafile"),
        "ssl_certfile": address.options.get("certfile"),
        "ssl_keyfile": address.options.get("keyfile"),
    }


def _text(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
