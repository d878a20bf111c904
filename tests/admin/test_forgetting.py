"""A person is forgotten: what was planted is in no byte of store, history and archive any more."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import redis.asyncio
from tests.broker.postgres.namespaces import Namespaces, namespaces
from tests.broker.redis.fixtures import redis_server
from tests.broker.redis.servers import Server

from windlass import Windlass
from windlass.admin.dead import DeadLetters
from windlass.admin.forgetting import Forgetting, Forgotten, Found
from windlass.broker.contract import Broker
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Error, Outcome
from windlass.core.query import JobQuery
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink
from windlass.worker.delivering import delivery

__all__ = ["namespaces", "redis_server"]

ADA, BOB = "ada.lovelace@example.com", "bob.dylan@example.com"
TAG = "user:42"
_numbers = itertools.count()
Dump = Callable[[], Awaitable[bytes]]


class Place:
    """A namespace of a store, and all its bytes."""

    def __init__(
        self, url: str, dump: Dump, folder: Path, namespace: str, settings: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.namespace = namespace
        self.app = Windlass(url, namespace=namespace, **settings)
        self.dump = dump
        self._seq = 0

        self.app.queue("brief", retention=0)

        @self.app.task
        def greet(email: str) -> str:
            return email

        self.greet = greet

    async def broker(self) -> Broker:
        return await self.app.broker()

    async def keep_history(self) -> None:
        broker = await self.broker()
        sink = await open_sink(f"sqlite:///{self.folder / 'history.db'}", broker)
        while await HistoryReader(broker, sink, self.namespace).step():
            pass
        await sink.close()

    def kept(self) -> dict[str, bytes]:
        """What history and archive hold, with all that lies beside them."""
        return {
            name: b"".join(
                path.read_bytes() for path in sorted(self.folder.glob(f"*{name}*")) if path.is_file()
            )
            for name in ("history.db", "dead")
        }

    async def take(self, queue: str = "default") -> Lease:
        broker = await self.broker()
        info = SessionInfo(host="box", pid=1, queues=(queue,), slots=100)
        self._seq += 1
        await broker.beat([Beat(session="s", open=info)])
        ask = Ask(session="s", seq=self._seq, queues=(queue,), slots=1, limit=1)
        (lease,) = (await broker.claim(ask)).leases
        return lease

    async def settle(self, lease: Lease, outcome: Outcome, **said: Any) -> None:
        item = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1, **said)
        await (await self.broker()).settle([item])

    async def add(self, who: str, **options: Any) -> str:
        tags = (TAG, "mail") if who == ADA else ("user:421",)
        call = self.greet.using(tags=tags, **options)
        return (await call.aenqueue(who)).id

    async def states(self, *jobs: str) -> list[State | None]:
        found = await (await self.broker()).get(jobs)
        return [None if job is None or job.pruned else job.state for job in found]


_READ_FILE = """
import pathlib, sqlite3, sys
path = pathlib.Path(sys.argv[1])
connection = sqlite3.connect(path)
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
connection.close()
sys.stdout.buffer.write(path.read_bytes() + path.with_name(path.name + "-wal").read_bytes())
"""


def _sqlite_bytes(path: Path) -> bytes:
    """The file with all its free pages, once its log is written back into it. By another process: who closes
    a file loses the locks that SQLite has on it in this one.
    """
    return subprocess.check_output([sys.executable, "-c", _READ_FILE, str(path)])


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def place(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    settings = {
        "history": f"sqlite:///{tmp_path / 'history.db'}",
        "archive": f"file://{tmp_path / 'dead.jsonl'}",
    }
    yield from _place(store, request, tmp_path, settings)


@pytest.fixture
def plain_place(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Without history and archive."""
    yield from _place(store, request, tmp_path, {})


@pytest.fixture
def place_with_objects(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where large payloads and results lie in a folder."""
    yield from _place(store, request, tmp_path, {"values": f"file://{tmp_path / 'objects'}"})


def _place(
    store: str, request: pytest.FixtureRequest, folder: Path, settings: Mapping[str, str]
) -> Iterator[Place]:
    name = f"forget_{os.getpid()}_{next(_numbers)}"

    async def in_memory() -> bytes:
        space = vars(await made.broker())["_ns"]
        return repr(vars(space)).encode()

    async def in_file() -> bytes:
        return _sqlite_bytes(folder / "windlass.db")

    async def on_redis() -> bytes:
        async with redis.asyncio.from_url(url) as server:
            keys = [key async for key in server.scan_iter()]
            # Not DUMP, which compresses.
            return b"".join([key + await _redis_value(server, key) for key in keys])

    async def on_postgres() -> bytes:
        return await _postgres_bytes(url, name)

    match store:
        case "memory":
            url, dump = "memory://", in_memory
        case "sqlite":
            url, dump = f"sqlite:///{folder / 'windlass.db'}", in_file
        case "redis":
            server: Server = request.getfixturevalue("redis_server")
            url, dump = server.url, on_redis
        case _:
            found: Namespaces = request.getfixturevalue("namespaces")
            url, dump = found.server.dsn, on_postgres
    made = Place(url, dump, folder, name, settings)
    yield made
    made.app.close()


async def _postgres_bytes(url: str, schema: str) -> bytes:
    """All tables of a schema."""
    parts: list[bytes] = []
    async with await psycopg.AsyncConnection[Any].connect(url, autocommit=True) as server:
        found = await server.execute(
            "SELECT format('%%I.%%I', schemaname, tablename) FROM pg_tables WHERE schemaname = %s", [schema]
        )
        tables = [table for (table,) in await found.fetchall()]
        assert tables
        for table in tables:
            # Of a partitioned table a query; its parts are tables of their own.
            copied = f"COPY (SELECT * FROM {table}) TO STDOUT BINARY".encode()  # noqa: S608 - its name
            async with server.cursor() as cursor, cursor.copy(copied) as rows:
                parts += [bytes(block) async for block in rows]
    return b"".join(parts)


async def _redis_value(server: Any, key: bytes) -> bytes:
    match await server.type(key):
        case b"string":
            return await server.get(key)
        case b"hash":
            return b"".join(itertools.chain.from_iterable((await server.hgetall(key)).items()))
        case b"zset":
            return b"".join(await server.zrange(key, 0, -1))
        case b"list":
            return b"".join(await server.lrange(key, 0, -1))
        case b"set":
            return b"".join(await server.smembers(key))
        case kind:
            return repr((kind, await server.xrange(key))).encode()


def story(place: Place, told: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            async with asyncio.timeout(60):
                await told()
        finally:
            await place.app.aclose()

    asyncio.run(whole())


async def forget(place: Place, tag: str = TAG) -> Forgotten:
    forgetting = Forgetting(place.app, await place.broker(), tag)
    async for _ in forgetting.steps():
        pass
    return forgetting.done


async def _plant(place: Place, who: str) -> tuple[Sequence[str], Lease]:
    """Jobs in every state, with a person's data wherever a job has room for it; and what runs."""
    broker = await place.broker()
    error = Error(type="ValueError", message=f"no {who}", traceback=f"at {who}", fingerprint="f")
    headers = {"x-person": who}
    done = await place.add(who, headers=headers, key=f"greet {who}")
    lease = await place.take()
    notes = [
        Note(job=done, fence=lease.fence, permille=500, message=f"half of {who}"),
        Note(job=done, fence=lease.fence, logs=(f"hello {who}",)),
        Note(job=done, fence=lease.fence, memo=("step", who.encode())),
    ]
    await broker.annotate(notes)
    await place.settle(lease, Outcome.DONE, result=f'"{who}"'.encode() * 2_000)
    for reason in ("keep", "discard"):
        dead = await place.add(who)
        lease = await place.take()
        await broker.annotate([Note(job=dead, fence=lease.fence, logs=(f"bye {who}",))])
        await place.settle(lease, Outcome.DEAD, error=error)
        if reason == "discard":
            letters = DeadLetters(place.app, broker)
            async for _ in letters.discard([dead], reason="old"):
                pass
    retried = await place.add(who)
    await place.settle(await place.take(), Outcome.RETRY, error=error, delay=10**10)
    scheduled = await place.add(who, delay=3_600)
    blocked = await place.add(who, after=[scheduled])
    url = "https://crm.example/hook"
    told = delivery(place.app.new_id(), url, {"job": {"error": {"message": f"no {who}"}}}, (TAG,))
    if who == ADA:
        await broker.enqueue([[msgspec.structs.replace(told, queue="default", lane="")]])
        await place.settle(await place.take(), Outcome.RETRY, error=error, delay=10**10)
    running = await place.add(who)
    lease = await place.take()
    assert lease.job == running
    return [done, retried, scheduled, blocked, running], lease


def test_what_was_planted_is_nowhere(place: Place) -> None:
    async def told() -> None:
        await place.broker()
        hers, lease = await _plant(place, ADA)
        his, _ = await _plant(place, BOB)
        await place.keep_history()
        for who in (ADA, BOB):
            assert who.encode() in await place.dump()
            assert {name: who.encode() in held for name, held in place.kept().items()} == {
                "history.db": True,
                "dead": True,
            }
        found = await Forgetting(place.app, await place.broker(), TAG).count()
        assert found == Found(jobs=7, waiting=4, running=1)
        first = await forget(place)
        # done, dead, retried, scheduled, blocked and the message; the archive has the one that was discarded
        assert first == Forgotten(jobs=6, cancelled=4, running=1, history=4, archive=1)
        assert first.left == "1 still running, and asked to stop"
        assert await place.states(lease.job) == [State.RUNNING]
        await place.settle(lease, Outcome.CANCELLED)
        second = await forget(place)
        assert second == Forgotten(jobs=1)
        assert second.left == ""
        assert await place.states(*hers) == [None] * 5
        await place.keep_history()
        assert ADA.encode() not in await place.dump()
        assert [name for name, held in place.kept().items() if ADA.encode() in held] == []
        # Nobody else is.
        assert await place.states(*his) == [
            State.DONE,
            State.SCHEDULED,
            State.SCHEDULED,
            State.BLOCKED,
            State.RUNNING,
        ]
        assert BOB.encode() in await place.dump()
        assert all(BOB.encode() in held for held in place.kept().values())

    story(place, told)


def test_what_was_planted_is_nowhere__of_many_that_ended_together(plain_place: Place) -> None:
    """Without history PostgreSQL sets them aside, where no row is ever changed."""
    place = plain_place

    async def told() -> None:
        broker = await place.broker()
        for who in (ADA, BOB):
            ids = [await place.add(who) for _ in range(20)]
            leases = [await place.take() for _ in ids]
            items = [
                Settlement(
                    job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1, result=who.encode()
                )
                for lease in leases
            ]
            await broker.settle(items)
        assert ADA.encode() in await place.dump()
        assert await forget(place) == Forgotten(jobs=20)
        dumped = await place.dump()
        assert (ADA.encode() in dumped, BOB.encode() in dumped) == (False, True)

    story(place, told)


def test_what_was_planted_is_nowhere__in_object_storage(place_with_objects: Place) -> None:
    """The result that an unfinished job needs stays until that job has ended."""
    place = place_with_objects
    objects = place.folder / "objects"

    def held() -> set[bytes]:
        found = [path.read_bytes() for path in objects.rglob("*") if path.is_file()]
        return {who.encode() for who in (ADA, BOB) for held in found if who.encode() in held}

    async def told() -> None:
        values = place.app.values
        assert values is not None
        tagged = place.greet.using(tags=(TAG,))
        parent = await tagged.aenqueue(ADA * 10_000)
        await place.greet.aenqueue(BOB * 10_000)
        for who in (ADA, BOB):
            lease = await place.take()
            result = f'"{who * 10_000}"'.encode()
            settlement = Settlement(
                job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1, result=result
            )
            await (await place.broker()).settle([await values.settled(settlement)])
        child = await place.greet.using(after=[parent], delay=3_600).aenqueue(BOB)
        assert len([path for path in objects.rglob("*") if path.is_file()]) == 4
        assert (await forget(place)).needed == 1
        assert ADA.encode() in held()
        await child.acancel()
        assert await forget(place) == Forgotten(jobs=1)
        assert held() == {BOB.encode()}

    story(place, told)


def test_all_of_many_are_found__and_parents_behind_their_children(place: Place) -> None:
    """On many pages, among others; what needs a parent is in front of it in the listing."""

    async def told() -> None:
        broker = await place.broker()
        parent = await place.add(ADA)
        lease = await place.take()
        child = await place.add(ADA, after=[parent])
        await place.settle(lease, Outcome.DONE)
        greet = place.greet.using(tags=(TAG,))
        for _ in range(5):
            calls = [*(greet.call(ADA) for _ in range(1_000)), place.greet.call(BOB)]
            await place.app.aenqueue_many(calls)
        assert await Forgetting(place.app, broker, TAG).count() == Found(jobs=5_002, waiting=5_001)
        assert await forget(place) == Forgotten(jobs=5_002, cancelled=5_001)
        assert await place.states(parent, child) == [None, None]
        assert await Forgetting(place.app, broker, TAG).count() == Found()
        left = (await broker.list(JobQuery(), limit=100)).jobs
        assert [job.tags for job in left] == [()] * 5

    story(place, told)


def test_a_parent_of_others_is_left_until_they_have_ended(place: Place) -> None:
    async def told() -> None:
        parent = await place.add(ADA)
        lease = await place.take()
        child = await place.add(BOB, after=[parent])
        await place.settle(lease, Outcome.DONE, result=b'"ada"')
        assert await forget(place) == Forgotten(needed=1)
        assert Forgotten(needed=1).left == "1 finished, but needed by jobs that have not ended"
        assert await place.states(parent, child) == [State.DONE, State.READY]
        await place.settle(await place.take(), Outcome.DONE)
        assert await forget(place) == Forgotten(jobs=1)
        assert await place.states(parent, child) == [None, State.DONE]

    story(place, told)


def test_a_waiting_parent_takes_those_along_that_wait_for_it(place: Place) -> None:
    """As cancelling does; what is of others stays, cancelled."""

    async def told() -> None:
        parent = await place.add(ADA, delay=60)
        child = await place.add(BOB, after=[parent])
        done = await forget(place)
        assert await place.states(parent, child) == [None, State.CANCELLED]
        assert done == Forgotten(jobs=1, cancelled=1)

    story(place, told)


def test_what_was_planted_is_nowhere__of_a_queue_that_keeps_nothing(plain_place: Place) -> None:
    """Its jobs go when they are cancelled; large ones leave whole pages."""
    place = plain_place

    async def told() -> None:
        jobs = [await place.add(ADA, queue="brief", delay=delay) for delay in (0, 60)]
        large = place.greet.using(tags=(TAG,), queue="brief")
        jobs.append((await large.aenqueue(f"{ADA} " * 2_000)).id)
        assert await forget(place) == Forgotten(jobs=3, cancelled=3)
        assert await place.states(*jobs) == [None] * 3
        assert ADA.encode() not in await place.dump()

    story(place, told)
