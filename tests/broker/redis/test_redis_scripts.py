"""What holds of every script: its head, its keys, its two halves."""

import asyncio
import re
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import pytest
from tests.broker.redis.fixtures import new_namespace, redis_server  # noqa: F401 - a fixture
from tests.broker.redis.scenario import live
from tests.broker.redis.servers import Server

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker
from windlass.broker.redis.conversation import Send, Talk
from windlass.broker.redis.keys import BY_SCORE, HASHES, LEXSETS, keys
from windlass.broker.redis.scripts import link
from windlass.broker.redis.store import Store
from windlass.broker.redis.url import read_url
from windlass.broker.redis.verbs import ScriptCall
from windlass.clock import ManualClock
from windlass.errors import StoreError

_T = TypeVar("_T")
_LUA = resources.files("windlass.broker.redis").joinpath("lua")
_VERBS, _PARTS = (
    {path.name.removesuffix(".lua"): path.read_text() for path in _LUA.joinpath(folder).iterdir()}
    for folder in ("verbs", "parts")
)
VERBS = sorted(_VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_script_is_headed_by_what_it_takes_and_costs(name: str) -> None:
    head = _VERBS[name].split("-- include:")[0]
    assert "-- Cost " in head
    assert "-- Returns " in head or "-- Writes " in head


def test_no_script_names_a_key_of_its_own() -> None:
    """Every key is one of KEYS, and only few look there."""
    naming = {name for name, text in {**_VERBS, **_PARTS}.items() if "KEYS[" in text}
    assert naming == {"store", "open", "plain_calls", "take_plain"}


@pytest.mark.parametrize("name", sorted(_PARTS))
def test_every_part_is_used(name: str) -> None:
    included = {
        part.strip()
        for text in (*_VERBS.values(), *_PARTS.values())
        for line in re.findall("^-- include: (.+)$", text, re.MULTILINE)
        for part in line.split(",")
    }
    assert name in included


@pytest.mark.parametrize("name", VERBS)
def test_no_state_is_a_bare_digit(name: str) -> None:
    """Codes come from windlass.core."""
    for text in (_VERBS[name], *_PARTS.values()):
        assert not re.search(
            r"\.state [=~<>]=? *[0-9]", text.replace(".state >= 0", "").replace(".state < 0", "")
        )


def test_scripts_and_adapter_agree_on_the_keys() -> None:
    declared = re.findall(r"(?:key\(|KEYS\[)(\d+)", _PARTS["store"])
    assert len(declared) == len(HASHES) + len(LEXSETS) + len(BY_SCORE)
    assert sorted(map(int, declared)) == list(range(1, len(keys("x")) + 1))


_INJECTED = """
local seen, written, nth = 0, false, tonumber(ARGV[#ARGV])
local WRITES = {HSET = 1, HDEL = 1, ZADD = 1, ZREM = 1, HINCRBY = 1}
local AFTER = {PUBLISH = 1, PUBSUB = 1}
local call = function(command, ...)
  seen = seen + 1
  if seen == nth and not written then error('injected') end
  if WRITES[command] then
    written = true
  elseif written and not AFTER[command] then
    error('a read after a write: ' .. command)
  end
  return redis.call(command, ...)
end
"""


@cache
def _altered(name: str) -> bytes:
    return link(name, instead={"call": _INJECTED}).encode()


class _Injecting(Store):
    """Before a call is made, it is made to fail at each command up to its first write: nothing may change."""

    tried: set[str]
    alone: asyncio.Lock

    async def run(self, call: ScriptCall[_T]) -> _T:
        if call.script == "open":
            return await super().run(call)
        async with self.alone:
            return await self._injected(call)

    async def _injected(self, call: ScriptCall[_T]) -> _T:
        self.tried.add(call.script)
        before = await self._dump()
        for nth in range(1, 1_000):
            try:
                answer = await self.on_this_loop().wire.hold(self._whole(call, nth))
            except StoreError as error:
                assert "injected" in str(error), error  # noqa: PT017 - every other error is a failure
                assert await self._dump() == before, f"{call.script} left something behind"
            else:
                return answer
        raise AssertionError(f"{call.script} never came to its end")

    def _whole(self, call: ScriptCall[_T], nth: int) -> Talk[_T]:
        talk = self._talk(call)
        said = next(talk)
        assert isinstance(said, Send)
        reply: Any = yield Send(((b"EVAL", _altered(call.script), *said.commands[0][2:], nth),))
        if isinstance(reply, Exception):
            raise StoreError(str(reply))
        return call.read(reply)

    async def _dump(self) -> list[Any]:
        def ask() -> Talk[list[Any]]:
            found: list[Any] = []
            for place, key in enumerate(self._keys):
                command = b"HGETALL" if place < len(HASHES) else b"ZRANGE"
                reply = yield Send(((command, key) if command == b"HGETALL" else (command, key, 0, -1),))
                found.append(sorted(reply))
            return found

        return await self.on_this_loop().wire.hold(ask())


def test_an_error_before_the_first_write_leaves_nothing_behind(redis_server: Server) -> None:  # noqa: F811
    async def main() -> set[str]:
        clock = ManualClock()
        store = _Injecting(read_url(redis_server.url), new_namespace(Options()), clock)
        store.tried, store.alone = set(), asyncio.Lock()
        broker = RedisBroker(store, await store.durability())
        try:
            await live(broker, clock)
        finally:
            await broker.close()
        return store.tried

    assert asyncio.run(main()) == set(VERBS) - {"open"}
