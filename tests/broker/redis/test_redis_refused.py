"""What a server refuses while clients are connected: what may pass is waited for, all else is one of our
errors, and calls go on when the operator has put it right.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis import exceptions
from tests.broker.every_verb import VERBS, call_all, told_by_all
from tests.broker.redis.servers import Server, running
from tests.broker.redis.test_conversation import held
from tests.broker.redis.test_faults import BOTH, Binary, client, jobs

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.acl import rules
from windlass.broker.redis.complaints import refusal
from windlass.broker.redis.conversation import TRIES, Pause
from windlass.broker.redis.keys import keys
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.errors import StoreError, StoreUnavailable

_QUEUE = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="a")


async def _opened(url: str) -> RedisBroker:
    broker = await RedisBroker.open(url, options=Options(namespace="refused"))
    await broker.declare([_QUEUE])
    await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
    return broker


def _refused(server: Server) -> int:
    """How often the server has answered with an error."""
    stats: Any = client(server).info("stats")
    return stats["total_error_replies"]


def _is_busy(server: Server) -> bool:
    try:
        client(server).ping()
    except redis.RedisError:
        return True
    return False


async def _until(found: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not await asyncio.to_thread(found):
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


# --- what may pass ------------------------------------------------------------------------------------------


@BOTH
def test_a_server_without_its_replicas_is_waited_for(binary: Binary) -> None:
    async def scenario(server: Server) -> None:
        broker = await _opened(server.url)
        client(server).config_set("min-replicas-to-write", 1)
        before = _refused(server)
        waiting = asyncio.create_task(broker.enqueue([jobs(1, 1)]))
        in_thread = asyncio.create_task(asyncio.to_thread(broker.blocking.enqueue, [jobs(2, 1)]))
        await _until(lambda: _refused(server) >= before + 4)
        assert not waiting.done()
        client(server).config_set("min-replicas-to-write", 0)
        await asyncio.gather(waiting, in_thread)
        await broker.close()

    with running(binary()) as server:
        asyncio.run(scenario(server))


@BOTH
def test_and_is_said_to_be_unavailable_if_they_do_not_come(binary: Binary) -> None:
    async def scenario(server: Server) -> None:
        broker = await _opened(f"{server.url}?timeout=0.3")
        client(server).config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
            await broker.enqueue([jobs(1, 1)])
        with pytest.raises(StoreUnavailable, match="min-replicas-to-write"):
            await asyncio.to_thread(broker.blocking.enqueue, [jobs(1, 1)])
        await broker.close()

    with running(binary()) as server:
        asyncio.run(scenario(server))


@BOTH
def test_a_server_that_is_busy_with_a_script_is_waited_for(binary: Binary) -> None:
    def endless(server: Server) -> None:
        with pytest.raises(redis.RedisError):
            client(server).eval("while true do end", 0)

    async def scenario(server: Server) -> None:
        broker = await _opened(server.url)
        client(server).config_set("lua-time-limit", 1)
        thread = threading.Thread(target=endless, args=(server,))
        thread.start()
        try:
            await _until(lambda: _is_busy(server))
            waiting = asyncio.create_task(broker.enqueue([jobs(1, 1)]))
            await asyncio.wait({waiting}, timeout=0.1)
            assert not waiting.done()
        finally:
            client(server).script_kill()
            thread.join()
        await waiting
        await broker.close()

    with running(binary()) as server:
        asyncio.run(scenario(server))


PASSING = {
    "NOREPLICAS Not enough good replicas to write.": "min-replicas-to-write",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.": "busy",
    "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.": "MISCONF",
}


@pytest.mark.parametrize("words", PASSING)
@pytest.mark.parametrize("wrapped", [True, False])
def test_what_may_pass_is_waited_for(words: str, *, wrapped: bool) -> None:
    text = f"Error running script (call to f_6b1bf): @user_script:14: -{words}" if wrapped else words
    said, end = held([exceptions.ResponseError(text), 1])
    assert isinstance(said[1], Pause)
    assert end == "1"
    with pytest.raises(StoreUnavailable, match=PASSING[words]):
        held([exceptions.ResponseError(text)] * TRIES)


def test_a_replica_without_its_primary_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="MASTERDOWN"):
        held([exceptions.MasterDownError("Link with MASTER is down")] * TRIES)


@pytest.mark.parametrize(
    "words", ["ERR unknown", "WRONGTYPE Operation against a key", "BUSYKEY x", "NOPERM x"]
)
def test_all_else_is_not(words: str) -> None:
    with pytest.raises(StoreError) as caught:
        held([exceptions.ResponseError(words)])
    assert not isinstance(caught.value, StoreUnavailable)


# --- rights -------------------------------------------------------------------------------------------------

TAKEN = {
    "scripts": ("-evalsha", "-eval"),
    "a command of scripts": ("-hset", "-hget", "-hmget", "-hincrby"),
    "keys": ("resetkeys",),
    "everything": ("nocommands",),
    "channels": ("resetchannels", "-subscribe", "-publish"),
}


@BOTH
@pytest.mark.parametrize("taken", TAKEN)
def test_rights_that_are_taken_away_are_one_of_our_errors(binary: Binary, taken: str) -> None:
    async def scenario(server: Server) -> None:
        admin: Any = client(server)
        everything = rules("refused", "sadd", "smembers")
        admin.execute_command("ACL", "SETUSER", "u", ">p", *everything, "~windlass:namespaces")
        url = f"{server.url.replace('unix://', 'unix://u:p@')}"
        broker = await _opened(url)
        await call_all(broker)
        await asyncio.to_thread(broker.blocking.enqueue, [jobs(5, 1)])
        admin.execute_command("ACL", "SETUSER", "u", *TAKEN[taken])
        told = await told_by_all(broker)
        if taken in ("scripts", "everything"):
            assert told.keys() >= VERBS.keys() - {"wait", "warnings"}, VERBS.keys() - told.keys()
            with pytest.raises(StoreError):
                await asyncio.to_thread(broker.blocking.enqueue, [jobs(6, 1)])
        assert told, "nothing was refused"
        assert all(type(error) in (StoreError, StoreUnavailable) for error in told.values()), told
        admin.execute_command("ACL", "SETUSER", "u", *everything, "~windlass:namespaces")
        await call_all(broker)
        await asyncio.to_thread(broker.blocking.enqueue, [jobs(6, 1)])
        await broker.close()

    with running(binary()) as server:
        asyncio.run(scenario(server))


@BOTH
def test_keys_that_hold_something_else_are_one_of_our_errors(binary: Binary) -> None:
    async def scenario(server: Server) -> None:
        broker = await _opened(server.url)
        admin: Any = client(server)
        for key in keys("refused"):
            admin.delete(key)
            admin.rpush(key, "not ours")
        told = await told_by_all(broker)
        assert told, "nothing was refused"  # some verbs meet none of these keys
        assert all(type(error) in (StoreError, StoreUnavailable) for error in told.values()), told
        assert all("Redis" in str(error) for error in told.values()), told
        await broker.close()

    with running(binary()) as server:
        asyncio.run(scenario(server))


def test_a_login_that_is_asked_for_later_is_named() -> None:
    told = refusal(exceptions.AuthenticationError("Authentication required."))
    assert "check user and password" in str(told)
