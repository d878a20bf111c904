"""One plain job is written as its body alone: whoever counts, reads, or gives out numbers, sees it all the
same.
"""

import asyncio
import threading
from contextlib import closing
from pathlib import Path

import apsw
import msgspec
import pytest
from tests.broker.sqlite.children import QUEUE, new_job
from tests.broker.sqlite.files import new_file

from windlass.broker.contract import Options
from windlass.broker.sqlite import SqliteBroker, single
from windlass.clock import Clock, ManualClock
from windlass.core.event import Emit
from windlass.core.job import Refusal, Status
from windlass.core.lease import Ask
from windlass.core.query import JobQuery
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import StoreError


def opened(path: Path, options: Options | None = None, clock: Clock | None = None) -> SqliteBroker:
    broker = SqliteBroker(path, options=options, clock=clock)
    broker.blocking.declare([QUEUE])
    broker.blocking.enqueue([[new_job()]])  # the first of its task goes another way, which learns the task
    return broker


def unfiled(path: Path) -> int:
    """Jobs that the file has the bodies of, and nothing else."""
    with closing(apsw.Connection(str(path))) as file:
        sql = "SELECT COUNT(*) FROM body WHERE n > (SELECT number FROM namespace)"
        return file.execute(sql).fetchall()[0][0]


def counted(broker: SqliteBroker) -> int:
    return sum(row.count for row in broker.blocking.counts().rows)


def test_jobs_that_are_not_counted_yet_are_counted_by_who_reads(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    for _ in range(5):
        broker.blocking.enqueue([[new_job()]])
    broker.blocking.enqueue([[msgspec.structs.replace(new_job(), delay=1_000_000_000)]])
    assert unfiled(path) == 6, "it did not go the shortest way"
    rows = {row.state: row.count for row in broker.blocking.counts().rows}
    assert rows == {State.READY: 6, State.SCHEDULED: 1}
    broker.blocking.close()


def test_another_verb_counts_them_for_good(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    jobs = [new_job() for _ in range(5)]
    for job in jobs:
        broker.blocking.enqueue([[job]])
    more = [new_job() for _ in range(3)]
    broker.blocking.enqueue([more])
    assert unfiled(path) == 0
    assert counted(broker) == 9
    broker.blocking.beat([Beat(session="s", open=SessionInfo())])
    leases = broker.blocking.claim(Ask(session="s", seq=1, queues=("q",), slots=20, limit=20)).leases
    assert [lease.job for lease in leases][1:] == [job.id for job in (*jobs, *more)], "not in their order"
    broker.blocking.close()


def test_many_of_them_are_counted_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first claim after a million calls would have to count a million jobs."""
    monkeypatch.setattr(single, "MOST_UNFILED", 128)
    path = new_file(tmp_path)
    broker = opened(path)
    most = 0
    for _ in range(single.MOST_UNFILED):
        broker.blocking.enqueue([[new_job()]])
        most = max(most, unfiled(path))
    assert single.MOST_UNFILED // 2 <= most <= single.MOST_UNFILED // 2 + 2
    assert counted(broker) == single.MOST_UNFILED + 1
    broker.blocking.close()


def test_an_id_that_is_known_makes_no_second_job(tmp_path: Path) -> None:
    broker = opened(new_file(tmp_path))
    job = new_job()
    statuses = [broker.blocking.enqueue([[job]])[0][0].status for _ in range(2)]
    assert statuses == [Status.CREATED, Status.DUPLICATE]
    assert counted(broker) == 2
    broker.blocking.close()


def test_what_is_not_counted_yet_counts_for_the_size_of_the_store(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    for _ in range(5):
        broker.blocking.enqueue([[msgspec.structs.replace(new_job(), payload=b"x" * 100)]])
    assert unfiled(path) == 5
    broker.blocking.close()
    small = SqliteBroker(path, options=Options(max_size=750))
    large = msgspec.structs.replace(new_job(), payload=b"x" * 100)
    assert small.blocking.enqueue([[large]])[0][0].refusal is Refusal.STORE_FULL
    small.blocking.close()


@pytest.mark.parametrize("crowd", ["threads", "coroutines"])
def test_two_brokers_of_a_file_give_no_number_twice(tmp_path: Path, crowd: str) -> None:
    """A verb of the one between two calls of the other: neither remembers what the file's last number was."""
    path = new_file(tmp_path)
    brokers = [opened(path), opened(path)]

    def some(broker: SqliteBroker) -> None:
        for number in range(30):
            broker.blocking.enqueue([[new_job() for _ in range(1 + (number % 3 == 2))]])

    async def all_of(broker: SqliteBroker) -> None:
        await asyncio.gather(*(broker.enqueue([[new_job()]]) for _ in range(40)))

    if crowd == "threads":
        threads = [threading.Thread(target=some, args=(broker,)) for broker in brokers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for broker in brokers:
            asyncio.run(all_of(broker))
    assert counted(brokers[0]) == counted(brokers[1]) == 82
    for broker in brokers:
        broker.blocking.close()


def test_two_brokers_in_turns_go_the_shortest_way(tmp_path: Path) -> None:
    """What the one remembers of its last job is not true any more after the other's."""
    path = new_file(tmp_path)
    brokers = [opened(path), opened(path)]
    jobs = [new_job() for _ in range(20)]
    for number, job in enumerate(jobs):
        assert brokers[number // 2 % 2].blocking.enqueue([[job]])[0][0].status is Status.CREATED
        assert unfiled(path) == number + 1
    assert counted(brokers[0]) == 22
    for broker in brokers:
        broker.blocking.close()


def test_what_is_remembered_of_one_queue_is_not_taken_for_another(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    other = msgspec.structs.replace(QUEUE, subject=Subject(Kind.QUEUE, "other"))
    broker.blocking.declare([other])
    for queue in ("q", "other", "q", "q", "other", "nowhere", "q"):
        broker.blocking.enqueue([[msgspec.structs.replace(new_job(), queue=queue)]])
    assert unfiled(path) == 1, "the one behind the queue that is not there"
    rows = {row.queue: row.count for row in broker.blocking.counts().rows}
    assert rows == {"q": 5, "other": 2}
    broker.blocking.close()


def test_a_commit_that_fails_leaves_nothing_to_remember(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    broker.blocking.enqueue([[new_job()]])
    lost, kept = new_job(), new_job()
    with closing(apsw.Connection(str(path))) as other:
        connection = broker.store.writer._handle.connection
        connection.set_commit_hook(lambda: True)  # it becomes a rollback
        with pytest.raises(StoreError):
            broker.blocking.enqueue([[lost]])
        connection.set_commit_hook(None)
        # Another commit, after which the file has the version that the one that failed would have given it.
        other.execute("UPDATE namespace SET epoch = epoch + 1")
    assert broker.blocking.enqueue([[kept]])[0][0].status is Status.CREATED
    assert [job and job.id for job in broker.blocking.get([lost.id, kept.id])] == [None, kept.id]
    assert counted(broker) == 3
    broker.blocking.close()


def test_what_another_process_changed_of_a_queue_counts_at_once(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker, other = opened(path), SqliteBroker(path)
    broker.blocking.enqueue([[new_job()]])
    assert unfiled(path) == 1
    emitting = msgspec.structs.replace(QUEUE, body=QueueSettings(emit=Emit.ALL), revision=1)
    other.blocking.declare([emitting])
    assert unfiled(path) == 0
    broker.blocking.enqueue([[new_job()]])
    assert unfiled(path) == 0, "it went the shortest way, which tells nobody"
    for one in (broker, other):
        one.blocking.close()


def test_an_id_that_a_key_absorbed_makes_no_job(tmp_path: Path) -> None:
    broker = opened(new_file(tmp_path))
    holder, absorbed = new_job(), new_job()
    for job in (holder, absorbed):
        broker.blocking.enqueue([[msgspec.structs.replace(job, key="k")]])
    receipt = broker.blocking.enqueue([[absorbed]])[0][0]
    assert (receipt.status, receipt.of) == (Status.DUPLICATE, holder.id)
    broker.blocking.close()


@pytest.mark.parametrize("remembered", [True, False])
def test_a_clock_that_is_set_back_between_two_of_them_sends_the_second_another_way(
    tmp_path: Path, remembered: bool
) -> None:
    """It is due before the first and stands behind it: the shortest way does not say so."""
    path, clock = new_file(tmp_path), ManualClock(10**15)
    broker = opened(path, clock=clock)
    clock.advance(5 * SECOND)
    broker.blocking.enqueue([[new_job()]])
    assert unfiled(path) == 1
    clock.advance(-SECOND)
    other = broker if remembered else SqliteBroker(path, clock=clock)
    if not remembered:
        other.blocking.enqueue([[new_job("of another task")]])  # the long way, which learns queue and task
        clock.advance(2 * SECOND)
        other.blocking.enqueue([[new_job()]])
        other.blocking.enqueue([[new_job()]])
        clock.advance(10 * SECOND)
        broker.blocking.enqueue([[new_job()]])
        assert unfiled(path) > 0
        clock.advance(-SECOND)
    other.blocking.enqueue([[new_job()]])
    assert unfiled(path) == 0
    for one in {id(broker): broker, id(other): other}.values():
        one.blocking.close()


def test_a_store_with_a_most_size_is_filled_no_further_by_them(tmp_path: Path) -> None:
    broker = opened(new_file(tmp_path), Options(max_size=1_000))
    statuses = [broker.blocking.enqueue([[new_job()]])[0][0].status for _ in range(6)]
    assert statuses == [Status.CREATED] * 4 + [Status.REFUSED] * 2, "of 200 bytes each, and one is there"
    broker.blocking.close()


def test_one_that_is_ready_wakes_a_worker_and_one_that_is_not_does_not(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    told: list[object] = []
    broker.store.writer._arm = lambda armed: told.append(set(armed))
    broker.store.writer._ring = lambda: told.append("rung")
    broker.blocking.enqueue([[new_job()]])
    broker.blocking.enqueue([[msgspec.structs.replace(new_job(), delay=1_000_000_000)]])
    assert unfiled(path) == 2
    assert told == [{"q"}]
    broker.blocking.close()


READS = {
    "get": lambda said, job: said.get([job])[0].state is State.READY,
    "list": lambda said, job: job in {one.id for one in said.list(JobQuery()).jobs},
    "counts": lambda said, _job: sum(row.count for row in said.counts().rows) == 3,
    "explain": lambda said, job: said.explain(job).state is State.READY,
    "lanes": lambda said, _job: [(one.lane, one.ready) for one in said.lanes("q").lanes] == [("", 3)],
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("whose", ["its own", "another"])
def test_who_looks_for_jobs_has_them_filed(tmp_path: Path, name: str, whose: str) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    jobs = [new_job() for _ in range(2)]
    for job in jobs:
        broker.blocking.enqueue([[job]])
    reader = broker if whose == "its own" else SqliteBroker(path)
    assert unfiled(path) == 2
    assert READS[name](reader.blocking, jobs[1].id)
    assert unfiled(path) == 0
    for one in {id(broker): broker, id(reader): reader}.values():
        one.blocking.close()


def test_who_looks_for_something_else_or_for_what_is_filed_writes_nothing(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    (first,) = broker.blocking.list(JobQuery()).jobs
    broker.blocking.enqueue([[new_job()]])
    assert broker.blocking.get([first.id])[0] is not None
    assert broker.blocking.watch([first.id], 0.0) == ()
    assert broker.blocking.sessions() == ()
    assert broker.blocking.documents(Kind.LANE) == ()
    assert unfiled(path) == 1
    broker.blocking.close()


def test_a_read_comes_to_an_end_while_more_jobs_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = new_file(tmp_path)
    broker, other = opened(path), opened(path)
    readers = broker.store.readers
    file = readers._file

    def with_more() -> None:
        file()
        other.blocking.enqueue([[new_job()]])

    monkeypatch.setattr(readers, "_file", with_more)
    broker.blocking.enqueue([[new_job()]])
    assert counted(broker) == 3
    assert unfiled(path) == 1, "it came after the count"
    assert broker.blocking.get([new_job().id]) == (None,)
    for one in (broker, other):
        one.blocking.close()


def test_coroutines_read_what_is_not_filed(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = opened(new_file(tmp_path))
        jobs = [new_job() for _ in range(3)]
        for job in jobs:
            await broker.enqueue([[job]])
        found = await asyncio.gather(*(broker.get([job.id]) for job in jobs))
        assert [one and one.id for (one,) in found] == [job.id for job in jobs]
        await broker.close()

    asyncio.run(scenario())


def test_an_id_that_another_has_sent_and_nobody_filed_makes_no_second_job(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    brokers = [opened(path), opened(path)]
    jobs = [new_job() for _ in range(4)]
    for number, job in enumerate(jobs):
        brokers[number % 2].blocking.enqueue([[job]])
    assert unfiled(path) == 4
    for number, job in enumerate(jobs):
        for broker in brokers:
            receipt = broker.blocking.enqueue([[job]])[0][0]
            assert (receipt.status, receipt.of) == (Status.DUPLICATE, job.id), number
        brokers[number % 2].blocking.enqueue([[new_job()]])
    assert counted(brokers[0]) == 10
    for broker in brokers:
        broker.blocking.close()


def test_what_comes_alone_keeps_all_that_it_was_sent_with(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    sent = msgspec.structs.replace(
        new_job(),
        payload=b"p" * 100,
        headers={"h": "1"},
        tags=("a", "b"),
        priority=7,
        max_attempts=3,
        revision=4,
        flow="f",
        delay=5 * SECOND,
        expires=60 * SECOND,
    )
    broker.blocking.enqueue([[sent]])
    assert unfiled(path) == 1
    (found,) = broker.blocking.get([sent.id])
    assert found is not None
    for name in ("payload", "headers", "tags", "priority", "max_attempts", "revision", "flow"):
        assert getattr(found, name) == getattr(sent, name), name
    assert found.state is State.SCHEDULED
    assert (found.due_at - found.accepted_at, found.expires_at - found.accepted_at) == (
        5 * SECOND,
        60 * SECOND,
    )
    broker.blocking.close()


def test_a_large_one_goes_another_way(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    for size, behind in ((single.MOST_BYTES, 1), (single.MOST_BYTES + 1, 0)):
        broker.blocking.enqueue([[msgspec.structs.replace(new_job(), payload=b"x" * size)]])
        assert unfiled(path) == behind
    broker.blocking.close()


def test_a_file_of_layout_3_comes_along(tmp_path: Path) -> None:
    """With jobs that its counters know nothing of: that layout wrote heads and bodies, but no counts."""
    path = new_file(tmp_path)
    broker = opened(path)
    jobs = [new_job() for _ in range(5)]
    for job in jobs:
        broker.blocking.enqueue([[job]])
    before = broker.blocking.counts()
    broker.blocking.close()
    with closing(apsw.Connection(str(path))) as file:
        file.execute(_TO_LAYOUT_3)
    after = SqliteBroker(path)
    assert after.blocking.counts().rows == before.rows
    more = [new_job() for _ in range(2)]
    for job in more:
        after.blocking.enqueue([[job]])
    after.blocking.beat([Beat(session="s", open=SessionInfo())])
    leases = after.blocking.claim(Ask(session="s", seq=1, queues=("q",), slots=20, limit=20)).leases
    assert [lease.job for lease in leases][1:] == [job.id for job in (*jobs, *more)]
    with closing(apsw.Connection(str(path))) as file:
        sums = "SELECT (SELECT SUM(size) FROM job) = bytes FROM namespace"
        assert file.execute(sums).fetchall() == [(1,)]
    after.blocking.close()


_TO_LAYOUT_3 = """
    ALTER TABLE body DROP COLUMN head;
    UPDATE namespace SET number = number - 10,
        bytes = bytes - (SELECT SUM(size) FROM job WHERE n > namespace.number - 10);
    UPDATE tally SET count = count - 5;
    PRAGMA user_version = 3;
"""
