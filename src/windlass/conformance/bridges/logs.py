"""What every log source must do. A test's name is that of an obligation in `windlass.bridges.source`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from windlass.bridges.message import Message
from windlass.bridges.source import Log, LogSource
from windlass.conformance.bridges.ground import LogGround, Sent
from windlass.errors import BridgeRefused, BridgeUnavailable, SourceReplaced

TRIES = 60
"""Reads of half a second after which what was sent ought to have come: a message broker that was just started
takes its time.
"""
WAIT = 0.5


@asynccontextmanager
async def opened(logs: LogGround) -> AsyncGenerator[tuple[LogSource, Log]]:
    """The source, and its first log."""
    source = await logs.source()
    try:
        log = await source.open(logs.first)
        try:
            yield source, log
        finally:
            await log.close()
    finally:
        await source.close()


def bodies(*texts: str) -> list[Sent]:
    """Messages with these bodies."""
    return [Sent(text.encode()) for text in texts]


async def read_all(log: Log, at: str, count: int, *, limit: int = 100) -> list[Message]:
    """Read on until so many messages have come, from one `after` to the next."""
    found: list[Message] = []
    for _ in range(TRIES):
        read = await log.read(at, min(limit, count - len(found)), WAIT)
        found += read
        at = found[-1].after if found else at
        if len(found) == count:
            return found
    raise AssertionError(f"of {count} messages {len(found)} came")


def said(messages: Sequence[Message]) -> list[bytes | None]:
    """Their bodies."""
    return [message.body for message in messages]


async def refused(log: Log, at: str) -> None:
    """Require that the offset is refused, however long it takes the message broker to know; nothing is read
    until then.
    """
    with pytest.raises(SourceReplaced):
        await _nothing_is_read(log, at, BridgeUnavailable, BridgeRefused)


async def _nothing_is_read(log: Log, at: str, *meanwhile: type[Exception]) -> None:
    for _ in range(TRIES):
        try:
            assert await log.read(at, 10, WAIT) == []
        except meanwhile:
            await asyncio.sleep(0.1)  # it is being deleted


# --- a log --------------------------------------------------------------------------------------------------


async def test_identity_is_of_one_log(logs: LogGround) -> None:
    async with opened(logs) as (source, log):
        again = await source.open(logs.first)
        assert again.identity == log.identity != ""
        assert again.partition == log.partition == logs.first
        await again.close()
        before = log.identity
    async with opened(logs) as (_, log):
        assert log.identity == before
    await logs.recreate()
    async with opened(logs) as (_, log):
        assert log.identity != before


async def test_begin_is_the_oldest_kept(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        empty = await log.begin(at_end=False)
        await logs.send(bodies("1", "2", "3", "4"))
        assert said(await read_all(log, empty, 4)) == [b"1", b"2", b"3", b"4"]
        assert said(await read_all(log, await log.begin(at_end=False), 4)) == [b"1", b"2", b"3", b"4"]
    await logs.drop(2)
    async with opened(logs) as (_, log):
        assert said(await read_all(log, await log.begin(at_end=False), 2)) == [b"3", b"4"]


async def test_begin_at_the_end_leaves_out_what_is_there(logs: LogGround) -> None:
    await logs.send(bodies("1", "2"))
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=True)
        await logs.send(bodies("3", "4"))
        assert said(await read_all(log, at, 2)) == [b"3", b"4"]


async def test_read_keeps_the_order(logs: LogGround) -> None:
    texts = [str(number) for number in range(300)]
    await logs.send(bodies(*texts))
    async with opened(logs) as (_, log):
        found = await read_all(log, await log.begin(at_end=False), 300, limit=70)
    assert said(found) == [text.encode() for text in texts]
    assert len({message.after for message in found}) == 300


async def test_read_is_repeatable(logs: LogGround) -> None:
    await logs.send(bodies(*"123456"))
    async with opened(logs) as (_, log):
        begin = await log.begin(at_end=False)
        first = await read_all(log, begin, 6)
        assert await read_all(log, begin, 6) == first
        assert await read_all(log, first[2].after, 3) == first[3:]
        assert await read_all(log, first[0].after, 5, limit=2) == first[1:]
    async with opened(logs) as (_, log):
        assert await read_all(log, first[2].after, 3) == first[3:]


async def test_read_is_bounded(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=False)
        assert await log.read(at, 10, 0.05) == []
        await logs.send(bodies(*"12345"))
        found = await read_all(log, at, 5)
        assert said(await read_all(log, at, 2)) == [b"1", b"2"]
        assert await log.read(found[-1].after, 10, 0.05) == []


async def test_message_is_read_whole(logs: LogGround) -> None:
    headers = {"tenant": "müller", "empty": "", "trace-id": "00-1"}
    body = bytes(range(256)) * 40
    await logs.send([Sent(body, headers, "a key" if logs.has_keys else ""), Sent(b"")])
    async with opened(logs) as (_, log):
        whole, empty = await read_all(log, await log.begin(at_end=False), 2)
    assert (whole.body, whole.key) == (body, "a key" if logs.has_keys else "")
    assert {name: whole.headers.get(name) for name in headers} == headers
    assert empty.body == b""
    assert whole.place != empty.place
    assert all(logs.first in message.place for message in (whole, empty))
    assert whole.subject != ""
    assert whole.at is not None


async def test_message_is_read_whole__tombstone(logs: LogGround) -> None:
    logs.needs("has_tombstones")
    await logs.send([Sent(None, key="gone")])
    async with opened(logs) as (_, log):
        (tombstone,) = await read_all(log, await log.begin(at_end=False), 1)
    assert (tombstone.body, tombstone.key) == (None, "gone")


async def test_another_log_is_not_read(logs: LogGround) -> None:
    """Not by who opens it, which sees another identity, and not by who has had it open all the time."""
    await logs.send(bodies("1", "2", "3"))
    async with opened(logs) as (_, log):
        found = await read_all(log, await log.begin(at_end=False), 3)
        at = found[-1].after
        assert await log.read(at, 10, 0.05) == []
        await logs.recreate()
        await logs.send(bodies(*"abcdefg"))
        await refused(log, at)
        await refused(log, at)
    async with opened(logs) as (_, log):
        assert said(await read_all(log, await log.begin(at_end=False), 7)) == [
            letter.encode() for letter in "abcdefg"
        ]


async def test_another_log_is_not_read__from_its_beginning(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=False)
        assert await log.read(at, 10, 0.05) == []
        await logs.recreate()
        await logs.send(bodies("a"))
        await refused(log, at)


async def test_what_is_gone_is_not_skipped(logs: LogGround) -> None:
    await logs.send(bodies(*"123456"))
    async with opened(logs) as (_, log):
        found = await read_all(log, await log.begin(at_end=False), 6)
    await logs.drop(4)
    async with opened(logs) as (_, log):
        await refused(log, found[1].after)
        assert said(await read_all(log, found[3].after, 2)) == [b"5", b"6"]
        assert said(await read_all(log, found[4].after, 1)) == [b"6"]


async def test_the_end_is_not_gone(logs: LogGround) -> None:
    await logs.send(bodies("1", "2"))
    async with opened(logs) as (_, log):
        at = (await read_all(log, await log.begin(at_end=False), 2))[-1].after
    await logs.drop(2)
    async with opened(logs) as (_, log):
        assert await log.read(at, 10, WAIT) == []
        await logs.send(bodies("3"))
        assert said(await read_all(log, at, 1)) == [b"3"]


async def test_cancelled_read_loses_nothing(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=False)
        for _ in range(5):
            waiting = asyncio.create_task(log.read(at, 10, 30))
            await asyncio.sleep(0)  # it has begun
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await logs.send(bodies("1", "2", "3"))
        assert said(await read_all(log, at, 3)) == [b"1", b"2", b"3"]


async def test_passed_leaves_out_nothing(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=False)
        assert await log.read(at, 10, 0.05) == []
        moved = await log.passed(at)
        await logs.send(bodies("1", "2"))
        first = await read_all(log, at, 2)
        assert await read_all(log, moved, 2) == first
        assert await read_all(log, await log.passed(first[0].after), 1) == first[1:]


async def test_lag_counts_what_is_behind(logs: LogGround) -> None:
    async with opened(logs) as (_, log):
        at = await log.begin(at_end=False)
        assert await log.lag(at) in (0, None)
        await logs.send(bodies(*"1234"))
        found = await read_all(log, at, 4)
        lags = [await log.lag(offset) for offset in (at, found[0].after, found[3].after)]
        assert lags in ([4, 3, 0], [None, None, None])


async def test_nothing_depends_on_commit(logs: LogGround) -> None:
    await logs.send(bodies(*"123"))
    async with opened(logs) as (_, log):
        begin = await log.begin(at_end=False)
        found = await read_all(log, begin, 3)
        await log.commit(found[2].after)
        assert await read_all(log, begin, 3) == found
        await log.commit(found[0].after)
    async with opened(logs) as (_, log):
        assert await read_all(log, begin, 3) == found


# --- a source -----------------------------------------------------------------------------------------------


async def test_new_partitions_are_found(logs: LogGround) -> None:
    async with opened(logs) as (source, _):
        before = set(await source.partitions())
        assert logs.first in before
        logs.needs("grows")
        new = await logs.grow()
        assert new not in before
        for _ in range(TRIES):
            if new in await source.partitions():
                break
            await asyncio.sleep(0.1)
        assert set(await source.partitions()) == before | {new}
        log = await source.open(new)
        await logs.send(bodies("1"), new)
        assert said(await read_all(log, await log.begin(at_end=False), 1)) == [b"1"]
        await log.close()


async def test_logs_are_read_side_by_side(logs: LogGround) -> None:
    logs.needs("grows")
    other = await logs.grow()
    async with opened(logs) as (source, log):
        second = await source.open(other)
        at, there = await log.begin(at_end=False), await second.begin(at_end=False)
        waiting = asyncio.create_task(log.read(at, 10, 60))
        await logs.send(bodies("a", "b"), other)
        assert said(await read_all(second, there, 2)) == [b"a", b"b"]
        assert not waiting.done()
        await logs.send(bodies("1"))
        assert said(await waiting) == [b"1"]
        await second.close()


async def test_outage_is_unavailable(logs: LogGround) -> None:
    await logs.send(bodies("1"))
    async with opened(logs) as (source, log):
        at = (await read_all(log, await log.begin(at_end=False), 1))[0].after
        await logs.outage()
        with pytest.raises(BridgeUnavailable):
            await _nothing_is_read(log, at)
        with pytest.raises(BridgeUnavailable):
            await source.partitions()
        with pytest.raises(BridgeUnavailable):
            await log.lag(at)
        await logs.recovery()
        await logs.send(bodies("2", "3"))
        found: list[Message] = []
        for _ in range(TRIES):
            try:
                found += await read_all(log, at, 2)
                break
            except BridgeUnavailable:
                await asyncio.sleep(0.2)  # it is told of the recovery a moment later
        assert said(found) == [b"2", b"3"]
        assert logs.first in await source.partitions()
        assert await log.lag(at) in (2, None)


async def test_unknown_is_refused(logs: LogGround) -> None:
    with pytest.raises(BridgeRefused, match="nowhere"):
        await _asked(logs)


async def _asked(logs: LogGround) -> None:
    source = await logs.unknown()
    try:
        await source.partitions()
    finally:
        await source.close()


async def test_warnings_are_sentences(logs: LogGround) -> None:
    async with opened(logs) as (source, _):
        warnings = await source.warnings()
    assert not isinstance(warnings, str)
    assert all(warning.strip() == warning and len(warning) > 20 for warning in warnings)
