"""A disk that is full, or nearly: what was accepted is kept, and work goes on when there is room again."""

from pathlib import Path

import pytest
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.sqlite import SqliteBroker, filesystem
from windlass.broker.sqlite.filesystem import Space
from windlass.broker.sqlite.transaction import Transaction
from windlass.core.job import Refusal, Status
from windlass.errors import StoreError


def test_a_full_disk_fails_clearly_and_loses_nothing(tmp_path: Path) -> None:
    """SQLite's own limit on the size of a file gives the same error as a disk without room."""
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).declare([QUEUE])
    accepted: list[str] = []

    def limit(pages: int) -> None:
        def pragma(tx: Transaction) -> None:
            tx.all(f"PRAGMA max_page_count = {pages}")

        broker.store.writer.call(pragma)

    limit(200)

    def fill() -> None:
        for _ in range(1_000):
            jobs = [new_job() for _ in range(20)]
            assert broker.blocking.enqueue([jobs])[0][0].status is Status.CREATED
            accepted.extend(job.id for job in jobs)

    with pytest.raises(StoreError, match="disk is full"):
        fill()
    assert accepted
    assert sum(row.count for row in run(broker).counts().rows) == len(accepted)
    limit(100_000)
    broker.blocking.enqueue([[new_job()]])
    assert all(run(broker).get(accepted[-1_000:]))
    run(broker).close()


def test_enqueue_is_refused_while_little_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SqliteBroker(new_file(tmp_path))
    run(broker).declare([QUEUE])
    known = new_job()
    broker.blocking.enqueue([[known]])
    monkeypatch.setattr(filesystem, "RESERVE", 2**62)
    broker.store.space = Space(broker.store.path)
    receipt = broker.blocking.enqueue([[new_job()]])[0][0]
    assert (receipt.status, receipt.refusal) == (Status.REFUSED, Refusal.STORE_FULL)
    assert "MiB are free where" in receipt.why
    assert broker.blocking.enqueue([[known]])[0][0].status is Status.DUPLICATE
    run(broker).close()
