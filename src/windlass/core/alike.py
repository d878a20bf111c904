"""A group of new jobs that differ only in id and payload, as most large groups do.

It is a sequence of jobs like any other. A store that sends columns takes the columns, and then no job object
is ever made, which took a third of a producer's time in bulk.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from windlass.core.job import NewJob
from windlass.core.units import JobId


class Alike(Sequence[NewJob]):
    """New jobs by columns. The job objects are made when one of them is asked for."""

    __slots__ = ("_jobs", "_make", "ids", "pattern", "payloads")

    def __init__(
        self,
        pattern: NewJob,
        ids: list[JobId],
        payloads: list[bytes],
        make: Callable[[JobId, bytes], NewJob],
    ) -> None:
        """`pattern` has what all jobs have in common; its id and payload mean nothing. `ids` are as `JobIds`
        makes them. `make` makes one of the jobs.
        """
        self.pattern = pattern
        self.ids = ids
        self.payloads = payloads
        self._make = make
        self._jobs: list[NewJob] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...
    @overload
    def __getitem__(self, place: slice) -> list[NewJob]: ...
    def __getitem__(self, place: int | slice) -> NewJob | list[NewJob]:
        return self._made()[place]

    def __iter__(self) -> Iterator[NewJob]:
        return iter(self._made())

    def _made(self) -> list[NewJob]:
        jobs = self._jobs
        if jobs is None:
            jobs = self._jobs = list(map(self._make, self.ids, self.payloads))
        return jobs
