"""Calls on their way to a store: filled into groups, and what to say when one is refused."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from windlass.client.handle import Job
from windlass.client.task import Call
from windlass.core.job import GROUP_BYTES, GROUP_EDGES, GROUP_JOBS, NewJob, Receipt, Refusal, Status
from windlass.errors import InvalidOption

T = TypeVar("T")


class Filling(Generic[T]):
    """A group that is being filled."""

    def __init__(self) -> None:
        self.calls: dict[int, Call[T]] = {}
        self._size = self._edges = 0

    def takes(self, number: int, call: Call[T]) -> bool:
        """Take one more, if a store would with those that are here. An empty group takes any."""
        job, calls = call.job, self.calls
        size, edges = self._size + len(job.payload), self._edges + len(job.after)
        if calls and (len(calls) == GROUP_JOBS or size > GROUP_BYTES or edges > GROUP_EDGES):
            return False
        calls[number] = call
        self._size, self._edges = size, edges
        return True


def jobs_of(calls: Sequence[Call[Any]]) -> list[NewJob]:
    """The jobs of calls; `InvalidOption`: one is not complete."""
    jobs: list[NewJob] = []
    for call in calls:
        if call.task.needs_parents and not call.job.after:
            raise InvalidOption("on_failure needs parents: give after as well, or send the call in a flow")
        jobs.append(call.job)
    return jobs


def why_refused(receipts: Sequence[Receipt]) -> str:
    """Why a group fell: named by the job that was refused, not by those that fell with it."""
    refused = [receipt for receipt in receipts if receipt.status is Status.REFUSED]
    guilty = next((receipt for receipt in refused if receipt.refusal is not Refusal.NEIGHBOUR), refused[0])
    return guilty.why or f"the store refused job {guilty.job}: {guilty.refusal}"


class Counted:
    """Adds to an error how much had been accepted before it."""

    def __init__(self, jobs: Mapping[int, Job[Any]]) -> None:
        self._jobs = jobs

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and self._jobs:
            error.add_note(f"the first {len(self._jobs):,} calls were accepted")
