"""Opening a namespace: URLs, what the server promises, the least rights."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from tests.broker.redis.fixtures import new_namespace
from tests.broker.redis.scenario import live
from tests.broker.redis.servers import redis_binary, running, valkey_binary

from windlass.broker.contract import Options
from windlass.broker.redis import RedisBroker, read_url
from windlass.broker.redis.acl import rules
from windlass.broker.redis.durability import Durability
from windlass.broker.registry import open_broker, serves_any_loop
from windlass.clock import ManualClock
from windlass.errors import InvalidOption, StoreUnavailable

BOTH = pytest.mark.parametrize("binary", [redis_binary, valkey_binary], ids=["redis", "valkey"])


@pytest.mark.parametrize(
    ("url", "kind", "nodes", "options"),
    [
        ("redis://u:p%40@host:7/3", "direct", (), {"host": "host", "port": 7, "db": 3, "password": "p@"}),
        ("rediss://host", "direct", (), {"host": "host"}),
        ("unix:///a/b.sock?db=2", "direct", (), {"path": "/a/b.sock", "db": 2, "unix": True}),
        ("redis+cluster://u:p@a:1,b", "cluster", (("a", 1), ("b", 6379)), {"username": "u", "password": "p"}),
        ("redis+sentinel://a,b:2/main/4", "sentinel", (("a", 26379), ("b", 2)), {"db": 4}),
    ],
)  # fmt: skip
def test_a_url_names_a_place(url: str, kind: str, nodes: object, options: dict[str, object]) -> None:
    place = read_url(url)
    assert (place.kind, place.nodes) == (kind, nodes)
    assert {name: place.options[name] for name in options} == options
    assert place.tls == url.startswith("rediss")


def test_a_url_has_options_of_its_own() -> None:
    place = read_url("redis://host?timeout=2.5&wait=1&ssl_ca_certs=x")
    assert (place.timeout, place.wait) == (2.5, 1)
    assert place.options["ssl_ca_certs"] == "x"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@host:port",
        "redis://:secret@h?timeout=0",
        "redis+sentinel://:secret@h",
        "redis://h/secret",  # no number of a database: the driver would take it for 0
        "redis://h/0/secret",
    ],
)
def test_a_url_that_means_nothing_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        read_url(url)
    assert "secret" not in str(caught.value)


def test_an_option_that_the_driver_does_not_know_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidOption, match=r"no option 'timout'$"):
        asyncio.run(open_broker("redis://host?timout=secret"))


def test_the_registry_knows_the_schemes() -> None:
    assert serves_any_loop("rediss://host")
    with pytest.raises(StoreUnavailable):
        asyncio.run(open_broker("unix:///nowhere/at/all.sock"))


_SAFE = Durability(
    "Redis 7", append_only=True, fsync="always", snapshots=False, max_memory=0, policy="noeviction"
)


def test_a_safe_server_is_not_warned_of() -> None:
    assert _SAFE.warnings() == ()
    assert "power cut" in _SAFE.words()
    assert _SAFE.durable


def test_eviction_is_warned_of_loudly() -> None:
    evicting = _SAFE._replace(policy="allkeys-lru")
    assert "DELETES JOBS" in evicting.warnings()[0]
    assert "DELETES JOBS" in evicting.words()
    assert not evicting.durable


def test_a_server_without_a_file_is_warned_of() -> None:
    bare = _SAFE._replace(append_only=False)
    assert "loses everything" in bare.warnings()[0]
    assert not bare.durable
    assert bare._replace(snapshots=True).durable


@BOTH
def test_what_the_server_promises_is_read_at_opening(binary: Callable[[], Path]) -> None:
    async def main(url: str) -> Durability:
        broker = await RedisBroker.open(url, options=new_namespace(Options()))
        assert broker.capabilities.durability == broker.durability.words()
        await broker.close()
        return broker.durability

    settings = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru")
    with running(binary(), *settings) as server:
        found = asyncio.run(main(server.url))
    assert (found.append_only, found.fsync, found.policy) == (True, "everysec", "allkeys-lru")
    assert "2 seconds" in found.words()
    assert found.server.startswith(("Redis 6", "Valkey 9"))


def test_a_server_that_keeps_nothing_is_warned_of() -> None:
    async def main(url: str) -> str:
        broker = await RedisBroker.open(url, options=new_namespace(Options()))
        said = " ".join(await broker.warnings())
        await broker.close()
        return said

    with running(redis_binary()) as server:
        assert "append-only" in asyncio.run(main(server.url))


@BOTH
def test_the_least_rights_suffice(binary: Callable[[], Path]) -> None:
    async def main(url: str, options: Options) -> None:
        clock = ManualClock()
        broker = await RedisBroker.open(url, clock=clock, options=options)
        assert broker.durability.fsync == ""  # nobody told
        await live(broker, clock)
        await broker.close()

    options = new_namespace(Options())
    with running(binary()) as server:
        admin = redis.Redis(unix_socket_path=str(server.socket))
        admin.execute_command("ACL", "SETUSER", "jobs", ">pw", *rules(options.namespace))
        asyncio.run(main(f"unix://jobs@{server.socket}?password=pw", options))
        admin.close()
