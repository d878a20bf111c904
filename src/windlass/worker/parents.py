"""What a job reads of the jobs it waited for: their results, in pages."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.core.job import JobDetail
from windlass.core.outcome import Error
from windlass.core.signature import Signature
from windlass.core.state import State
from windlass.core.units import JobId
from windlass.worker.program import Program
from windlass.worker.run import Run

if TYPE_CHECKING:
    from windlass.values.values import Values

PAGE = 100
"""Parents that are read at once: each may have returned a megabyte."""
LARGE_PAGE = 10
"""The same where results may be in object storage, and much larger."""


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the running one waited for."""

    id: JobId
    state: State | None
    """None: nothing of it is kept."""
    task: str = ""
    result: Any = None
    """What it returned, if it is done; None for any other."""
    error: Error | None = None


def parents_of(run: Run) -> Iterator[Parent]:
    """The parents, in the order of `after`; for blocking code."""
    for page in _pages(run):
        yield from run.program.run(_read(run.program, page))


async def aparents_of(run: Run) -> AsyncIterator[Parent]:
    """Async twin of `parents_of`."""
    for page in _pages(run):
        for parent in await _read(run.program, page):
            yield parent


def _pages(run: Run) -> Iterator[tuple[JobId, ...]]:
    parents = run.lease.parents
    size = PAGE if run.program.values is None else LARGE_PAGE
    for start in range(0, len(parents), size):
        yield parents[start : start + size]


async def _read(program: Program, jobs: tuple[JobId, ...]) -> list[Parent]:
    found = await (await program.broker()).get(jobs)
    values = program.values
    if values is not None:
        found = [detail and await _with_result(values, detail) for detail in found]
    return [
        Parent(id=job, state=None) if detail is None else _parent(program, detail)
        for job, detail in zip(jobs, found, strict=True)
    ]


async def _with_result(values: "Values", job: JobDetail) -> JobDetail:
    if job.result is None:
        return job
    return msgspec.structs.replace(job, result=await values.result(job.id, job.fence, job.result))


def _parent(program: Program, job: JobDetail) -> Parent:
    result = None
    if job.result is not None:
        result = (program.signature_of(job.task) or _UNTYPED).decode_result(job.result)
    return Parent(id=job.id, state=job.state, task=job.task, result=result, error=job.error)


_UNTYPED = Signature.untyped("result")
"""For a task that this program does not know: plain JSON."""
