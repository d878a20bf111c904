"""The oldest ready job is found without an index of all of them, whatever their lanes, bands and past."""

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.broker.sqlite.files import new_file

from windlass.broker.contract import Options
from windlass.broker.sqlite import SqliteBroker, operate
from windlass.broker.sqlite.reading import seen_time
from windlass.clock import ManualClock
from windlass.core.ids import new_job_id
from windlass.core.job import Edge, NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Outcome
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND

STEPS = 250
QUEUES = {
    "plain": QueueSettings(),
    "lanes": QueueSettings(lane_concurrency=2),
    "aging": QueueSettings(age_step=SECOND),
    "in sequence": QueueSettings(sequence=True),
}
_TO_LAYOUT_2 = """
    DROP INDEX job_unfinished;
    DROP INDEX job_failed;
    DROP INDEX job_late;
    CREATE INDEX job_waiting ON job (q, due_at, sequence) WHERE state = 2;
    ALTER TABLE namespace DROP COLUMN numbered_at;
    PRAGMA user_version = 2;
"""


class Stage:
    """A store in which anything may have happened."""

    def __init__(self, path: Path, kind: str, seed: int) -> None:
        self.path, self.laned = path, kind != "plain"
        self.clock = ManualClock(10**15)
        self.random = random.Random(seed)
        self.held: list[Lease] = []
        self.ids = self.seq = 0
        self.open()
        self.said.declare(
            [Declaration(subject=Subject(Kind.QUEUE, "q"), body=QUEUES[kind], app="test")],
        )
        self.said.beat([Beat(session="s", open=SessionInfo())])

    def open(self) -> None:
        self.said = SqliteBroker(self.path, clock=self.clock).blocking

    def new(self, **more: object) -> NewJob:
        self.ids += 1
        identity = new_job_id(self.ids, self.random.randbytes(10))
        lane = self.random.choice(("", "a", "b", "c")) if self.laned else ""
        priority = self.random.choice((0, 0, 0, 5, -5))
        values = {"lane": lane, "priority": priority, "payload": b"", "max_attempts": 4} | more
        return NewJob(id=identity, task="t", queue="q", **values)  # type: ignore[arg-type]

    def step(self) -> None:
        match self.random.randrange(12):
            case 0 | 1 | 2:
                self.said.enqueue([[self.new()]])
            case 3:
                self.said.enqueue([[self.new() for _ in range(3)]])
            case 4:
                self.said.enqueue([[self.new(delay=self.random.randrange(5) * SECOND)]])
            case 5:
                parent = self.new()
                self.said.enqueue([[parent, self.new(after=(Edge(parent.id),))]])
            case 6 | 7:
                self.held.extend(self.claim(self.random.randrange(1, 5)))
            case 8 | 9 if self.held:
                lease = self.held.pop(self.random.randrange(len(self.held)))
                outcome = self.random.choice((Outcome.DONE, Outcome.RETRY, Outcome.RELEASE, Outcome.SNOOZE))
                delay = self.random.choice((0, SECOND)) if outcome in (Outcome.RETRY, Outcome.SNOOZE) else 0
                said = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, delay=delay)
                self.said.settle([said])
            case 10:
                self.clock.advance(self.random.choice((-HOUR, -SECOND, 1, SECOND, SECOND, HOUR)))
                self.said.beat([Beat(session="s")])
                self.said.sweep(limit=100)
            case _:
                self.clock.advance(self.random.randrange(-100, 1_000_000))

    def claim(self, count: int) -> Sequence[Lease]:
        self.seq += 1
        return self.said.claim(Ask(session="s", seq=self.seq, queues=("q",), slots=count, limit=count)).leases

    def check(self) -> None:
        with closing(apsw.Connection(str(self.path))) as file:
            sql = "SELECT mark, MIN(due_at) FROM namespace LEFT JOIN job NOT INDEXED ON state = 2"
            mark, due_at = file.execute(sql).fetchall()[0]
        now = seen_time(self.clock.now(), mark, Options())
        oldest = {} if due_at is None else {"q": max(0, now - due_at)}
        assert self.said.counts().oldest == oldest


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("seed", range(3))
def test_the_oldest_is_exact(kind: str, seed: int, tmp_path: Path) -> None:
    stage = Stage(new_file(tmp_path), kind, seed)
    for _ in range(STEPS):
        stage.step()
        stage.check()
    stage.said.close()


@pytest.mark.parametrize("kind", QUEUES)
def test_a_file_of_layout_2_comes_along(kind: str, tmp_path: Path) -> None:
    """With all that waits in it, and what comes later."""
    stage = Stage(new_file(tmp_path), kind, 7)
    for _ in range(STEPS):
        stage.clock.advance(1)  # never back: that layout did not tell late ones apart
        stage.said.enqueue([[stage.new(delay=stage.random.choice((0, 0, 1000)))]])
    stage.said.sweep(limit=100)
    before = stage.said.counts()
    stage.said.close()
    with closing(apsw.Connection(str(stage.path))) as file:
        file.execute(_TO_LAYOUT_2)
    stage.open()
    assert stage.said.counts() == before
    stage.held.clear()
    for _ in range(STEPS):
        stage.step()
        stage.check()
    stage.said.close()


def test_what_is_plain_is_in_no_index_but_that_of_its_place(tmp_path: Path) -> None:
    stage = Stage(new_file(tmp_path), "lanes", 0)
    stage.said.enqueue([[stage.new()] for _ in range(20)])
    stage.said.enqueue([[stage.new(lane="a")]])
    with closing(apsw.Connection(str(stage.path))) as file:
        late = "SELECT COUNT(*) FROM job WHERE state = 2 AND (sequence <> n + 1 OR line IS NOT NULL)"
        assert file.execute(late).fetchall() == [(0,)]
    stage.said.close()


def test_a_set_back_clock_goes_the_long_way(tmp_path: Path) -> None:
    """And so does all that comes until the clock has caught up."""
    stage = Stage(new_file(tmp_path), "plain", 0)
    for by in (0, SECOND, -HOUR, SECOND, SECOND, 2 * HOUR, -1, 0, 1, 1):
        stage.clock.advance(by)
        stage.said.enqueue([[stage.new()]])
        stage.said.enqueue([[stage.new(priority=0), stage.new(priority=0)]])
        stage.check()
    for _ in range(30):
        stage.claim(1)
        stage.check()
    stage.said.close()


def test_a_limited_purge_takes_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many as it looks at, whatever their lanes and bands."""
    stage = Stage(new_file(tmp_path), "lanes", 1)
    jobs = [stage.new() for _ in range(30)]
    for job in jobs:
        stage.said.enqueue([[job]])
    assert (purged := stage.said.purge("q", State.READY, 7)).count == 7
    assert purged.more
    states = [detail is not None and detail.state for detail in stage.said.get([job.id for job in jobs])]
    assert states == [State.CANCELLED] * 7 + [State.READY] * 23
    monkeypatch.setattr(operate, "LOOKED_AT", 3)
    assert stage.said.purge("q", State.READY, 22).more
    last = stage.said.purge("q", State.READY, 22)
    assert (last.count, last.more) == (1, False)
    stage.said.close()
