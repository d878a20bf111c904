"""What is swept, what stays, and who sweeps."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.values.seen import unknown

from windlass import Windlass
from windlass.broker.contract import Broker
from windlass.core.codec import reference_to
from windlass.core.ids import JobIds
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.operate import Target
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.pace import MachinePace
from windlass.values.names import payload_key, result_key
from windlass.values.orphans import Rules
from windlass.values.values import Values
from windlass.worker import value_sweeping
from windlass.worker.value_sweeping import ValueSweeping

AT_ONCE = Rules(safe=0, safe_payload=0)
"""Nothing is too young to be swept."""
LARGE = b'{"v":1,"r":"' + b"x" * 100_000 + b'"}'


class Shop:
    """An app, its store and its objects, and what a worker does to one of its jobs."""

    def __init__(self, app: Windlass) -> None:
        self.app = app
        assert app.values is not None
        self.values: Values = app.values
        self.task = app.external("work")
        self.new_id: JobIds = app.new_id
        self.seq = 0

    async def open(self) -> Broker:
        self.broker = await self.app.broker()
        await self.broker.beat([Beat(session="s" * 32, open=SessionInfo(queues=("default",), slots=1))])
        return self.broker

    def sweeper(self, rules: Rules = AT_ONCE) -> ValueSweeping:
        return ValueSweeping(self.broker, self.values, self.app.config, MachinePace(), rules=rules)

    async def swept(self, rules: Rules = AT_ONCE) -> list[str]:
        """The objects that are left after a whole round."""
        sweeper = self.sweeper(rules)
        while await sweeper.sweep() == 0.0:
            pass
        done = await sweeper._turn.take()
        assert done is not None
        await sweeper._turn.keep(msgspec.structs.replace(done, rest_until=0))
        await sweeper._turn.leave()
        return await self.objects()

    async def objects(self) -> list[str]:
        found = await self.values.bucket.page("p/", "", 100) + await self.values.bucket.page("r/", "", 100)
        return [stored.key for stored in found]

    async def claimed(self) -> Any:
        self.seq += 1
        ask = Ask(queues=("default",), slots=1, limit=1, session="s" * 32, seq=self.seq)
        (lease,) = (await self.broker.claim(ask)).leases
        return lease

    async def settle(self, lease: Any, outcome: Outcome, result: bytes | None = None) -> Settlement:
        said = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, result=result)
        carried = await self.values.settled(said)
        await self.broker.settle([carried])
        return carried


@pytest.fixture
def shop(store: Mapping[str, str], values_url: str) -> Shop:
    return Shop(Windlass(**store, values=values_url))


@pytest.fixture
def folder_shop(tmp_path: Any) -> Shop:
    return Shop(Windlass("memory://", values=f"file://{tmp_path}/values"))


def run(shop: Shop, story: Any) -> None:
    async def whole() -> None:
        await shop.open()
        try:
            await story()
        finally:
            await shop.app.aclose()

    asyncio.run(whole())


def test_the_object_of_a_stale_worker_lies_under_another_fence_and_is_swept(shop: Shop) -> None:
    async def story() -> None:
        job = await shop.task.aenqueue()
        stale = await shop.claimed()
        await shop.broker.settle([Settlement(job=job.id, fence=stale.fence, outcome=Outcome.RELEASE)])
        lease = await shop.claimed()
        late = LARGE.replace(b"x", b"y")
        await shop.settle(lease, Outcome.DONE, LARGE)
        await shop.settle(stale, Outcome.DONE, late)  # it is told that it is too late, and has put its own
        namespace = shop.app.config.namespace
        both = [result_key(namespace, job.id, stale.fence), result_key(namespace, job.id, lease.fence)]
        assert await shop.objects() == both
        assert await job.aresult(10) == "x" * 100_000
        assert await shop.swept() == both[1:]
        assert await job.aresult(10) == "x" * 100_000

    run(shop, story)


def test_what_is_young_stays(shop: Shop) -> None:
    async def story() -> None:
        await shop.values.bucket.put(payload_key("windlass", shop.new_id()), b".", blocking=False)
        before = await shop.objects()
        assert await shop.swept(Rules()) == before

    run(shop, story)


def test_a_payload_stays_as_long_as_its_job_and_goes_after_it(shop: Shop) -> None:
    async def story() -> None:
        job = await shop.task.aenqueue("p" * 100_000)
        key = payload_key(shop.app.config.namespace, job.id)
        unknown = payload_key(shop.app.config.namespace, shop.new_id())
        await shop.values.bucket.put(unknown, b".", blocking=False)
        assert await shop.swept() == [key]
        lease = await shop.claimed()
        await shop.settle(lease, Outcome.DEAD)
        assert await shop.swept() == [key], "a dead letter may be sent back"
        await shop.broker.discard([Target(job.id, State.DEAD)])
        assert await shop.swept() == []

    run(shop, story)


def test_the_result_of_a_job_that_runs_stays_until_it_is_settled(folder_shop: Shop) -> None:
    shop = folder_shop

    async def story() -> None:
        job = await shop.task.aenqueue()
        lease = await shop.claimed()
        carried = await shop.values.settled(
            Settlement(job=job.id, fence=lease.fence, outcome=Outcome.DONE, result=LARGE)
        )
        key = result_key("windlass", job.id, lease.fence)
        assert await shop.swept() == [key], "its worker may wait for the store for long"
        await shop.broker.settle([carried])
        assert await job.aresult(10) == "x" * 100_000

    run(shop, story)


def test_a_page_never_ends_between_the_results_of_a_job(
    folder_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = folder_shop
    monkeypatch.setattr(value_sweeping, "PAGE", 2)

    async def story() -> None:
        expected: list[str] = []
        for _ in range(4):
            await shop.task.aenqueue()
            lease = await shop.claimed()
            for fence in range(3):
                key = result_key("windlass", lease.job, lease.fence - 10 + fence)
                await shop.values.bucket.put(key, b".", blocking=False)
            await shop.settle(lease, Outcome.DONE, LARGE)
            expected.append(result_key("windlass", lease.job, lease.fence))
        for _ in range(5):
            await shop.values.bucket.put(payload_key("windlass", shop.new_id()), b".", blocking=False)
        assert await shop.swept() == sorted(expected)

    run(shop, story)


def test_what_others_have_put_there_is_left_alone(folder_shop: Shop) -> None:
    shop = folder_shop

    async def story() -> None:
        for key in ("p/windlass/readme.txt", "p/windlass/a/b", "r/windlass/x", "r/windlass/w/y/z"):
            await shop.values.bucket.put(key, b".", blocking=False)
        job = shop.new_id()
        await shop.values.bucket.put(f"r/windlass/{job}/kept", b"no mark of ours", blocking=False)
        before = await shop.objects()
        assert await shop.swept() == [key for key in before if job not in key]

    run(shop, story)


def test_one_worker_sweeps_and_the_others_rest(folder_shop: Shop) -> None:
    shop = folder_shop

    async def story() -> None:
        for _ in range(3):
            await shop.values.bucket.put(payload_key("windlass", shop.new_id()), b".", blocking=False)
        first, second = shop.sweeper(), shop.sweeper()
        assert await first.sweep() == 0.0  # the payloads; results come next
        assert await shop.objects() == []
        assert await second.sweep() == value_sweeping.REST
        assert await first.sweep() == value_sweeping.REST
        await first._turn.leave()
        await shop.values.bucket.put(payload_key("windlass", shop.new_id()), b".", blocking=False)
        assert await second.sweep() == value_sweeping.REST, "a round was a moment ago"
        assert len(await shop.objects()) == 1

    run(shop, story)


def test_the_objects_of_another_store_are_left_alone(
    folder_shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty store, such as a developer's, would take all objects of the real one for orphans."""
    shop = folder_shop

    async def story() -> None:
        job = await shop.task.aenqueue("p" * 100_000)
        await shop.swept()
        stranger = Shop(Windlass("memory://", values=shop.app.config.values))
        await stranger.open()
        with caplog.at_level(logging.WARNING, "windlass.worker"):
            assert await stranger.swept() == [payload_key("windlass", job.id)]
        assert "of another store" in caplog.text
        await stranger.app.aclose()

    run(shop, story)


def test_results_are_kept_for_a_time_of_their_own(store: Mapping[str, str], values_url: str) -> None:
    """The store forgets the job at once; a handle reads its result all the same."""
    app = Windlass(**store, values=values_url, values_kept="30d", result_ttl=0, retention="1h")
    shop = Shop(app)
    kept = Rules(safe=0, safe_payload=0, kept=3600 * SECOND)

    async def story() -> None:
        job = await shop.task.aenqueue()
        stale = await shop.claimed()
        await shop.settle(stale, Outcome.RELEASE)
        await shop.values.settled(
            Settlement(job=job.id, fence=stale.fence, outcome=Outcome.DONE, result=b"{}" * 50_000)
        )
        lease = await shop.claimed()
        await shop.settle(lease, Outcome.DONE, LARGE)
        prefix = f"r/{app.config.namespace}/{job.id}"
        while (await shop.broker.sweep(limit=1_000)).more:
            pass
        assert await shop.swept(kept) == [f"{prefix}/{lease.fence}", f"{prefix}/kept"]
        assert await app.job(job.id).aresult(10) == "x" * 100_000
        over = Rules(safe=0, safe_payload=0, kept=0)
        assert await shop.swept(over) == []

    run(shop, story)


def test_a_job_that_the_store_has_forgotten_is_read_by_its_mark(folder_shop: Shop) -> None:
    app = Windlass("memory://", values=folder_shop.app.config.values, values_kept="30d")
    shop = Shop(app)

    async def story() -> None:
        job = shop.new_id()
        for fence, document in ((5, LARGE), (9, LARGE.replace(b"x", b"y"))):
            await shop.values.bucket.put(result_key("windlass", job, fence), document, blocking=False)
        mark = b'{"fence":5,"reference":' + _quoted(reference_to(LARGE)) + b"}"
        await shop.values.bucket.put(f"r/windlass/{job}/kept", mark, blocking=False)
        assert await app.job(job).aresult(10) == "x" * 100_000
        kept = Rules(safe=0, safe_payload=0, kept=3600 * SECOND)
        assert await shop.swept(kept) == [f"r/windlass/{job}/5", f"r/windlass/{job}/kept"]
        assert await app.job(job).aresult(10) == "x" * 100_000
        assert await shop.swept(AT_ONCE) == []

    run(shop, story)


def _quoted(text: bytes) -> bytes:
    return b'"' + text.replace(b'"', b'\\"') + b'"'


def test_all_objects_of_a_job_can_be_removed(shop: Shop) -> None:
    """What a person's data needs: payload and results, whoever has put them."""

    async def story() -> None:
        job = await shop.task.aenqueue("p" * 100_000)
        other = await shop.task.aenqueue("p" * 100_000)
        for fence in (3, 4):
            await shop.values.bucket.put(
                result_key(shop.app.config.namespace, job.id, fence), b".", blocking=False
            )
        await shop.values.remove_payload(job.id)
        await shop.values.remove_results(job.id)
        assert await shop.objects() == [payload_key(shop.app.config.namespace, other.id)]
        await shop.values.remove_payload(job.id)  # again: nothing is there
        await shop.values.remove_results(job.id)

    run(shop, story)


def test_an_import_that_is_a_new_job_needs_its_own_objects(folder_shop: Shop) -> None:
    shop = folder_shop

    async def story() -> None:
        job = NewJob(id=shop.new_id(), task="work", payload=b"x" * 100_000)
        ((first,),) = await shop.values.sent([[job]], unknown)
        ((again,),) = await shop.values.sent([[job]], unknown)
        assert first == again

    run(shop, story)
