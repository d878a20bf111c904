"""What each store tells the reader of history: worker, error, tags, key and who enqueued."""

import asyncio
from pathlib import Path

from tests.bridges.stores import namespaces, open_broker, redis_server

from windlass.conformance.harness import Harness, OpenBroker
from windlass.core.enqueuer import Enqueuer, header_of
from windlass.core.event import Emit
from windlass.core.outcome import CauseKind, Error, Outcome
from windlass.core.units import HOUR, SECOND
from windlass.observe.history.reader import HistoryReader
from windlass.observe.history.sink import open_sink

__all__ = ["namespaces", "open_broker", "redis_server"]

FAILURE = Error(type="ValueError", message="no such user", traceback="…", fingerprint="f")


def test_each_store_tells_what_history_keeps(open_broker: OpenBroker, tmp_path: Path) -> None:
    async def main() -> None:
        store = await Harness.open(open_broker)
        await store.queue("q", emit=Emit.FINAL)
        sink = await open_sink(f"sqlite:///{tmp_path / 'history.db'}", store.broker)
        reader = HistoryReader(store.broker, sink, "s")
        by = header_of(Enqueuer(app="shop", host="web-1", key="ci"))
        options = {"lane": "acme", "tags": ("a",), "headers": by, "max_attempts": 9}
        job = await store.add(task="t", key="order-1", **options)
        accepted = (await store.get(job)).accepted_at
        worker = await store.worker(slots=4, host="box")
        store.advance(2 * SECOND)
        await store.retry(await worker.one(), error=FAILURE, runtime=SECOND)
        await worker.one()
        await worker.end(CauseKind.LOST)
        last = await store.worker(slots=4, host="other")
        store.advance(HOUR)
        lease = await last.one()
        await store.done(lease, b"1", runtime=3 * SECOND)
        plain = [await store.add(task="plain") for _ in range(12)]  # many alike, done at once
        for lease in await last.take(12):
            await store.done(lease, runtime=5)
        assert await reader.step() == 15
        trail = await sink.trail("s", job)
        assert trail.enqueued is not None
        said = trail.enqueued
        assert (said.at, said.key, said.by_app, said.by_host, said.by_key, said.lane, said.tags) == (
            accepted, "order-1", "shop", "web-1", "ci", "acme", ("a",),
        )  # fmt: skip
        assert [
            (each.outcome, each.worker_id, each.host, each.error_type, each.fingerprint)
            for each in trail.attempts
        ] == [
            (Outcome.RETRY, worker.id, "box", "ValueError", "f"),
            (Outcome.RETRY, worker.id, "box", "lost", "lost"),
            (Outcome.DONE, last.id, "other", "", ""),
        ]
        started = [each.started_at for each in trail.attempts]
        assert started[0] == accepted + 2 * SECOND
        assert None not in started
        for one in plain:
            (attempt,) = (await sink.trail("s", one)).attempts
            assert (attempt.worker_id, attempt.host, attempt.run) == (last.id, "other", 5)
        await sink.close()
        await store.close()

    asyncio.run(main())
