"""The verbs of intakes as calls of functions; as those of `verbs.py`."""

from collections.abc import Sequence

from windlass.broker.postgres import answers
from windlass.broker.postgres.adapting import Blobs
from windlass.broker.postgres.arrays import jobs_of as columns_of
from windlass.broker.postgres.checks import check_page
from windlass.broker.postgres.driver import Row
from windlass.broker.postgres.records import pack
from windlass.broker.postgres.verbs import ProcedureCall
from windlass.core.job import Receipt, Status
from windlass.core.take import Offset, Source, Take, Taken, TakeStatus, jobs_of, taken


def take(wish: Take) -> ProcedureCall[Taken]:
    jobs, source = jobs_of(wish), wish.source

    def read(rows: Sequence[Row]) -> Taken:
        head, *rest = rows
        status = TakeStatus(head["status"])
        if status in (TakeStatus.RACED, TakeStatus.FOREIGN):
            return Taken(status=status, offset=_offset(source.name, head))
        if rest:
            found = [answers.receipt(job.id, row) for job, row in zip(jobs, rest, strict=True)]
        else:
            found = [Receipt(Status.CREATED, job.id) for job in jobs]  # no rows: every job was created
        return taken(wish, found, head["moved_at"])

    dead = [pack(wish.dead[job.id]) if job.id in wish.dead else None for job in jobs] if wish.dead else None
    arguments = (source.name, source.identity, wish.expect, wish.then, None if dead is None else Blobs(dead))
    return ProcedureCall("take", (*arguments, *columns_of(jobs)), read, rings=True)


def _offset(name: str, row: Row) -> Offset | None:
    return None if row["at"] is None else Offset(Source(name, row["identity"]), row["at"], row["moved_at"])


def offsets(after: str, limit: int) -> ProcedureCall[tuple[Offset, ...]]:
    check_page(limit)

    def read(rows: Sequence[Row]) -> tuple[Offset, ...]:
        return tuple(offset for row in rows if (offset := _offset(row["source"], row)) is not None)

    return ProcedureCall("offsets", (after, limit), read, timed=False)
