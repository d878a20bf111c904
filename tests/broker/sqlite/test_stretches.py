"""Jobs that stand side by side in the file are claimed and ended by their first and last number; only they
are.
"""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from windlass.broker.sqlite import SqliteBroker
from windlass.core.ids import new_job_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.operate import Target
from windlass.core.outcome import Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import JobId

ALL = 30


async def opened(path: Path) -> SqliteBroker:
    broker = await SqliteBroker.open(path)
    await broker.declare(
        [Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="test", revision=1)]
    )
    await broker.beat([Beat(session="s", open=SessionInfo())])
    return broker


async def enqueued(broker: SqliteBroker, count: int = ALL, **options: int) -> list[JobId]:
    ids = [new_job_id(number, bytes(10)) for number in range(1, count + 1)]
    jobs = [NewJob(id=each, task="t", queue="q", payload=b"{}", **options) for each in ids]  # pyright: ignore[reportArgumentType]
    await broker.enqueue([jobs])
    return ids


async def claimed(broker: SqliteBroker, seq: int, limit: int = ALL) -> tuple[Lease, ...]:
    return (await broker.claim(Ask(session="s", seq=seq, queues=("q",), slots=limit, limit=limit))).leases


def end(lease: Lease, outcome: Outcome = Outcome.DONE) -> Settlement:
    runtime = None if outcome is Outcome.RELEASE else 1
    return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=runtime)


async def states(broker: SqliteBroker, jobs: Sequence[JobId]) -> list[State | None]:
    return [detail and detail.state for detail in await broker.get(jobs)]


def lease_numbers(path: Path) -> int:
    """How many numbers the leases have that are held: one for all, if they are a stretch."""
    with closing(apsw.Connection(str(path))) as file:
        return file.execute("SELECT COUNT(DISTINCT lease) FROM job WHERE session IS NOT NULL").fetchall()[0][
            0
        ]


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_part_without_a_gap_ends_and_nothing_beside_it(tmp_path: Path, order: str) -> None:
    async def main() -> None:
        broker = await opened(tmp_path / "w.db")
        ids = await enqueued(broker)
        leases = await claimed(broker, 1)
        assert [lease.job for lease in leases] == ids
        assert lease_numbers(tmp_path / "w.db") == 1
        part = leases[10:20] if order == "forwards" else leases[19:9:-1]
        settled = await broker.settle([end(lease) for lease in part])
        assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}
        assert await states(broker, ids) == [State.RUNNING] * 10 + [State.DONE] * 10 + [State.RUNNING] * 10
        rest = [end(lease) for lease in (*leases[:10], *leases[20:])]
        assert {answer.verdict for answer in (await broker.settle(rest)).answers} == {Verdict.APPLIED}
        assert await states(broker, ids) == [State.DONE] * ALL
        details = await broker.get(ids)
        assert {detail and len(detail.deliveries) for detail in details} == {1}
        await broker.close()

    asyncio.run(main())


@pytest.mark.parametrize("left", [[5], [1, 28], [0, 14, 29]])
def test_what_still_runs_in_between_goes_on(tmp_path: Path, left: list[int]) -> None:
    async def main() -> None:
        broker = await opened(tmp_path / "w.db")
        ids = await enqueued(broker)
        leases = await claimed(broker, 1)
        ended = [end(lease) for place, lease in enumerate(leases) if place not in left]
        settled = await broker.settle(ended)
        assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}
        found = await states(broker, ids)
        assert [place for place, state in enumerate(found) if state is State.RUNNING] == left
        await broker.close()

    asyncio.run(main())


def test_one_that_was_taken_away_is_told_so_and_its_neighbours_are_done(tmp_path: Path) -> None:
    async def main() -> None:
        broker, other = await opened(tmp_path / "w.db"), await SqliteBroker.open(tmp_path / "w.db")
        ids = await enqueued(broker)
        leases = await claimed(broker, 1)
        taken, stopped = leases[7], leases[9]
        await other.settle([end(taken, Outcome.RELEASE)])
        await other.cancel([Target(job=stopped.job)])
        await other.beat([Beat(session="o", open=SessionInfo())])
        (again,) = (await other.claim(Ask(session="o", seq=1, queues=("q",), slots=1, limit=1))).leases
        assert again.job == taken.job
        settled = await broker.settle([end(lease) for lease in leases])
        verdicts = [answer.verdict for answer in settled.answers]
        assert [place for place, verdict in enumerate(verdicts) if verdict is not Verdict.APPLIED] == [7]
        expected = [State.DONE] * ALL
        expected[7] = State.RUNNING
        assert await states(broker, ids) == expected
        await broker.close()
        await other.close()

    asyncio.run(main())


def test_what_is_ready_in_between_and_not_next_is_not_claimed(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await opened(tmp_path / "w.db")
        ids = await enqueued(broker)
        leases = await claimed(broker, 1, 6)
        # One goes to the end of the line, behind those that came after it; the others keep their places.
        retried = Settlement(job=ids[2], fence=leases[2].fence, outcome=Outcome.RETRY, runtime=1)
        back = [end(lease, Outcome.RELEASE) for lease in leases if lease.job != ids[2]]
        await broker.settle([*back, retried])
        again = await claimed(broker, 2, ALL - 1)
        assert [lease.job for lease in again] == [*ids[:2], *ids[3:]]
        found = await states(broker, ids)
        assert [place for place, state in enumerate(found) if state is State.READY] == [2]
        settled = await broker.settle([end(lease) for lease in again])
        assert {answer.verdict for answer in settled.answers} == {Verdict.APPLIED}
        assert (await states(broker, ids))[2] is State.READY
        await broker.close()

    asyncio.run(main())


def test_leases_of_one_number_end_with_their_session_in_the_order_of_their_claim(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await opened(tmp_path / "w.db")
        ids = await enqueued(broker)
        await claimed(broker, 1)
        assert lease_numbers(tmp_path / "w.db") == 1
        ended = await broker.end_session("s", Cause(CauseKind.STOP), ())
        assert [move.job for move in ended.moved] == ids
        assert await states(broker, ids) == [State.READY] * ALL
        await broker.close()

    asyncio.run(main())
