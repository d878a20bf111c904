"""A group of new jobs that differ in nothing but id and payload, as most large ones do.

It is a sequence of jobs like any other. A store that sends columns takes them as they are, and then no job is
ever made: of a thousand calls in bulk that was a third of the producer's time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import overload

from windlass.core.job import NewJob
from windlass.core.units import JobId


class Alike(Sequence[NewJob]):
    """New jobs by columns; each is made when somebody looks at one of them."""

    __slots__ = ("_jobs", "_make", "ids", "meanwhile", "pattern", "payloads")

    def __init__(
        self,
        pattern: NewJob,
        ids: list[JobId],
        payloads: list[bytes],
        make: Callable[[JobId, bytes], NewJob],
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Take what all have in common (its id and payload say nothing), ids as `JobIds` makes them, and what
        makes one of the jobs.
        """
        self.pattern = pattern
        self.ids = ids
        self.payloads = payloads
        self._make = make
        self.meanwhile = meanwhile
        """What the caller has to do anyway: a store may call it while it waits for its server."""
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
