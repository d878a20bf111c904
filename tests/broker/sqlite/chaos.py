"""Processes of `test_chaos`: `python -m tests.broker.sqlite.chaos what file name seed session folder`.

Every process appends what it did to a ledger of its own, one JSON list a line: `[word, time, …]`.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from tests.broker.sqlite.blocking import run

from windlass.broker.sqlite import SqliteBroker
from windlass.core.ids import new_job_id
from windlass.core.job import Edge, Mode, NewJob, Receipt, Status
from windlass.core.lease import Ask, Asker, Claimed, Lease
from windlass.core.operate import Target
from windlass.core.outcome import Outcome, Verdict
from windlass.core.settings import QueueSettings
from windlass.core.settlement import Settlement

QUEUES = {
    "plain": QueueSettings(),
    "lanes": QueueSettings(lane_concurrency=1),
    "narrow": QueueSettings(concurrency=2),
}
VISIBILITY = 2_000_000
JOBS = 2_500
POISON = b"poison"
"""A payload that kills its worker, more often than not."""
Line = list[Any]


class Ledger:
    """What one process did. A line is in the file when the call returns, whoever dies then."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, lines: Sequence[Line]) -> None:
        if lines:
            os.write(self._file, b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def read(path: Path) -> list[Line]:
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    return [msgspec.json.decode(line) for line in whole.splitlines()]


def now() -> int:
    return time.monotonic_ns() // 1_000


def new_job(draw: random.Random, **options: Any) -> NewJob:
    return NewJob(id=new_job_id(time.time_ns() // 1_000_000, draw.randbytes(10)), task="t", **options)


# producers


def produce(broker: SqliteBroker, ledger: Ledger, draw: random.Random, name: str) -> None:
    made = 0
    while made < JOBS:
        jobs = [asked_for(draw, name) for _ in range(1 if draw.random() < 0.6 else draw.randrange(2, 100))]
        if draw.random() < 0.1:
            jobs.append(new_job(draw, queue="plain", max_attempts=50, after=(Edge(jobs[0].id),)))
        made += len(jobs)
        before = now()
        receipts = broker.blocking.enqueue([jobs])[0]
        ledger.write([acknowledged(before, *pair) for pair in zip(jobs, receipts, strict=True)])
        if draw.random() < 0.1:
            again = broker.blocking.enqueue([jobs])[0]
            if [(one.status, one.of) for one in again] != [resent(one) for one in receipts]:
                ledger.write([["odd", now(), f"resent: {receipts} then {again}"]])
        if draw.random() < 0.05:
            ledger.write([["cancel", now(), jobs[0].id]])
            run(broker).cancel([Target(jobs[0].id)])


def asked_for(draw: random.Random, name: str) -> NewJob:
    queue = draw.choices(list(QUEUES), [70, 25, 5])[0]
    options: dict[str, Any] = {"queue": queue, "lane": f"l{draw.randrange(8)}" if queue == "lanes" else ""}
    if draw.random() < 0.15:
        mode = draw.choice(list(Mode))
        options |= {
            "key": f"{name}-{mode}-{draw.randrange(10)}",
            "mode": mode,
            "window": draw.choice([0, 50_000]),
        }
    delay = draw.randrange(1_000_000) if draw.random() < 0.15 else 0
    options |= {
        "delay": delay,
        "priority": draw.choice([0, 0, 5]),
        "max_attempts": draw.choice([2, 5, 25, 50]),
    }
    poison = draw.random() < 0.003 and "key" not in options
    return new_job(draw, payload=POISON if poison else draw.randbytes(8).hex().encode(), **options)


def acknowledged(before: int, job: NewJob, receipt: Receipt) -> Line:
    place = [job.key, job.queue, job.lane] if job.mode is Mode.REPLACE else None
    return ["ack", before, job.id, receipt.status, receipt.of, job.delay, job.payload.decode(), place]


def resent(first: Receipt) -> tuple[Status, str | None]:
    return (Status.DUPLICATE, first.job) if first.status is Status.CREATED else (first.status, first.of)


# workers


class Worker:
    """Takes some leases, starts a few of them, ends those, and so on; without a session, by deadline."""

    def __init__(
        self, broker: SqliteBroker, ledger: Ledger, draw: random.Random, session: str, folder: Path
    ) -> None:
        self.verbs, self.ledger, self.draw, self.folder = run(broker), ledger, draw, folder
        self.session = None if session == "-" else session
        self.held: list[Lease] = []
        self.running: list[Lease] = []
        self.ended: list[Lease] = []
        self.seq = self.asked_at = self.suspects = 0

    def run(self) -> None:
        while not (self.folder / "stop").exists():
            ask = self.ask() if not self.running or self.draw.random() < 0.4 else None
            claimed = self.settle(ask) if self.running else self.claim(ask)
            if claimed is not None and claimed.session is Asker.LOST:
                self.running += self.held
                self.settle(None)  # late words: none of them may count
                return
            if claimed is not None:
                self.take(claimed)
            self.start()
            if not self.running:
                self.verbs.wait(tuple(QUEUES), 0.1)

    def ask(self) -> Ask:
        self.seq, self.asked_at = self.seq + 1, now()
        room = max(1, 10 - len(self.held))
        options: dict[str, Any] = {"visibility": VISIBILITY}
        if self.session is not None:
            alone = self.suspects > 0 and self.draw.random() < 0.5
            options = {"session": self.session, "seq": self.seq, "alone": alone}
        queues = tuple(self.draw.sample(list(QUEUES), len(QUEUES)))
        return Ask(queues=queues, slots=self.draw.randint(1, room), limit=room, **options)

    def claim(self, ask: Ask | None) -> Claimed:
        assert ask is not None
        claimed = self.verbs.claim(ask)
        if self.repeats(ask):
            self.same(claimed, self.verbs.claim(ask))
        return claimed

    def settle(self, ask: Ask | None) -> Claimed | None:
        items = [self.word(lease) for lease in self.running]
        lines = [["try", now(), i.job, i.fence, i.outcome, *(c.id for c in i.spawn)] for i in items]
        self.ledger.write(lines)
        if self.ended and self.draw.random() < 0.1:  # another word about a lease that has ended
            items.insert(0, self.word(self.draw.choice(self.ended)))
        if items and self.draw.random() < 0.1:  # the same twice in one call
            items.append(items[0])
        settled = self.verbs.settle(items, ask)
        said = [
            ["said", now(), i.job, i.fence, i.outcome, a.verdict]
            for i, a in zip(items, settled.answers, strict=True)
        ]
        self.ledger.write(said)
        if self.repeats(ask):
            again = self.verbs.settle(items, ask)
            for item, one, other in zip(items, settled.answers, again.answers, strict=True):
                wanted = Verdict.ALREADY if one.verdict is Verdict.APPLIED else one.verdict
                if (other.verdict, other.outcome) != (wanted, one.outcome):
                    self.ledger.write([["odd", now(), f"settled again {item}: {one} then {other}"]])
            self.same(settled.claimed, again.claimed)
        self.ended = [*self.ended, *self.running][-20:]
        self.running = []
        return settled.claimed

    def repeats(self, ask: Ask | None) -> bool:
        return (ask is None or self.session is not None) and self.draw.random() < 0.1

    def same(self, one: Claimed | None, other: Claimed | None) -> None:
        if one is None or other is None or other.session is Asker.LOST:
            return
        if [(lease.job, lease.fence) for lease in one.leases] != [
            (lease.job, lease.fence) for lease in other.leases
        ]:
            self.ledger.write([["odd", now(), f"asked again: {one.leases} then {other.leases}"]])

    def word(self, lease: Lease) -> Settlement:
        outcomes = [Outcome.DONE, Outcome.RETRY, Outcome.RELEASE, Outcome.SNOOZE, Outcome.DEAD]
        calm = (self.folder / "drain").exists()
        outcome = Outcome.DONE if calm else self.draw.choices(outcomes, [80, 8, 6, 5, 1])[0]
        options: dict[str, Any] = {}
        if outcome is Outcome.DONE:
            options["result"] = str(lease.fence).encode()
            if not calm and self.draw.random() < 0.03:
                options["spawn"] = (new_job(self.draw, queue="plain", max_attempts=50),)
        elif outcome in (Outcome.RETRY, Outcome.SNOOZE):
            options["delay"] = self.draw.choice([0, self.draw.randrange(300_000)])
        return Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1_000, **options)

    def take(self, claimed: Claimed) -> None:
        self.suspects = claimed.suspects
        self.ledger.write(
            [
                [
                    "got",
                    now(),
                    x.job,
                    x.fence,
                    self.session,
                    self.asked_at,
                    x.queue,
                    x.lane,
                    x.attempt,
                    x.max_attempts,
                ]
                for x in claimed.leases
            ]
        )
        self.held += claimed.leases

    def start(self) -> None:
        self.draw.shuffle(self.held)
        count = self.draw.randint(1, 5)
        self.running, self.held = self.held[:count], self.held[count:]
        self.ledger.write([["start", now(), lease.job, lease.fence] for lease in self.running])
        poisoned = any(lease.payload == POISON for lease in self.running)
        if poisoned and self.draw.random() < 0.7 and not (self.folder / "drain").exists():
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    what, file, name, seed, session, folder = sys.argv[1:]
    store, book, luck = SqliteBroker(Path(file)), Ledger(Path(folder) / name), random.Random(int(seed))
    if what == "producer":
        produce(store, book, luck, name)
    else:
        Worker(store, book, luck, session, Path(folder)).run()
    run(store).close()
