"""Producers and workers on one file that die, freeze and repeat themselves, and an audit of their ledgers."""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import apsw
import msgspec
import pytest
from tests.broker.sqlite.audit import Audit, Facts
from tests.broker.sqlite.blocking import run
from tests.broker.sqlite.chaos import QUEUES, VISIBILITY, now, read
from tests.broker.sqlite.files import new_file
from tests.broker.sqlite.processes import ROOT

from windlass.broker.sqlite import SqliteBroker
from windlass.core.job import JobDetail
from windlass.core.outcome import Cause, CauseKind
from windlass.core.query import FIRST_PAGE, JobQuery
from windlass.core.session import Beat, SessionInfo
from windlass.core.settings import Declaration, Kind, Subject
from windlass.core.state import State

TTL = 2_000_000
PRODUCERS, WORKERS, KILLS, FREEZES = 2, 4, 12, 3


class Member(msgspec.Struct, kw_only=True):
    process: subprocess.Popen[bytes]
    ledger: Path
    session: str


class Supervisor:
    """Starts, kills and freezes processes, and beats and sweeps meanwhile."""

    def __init__(self, folder: Path, broker: SqliteBroker, draw: random.Random, stack: ExitStack) -> None:
        self.folder, self.broker, self.draw, self.stack = folder, broker, draw, stack
        self.names = itertools.count(1)
        self.beating: set[str] = set()
        self.facts = Facts()
        self.over = threading.Event()
        self.pass_made = threading.Condition()
        self.team: list[Member] = []
        self.passes = 0

    def begin(self, what: str) -> Member:
        name = f"{what}{next(self.names)}"
        session = "-" if what != "worker" or self.draw.random() < 0.25 else f"session-{name}"
        if session != "-":
            run(self.broker).beat([Beat(session=session, open=SessionInfo(ttl=TTL))])
            self.beating.add(session)
        seed = str(self.draw.randrange(2**32))
        command = [
            sys.executable,
            "-m",
            "tests.broker.sqlite.chaos",
            what,
            str(self.broker.store.path),
            name,
            seed,
        ]
        process = subprocess.Popen([*command, session, str(self.folder)], cwd=ROOT)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return Member(process=process, ledger=self.folder / name, session=session)

    def tend(self) -> None:
        """Beat, then sweep: a beating session is silent for one step at the most, however slow this is."""
        while not self.over.wait(0.03):
            run(self.broker).beat([Beat(session=session) for session in tuple(self.beating)])
            before = now()
            swept = run(self.broker).sweep(limit=500)
            with self.pass_made:
                self.facts.ends |= {session: (before, now()) for session in swept.reaped}
                self.facts.reaped.update(swept.reaped)
                self.passes += 1
                self.pass_made.notify_all()

    def make_trouble(self) -> None:
        """Kill and freeze workers while producers produce."""
        producers = [self.begin("producer") for _ in range(PRODUCERS)]
        self.team = [self.begin("worker") for _ in range(WORKERS)]
        plan = [self.kill] * KILLS + [self.freeze] * FREEZES
        self.draw.shuffle(plan)
        plan.insert(0, self.freeze)  # while there is much to do for certain
        for act in plan:
            assert not self.over.wait(self.draw.uniform(0.3, 1.2))
            self.replace_dead()
            freezes = act == self.freeze and self.draw.random() < 0.8
            member = self.draw.choice(
                [one for one in self.team if not freezes or one.session != "-"] or self.team
            )
            if act(member):
                self.team[self.team.index(member)] = self.begin("worker")
        assert [producer.process.wait(40) for producer in producers] == [0] * PRODUCERS

    def drain(self) -> None:
        """Let the workers finish everything."""
        (self.folder / "drain").touch()
        end = now() + 40_000_000
        while not self.comes(self.drained, 1):
            assert now() < end, run(self.broker).counts()
            self.replace_dead()
        (self.folder / "stop").touch()
        assert [member.process.wait(10) for member in self.team] == [0] * WORKERS
        for member in self.team:
            self.facts.ends[member.session] = (now(), now())
            run(self.broker).end_session(member.session, Cause(CauseKind.STOP))

    def replace_dead(self) -> None:
        """See which workers a job has killed."""
        for i, member in enumerate(self.team):
            if member.process.poll() is not None:
                assert member.process.returncode == -signal.SIGKILL, f"{member} has failed"
                self.kill(member)
                self.team[i] = self.begin("worker")

    def drained(self) -> bool:
        states = {row.state for row in run(self.broker).counts().rows if row.count}
        return not states & {State.READY, State.SCHEDULED, State.RUNNING}

    def comes(self, what: Callable[[], bool], timeout: float) -> bool:
        with self.pass_made:
            return self.pass_made.wait_for(what, timeout)

    def kill(self, member: Member) -> bool:
        member.process.kill()
        member.process.wait()
        self.facts.killed += 1
        self.beating.discard(member.session)
        if member.session == "-" or self.draw.random() < 0.2:
            self.facts.silenced.add(member.session)  # nobody saw it die
            return True
        started = [(line[2], line[3]) for line in read(member.ledger) if line[0] == "start"]
        before = now()
        run(self.broker).end_session(member.session, Cause(CauseKind.CRASH, "signal 9"), started)
        self.facts.ends[member.session] = (before, now())
        return True

    def freeze(self, member: Member) -> bool:
        """Stop a worker past its TTL; whether it has ended since."""
        if not any(self.stopped(member) for _ in range(20)):
            return False
        since = now()
        self.beating.discard(member.session)
        self.facts.silenced.add(member.session)
        assert self.comes(lambda: member.session in {*self.facts.ends, "-"}, 15), "not reaped"
        assert self.comes(lambda: now() > since + VISIBILITY + 200_000, 15)
        self.facts.frozen += 1
        member.process.send_signal(signal.SIGCONT)
        if member.session != "-":
            assert member.process.wait(20) in (0, -signal.SIGKILL), "a worker that lost its session leaves"
        return member.process.poll() is not None

    def stopped(self, member: Member) -> bool:
        """Try to stop a worker that holds leases and does not hold the file's lock, or the turn for it."""
        member.process.send_signal(signal.SIGSTOP)
        passes = self.passes
        if self.comes(lambda: self.passes > passes + 2, 1) and member.process.poll() is None:
            leases = {word: set[tuple[str, int]]() for word in ("got", "try")}
            for line in read(member.ledger):
                if line[0] in leases:
                    leases[line[0]].add((line[2], line[3]))
            if leases["got"] - leases["try"]:
                return True
        member.process.send_signal(signal.SIGCONT)
        self.comes(lambda: False, 0.05)
        return False


@pytest.mark.slow
def test_whatever_dies_the_ledgers_agree_with_the_file(tmp_path: Path) -> None:
    seed = int(os.environ.get("WINDLASS_CHAOS_SEED") or random.randrange(2**32))
    sys.stdout.write(f"WINDLASS_CHAOS_SEED={seed}\n")  # shown when the test fails
    broker = SqliteBroker(new_file(tmp_path))
    subjects = {name: Subject(Kind.QUEUE, name) for name in QUEUES}
    run(broker).declare([Declaration(subject=subjects[q], body=QUEUES[q], app="test") for q in QUEUES])
    (folder := tmp_path / "ledgers").mkdir()
    with ExitStack() as stack:
        supervisor = Supervisor(folder, broker, random.Random(seed), stack)
        tending = stack.enter_context(ThreadPoolExecutor(1)).submit(supervisor.tend)
        stack.callback(supervisor.over.set)
        supervisor.make_trouble()
        supervisor.drain()
        supervisor.over.set()
        tending.result(10)
    lines = [line for path in sorted(folder.iterdir()) for line in read(path)]
    audit = Audit(lines, supervisor.facts, _everything(broker))
    problems = [*audit.problems(), *_of_counts(broker, audit.jobs)]
    sys.stdout.write(f"{audit.summary()}\n")
    assert not problems, "\n".join([f"{len(problems)} problems, seed {seed}", *problems[:20]])
    path = broker.store.path
    run(broker).close()
    assert apsw.Connection(str(path)).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _everything(broker: SqliteBroker) -> list[JobDetail]:
    cursor, found = FIRST_PAGE, list[JobDetail]()
    while cursor is not None:
        page = run(broker).list(JobQuery(), cursor, 500)
        found += [job for job in run(broker).get([view.id for view in page.jobs]) if job is not None]
        cursor = page.cursor
    return found


def _of_counts(broker: SqliteBroker, jobs: dict[str, JobDetail]) -> Iterator[str]:
    listed = Counter((job.queue, job.task, job.state) for job in jobs.values())
    counted = {(row.queue, row.task, row.state): row.count for row in run(broker).counts().rows if row.count}
    if counted != listed:
        yield f"counts {counted}, listed {dict(listed)}"
    yield from (f"{view.id} has leases" for view in run(broker).sessions() if view.leases)
    for queue in QUEUES:
        yield from (f"{lane} runs" for lane in run(broker).lanes(queue).lanes if lane.running)
