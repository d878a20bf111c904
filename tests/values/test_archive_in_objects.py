"""The archive of dead letters in object storage: the same obligations as of the others."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.bridges.doors import Doored
from tests.observe.test_archive import SECRET, dead, discarded, entry, opened, shop, until

from windlass.core.operate import Effect
from windlass.core.state import State
from windlass.errors import StoreUnavailable
from windlass.values.bucket import Bucket
from windlass.values.place import read_url


async def documents(url: str, namespace: str = "shop") -> dict[str, str]:
    """The objects of an archive, by name."""
    bucket = Bucket(read_url(url))
    keys = [stored.key for stored in await bucket.page(f"d/{namespace}/", "", 1_000)]
    return {key: (await bucket.get(key, blocking=False) or b"").decode() for key in keys}


async def entries(url: str, namespace: str = "windlass") -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for document in (await documents(url, namespace)).values()
        for line in document.splitlines()
    ]


def ids(read: Iterable[dict[str, Any]]) -> list[str]:
    return [line["id"] for line in read]


def test_a_batch_is_an_object_of_the_day_on_which_it_was_written(s3_url: str) -> None:
    async def story() -> None:
        archive = await opened(s3_url)
        await archive.write([])
        assert await documents(s3_url) == {}
        await archive.write([entry(1), entry(2)])
        await archive.write([entry(3), entry(4, namespace="other")])
        await archive.close()
        kept = await documents(s3_url)
        assert len(kept) == 2
        assert all(key.startswith("d/shop/2026/01/02/030405-") and key.endswith(".jsonl") for key in kept)
        assert sorted(ids(await entries(s3_url, "shop"))) == [entry(number).id for number in (1, 2, 3)]
        assert ids(await entries(s3_url, "other")) == [entry(4).id]

    asyncio.run(story())


def test_a_person_is_forgotten_in_every_object(s3_url: str) -> None:
    hers = entry(7, tags=("user:42", "vip"))

    async def story() -> None:
        archive = await opened(s3_url)
        await archive.write([entry(1), hers, entry(2, namespace="other", tags=("user:42",))])
        await archive.write([entry(3)] * 3)
        await archive.write([hers, entry(4, tags=("user:421",))])
        bucket = Bucket(read_url(s3_url))
        await bucket.put("d/shop/by-hand", b"not ours\n", blocking=False)
        before = await documents(s3_url)
        assert await archive.forget("shop", "user:42") == 2
        assert await archive.forget("shop", "nobody") == 0
        assert await archive.forget("shop", "user:42") == 0
        kept = await documents(s3_url)
        assert (len(kept), len(kept.keys() & before.keys())) == (4, 2), "two are put anew"
        text = "".join(kept.values())
        assert ("user7" in text, "no 7" in text) == (False, False)
        assert all(told in text for told in ("user1", "user3", "user4", "not ours"))
        assert "user2" in "".join((await documents(s3_url, "other")).values())
        assert text.count('"payload":"[erased]"') == 2
        assert text.count(hers.id) == 2, "that it was there stays"

    asyncio.run(story())


@pytest.mark.parametrize("tags", [("user:1", "user:2"), ("user:1", "user:1")])
def test_two_who_forget_at_once_undo_nothing_and_lose_nothing(s3_url: str, tags: tuple[str, str]) -> None:
    async def story() -> None:
        archive = await opened(s3_url)
        all_of_them = [entry(number, tags=(f"user:{number}",)) for number in range(4)]
        for _ in range(5):
            await archive.write(all_of_them)
        others = [await opened(s3_url) for _ in tags]
        await asyncio.gather(*(each.forget("shop", tag) for each, tag in zip(others, tags, strict=True)))
        kept = await entries(s3_url, "shop")
        assert {line["id"] for line in kept} == {each.id for each in all_of_them}
        assert len(kept) >= 20
        blank = {tag for line in kept if line["payload"] == "[erased]" for tag in line["tags"]}
        whole = {tag for line in kept if line["payload"] != "[erased]" for tag in line["tags"]}
        assert (blank, blank & whole) == (set(tags), set())

    asyncio.run(story())


def test_a_kill_while_a_person_is_forgotten_loses_nothing(s3_url: str) -> None:
    hers = entry(7, tags=("user:42",))

    async def story() -> None:
        archive: Any = await opened(s3_url)
        await archive.write([entry(1), hers])
        before = await documents(s3_url)
        remove = archive._bucket.remove

        async def killed(keys: list[str]) -> None:
            raise KeyboardInterrupt

        archive._bucket.remove = killed
        with pytest.raises(KeyboardInterrupt):
            await archive.forget("shop", "user:42")
        archive._bucket.remove = remove
        assert before.items() <= (await documents(s3_url)).items()
        assert await archive.forget("shop", "user:42") == 1
        text = "".join((await documents(s3_url)).values())
        assert ("user7" in text, hers.id in text, entry(1).id in text) == (False, True, True)

    asyncio.run(story())


def test_what_is_discarded_leaves_its_trace_without_its_secrets(s3_url: str, tmp_path: Path) -> None:
    app = shop(tmp_path, archive=s3_url)

    async def story() -> None:
        jobs = await dead(app, 45, password=SECRET)
        assert await discarded(app, jobs) == [Effect.APPLIED] * 45
        await app.aclose()
        kept = await entries(s3_url)
        assert sorted(ids(kept)) == sorted(jobs)
        assert len(await documents(s3_url, "windlass")) == 3, "an object for each batch"
        assert kept[3]["payload"]["kwargs"]["password"] == "[secret]"
        assert SECRET not in json.dumps(kept)

    asyncio.run(story())


def test_nothing_goes_that_the_archive_does_not_take(bucket: str, s3_port: int, tmp_path: Path) -> None:
    async def story() -> None:
        door = Doored(s3_port)
        url = f"s3://{bucket}?region=us-east-1&endpoint=http://{await door.host()}"
        app = shop(tmp_path, archive=url)
        jobs = await dead(app, 2)
        door.shut()
        with pytest.raises(StoreUnavailable, match=f"the archive s3://{bucket} does not take it"):
            await discarded(app, jobs)
        found = await (await app.broker()).get(jobs)
        assert [job.state for job in found if job is not None] == [State.DEAD] * 2
        door.open()
        assert await discarded(app, jobs) == [Effect.APPLIED] * 2
        assert sorted(ids(await entries(url))) == sorted(jobs)
        await app.aclose()
        await door.close()

    asyncio.run(story())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.observe.test_archive import dead, discarded, shop

folder = Path(sys.argv[1])
app = shop(folder, archive=sys.argv[2])

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


def test_a_kill_between_trace_and_removal_loses_nothing(s3_url: str, tmp_path: Path) -> None:
    called = [sys.executable, "-c", KILLED, str(tmp_path), s3_url]
    assert subprocess.run(called, check=False, env=dict(os.environ)).returncode == -signal.SIGKILL
    jobs = (tmp_path / "ids").read_text().split()
    app = shop(tmp_path, archive=s3_url)

    async def story() -> None:
        assert ids(await entries(s3_url)) == jobs
        found = await (await app.broker()).get(jobs)
        assert [job is not None and job.state for job in found] == [State.DEAD] * 3
        assert await discarded(app, jobs) == [Effect.APPLIED] * 3
        await app.aclose()
        assert ids(await entries(s3_url)) == [*jobs, *jobs]

    asyncio.run(story())


def test_a_worker_archives_what_its_sweeps_find_overdue(s3_url: str, tmp_path: Path) -> None:
    app = shop(tmp_path, archive=s3_url, dead_retention=0.2, sweep=0.05)

    async def story() -> None:
        broker = await app.broker()

        async def gone() -> bool:
            return all(job is None or job.pruned for job in await broker.get(jobs))

        async with asyncio.timeout(30), app.worker(concurrency=1):
            jobs = [(await app.tasks["charge"].aenqueue(number)).id for number in range(3)]
            await until(gone)
        await app.aclose()
        kept = await entries(s3_url)
        assert sorted(ids(kept)) == sorted(jobs)
        assert {(line["what"], line["reason"]) for line in kept} == {("pruned", "its retention is over")}

    asyncio.run(story())
