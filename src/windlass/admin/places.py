"""Asking a message broker for a place in one of its logs: the first message, the end, or an offset."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar, cast

import msgspec

from windlass.bridges.addresses import Address
from windlass.bridges.source import Log, LogSource, QueueSource, is_queue
from windlass.core.spelling import hint
from windlass.errors import BridgeError, BridgeUnavailable, InvalidOption, SourceReplaced

_T = TypeVar("_T", bound="_Closes")

Opens: TypeAlias = Callable[[Address], Awaitable[LogSource | QueueSource]]
ASKING = 15.0
"""Seconds that a message broker has to answer an operator."""


class _Closes(Protocol):
    async def close(self) -> None: ...


class LogOffset(msgspec.Struct, frozen=True):
    """A place in a log: which log, and the offset."""

    partition: str
    identity: str
    at: str


async def place_in(address: Address, partition: str, to: str, *, opens: Opens) -> LogOffset:
    """Where `begin`, `end` or an offset is in a log as it is now."""
    async with answering(address), closing(await opens(address)) as source:
        if is_queue(source):
            raise InvalidOption(f"{address.shown} is a queue: it forgets what was taken, and has no offsets")
        logs = cast("LogSource", source)
        names = await logs.partitions()
        if partition not in names:
            known = hint(partition, sorted(names), "partitions")
            raise InvalidOption(f'{address.shown} has no partition "{partition}"; {known}')
        async with closing(await logs.open(partition)) as log:
            return LogOffset(partition, log.identity, await _offset(log, to))


@contextlib.asynccontextmanager
async def answering(address: Address) -> AsyncGenerator[None]:
    """Give a message broker a while to answer."""
    try:
        async with asyncio.timeout(ASKING):
            yield
    except TimeoutError:
        raise BridgeUnavailable(f"{address.shown} has not answered for {ASKING:g} s") from None


async def _offset(log: Log, to: str) -> str:
    if to in ("begin", "end"):
        return await log.begin(at_end=to == "end")
    try:
        await log.read(to, 1, 0.0)
    except SourceReplaced as error:
        raise InvalidOption(f"the log does not have offset {to}: {error}") from None
    except InvalidOption:
        raise
    except ValueError as error:
        raise InvalidOption(f'"{to}" is no offset of this log: {error}') from None
    return to


@contextlib.asynccontextmanager
async def closing(it: _T) -> AsyncGenerator[_T]:
    """Let go of it at the end; what cannot be let go of is not worth a word."""
    try:
        yield it
    finally:
        with contextlib.suppress(BridgeError):
            await it.close()
