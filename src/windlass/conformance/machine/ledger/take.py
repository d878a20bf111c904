"""What was answered to `take`: whether an offset moved, and the jobs that came with it."""

from itertools import chain

import msgspec

from windlass.conformance.machine.ledger.enqueue import enqueued
from windlass.conformance.machine.ledger.records import Ledger
from windlass.conformance.machine.violated import require
from windlass.core.job import Mode, NewJob
from windlass.core.state import State
from windlass.core.take import Offset, Take, Taken, TakeStatus


def taken(ledger: Ledger, take: Take, answer: Taken) -> None:
    """A take was answered."""
    stands = ledger.offsets.get(take.source.name)
    foreign = stands is not None and stands.source != take.source
    right = foreign == (answer.status is TakeStatus.FOREIGN)
    require("a foreign offset is refused", right, take, answer, stands)
    raced = not foreign and (None if stands is None else stands.at) != take.expect
    right = raced == (answer.status is TakeStatus.RACED)
    require("an offset moves from where it is", right, take, answer, stands)
    if not (foreign or raced):
        _jobs(ledger, take, answer)
    if answer.status is TakeStatus.TAKEN:
        ledger.offsets.pop(take.source.name, None)
        if take.then is not None:
            ledger.offsets[take.source.name] = Offset(take.source, take.then, ledger.time.now)
    refused = answer.status is TakeStatus.REFUSED
    told = answer.offset == (None if refused else ledger.offsets.get(take.source.name))
    require("a take tells the offset as it is now", told, take, answer, ledger.offsets)


def _jobs(ledger: Ledger, take: Take, answer: Taken) -> None:
    same_shape = [len(group) for group in take.groups] == [len(group) for group in answer.receipts]
    require("receipts have the shape of the groups", same_shape, take, answer)
    jobs = [_as_accepted(take, job) for job in chain.from_iterable(take.groups)]
    before = frozenset(ledger.created)
    enqueued(ledger, [jobs], [list(chain.from_iterable(answer.receipts))])
    created = ledger.created - before
    require("a refused take makes no job", answer.status is TakeStatus.TAKEN or not created, take, answer)
    for job in created & take.dead.keys():
        entry = ledger.entries[job]
        entry.unfit, entry.final = take.dead[job], State.DEAD
        entry.pristine = entry.placed = False


def _as_accepted(take: Take, job: NewJob) -> NewJob:
    """What is born dead has no key, no parents and no time."""
    if job.id not in take.dead:
        return job
    return msgspec.structs.replace(
        job, key=None, mode=Mode.IGNORE, window=0, after=(), delay=0, run_at=None, expires=None
    )
