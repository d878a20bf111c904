"""What the archive of dead letters has of large payloads, and that no letter goes without its trace."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.doors import Doored

from windlass import Windlass
from windlass.core.lease import Ask
from windlass.core.operate import Effect, Target
from windlass.core.outcome import Error, Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.errors import ValuesUnavailable
from windlass.observe.archive import removing
from windlass.observe.archive.entry import Entry
from windlass.observe.archive.file import FileArchive
from windlass.observe.archive.removing import Remover

SECRET = "hunter2hunter2"


def shop(values_url: str, folder: Path, **settings: Any) -> Windlass:
    settings = {"values": values_url, "archive": f"file://{folder}/dead.jsonl", **settings}
    app = Windlass("memory://", **settings)

    @app.task(name="send", private=("email",))
    def send(text: str, password: str = "", email: str = "") -> None: ...

    return app


def lines(folder: Path) -> dict[str, Any]:
    read = (json.loads(line) for line in (folder / "dead.jsonl").read_text().splitlines())
    return {line["id"]: line for line in read}


def remover(app: Windlass, broker: Any) -> Remover:
    return Remover(broker, app.config, app.signature_of, app.values)


async def dies(app: Windlass, count: int = 1) -> None:
    """The next jobs are claimed, and are dead letters."""
    broker, session = await app.broker(), app.new_id()
    await broker.beat([Beat(session=session, open=SessionInfo())])
    ask = Ask(queues=("default",), slots=count, limit=count, session=session, seq=1)
    leases = (await broker.claim(ask)).leases
    assert len(leases) == count
    error = Error(type="ValueError", message="declined")
    await broker.settle(
        [
            Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DEAD, runtime=1, error=error)
            for lease in leases
        ]
    )


async def discarded(app: Windlass, *jobs: str) -> list[Effect]:
    removing_ = remover(app, await app.broker())
    answers = await removing_.discard([Target(job) for job in jobs], by="ada", reason="old")
    await removing_.close()
    assert [answer.job for answer in answers] == list(jobs)
    return [answer.effect for answer in answers]


def test_the_archive_has_large_payloads_without_their_secrets(values_url: str, tmp_path: Path) -> None:
    app = shop(values_url, tmp_path)
    send = app.tasks["send"]

    async def story() -> None:
        large = await send.aenqueue("x" * 100_000, password=SECRET, email="ada@example.com")
        larger = await send.aenqueue("x" * 2_000_000, password=SECRET)
        await dies(app, 2)
        assert await discarded(app, large.id, larger.id) == [Effect.APPLIED] * 2
        kept = lines(tmp_path)
        said = {"text": "x" * 100_000, "password": "[secret]", "email": "[secret]"}
        assert kept[large.id]["payload"] == {"args": [], "kwargs": said}
        assert kept[larger.id]["payload"].endswith(" bytes, in object storage"), "more than max_payload"
        text = (tmp_path / "dead.jsonl").read_text()
        assert (SECRET in text, "ada@" in text) == (False, False)
        await app.aclose()

    asyncio.run(story())


def test_what_is_missing_there_is_told_in_words_and_the_letter_goes(values_url: str, tmp_path: Path) -> None:
    app = shop(values_url, tmp_path)
    send = app.tasks["send"]

    async def story() -> None:
        gone, replaced = await send.aenqueue("x" * 100_000), await send.aenqueue("y" * 100_000)
        await dies(app, 2)
        assert app.values is not None
        for job in (gone, replaced):
            await app.values.remove_payload(job.id)
        await app.values.bucket.put(f"p/windlass/{replaced.id}", b"something else", blocking=False)
        assert await discarded(app, gone.id, replaced.id) == [Effect.APPLIED] * 2
        kept = lines(tmp_path)
        assert "it was removed, or values= is another one here" in kept[gone.id]["payload"]
        assert "somebody has replaced it" in kept[replaced.id]["payload"]
        await app.aclose()

    asyncio.run(story())


def test_while_object_storage_is_away_the_letter_stays(bucket: str, s3_port: int, tmp_path: Path) -> None:
    async def story() -> None:
        door = Doored(s3_port)
        app = shop(f"s3://{bucket}?region=us-east-1&endpoint=http://{await door.host()}", tmp_path)
        large = await app.tasks["send"].aenqueue("x" * 100_000)
        small = await app.tasks["send"].aenqueue("small")
        await dies(app, 2)
        door.shut()
        with pytest.raises(ValuesUnavailable):
            await discarded(app, large.id, small.id)
        found = await (await app.broker()).get([large.id, small.id])
        assert [job is not None and job.state for job in found] == [State.DEAD] * 2
        assert not (tmp_path / "dead.jsonl").exists()
        door.open()
        assert await discarded(app, large.id, small.id) == [Effect.APPLIED] * 2
        assert lines(tmp_path)[large.id]["payload"]["kwargs"]["text"] == "x" * 100_000
        await app.aclose()
        await door.close()

    asyncio.run(story())


def test_few_large_payloads_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = shop(f"file://{tmp_path}/values", tmp_path)
    monkeypatch.setattr(removing, "WRITTEN_AT_ONCE", 250_000)
    written: list[int] = []
    write = FileArchive.write

    async def counted(self: FileArchive, entries: Sequence[Entry]) -> None:
        written.append(len(entries))
        await write(self, entries)

    monkeypatch.setattr(FileArchive, "write", counted)

    async def story() -> None:
        jobs = [await app.tasks["send"].aenqueue("x" * 100_000) for _ in range(7)]
        await dies(app, 7)
        assert await discarded(app, *(job.id for job in jobs)) == [Effect.APPLIED] * 7
        assert written == [3, 3, 1]
        assert lines(tmp_path).keys() == {job.id for job in jobs}
        await app.aclose()

    asyncio.run(story())


class DiesMeanwhile:
    """A store in which a job dies just after it was read."""

    def __init__(self, app: Windlass, broker: Any) -> None:
        self._app = app
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    async def get(self, jobs: Sequence[str]) -> Any:
        found = await self._broker.get(jobs)
        await dies(self._app)
        return found


def test_a_letter_that_died_after_it_was_read_stays_until_it_has_a_trace(tmp_path: Path) -> None:
    app = shop(f"file://{tmp_path}/values", tmp_path)
    send = app.tasks["send"]

    async def story() -> None:
        broker = await app.broker()
        first, second = await send.aenqueue("1"), await send.aenqueue("2")
        await dies(app, 2)
        late = await send.aenqueue("3")
        unknown = app.new_id()
        asked = [Target(job) for job in (late.id, first.id, unknown, second.id)]
        store: Any = DiesMeanwhile(app, broker)
        answers = await remover(app, store).discard(asked, by="ada", reason="old")
        assert [(each.job, each.effect, each.state) for each in answers] == [
            (late.id, Effect.WRONG_STATE, State.READY),
            (first.id, Effect.APPLIED, answers[1].state),
            (unknown, Effect.NOT_FOUND, None),
            (second.id, Effect.APPLIED, answers[3].state),
        ]
        assert lines(tmp_path).keys() == {first.id, second.id}
        (left,) = await broker.get([late.id])
        assert left is not None
        assert left.state is State.DEAD
        assert await discarded(app, late.id) == [Effect.APPLIED]
        assert late.id in lines(tmp_path)
        await app.aclose()

    asyncio.run(story())
