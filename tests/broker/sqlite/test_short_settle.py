"""Plain runs that are done are settled in a few statements; the file judges, not the memory behind them."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw

from windlass.broker.sqlite import SqliteBroker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State


async def handed_out(broker: SqliteBroker, count: int) -> tuple[Lease, ...]:
    await broker.declare(
        [Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="test", revision=1)]
    )
    await broker.beat([Beat(session="s", open=SessionInfo())])
    ids = [new_job_id(number, bytes(10)) for number in range(1, count + 1)]
    await broker.enqueue([[NewJob(id=each, task="t", queue="q", payload=b"{}") for each in ids]])
    claimed = await broker.claim(Ask(session="s", seq=1, queues=("q",), slots=count, limit=count))
    return claimed.leases


def done(lease: Lease, fence: int | None = None) -> Settlement:
    return Settlement(job=lease.job, fence=fence or lease.fence, outcome=Outcome.DONE, runtime=1)


def test_one_that_another_connection_has_ended_is_told_so_and_harms_no_neighbour(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await SqliteBroker.open(tmp_path / "w.db")
        other = await SqliteBroker.open(tmp_path / "w.db")
        first, second, third = await handed_out(broker, 3)
        await other.settle([Settlement(job=second.job, fence=second.fence, outcome=Outcome.DEAD)])
        settled = await broker.settle([done(first), done(second), done(third)])
        verdicts = [(answer.verdict, answer.state) for answer in settled.answers]
        assert verdicts == [
            (Verdict.APPLIED, State.DONE),
            (Verdict.ALREADY, State.DEAD),
            (Verdict.APPLIED, State.DONE),
        ]
        again = await broker.settle([done(first), done(third)])
        assert {answer.verdict for answer in again.answers} == {Verdict.ALREADY}
        counts = await broker.counts()
        assert [each.count for each in counts.rows if each.state is State.RUNNING and each.count] == []
        await broker.close()
        await other.close()

    asyncio.run(main())


def test_its_record_of_delivery_is_short_and_says_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await SqliteBroker.open(tmp_path / "w.db")
        short, whole = await handed_out(broker, 2)
        await broker.settle([done(short)])
        await broker.settle([done(whole), Settlement(job=whole.job, fence=1, outcome=Outcome.DONE)])
        first, second = await broker.get([short.job, whole.job])
        await broker.close()
        assert first is not None
        assert second is not None
        (mine,), (other,) = first.deliveries, second.deliveries
        same = (
            "fence",
            "attempt",
            "session",
            "claimed_at",
            "outcome",
            "settled",
            "cause",
            "runtime",
            "error",
        )
        assert [getattr(mine, name) for name in same] == [getattr(other, name) for name in same]
        assert mine.session == "s"
        assert mine.claimed_at <= mine.ended_at <= other.ended_at
        assert first.finished_at == mine.ended_at

    asyncio.run(main())
    with closing(apsw.Connection(str(tmp_path / "w.db"))) as file:
        sizes = [size for (size,) in file.execute("SELECT LENGTH(record) FROM delivery ORDER BY n")]
    assert sizes[0] < 20 < 100 < sizes[1]


def test_failures_and_jobs_that_said_something_go_beside_plain_ones(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await SqliteBroker.open(tmp_path / "w.db")
        leases = await handed_out(broker, 4)
        plain, failed, spoke, kept = leases
        await broker.annotate([Note(job=spoke.job, fence=spoke.fence, permille=500)])
        items = [
            done(plain),
            Settlement(job=failed.job, fence=failed.fence, outcome=Outcome.RETRY, delay=10, runtime=1),
            done(spoke),
            Settlement(job=kept.job, fence=kept.fence, outcome=Outcome.DONE, runtime=7, result=b"42"),
        ]
        settled = await broker.settle(items)
        assert [answer.state for answer in settled.answers] == [
            State.DONE,
            State.SCHEDULED,
            State.DONE,
            State.DONE,
        ]
        details = await broker.get([lease.job for lease in leases])
        assert [detail and detail.result for detail in details] == [None, None, None, b"42"]
        assert [detail and len(detail.deliveries) for detail in details] == [1, 1, 1, 1]
        await broker.close()

    asyncio.run(main())
