"""Records as Lua sees them: equal jobs are not equal strings to it, and other formats are refused."""

import asyncio
import itertools
import os
import threading
import time
import uuid
from collections import Counter

import pytest
import redis
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.servers import Server

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.encoding import write_body
from windlass.broker.redis.keys import prefix
from windlass.broker.redis.records import body_end, read_body, unpack_id, unpack_ids
from windlass.core.ids import JobIds, namespace_tag
from windlass.core.job import NewJob
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.errors import StoreError


def lua_hash(text: bytes) -> int:
    """`luaS_newlstr` of Lua 5.1: it does not look at every byte of a string of 32 or more."""
    value, step = len(text), (len(text) >> 5) + 1
    for at in range(len(text), step - 1, -step):
        value ^= (value << 5) + (value >> 2) + text[at - 1] & 0xFFFFFFFF
        value &= 0xFFFFFFFF
    return value


def longest_chain(strings: list[bytes]) -> int:
    return Counter(map(lua_hash, strings)).most_common(1)[0][1]


@pytest.mark.parametrize("size", [0, 30, 200, 210, 219, 1_024, 5_000])
def test_equal_payloads_do_not_share_a_chain(redis_server: Server, size: int) -> None:  # noqa: F811
    """Else the server would compare each with all others that are still in its memory (40 % of its time)."""
    options = new_namespace(Options())
    tag = namespace_tag(options.namespace)
    ids = JobIds(lambda: time.time_ns() // 1_000_000, os.urandom, lock=threading.Lock, tag=tag)

    async def main() -> None:
        broker = await RedisBroker.open(redis_server.url, options=options)
        await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")])
        await broker.enqueue(
            [[NewJob(id=ids(), task="t", queue="q", payload=bytes(size)) for _ in range(1_000)]]
        )
        await broker.close()

    asyncio.run(main())
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as client:
        for key in ("head", "body"):
            stored = client.hvals(f"{prefix(options.namespace)}{key}")
            assert longest_chain(stored) <= 20, key


@pytest.mark.parametrize("count", [0, 1, 2, 3, 16, 1_000])
def test_ids_of_many_are_those_of_each(count: int) -> None:
    raw = os.urandom(16 * count)
    each = [raw[at : at + 16] for at in range(0, len(raw), 16)]
    assert unpack_ids(raw) == [str(uuid.UUID(bytes=one)) for one in each] == [unpack_id(one) for one in each]


@pytest.mark.parametrize("size", [*range(300), *range(8_100, 8_300), 1_000_000])
def test_a_body_comes_back_as_it_was(size: int) -> None:
    payload, job = bytes(itertools.islice(itertools.cycle(range(256)), size)), bytes(range(16))
    for headers in ({}, {"a": "b"}):
        raw = write_body(headers, payload, job[12:14])
        assert read_body(raw) == (headers, payload)
        assert len(raw) - len(payload) < 4 + 11 + body_end(size + 4 + 11)[0] + 1


def test_a_namespace_in_another_format_is_refused(redis_server: Server) -> None:  # noqa: F811
    options = new_namespace(Options())

    async def opened() -> None:
        broker = await RedisBroker.open(redis_server.url, options=options)
        await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")])
        await broker.close()

    asyncio.run(opened())
    asyncio.run(opened())
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as client:
        meta = f"{prefix(options.namespace)}meta"
        numbers = client.hget(meta, "n")
        assert isinstance(numbers, bytes)
        client.hset(meta, "n", numbers[:88] + b"\3")  # pyright: ignore[reportArgumentType]
    with pytest.raises(StoreError, match="is kept in format 3, and this Windlass knows format 4"):
        asyncio.run(opened())
