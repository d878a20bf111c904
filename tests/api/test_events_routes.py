"""Events over HTTP: what is streamed, to whom, from where, and how a stream ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
from litestar import Litestar
from tests.api.house import TOKEN, House, on_every_store
from tests.api.test_operators_routes import Fleet

from windlass.admin.keys import Keys
from windlass.api.access import LOCAL
from windlass.api.context import SERVER_STATE
from windlass.api.page import listing
from windlass.core.units import Cursor


class Told(NamedTuple):
    """One event of a stream."""

    name: str
    data: Any
    id: str


class Listener:
    """A client of a stream, without a socket in between."""

    def __init__(self) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.left = asyncio.Event()
        self.ended = asyncio.Event()
        self._text = b""
        self._news = asyncio.Event()
        self.body = b""

    async def receive(self) -> Any:
        if not self._text and not self.status.done():
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status.set_result(message["status"])
        else:
            self._text += message.get("body", b"")
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                self.ended.set()
        self._news.set()

    async def until(self, part: bytes) -> None:
        """Wait for a part of what is sent."""
        while part not in self.body:
            self._news.clear()
            async with asyncio.timeout(10):
                await self._news.wait()

    async def told(self) -> Told:
        """The next event, comments left out."""
        while True:
            while b"\n\n" not in self._text:
                assert not self.ended.is_set(), self.body
                self._news.clear()
                async with asyncio.timeout(10):
                    await self._news.wait()
            block, _, self._text = self._text.partition(b"\n\n")
            fields = dict(
                line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":")
            )
            if "data" in fields:
                return Told(fields["event"], msgspec.json.decode(fields["data"]), fields.get("id", ""))


@asynccontextmanager
async def listening(
    server: Litestar, query: str = "", *, key: str | None = None, last: str | None = None
) -> AsyncIterator[Listener]:
    listener = Listener()
    headers = [(b"host", b"localhost")]
    headers.append((b"authorization", f"Bearer {key or TOKEN}".encode()))
    if last is not None:
        headers.append((b"last-event-id", last.encode()))
    scope: Any = {
        "type": "http", "method": "GET", "path": "/v1/events", "raw_path": b"/v1/events", "root_path": "",
        "query_string": query.encode(), "headers": headers, "client": ("127.0.0.1", 1), "scheme": "http",
        "server": ("localhost", 80), "http_version": "1.1", "asgi": {"version": "3.0"}, "state": {},
    }  # fmt: skip
    task = asyncio.create_task(server(scope, listener.receive, listener.send))
    try:
        await asyncio.wait({task, listener.status}, return_when=asyncio.FIRST_COMPLETED)
        yield listener
    finally:
        listener.left.set()
        async with asyncio.timeout(10):
            await task


@asynccontextmanager
async def serving(house: House, **options: Any) -> AsyncIterator[Litestar]:
    server = house.server(**options)
    async with server.lifespan():
        yield server


def watched(house: House) -> None:
    house.app.queue("default", emit="all")
    house.app.queue("mail", emit="all")


@on_every_store
def test_events_are_told_as_they_happen(house: House) -> None:
    async def story() -> None:
        watched(house)
        async with serving(house) as server, listening(server) as listener:
            hello = await listener.told()
            assert (hello.name, hello.data["emits"]["mail"]) == ("hello", "all")
            job = await house.add.aenqueue(1)
            event = await listener.told()
            assert (event.name, event.data["kind"], event.data["job"]) == ("job", "enqueue", job.id)
            assert (event.data["before"], event.data["after"]) == (None, "ready")
            await Fleet(house).die()
            kinds = [(await listener.told()).data["kind"] for _ in range(2)]
            assert kinds == ["claim", "dead"]

    house.run(story)


@on_every_store
def test_who_comes_back_misses_nothing_and_sees_nothing_twice(house: House) -> None:
    async def story() -> None:
        watched(house)
        async with serving(house) as server:
            jobs = [await house.add.aenqueue(number) for number in range(5)]
            seen: list[str] = []
            last = None
            for _ in range(5):  # one event a visit, all of one page
                async with listening(server, "from=start", last=last) as listener:
                    assert (await listener.told()).name == "hello"
                    event = await listener.told()
                    seen.append(event.data["job"])
                    last = event.id
            assert seen == [job.id for job in jobs]
            async with listening(server, last=last) as listener:
                assert (await listener.told()).name == "hello"
                more = await house.add.aenqueue(9)
                assert (await listener.told()).data["job"] == more.id

    house.run(story)


def test_events_are_filtered(house: House) -> None:
    async def story() -> None:
        watched(house)
        async with serving(house) as server:
            one = await house.add.aenqueue(1)
            two = await house.send.aenqueue("x")
            await Fleet(house).take(2)
            for query, wanted in (
                ("queue=mail", {(two.id, "enqueue"), (two.id, "claim")}),
                ("task=add&kind=claim", {(one.id, "claim")}),
                (f"job={one.id}&job={two.id}&kind=enqueue", {(one.id, "enqueue"), (two.id, "enqueue")}),
            ):
                async with listening(server, f"from=start&{query}") as listener:
                    await listener.told()
                    told = [await listener.told() for _ in wanted]
                    assert {(each.data["job"], each.data["kind"]) for each in told} == wanted
            async with listening(server, "kind=nope") as listener:
                assert await listener.status == 400

    house.run(story)


def test_a_bound_key_is_told_of_its_own_alone(house: House) -> None:
    async def story() -> None:
        watched(house)
        key = await house.key("read", queues=("mail",), lanes=("acme",))
        async with serving(house) as server, listening(server, "from=start", key=key) as listener:
            assert set((await listener.told()).data["emits"]) == {"mail"}
            await house.add.aenqueue(1)
            await house.send.using(lane="zeta").aenqueue("x")
            mine = await house.send.using(lane="acme").aenqueue("x")
            assert (await listener.told()).data["job"] == mine.id

    house.run(story)


def test_a_stream_ends_when_its_key_is_revoked(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("windlass.api.routes.events.TRUSTED", "windlass.api.routes.events.LOOKS"):
        monkeypatch.setattr(name, 0.05)
    monkeypatch.setattr("windlass.api.keyring.FRESH", 0.0)

    async def story() -> None:
        key = await house.key("read")
        async with serving(house) as server, listening(server, key=key) as listener:
            await listener.told()
            await Keys(await house.app.broker()).revoke(key.split("_")[1])
            bye = await listener.told()
            assert (bye.name, bye.data["text"]) == ("bye", "the key is not valid any more")
            async with asyncio.timeout(10):
                await listener.ended.wait()

    house.run(story)


def test_a_stream_ends_when_the_server_stops(house: House) -> None:
    async def story() -> None:
        async with serving(house) as server:
            async with listening(server) as listener:
                await listener.told()
                running = server.state[SERVER_STATE]
                assert running.long_polls.total() == 1
                running.stopping.set()
                assert (await listener.told()).data["text"] == "the server stops"
                async with asyncio.timeout(10):
                    await listener.ended.wait()
            assert not running.long_polls
            async with listening(server) as listener:
                assert await listener.status == 503

    house.run(story)


def test_a_client_that_leaves_gives_its_place_back(house: House) -> None:
    async def story() -> None:
        async with serving(house, waiting=1) as server:
            async with listening(server) as listener:
                await listener.told()
                async with listening(server) as second:
                    assert await second.status == 429
            async with listening(server) as listener:
                assert (await listener.told()).name == "hello"

    house.run(story)


def test_silence_is_broken_by_signs_of_life(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.api.routes.events.HEARTBEAT", 0.05)
    monkeypatch.setattr("windlass.api.routes.events.LOOKS", 0.05)

    async def story() -> None:
        async with serving(house) as server, listening(server) as listener:
            await listener.told()
            await listener.until(b"\n: \n")

    house.run(story)


def test_who_fell_behind_the_log_is_told_of_a_gap(house: House) -> None:
    async def story() -> None:
        watched(house)
        async with serving(house) as server:
            async with listening(server, "from=start") as listener:
                first = await listener.told()
                await house.add.aenqueue(0)
                first = await listener.told()
            seals = await server.state[SERVER_STATE].seals()
            beyond = seals.cursor(
                Cursor(str(10**12)), listing(LOCAL, "events")
            )  # of a store that was restored from a backup
            async with listening(server, last=beyond) as listener:
                assert [(await listener.told()).name for _ in range(2)] == ["hello", "gap"]
            async with listening(server, last=first.id) as listener:
                assert (await listener.told()).name == "hello"
            async with listening(server, last="made up") as listener:
                assert await listener.status == 400

    house.run(story)


def test_events_need_a_key_that_reads(house: House) -> None:
    async def story() -> None:
        key = await house.key("enqueue")
        async with serving(house) as server:
            async with listening(server, key=key) as listener:
                assert await listener.status == 403
            async with listening(server) as listener:
                assert await listener.status == 401

    house.run(story)


def test_the_reader_of_a_trimmed_log_goes_on_at_the_oldest(house: House) -> None:
    """The store itself says so; the stream passes it on."""

    async def story() -> None:
        watched(house)
        async with serving(house) as server:
            jobs = [await house.add.aenqueue(number) for number in range(3)]
            broker = await house.app.broker()
            real = broker.events

            async def trimmed(after: Any, limit: int, timeout: float) -> Any:
                page = await real(after, limit, timeout)
                return msgspec.structs.replace(page, gap=page.items != () and str(after) == "0")

            running = server.state[SERVER_STATE]
            seals = await running.seals()
            place = seals.cursor(Cursor("0"), listing(LOCAL, "events"))
            wrapped = _Wrapped(broker, trimmed)
            house.app.connection.broker = lambda: _given(wrapped)  # type: ignore[method-assign]
            async with listening(server, last=place) as listener:
                names = [await listener.told() for _ in range(5)]
            assert [each.name for each in names] == ["hello", "gap", "job", "job", "job"]
            assert [each.data["job"] for each in names[2:]] == [job.id for job in jobs]
            del house.app.connection.broker

    house.run(story)


class _Wrapped:
    def __init__(self, broker: Any, events: Any) -> None:
        self._broker = broker
        self.events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


async def _given(broker: Any) -> Any:
    return broker
