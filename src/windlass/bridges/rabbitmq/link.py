"""A connection to RabbitMQ: opened when it is needed, and anew after it was lost."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from aiormq import Channel, Connection
from aiormq import exceptions as amqp

from windlass.bridges.addresses import Address
from windlass.bridges.rabbitmq.place import tls_of
from windlass.bridges.rabbitmq.strange import bear
from windlass.errors import BridgeError, BridgeRefused, BridgeUnavailable
from windlass.forks import CONNECTING

_T = TypeVar("_T")

# All that it says is said once more in our words, and not again with every try. Who wants it sets its level.
if (_client_log := logging.getLogger("aiormq")).level == logging.NOTSET:
    _client_log.setLevel(logging.CRITICAL)

bear()

ANSWERS_WITHIN = 10.0
"""Seconds that RabbitMQ may take for an answer."""
_HEARTBEAT = 10
"""Seconds; three are missed before a connection on which nothing is said counts as lost."""
_CLOSES_WITHIN = 3.0
_REFUSALS: Final = (
    amqp.ChannelNotFoundEntity,
    amqp.ChannelAccessRefused,
    amqp.ChannelLockedResource,
    amqp.ChannelPreconditionFailed,
    amqp.AuthenticationError,
    amqp.ProbableAuthenticationError,
    amqp.ConnectionNotAllowed,
)
_FOR_NOW = ("down or inaccessible", "timed out", "unknown delivery tag", "stopped by supervisor")
"""In a refusal: it is one for now. A queue whose node has gone is "not found" while it is away."""


class Link:
    """A connection and the channels on it."""

    def __init__(self, address: Address, vhost: str) -> None:
        self._address = address
        self._vhost = vhost
        self._tls = tls_of(address)
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def shown(self) -> str:
        """For people."""
        return self._address.shown

    @property
    def version(self) -> tuple[int, ...]:
        """That of RabbitMQ, where it says so; it is known once connected."""
        said: Any = {} if self._connection is None else self._connection.server_properties
        text = said.get("version") if isinstance(said, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        parts = text.split(".") if isinstance(text, str) else []
        return tuple(int(part) for part in parts if part.isdecimal())

    async def channel(self, *, confirms: bool = False) -> Channel:
        """A new channel. Call it within `ask`."""
        async with self._opening:
            if self._connection is None or not self._connection.is_opened:
                self._connection = None
                async with CONNECTING.entered():
                    self._connection = await self._connected()
        return cast("Channel", await self._connection.channel(publisher_confirms=confirms))

    async def ask(self, call: Callable[[], Awaitable[_T]], *, within: float = ANSWERS_WITHIN) -> _T:
        """Call, and say what went wrong in our words. After trouble the next call connects anew, also after
        it was cancelled: nobody knows what was done by then. A refusal ends only the channel that was asked.
        """
        try:
            async with asyncio.timeout(within):
                return await call()
        except BridgeError:
            raise
        except TimeoutError:
            self.drop()
            raise BridgeUnavailable(f"{self.shown} did not answer within {within:g} s") from None
        except asyncio.CancelledError:
            self.drop()
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            # The client cancels what waits on a connection that is lost.
            raise BridgeUnavailable(f"{self.shown}: the connection was lost") from None
        except Exception as error:  # the client raises what it likes when a connection is lost
            if (refused := self.refusal(error)) is not None:
                raise refused from None
            self.drop()
            raise self.trouble(error) from error

    def refusal(self, error: BaseException) -> BridgeRefused | None:
        """What RabbitMQ will not do however often it is asked; None: it is trouble for now."""
        text = _text(error)
        if isinstance(error, amqp.InvalidFrameError) and "Connection.OpenOk" in text:
            return BridgeRefused(
                f'{self.shown}: there is no virtual host "{self._vhost}", or this user may not use it'
            )
        if isinstance(error, _REFUSALS) and not any(part in text for part in _FOR_NOW):
            return BridgeRefused(f"{self.shown}: {text}")
        return None

    def trouble(self, error: BaseException) -> BridgeUnavailable:
        """What may work again."""
        return BridgeUnavailable(f"{self.shown}: {_text(error)}")

    async def blocked(self) -> bool:
        """Whether RabbitMQ reads nothing that is published: it is low on memory or on disk."""
        if self._connection is None or not self._connection.is_opened:
            return False
        ready = asyncio.ensure_future(self._connection.ready())
        await asyncio.sleep(0)
        ready.cancel()
        return not ready.done()

    def drop(self) -> None:
        """Leave the connection: the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._leave(connection)

    async def close(self) -> None:
        """Leave, and wait until that is done."""
        self.drop()
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _connected(self) -> Connection:
        hosts = list(self._address.hosts)
        random.shuffle(hosts)
        # So that one that does not answer at all leaves time for the others.
        share = ANSWERS_WITHIN * 0.9 / len(hosts)
        while True:
            host, port = hosts.pop()
            connection: Any = Connection(self._url(host, port), context=self._tls)
            try:
                async with asyncio.timeout(share):
                    await connection.connect({"connection_name": "windlass"})
            except Exception as error:
                self._leave(connection)
                if not hosts or self.refusal(error) is not None:
                    raise
            except BaseException:
                self._leave(connection)
                raise
            else:
                return connection

    def _url(self, host: str, port: int | None) -> str:
        login = f"{quote(self._address.user or 'guest', safe='')}:{quote(self._password, safe='')}"
        name = f"[{host}]" if ":" in host else host
        at = name if port is None else f"{name}:{port}"
        vhost = quote(self._vhost, safe="")
        return f"{self._address.scheme}://{login}@{at}/{vhost}?heartbeat={_HEARTBEAT}"

    @property
    def _password(self) -> str:
        if self._address.password is None and self._address.user is None:
            return "guest"
        return self._address.password or ""

    def _leave(self, connection: Connection) -> None:
        task = asyncio.get_running_loop().create_task(_closed(connection))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def ending_of(channel: Channel) -> "asyncio.Future[Any]":
    """Done when a channel has closed, with the error that has closed it."""
    return cast("asyncio.Future[Any]", cast("Any", channel).closing)


async def _closed(connection: Connection) -> None:
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_CLOSES_WITHIN):
            await connection.close()


def _text(error: BaseException) -> str:
    """What went wrong, in a line. No URL is in it, so no password."""
    text = " ".join(str(error).split())[:300]
    return text if text and not isinstance(error, ValueError) else type(error).__name__
