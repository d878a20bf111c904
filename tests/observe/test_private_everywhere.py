"""Planted secrets and addresses are looked for wherever Windlass writes, tells or shows something of a job.
The store may have them in what a task needs (arguments, results, headers); nothing else may.
"""

import asyncio
import contextlib
import io
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.bridges.relaying import Taken
from tests.webhooks.receiver import Receiver, receiving

from windlass import GiveUp, Retry, RetryPolicy, Unique, Windlass, current
from windlass.admin.dead import DeadLetters
from windlass.api.options import ServeOptions
from windlass.api.server import build
from windlass.core.event import FROM_START
from windlass.core.job import JobDetail
from windlass.core.query import JobQuery
from windlass.core.settings import Kind
from windlass.core.state import State
from windlass.core.webhook import TASK
from windlass.observe import traces
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink
from windlass.observe.logs import JsonFormatter

ADA = "ada.lovelace@mail.example"
"""In a private argument."""
STREET = "Inner Circle 4711"
"""Likewise, and no pattern finds it."""
GRACE = "grace.hopper@mail.example"
"""In an argument of any name: the pattern finds it."""
WORD = "hunter2-hunter2"
"""A password."""
PLANTED = ("lovelace", "Circle 4711", "hopper", WORD)
GIVEN = {"email": ADA, "street": STREET, "text": f"write to {GRACE}", "password": WORD}
TOKEN = "the-token-of-the-server"
_log = logging.getLogger("shop.mail")


def say(email: str, street: str, text: str, password: str) -> str:
    """What a task may say of its arguments."""
    said = f"{email} of {street}: {text!r} with {password}"
    current.progress(0.5, f"at {said}")
    current.log(f"noted {said}")
    _log.warning("logged %s", said, extra={"whom": email, "note": text})
    return said


def shop(store: Mapping[str, str], folder: Path) -> Windlass:
    app = Windlass(
        **store,
        history=f"sqlite:///{folder / 'history.db'}",
        archive=f"file://{folder / 'dead.jsonl'}",
        private_patterns=["email"],
        webhooks=True,
        webhook_allow=["127.0.0.1"],
        poll_floor=0.05,
        sweep=0.05,
    )
    app.queue("brief", dead_retention=0)
    app.relay("kafka://nowhere/ends", name="ends", on=["done", "dead", "cancelled"])
    private = ("email", "street")
    once = RetryPolicy(max_attempts=1)

    @app.task(private=private)
    def child(email: str, street: str, text: str, password: str) -> dict[str, str]:
        say(email, street, text, password)
        return {"email": email, "street": street, "note": text, "token": password}

    @app.task(private=private, unique=Unique("who"))
    async def parent(email: str, street: str, text: str, password: str, who: dict[str, str]) -> str:
        current.spawn(child.using(headers={"x-email": email}).call(email, street, text, password))
        return say(email, street, text, password)

    @app.task(private=private, retry=RetryPolicy(max_attempts=2, base=0))
    async def raises(email: str, street: str, text: str, password: str) -> None:
        said = say(email, street, text, password)
        try:
            raise KeyError(said)  # noqa: TRY301 - for its traceback
        except KeyError as error:
            error.add_note(f"beside {said}")
            raise ValueError(f"no mailbox for {said}") from error

    @app.task(private=private, retry=once)
    def group(email: str, street: str, text: str, password: str) -> None:
        said = say(email, street, text, password)
        raise ExceptionGroup(said, [ValueError(email), OSError(2, said, password)])

    @app.task(private=private, queue="brief")
    def gives_up(email: str, street: str, text: str, password: str) -> None:
        raise GiveUp(say(email, street, text, password))

    @app.task(private=private, retry=once)
    async def again(email: str, street: str, text: str, password: str) -> None:
        _log.error("broken", exc_info=ValueError(say(email, street, text, password)))
        raise Retry(f"later for {email}, {text}", after=0)

    @app.task(private=private, retry=once)
    async def late(email: str, street: str, text: str, password: str) -> object:
        raise TimeoutError(repr({"email": email, "street": street, "text": text, "password": password}))

    return app


class Told:
    """All that has been written, told and shown, by where."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: dict[str, str] = {}
        self.logs = io.StringIO()
        self.spans = InMemorySpanExporter()
        self.relay = Taken()

    def check(self) -> None:
        """Nothing that was planted is in any of them; each of them has something."""
        for path in self.folder.iterdir():
            if path.name.startswith(("history.db", "dead")):
                self.places[path.name] = path.read_bytes().decode("latin-1")
        assert {"history.db", "dead.jsonl"} <= self.places.keys()
        assert '"discarded"' in self.places["dead.jsonl"]
        assert '"pruned"' in self.places["dead.jsonl"]
        for place, text in self.places.items():
            assert text, place
            for word in PLANTED:
                at = text.find(word)
                assert at < 0, f"{place}: …{text[max(0, at - 300) : at + 100]}"
        for place in ("jobs in the store", "history.db", "dead.jsonl", "logs", "relay", "callbacks", "dead"):
            assert "[email]" in self.places[place], place
            assert "[secret]" in self.places[place], place


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made.spans))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    traces.forget()

    async def opens(_: object) -> Taken:
        return made.relay

    monkeypatch.setattr("windlass.bridges.kafka.adapter.open_sink", opens)
    handler = logging.StreamHandler(made.logs)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield made
    root.removeHandler(handler)
    root.setLevel(level)
    traces.forget()


@asynccontextmanager
async def serving(app: Windlass) -> AsyncIterator[httpx.AsyncClient]:
    """The API of an app; its maintenance is left to workers."""
    server = build(app, ServeOptions(sweep=False, token=TOKEN))
    transport = httpx.ASGITransport(server, client=("127.0.0.1", 50_000))
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        server.lifespan(),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client,
    ):
        yield client


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(40):
        while not await holds():  # noqa: ASYNC110 - other processes and tasks bring it about
            await asyncio.sleep(0.02)


async def run_all(app: Windlass, told: Told, client: httpx.AsyncClient, receiver: Receiver) -> Sequence[str]:
    """Let every task say what it can, until all have ended and everybody was told of it."""
    broker = await app.broker()
    headers = {"x-email": ADA, "x-api-key": WORD, "x-note": GRACE}
    async with app.worker(concurrency=4):
        jobs: list[str] = []
        for task in app.tasks.values():
            options = {"headers": headers, "callback": receiver.url()}
            more = {"who": {"work_email": ADA}} if task.name == "parent" else {}
            jobs.append((await task.using(**options).aenqueue(**GIVEN, **more)).id)
        untyped = Windlass("memory://").external("raises").using(headers=headers)
        call = untyped.call(email=ADA, street=[STREET], text=GRACE, password={"is": WORD})
        refused = (await app.aenqueue_many([call]))[0].id

        async def ended() -> bool:
            found = await broker.get(jobs)
            return all(job is None or job.pruned or job.state in (State.DONE, State.DEAD) for job in found)

        async def is_held() -> bool:
            (job,) = await broker.get([refused])
            return job is not None and job.held is not None

        async def pruned() -> bool:
            return '"pruned"' in (told.folder / "dead.jsonl").read_text()

        async def everybody_knows() -> bool:
            return len(told.relay.got) > len(jobs) and len(receiver.got) >= len(jobs) - 1

        await until(ended)
        await until(is_held)
        # One may be gone before the reader of the log comes to it: its queue keeps no dead letters.
        await until(everybody_knows)
        told.places["metrics of the worker"] = (await client.get("/metrics")).text
        dead = (await broker.list(JobQuery(states=frozenset((State.DEAD,))), limit=50)).jobs
        async for _ in DeadLetters(app, broker).discard([dead[0].id], reason="old"):
            pass
        await until(pruned)
    return jobs


async def read_all(app: Windlass, told: Told, client: httpx.AsyncClient, receiver: Receiver) -> None:
    """Read what the store, the API and all that was told have of the jobs."""
    broker = await app.broker()
    listed = (await broker.list(JobQuery(), limit=100)).jobs
    details = [job for job in await broker.get([job.id for job in listed]) if job is not None]
    assert any(WORD.encode() in job.payload for job in details), "the payload is kept whole"
    told.places["jobs in the store"] = _text([_but_what_is_needed(job) for job in details])
    told.places["events"] = _text((await broker.events(FROM_START, 1_000, 0)).items)
    told.places["documents"] = _text([await broker.documents(kind) for kind in Kind])
    told.places["sessions"] = _text(await broker.sessions())
    told.places["relay"] = _text(told.relay.got)
    told.places["callbacks"] = _text([(got.line, got.headers, got.body) for got in receiver.got])
    told.places["spans"] = "\n".join(span.to_json() for span in told.spans.get_finished_spans())
    paths = ["dead", "dead/groups", "jobs", "history?by=error", "audit", "queues", "workers", "overview"]
    for job in details:
        if not job.pruned:
            paths += [f"jobs/{job.id}", f"jobs/{job.id}/explain"]
            paths += [f"history/jobs/{job.id}"] if job.state is State.DEAD else []
    for path in paths:
        told.places[path] = (await _shown(client, f"/v1/{path}")).text
    told.places["metrics"] = (await _shown(client, "/metrics")).text


def _but_what_is_needed(job: JobDetail) -> JobDetail:
    """A job without what its task needs, which is kept whole. A message of a webhook is masked itself."""
    payload = job.payload if job.task == TASK else b""
    return msgspec.structs.replace(job, payload=payload, result=None, headers={})


async def _shown(client: httpx.AsyncClient, path: str) -> httpx.Response:
    answer = await client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer


def _text(value: Any) -> str:
    return repr(msgspec.to_builtins(value, enc_hook=repr, builtin_types=(bytes,)))


def _columns(path: Path) -> str:
    """All that the tables of a store hold, but in the columns of what tasks need."""
    found: list[str] = []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            rows = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - its name
            names = [column[0] for column in rows.description]
            for row in rows.fetchall():
                found += [
                    f"{table}.{name}: {value!r}"
                    for name, value in zip(names, row, strict=True)
                    if name not in ("payload", "headers") and (table, name) != ("result", "value")
                ]
    return "\n".join(found)


async def keep_history(app: Windlass, folder: Path) -> None:
    broker = await app.broker()
    sink = await open_sink(f"sqlite:///{folder / 'history.db'}", broker)
    patterns = app.config.private_patterns
    await HistoryReader(broker, sink, app.config.namespace, patterns=patterns, clock=lambda: 9e9).step()
    await sink.close()


def test_what_was_planted_is_only_where_tasks_need_it(
    store: Mapping[str, str], told: Told, tmp_path: Path
) -> None:
    app = shop(store, tmp_path)

    async def story() -> None:
        try:
            async with asyncio.timeout(60), receiving() as receiver, serving(app) as client:
                await run_all(app, told, client, receiver)
                await keep_history(app, tmp_path)
                await read_all(app, told, client, receiver)
        finally:
            await app.aclose()

    asyncio.run(story())
    if store["url"].startswith("sqlite"):
        told.places["columns of the store"] = _columns(tmp_path / "windlass.db")
    told.places["logs"] = told.logs.getvalue()
    told.check()
