"""The connection to NATS. When it is lost, the next call makes a new one.

The client's own way to connect anew is switched off: it keeps what was published meanwhile and sends it
later, when nobody knows any more whether it is still meant.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from windlass.bridges.addresses import Address
from windlass.bridges.nats.login import LOGIN_OPTIONS, Login
from windlass.bridges.nats.said import ApiError, ApiErrorSaid, refusal
from windlass.errors import BridgeRefused, BridgeUnavailable, InvalidOption
from windlass.forks import CONNECTING

_T = TypeVar("_T")

LINK_OPTIONS = ("domain", "monitor", *LOGIN_OPTIONS)
ANSWERS_WITHIN = 5.0
"""Seconds."""
_CONNECTS_WITHIN = 3
_CLOSES_WITHIN = 1.0
_GIVES_UP_WITHIN = 0.2
_PORT = 4222


class Link:
    """A connection that several may use, and what was said on it."""

    def __init__(self, address: Address) -> None:
        """`InvalidOption`: its options have no meaning."""
        if not address.hosts:
            raise InvalidOption(f"{address.shown} names no host: nats://host:4222/STREAM")
        self.shown = address.shown
        self.prefix = f"$JS.{domain}.API" if (domain := address.options.get("domain")) else "$JS.API"
        self._hosts = [f"nats://{_bracketed(host)}:{port or _PORT}" for host, port in address.hosts]
        self._login = Login(address)
        self._connecting = asyncio.Lock()
        self._client: Client | None = None
        self._found: list[str] = []
        self._flushing: set[asyncio.Task[None]] = set()
        self._not_allowed = ""
        self._noted: Exception | None = None
        self.lost = asyncio.Event()
        """Set when there will be no answers on this connection; each connection has one of its own."""

    async def client(self) -> Client:
        """A client that is connected."""
        client = self._client
        if client is not None and client.is_connected:
            return client
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await self._forget()
                async with CONNECTING.entered():
                    self._client = await self._connect()
        return self._client

    async def ask(self, verb: str, kind: type[_T], body: object = None) -> _T:
        """Ask JetStream: `STREAM.INFO.orders`. `ApiError` if it answers with one."""
        said = b"" if body is None else msgspec.json.encode(body)
        client = await self.client()
        async with self.troubles():
            asked = client.request(f"{self.prefix}.{verb}", said, timeout=ANSWERS_WITHIN)
            data = (await self.unless_lost(asked)).data
        try:
            error = msgspec.json.decode(data, type=_Answer).error
            if error is not None:
                raise error.raised()
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError:
            raise BridgeRefused(f"{self.shown} answers as no JetStream does") from None

    async def told(self, verb: str, kind: type[_T], body: object = None) -> _T:
        """As `ask`; an error is `BridgeRefused`, or `BridgeUnavailable` if it may pass."""
        try:
            return await self.ask(verb, kind, body)
        except ApiError as error:
            raise refusal(self.shown, error) from error

    async def unless_lost(self, doing: Awaitable[_T]) -> _T:
        """Wait for something; `ConnectionClosedError` as soon as the connection is lost."""
        task, lost = asyncio.ensure_future(doing), asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise nats.errors.ConnectionClosedError
            return task.result()
        finally:
            lost.cancel()
            if not task.cancel() and not task.cancelled():
                task.exception()  # it was seen to, though nobody may be told of it

    @contextlib.asynccontextmanager
    async def troubles(self) -> AsyncGenerator[None]:
        """Say what goes wrong within in our words."""
        try:
            yield
        except nats.errors.NoRespondersError:
            raise BridgeUnavailable(
                f"{self.shown}: JetStream does not answer: it is not enabled, or has no leader at the moment"
            ) from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if self._not_allowed:
                why, self._not_allowed = self._not_allowed, ""
                if self._client is not None and self._client.is_connected:
                    self.lost.clear()
                raise BridgeRefused(f"{self.shown}: {why}") from None
            raise BridgeUnavailable(f"{self.shown} does not answer: {_said(error)}") from None

    async def listen(
        self, client: Client, subject: str, come: Callable[[Msg], Awaitable[None]]
    ) -> Subscription:
        """Hear what is sent to a subject, whatever its size: nothing of it is dropped."""
        subscribe: Callable[..., Awaitable[Subscription]] = getattr(client, "subscribe")  # noqa: B009 - untyped
        async with self.troubles():
            return await subscribe(subject, cb=come, pending_msgs_limit=0, pending_bytes_limit=0)

    async def flush(self) -> None:
        """Return when the server has read all that was sent."""
        client = await self.client()
        # It is never cancelled: the client does not bear the answer to a question that was taken back.
        task = asyncio.ensure_future(client.flush(int(ANSWERS_WITHIN)))
        self._flushing.add(task)
        task.add_done_callback(self._flushed)
        async with self.troubles():
            await self.unless_lost(asyncio.shield(task))

    def _flushed(self, task: "asyncio.Task[None]") -> None:
        self._flushing.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it is told; nobody may do so any more

    async def close(self) -> None:
        """Let go of it."""
        async with self._connecting:
            await self._forget()

    async def _forget(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSES_WITHIN):
                    await client.close()

    async def _connect(self) -> Client:
        """Try each server once: those that were named, then those that they have told of."""
        hosts = random.sample(self._hosts, len(self._hosts))
        error: Exception = TimeoutError()
        for host in dict.fromkeys([*hosts, *self._found]):
            try:
                async with asyncio.timeout(_CONNECTS_WITHIN):
                    return await self._connected(host)
            except (nats.errors.AuthorizationError, ssl.SSLCertVerificationError) as refused:
                raise BridgeRefused(f"{self.shown}: {_said(refused)}") from None
            except nats.errors.Error as problem:
                if "Authorization" in str(problem) or "Authentication" in str(problem):
                    raise BridgeRefused(f"{self.shown}: {_said(problem)}") from None
                error = problem
            except (OSError, TimeoutError, ValueError) as problem:
                error = problem
            if isinstance(error, nats.errors.NoServersError):
                error = self._noted or error
        raise BridgeUnavailable(f"{self.shown} cannot be reached: {_said(error)}")

    async def _connected(self, host: str) -> Client:
        client, self.lost, self._not_allowed = Client(), (lost := asyncio.Event()), ""

        async def gone() -> None:
            lost.set()

        try:
            await client.connect(
                host,
                error_cb=self._note,
                disconnected_cb=gone,
                closed_cb=gone,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # else it would try this server for ever
                reconnect_time_wait=0,
                connect_timeout=_CONNECTS_WITHIN,
                flush_timeout=ANSWERS_WITHIN,
                ping_interval=10,
                name="windlass",
                **self._login.begin(),
            )
            self._login.check()
        except BaseException:
            # It waits for ever for the end of what has never begun.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_GIVES_UP_WITHIN):
                    await client.close()
            raise
        self._found = [f"nats://{server.netloc}" for server in client.discovered_servers]
        return client

    async def _note(self, error: Exception) -> None:
        """What the server tells without having been asked, or why it cannot be reached."""
        self._noted = error
        if "permissions violation" in str(error).lower():
            # It does not answer what was asked then: nobody need wait for that.
            self._not_allowed = _said(error)
            self.lost.set()


class _Answer(msgspec.Struct):
    error: ApiErrorSaid | None = None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _said(error: Exception) -> str:
    """What an error of the client says, in one line and without its name for itself."""
    return (str(error) or type(error).__name__).removeprefix("nats: ").strip()
