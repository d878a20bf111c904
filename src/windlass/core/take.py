"""What an intake takes from a source: its offset moves and jobs come into being, in one step.

A source is a log that others write (a partition of Kafka, a stream of JetStream). Its offset is a text that
the source alone can read: a store compares it, and never orders it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain, islice

import msgspec

from windlass.core.group import too_large
from windlass.core.job import Mode, NewJob, Receipt, Status
from windlass.core.outcome import Error
from windlass.core.units import JobId, Micros
from windlass.errors import ContractError


class Source(msgspec.Struct, frozen=True):
    """A log that jobs are taken from."""

    name: str
    """Where its offset is kept: `kafka://host/orders/3`."""
    identity: str = ""
    """Which log of that name it is: another one after it was deleted and made anew."""


class Offset(msgspec.Struct, frozen=True):
    """How far a source has been taken."""

    source: Source
    at: str
    """Where to go on, as the source says it."""
    moved_at: Micros


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The wish to move an offset from `expect` to `then` and to enqueue the jobs of what lies between, or to
    do nothing. A group is what became of one message.
    """

    source: Source
    expect: str | None
    """None: the source has no offset yet."""
    then: str | None
    """None: forget the offset."""
    groups: Sequence[Sequence[NewJob]] = ()
    dead: Mapping[JobId, Error] = {}
    """Jobs of the groups that are born dead, and why: messages that nobody can read, or that were refused.
    What they say of key, parents and time counts for nothing.
    """

    def by_group(self, receipts: Sequence[Receipt]) -> tuple[tuple[Receipt, ...], ...]:
        """Receipts of all jobs, in the shape of the groups."""
        rest = iter(receipts)
        return tuple(tuple(islice(rest, len(group))) for group in self.groups)


class TakeStatus(StrEnum):
    """What became of a take."""

    TAKEN = "taken"
    RACED = "raced"
    """The offset is not the expected one: another was there first, or an answer was lost. Go on where it is.
    """
    FOREIGN = "foreign"
    """The offset is of another log under this name. An operator has to say what is to become of it."""
    REFUSED = "refused"
    """A job was refused; see the receipts."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a take."""

    status: TakeStatus
    offset: Offset | None = None
    """As it is now; None if there is none, and if the take was refused: then it is where it was expected."""
    receipts: tuple[tuple[Receipt, ...], ...] = ()
    """In the shape of the groups, if it was taken or refused."""


def rule_take(identity: str | None, at: str | None, source: str, expect: str | None) -> TakeStatus:
    """Whether an offset may move: what is kept of it (None: nothing), and the identity of the source and the
    offset that the taker expects.
    """
    if at is not None and identity != source:
        return TakeStatus.FOREIGN
    return TakeStatus.TAKEN if at == expect else TakeStatus.RACED


def jobs_of(take: Take) -> list[NewJob]:
    """All jobs of a take, as one group and as they are to be accepted. Refuses a take without a meaning, and
    one that is larger than a step may be.
    """
    jobs = [_without_ties(job) if job.id in take.dead else job for job in chain.from_iterable(take.groups)]
    if large := too_large(jobs):
        _, why = next(iter(large.values()))
        raise ContractError(f"the groups of a take count as one; {why}: take less at once")
    strangers = take.dead.keys() - {job.id for job in jobs} if take.dead else ()
    if strangers:
        raise ContractError(f"job {min(strangers)} is to be born dead and is in no group: add it to one")
    return jobs


def _without_ties(job: NewJob) -> NewJob:
    return msgspec.structs.replace(
        job, key=None, mode=Mode.IGNORE, window=0, after=(), delay=0, run_at=None, expires=None
    )


def taken(take: Take, receipts: Sequence[Receipt], now: Micros) -> Taken:
    """The answer to a take that may move its offset, from the receipts of all its jobs."""
    if any(receipt.status is Status.REFUSED for receipt in receipts):
        return Taken(status=TakeStatus.REFUSED, receipts=take.by_group(receipts))
    offset = None if take.then is None else Offset(take.source, take.then, now)
    return Taken(status=TakeStatus.TAKEN, offset=offset, receipts=take.by_group(receipts))
