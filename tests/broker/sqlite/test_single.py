"""One plain job is written without counters: whoever counts, or gives out numbers, sees it all the same."""

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


def uncounted(path: Path) -> int:
    """Jobs that the file's counters know nothing of."""
    with closing(apsw.Connection(str(path))) as file:
        sql = "SELECT COUNT(*) FROM job WHERE n > (SELECT number FROM namespace)"
        return file.execute(sql).fetchall()[0][0]


def counted(broker: SqliteBroker) -> int:
    return sum(row.count for row in broker.blocking.counts().rows)


def test_jobs_that_are_not_counted_yet_are_counted_by_who_reads(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    broker = opened(path)
    for _ in range(5):
        broker.blocking.enqueue([[new_job()]])
    broker.blocking.enqueue([[msgspec.structs.replace(new_job(), delay=1_000_000_000)]])
    assert uncounted(path) == 6, "it did not go the shortest way"
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
    assert uncounted(path) == 0
    assert counted(broker) == 9
    broker.blocking.beat([Beat(session="s", open=SessionInfo())])
    leases = broker.blocking.claim(Ask(session="s", seq=1, queues=("q",), slots=20, limit=20)).leases
    assert [lease.job for lease in leases][1:] == [job.id for job in (*jobs, *more)], "not in their order"
    broker.blocking.close()


def test_many_of_them_are_counted_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first claim after a million calls would have to count a million jobs."""
    monkeypatch.setattr(single, "MOST_UNCOUNTED", 128)
    path = new_file(tmp_path)
    broker = opened(path)
    most = 0
    for _ in range(single.MOST_UNCOUNTED):
        broker.blocking.enqueue([[new_job()]])
        most = max(most, uncounted(path))
    assert single.MOST_UNCOUNTED // 2 <= most <= single.MOST_UNCOUNTED // 2 + 2
    assert counted(broker) == single.MOST_UNCOUNTED + 1
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
    assert uncounted(path) == 5
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
        assert uncounted(path) == number + 1
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
    assert uncounted(path) == 1, "the one behind the queue that is not there"
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
    assert uncounted(path) == 1
    emitting = msgspec.structs.replace(QUEUE, body=QueueSettings(emit=Emit.ALL), revision=1)
    other.blocking.declare([emitting])
    assert uncounted(path) == 0
    broker.blocking.enqueue([[new_job()]])
    assert uncounted(path) == 0, "it went the shortest way, which tells nobody"
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
    assert uncounted(path) == 1
    clock.advance(-SECOND)
    other = broker if remembered else SqliteBroker(path, clock=clock)
    if not remembered:
        other.blocking.enqueue([[new_job("of another task")]])  # the long way, which learns queue and task
        clock.advance(2 * SECOND)
        other.blocking.enqueue([[new_job()]])
        other.blocking.enqueue([[new_job()]])
        clock.advance(10 * SECOND)
        broker.blocking.enqueue([[new_job()]])
        assert uncounted(path) > 0
        clock.advance(-SECOND)
    other.blocking.enqueue([[new_job()]])
    assert uncounted(path) == 0
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
    assert uncounted(path) == 2
    assert told == [{"q"}]
    broker.blocking.close()


def test_an_id_that_another_has_sent_and_nobody_counted_makes_no_second_job(tmp_path: Path) -> None:
    path = new_file(tmp_path)
    brokers = [opened(path), opened(path)]
    jobs = [new_job() for _ in range(4)]
    for number, job in enumerate(jobs):
        brokers[number % 2].blocking.enqueue([[job]])
    assert uncounted(path) == 4
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
    assert uncounted(path) == 1
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
