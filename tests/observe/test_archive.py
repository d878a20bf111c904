"""The archive of dead letters: their traces are there before they are gone, whatever dies in between."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass import GiveUp, Windlass
from windlass.admin.dead import DeadLetters
from windlass.config import configure
from windlass.core.lease import Ask
from windlass.core.operate import Effect
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.errors import InvalidOption, StoreUnavailable
from windlass.observe.archive.archive import Archive, open_archive, read_url
from windlass.observe.archive.entry import Died, Entry
from windlass.observe.archive.removing import Remover
from windlass.observe.history.sql import Archived
from windlass.observe.history.sqlite import SqliteSink

SECRET = "hunter2hunter2"


def entry(number: int, **said: Any) -> Entry:
    fields: dict[str, Any] = {
        "id": f"01900000-0000-7000-8000-{number:012x}",
        "namespace": "shop",
        "what": "discarded",
        "at": "2026-01-02T03:04:05Z",
        "by": "ada@host",
        "reason": "old",
        "task": "send",
        "queue": "mail",
        "lane": "",
        "tags": (),
        "flow": "",
        "attempt": 5,
        "max_attempts": 5,
        "accepted_at": "2026-01-01T00:00:00Z",
        "died_at": "2026-01-01T00:01:00Z",
        "why": "attempts exhausted",
        "error": Died(type="ValueError", message=f"no {number}"),
        "headers": {"h": "v"},
        "payload": {"args": [], "kwargs": {"to": f"user{number}"}},
    }
    return Entry(**{**fields, **said})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def opened(url: str, history: str | None = None) -> Archive:
    return await open_archive(url, history)


# --- files --------------------------------------------------------------------------------------------------


def test_a_file_has_a_line_for_each(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"

    async def story() -> None:
        archive = await opened(f"file://{path}")
        await archive.write([])
        assert not path.exists()
        await archive.write([entry(1), entry(2)])
        await archive.write([entry(3)])
        await archive.close()

    asyncio.run(story())
    assert [line["error"]["message"] for line in lines(path)] == ["no 1", "no 2", "no 3"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("left", [b'{"v":1,"id":"0190', b"x" * 200_000])
def test_what_a_killed_process_left_of_a_line_is_cut_off(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "dead.jsonl"

    async def story() -> None:
        archive = await opened(f"file://{path}")
        await archive.write([entry(1)])
        with path.open("ab") as file:
            file.write(left)
        await archive.write([entry(2)])

    asyncio.run(story())
    assert [line["id"] for line in lines(path)] == [entry(1).id, entry(2).id]


def test_a_file_rotates_and_the_oldest_go(tmp_path: Path) -> None:
    folder = tmp_path / "odd [name]"
    folder.mkdir()
    path = folder / "dead.jsonl"
    (folder / "dead-by-hand.jsonl").write_text("not ours\n")

    async def story() -> None:
        archive = await opened(f"file://{path}?rotate=1KB&keep=2".replace(" ", "%20"))
        for number in range(20):
            await archive.write([entry(number)])

    asyncio.run(story())
    rotated = sorted(each for each in folder.glob("dead-2*.jsonl"))
    assert len(rotated) == 2
    assert all(1_000 <= each.stat().st_size < 2_500 for each in rotated)
    kept = [line["id"] for each in (*rotated, path) if each.exists() for line in lines(each)]
    assert kept == [entry(number).id for number in range(20 - len(kept), 20)]
    assert (folder / "dead-by-hand.jsonl").read_text() == "not ours\n"


def test_many_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    script = (
        "import asyncio, sys\n"
        "from tests.observe.test_archive import entry, opened\n"
        "async def story(first):\n"
        "    archive = await opened(sys.argv[1])\n"
        "    for number in range(25):\n"
        "        await archive.write([entry(first + number)])\n"
        "asyncio.run(story(int(sys.argv[2])))\n"
    )
    url = f"file://{path}?rotate=4KiB"
    writers = [
        subprocess.Popen([sys.executable, "-c", script, url, str(100 * number)]) for number in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    kept = [line["id"] for each in tmp_path.glob("dead*.jsonl") for line in lines(each)]
    assert sorted(kept) == sorted(entry(100 * each + number).id for each in range(3) for number in range(25))


def test_a_person_is_forgotten_in_every_file(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    hers = entry(7, tags=("user:42", "vip"))

    async def story() -> None:
        archive = await opened(f"file://{path}?rotate=2KB")
        await archive.write([entry(1), hers, entry(2, namespace="other", tags=("user:42",))])
        await archive.write([entry(3)] * 3)
        await archive.write([hers, entry(4, tags=("user:421",))])
        path.write_bytes(path.read_bytes() + b"not ours\n")
        assert await archive.forget("shop", "user:42") == 2
        assert await archive.forget("shop", "nobody") == 0

    asyncio.run(story())
    files = list(tmp_path.glob("dead*.jsonl"))
    assert len(files) > 1
    text = "".join(file.read_text() for file in files)
    assert ("user7" in text, "no 7" in text) == (False, False)
    assert all(told in text for told in ("user1", "user2", "user3", "user4", "not ours"))
    assert text.count('"payload":"[erased]"') == 2
    assert text.count(hers.id) == 2, "that it was there stays"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(StoreUnavailable, match="does not take it"):
            await (await opened(f"file://{tmp_path}/none/dead.jsonl")).write([entry(1)])

    asyncio.run(story())


# --- in the history -----------------------------------------------------------------------------------------


IN_TABLES = pytest.mark.parametrize("history_url", ["sqlite", "postgres"], indirect=True)


@IN_TABLES
def test_the_history_keeps_each_once(history_url: str) -> None:
    async def story() -> None:
        archive: Any = await opened("history", history_url)
        hers = entry(2, tags=("user:42",))
        await archive.write([entry(1), hers])
        await archive.write([hers, entry(2, tags=("user:42",), namespace="other")])
        assert await archive.forget("shop", "user:42") == 1
        await archive.close()
        again: Any = await opened("history", history_url)
        rows = await again._rows.rows("SELECT source, entry FROM windlass_history_dead ORDER BY source, job")
        await again.close()
        found = [(row[0], json.loads(row[1])["payload"]) for row in rows]
        assert found == [("other", hers.payload), ("shop", entry(1).payload), ("shop", "[erased]")]

    asyncio.run(story())


@IN_TABLES
def test_the_history_keeps_them_for_so_long(history_url: str) -> None:
    async def story() -> None:
        archive: Any = await opened("history?keep=30d", history_url)
        await archive.write([entry(1)])
        await archive.write([entry(2, at="2026-02-03T03:04:05Z")])
        rows = await archive._rows.rows("SELECT job FROM windlass_history_dead")
        await archive.close()
        assert [row[0] for row in rows] == [entry(2).id]

    asyncio.run(story())


def test_a_history_in_clickhouse_keeps_none(clickhouse_url: str) -> None:
    with pytest.raises(InvalidOption, match="this history keeps no archive: name a file"):
        asyncio.run(opened("history", clickhouse_url))


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://bucket", "an archive is a file"),
        ("s3://", "archive names no bucket"),
        ("gs://bucket?rotate=1MiB", 'archive has no option "rotate"'),
        ("az://key:secret@bucket", "archive has keys in its URL"),
        ("file://host/dead.jsonl", "an archive is a file"),
        ("file:///var/", "an archive is a file"),
        ("file:///dead.jsonl?rotate=big", "rotate says"),
        ("file:///dead.jsonl?rotate=0", "rotate says"),
        ("file:///dead.jsonl?keep=-1", "keep says"),
        ("file:///dead.jsonl?size=1", 'no option "size"'),
        ("history?rotate=1", 'no option "rotate"'),
    ],
)
def test_a_url_that_names_no_archive_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=f"archive: .*{why}"):
        configure({"archive": url}, {})


def test_the_history_must_be_there() -> None:
    with pytest.raises(InvalidOption, match="needs a history"):
        configure({}, {"WINDLASS_ARCHIVE": "history"})
    assert configure({"archive": "history", "history": "sqlite:///h.db"}, {}).archive == "history"
    place = read_url("file:///var/log/dead%20letters.jsonl?rotate=1MiB&keep=3")
    assert (place.path, place.rotate, place.keep_files) == ("/var/log/dead letters.jsonl", 2**20, 3)
    assert configure({"archive": "s3://bucket/prefix"}, {}).archive == "s3://bucket/prefix"


# --- removing -----------------------------------------------------------------------------------------------


def shop(tmp_path: Path, **settings: Any) -> Windlass:
    app = Windlass(f"sqlite:///{tmp_path / 'shop.db'}", **settings)

    @app.task(name="charge")
    def charge(order: int, password: str = "") -> None:
        raise GiveUp(f"order {order}")

    return app


async def dead(app: Windlass, count: int, **call: Any) -> list[str]:
    """Dead letters, made without a worker."""
    broker = await app.broker()
    jobs = [app.tasks["charge"].call(number, **call).job for number in range(count)]
    await broker.enqueue([jobs])
    await broker.beat([Beat(session="s", open=SessionInfo())])
    ask = Ask(queues=("default",), slots=count, limit=count, session="s", seq=1)
    leases = (await broker.claim(ask)).leases
    error = Error(type="ValueError", message="declined", traceback="Traceback …")
    await broker.settle(
        [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, runtime=1, error=error)
            for lease in leases
        ]
    )
    return [job.id for job in jobs]


async def discarded(app: Windlass, ids: Sequence[str], **how: Any) -> list[Effect]:
    letters = DeadLetters(app, await app.broker())
    said = {"reason": "old", "by": "ada", **how}
    return [each.effect async for batch in letters.discard(ids, **said) for each in batch]


def test_what_is_discarded_leaves_its_trace_without_its_secrets(tmp_path: Path) -> None:
    path = tmp_path / "dead.jsonl"
    app = shop(tmp_path, archive=f"file://{path}")

    async def story() -> None:
        ids = await dead(app, 45, password=SECRET)
        await (await app.broker()).replay([])
        assert await discarded(app, ids) == [Effect.APPLIED] * 45
        assert await discarded(app, ids) == [Effect.NOT_FOUND] * 45
        await app.aclose()
        kept = lines(path)
        assert [line["id"] for line in kept] == ids
        assert kept[3]["payload"] == {"args": [], "kwargs": {"order": 3, "password": "[secret]"}}
        assert kept[3]["error"]["message"] == "declined"
        assert (kept[3]["by"], kept[3]["reason"], kept[3]["what"]) == ("ada", "old", "discarded")

    asyncio.run(story())
    assert SECRET not in path.read_text()


def test_without_an_archive_the_log_says_it_without_arguments(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = shop(tmp_path)

    async def story() -> None:
        (job,) = await dead(app, 1, password=SECRET)
        with caplog.at_level(logging.INFO, "windlass.dead"):
            await discarded(app, [job])
        await app.aclose()
        (record,) = caplog.records
        assert record.getMessage() == (
            f"dead letter {job}: task charge (queue default) is discarded by ada: old; "
            "it died of ValueError: declined"
        )
        assert (vars(record)["reason"], vars(record)["by"], vars(record)["job"]) == ("old", "ada", job)

    asyncio.run(story())
    assert SECRET not in str([vars(record) for record in caplog.records])


def test_nothing_goes_that_the_archive_does_not_take(tmp_path: Path) -> None:
    app = shop(tmp_path, archive=f"file://{tmp_path}/later/dead.jsonl")

    async def story() -> None:
        ids = await dead(app, 2)
        with pytest.raises(StoreUnavailable, match="does not take it"):
            await discarded(app, ids)
        found = await (await app.broker()).get(ids)
        assert [job.state for job in found if job is not None] == [State.DEAD] * 2
        (tmp_path / "later").mkdir()
        assert await discarded(app, ids) == [Effect.APPLIED] * 2
        await app.aclose()

    asyncio.run(story())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.observe.test_archive import dead, discarded, shop

folder = Path(sys.argv[1])
app = shop(folder, archive=f"file://{folder}/dead.jsonl")

async def story():
    broker = await app.broker()
    ids = await dead(app, 3)
    (folder / "ids").write_text(" ".join(ids))

    async def die(*_args, **_said):
        os.kill(os.getpid(), signal.SIGKILL)

    broker.discard = die
    await discarded(app, ids)

asyncio.run(story())
"""


@pytest.mark.parametrize("way", ["deleted", "replaced", "log deleted"])
def test_nothing_goes_whose_trace_went_to_a_file_that_was_deleted(tmp_path: Path, way: str) -> None:
    """SQLite goes on with what it has open: it would keep the trace in a file without a name."""
    path = tmp_path / "h.db"
    app = shop(tmp_path, archive="history", history=f"sqlite:///{path}")

    def unlink(*ends: str) -> None:
        for end in ends:
            (tmp_path / f"h{end}").unlink()

    async def archived() -> list[str]:
        """As a process reads them that opens the file now."""
        archive = await SqliteSink.open(str(path))
        try:
            return [row[0] for row in await archive.rows(Archived.PAGE, "windlass", "", "", 100)]
        finally:
            await archive.close()

    async def story() -> None:
        first, second = await dead(app, 2)
        broker = await app.broker()
        remover = Remover(broker, app.config, lambda _: None, None)
        assert [each.effect for each in await remover.prune([first], by="w")] == [Effect.APPLIED]
        unlink(*([".db-wal"] if way == "log deleted" else [".db", ".db-wal", ".db-shm"]))
        if way == "replaced":
            await archived()
        with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
            await remover.prune([second], by="w")
        (job,) = await broker.get([second])
        assert job is not None
        assert job.state is State.DEAD
        assert [each.effect for each in await remover.prune([second], by="w")] == [Effect.APPLIED]
        assert second in await archived()
        await remover.close()
        assert second in await archived()
        await app.aclose()

    asyncio.run(story())


_WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print(flush=True)
input()
connection.execute("COMMIT")
"""


def test_nor_if_it_is_deleted_while_the_trace_waits_for_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "h.db"

    archive = asyncio.run(opened("history", f"sqlite:///{path}"))
    script = [sys.executable, "-c", _WRITER, str(path)]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()

        def delete() -> None:
            for each in tmp_path.glob("h.db*"):
                each.unlink()
            other.communicate("go\n")

        async def story() -> None:
            writing = asyncio.create_task(archive.write([entry(1)]))
            await asyncio.wait({writing}, timeout=0.2)
            assert not writing.done()
            await asyncio.to_thread(delete)
            with pytest.raises(StoreUnavailable, match="was deleted or replaced"):
                await writing
            await archive.close()

        asyncio.run(story())


def test_a_kill_between_trace_and_removal_loses_nothing(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    ids = (tmp_path / "ids").read_text().split()
    path = tmp_path / "dead.jsonl"
    assert [line["id"] for line in lines(path)] == ids
    app = shop(tmp_path, archive=f"file://{path}")

    async def story() -> None:
        found = await (await app.broker()).get(ids)
        assert [job is not None and job.state for job in found] == [State.DEAD] * 3
        assert await discarded(app, ids) == [Effect.APPLIED] * 3
        await app.aclose()

    asyncio.run(story())
    first, second = lines(path)[:3], lines(path)[3:]
    assert [line["id"] for line in first] == [line["id"] for line in second] == ids


# --- the end of their retention -----------------------------------------------------------------------------


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():  # noqa: ASYNC110 - it is another process's, or thread's, doing
        await asyncio.sleep(0.02)


def test_a_worker_archives_what_its_sweeps_find_overdue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the archive is away they stay, and it says so; then they go."""
    folder = tmp_path / "later"
    path = folder / "dead.jsonl"
    app = shop(tmp_path, archive=f"file://{path}", dead_retention=0.2, sweep=0.05)

    async def story() -> None:
        broker = await app.broker()

        async def told() -> bool:
            return "dead letters whose time is over stay: the archive" in caplog.text

        async def gone() -> bool:
            return all(job is None or job.pruned for job in await broker.get(ids))

        async with asyncio.timeout(30), app.worker(concurrency=1):
            ids = [(await app.tasks["charge"].aenqueue(number)).id for number in range(3)]
            await until(told)
            assert not await gone()
            folder.mkdir()
            await until(gone)
        await app.aclose()
        kept = lines(path)
        assert {line["id"] for line in kept} == set(ids)
        assert {(line["what"], line["reason"]) for line in kept} == {("pruned", "its retention is over")}
        assert {line["error"]["message"] for line in kept} == {"order 0", "order 1", "order 2"}

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert "can go again" in caplog.text
