"""Calls on their way to a store: filled into groups, and what comes back: handles, or why one was refused."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from windlass.client.handle import Job
from windlass.client.task import Call, alike_jobs, made_jobs
from windlass.core.job import GROUP_BYTES, GROUP_EDGES, GROUP_JOBS, NewJob, Receipt, Refusal, Status
from windlass.core.option import shown
from windlass.errors import EnqueueRefused, InvalidOption

if TYPE_CHECKING:
    from windlass.client.app import Windlass

T = TypeVar("T")


PIECE = 50
"""Calls that are taken at a time: so few that large ones do not fill the memory. A group holds whole pieces.
"""

_task_of = attrgetter("task")
_made_of = attrgetter("made")
_status_of = attrgetter("status")
_ALL_CREATED = {Status.CREATED}


class Filling(Generic[T]):
    """A group that is being filled, and the numbers of its calls."""

    def __init__(self) -> None:
        self.calls: list[Call[T]] = []
        self.numbers: list[int] = []
        self._size = self._edges = 0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more, whatever they are."""
        return len(self.calls) == GROUP_JOBS

    def takes(self, number: int, call: Call[T]) -> bool:
        """Take one more, if a store would with those that are here. An empty group takes any."""
        made, calls = call.made, self.calls
        size = self._size + len(call.payload)
        edges = self._edges + (len(made.after) if isinstance(made, NewJob) else call.task.edges)
        if calls and (len(calls) == GROUP_JOBS or size > GROUP_BYTES or edges > GROUP_EDGES):
            return False
        calls.append(call)
        self.numbers.append(number)
        self._size, self._edges = size, edges
        return True

    def takes_all(self, number: int, piece: Sequence[Call[T]]) -> bool:
        """Take a whole piece, whose first call has this number, if it is certain that a store would: calls of
        one task without parents, of which none was asked for its job.
        """
        calls, last = self.calls, number + len(piece)
        if piece[0].task.edges or len(calls) + len(piece) > GROUP_JOBS:
            return False
        try:
            size = self._size + sum(map(len, map(_made_of, piece)))
        except TypeError:  # it is a job already
            return False
        if size > GROUP_BYTES:
            return False
        calls += piece
        self.numbers += range(number, last)
        self._size = size
        return True


def are_alike(piece: Sequence[object]) -> bool:
    """Whether these are calls of one task under the same options."""
    if list(map(type, piece)).count(Call) < len(piece):  # a set would take twice as long
        return False
    tasks = list(map(_task_of, piece))
    return tasks.count(tasks[0]) == len(tasks)


def in_groups(app: "Windlass", calls: Iterable[Call[T]]) -> "Iterator[tuple[Windlass, Filling[T]]]":
    """Calls with their numbers, in groups that a store takes at once, each with the place it goes to."""
    filling: dict[Windlass, Filling[T]] = {}
    source, start = iter(calls), 0
    while piece := list(islice(source, PIECE)):
        alike = are_alike(piece)
        if alike:
            place, group = _filling_of(app, piece[0], filling)
            if group.is_full:
                yield place, group
                group = filling[place] = Filling()
            alike = group.takes_all(start, piece)
        if not alike:
            for number, call in enumerate(piece, start):
                place, group = _filling_of(app, call, filling)
                if not group.takes(number, call):
                    yield place, group
                    group = filling[place] = Filling()
                    group.takes(number, call)
        start += len(piece)
    yield from filling.items()


def _filling_of(
    app: "Windlass", call: Call[T], filling: "dict[Windlass, Filling[T]]"
) -> "tuple[Windlass, Filling[T]]":
    """Where a call goes, and the group that is being filled for that place."""
    if not isinstance(call, Call):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(f"enqueue_many takes calls, as in send.call(...), not {shown(call)}")
    place = call.task.app if call.task.app.home is app.home else app
    group = filling.get(place)
    if group is None:
        group = filling[place] = Filling()
    return place, group


def jobs_of(app: "Windlass", calls: Sequence[Call[Any]]) -> Sequence[NewJob]:
    """The jobs of calls, as an app sends them; `InvalidOption`: one is not complete."""
    if len(calls) == 1:
        jobs: Sequence[NewJob] = [calls[0].job]
    elif not app.is_hooked and (alike := alike_jobs(calls)) is not None:
        return alike
    else:
        jobs = made_jobs(calls)
    for call, job in zip(calls, jobs, strict=True):
        if call.task.needs_parents and not job.after:
            raise InvalidOption("on_failure needs parents: give after as well, or send the call in a flow")
    # Not kept in the calls: one that is sent again is looked at again, as it was made.
    return app.outgoing(jobs)


def why_refused(receipts: Sequence[Receipt]) -> str:
    """Why a group fell: named by the job that was refused, not by those that fell with it."""
    refused = [receipt for receipt in receipts if receipt.status is Status.REFUSED]
    guilty = next((receipt for receipt in refused if receipt.refusal is not Refusal.NEIGHBOUR), refused[0])
    return guilty.why or f"the store refused job {guilty.job}: {guilty.refusal}"


def handles_of(
    app: "Windlass", calls: Sequence[Call[T]], receipts: Sequence[Receipt], sent: float | None
) -> list[Job[T]]:
    """The handles of calls that were accepted; `EnqueueRefused`: one was not.

    `sent` is None for what exists only when a transaction commits.
    """
    statuses = set(map(_status_of, receipts))
    exists = sent is not None
    if statuses == _ALL_CREATED:
        return [
            Job(app, receipt.job, call.task.known_signature, exists=exists, created=True, sent=sent)
            for call, receipt in zip(calls, receipts, strict=True)
        ]
    if Status.REFUSED in statuses:
        raise EnqueueRefused(why_refused(receipts))
    if Status.ACCEPTED in statuses:
        return [
            Job(app, receipt.job, call.task.known_signature, created=True, sent=sent, accepted=True)
            for call, receipt in zip(calls, receipts, strict=True)
        ]
    return [
        Job(
            app,
            receipt.of or receipt.job,
            call.task.known_signature,
            exists=exists,
            created=receipt.status is Status.CREATED,
            # What an id or a key is a duplicate of may have finished long ago.
            sent=None if receipt.status is Status.DUPLICATE else sent,
        )
        for call, receipt in zip(calls, receipts, strict=True)
    ]


class Accepted(Generic[T]):
    """The handles of groups that were accepted, by the numbers of their calls. Adds to an error how many
    there were before it.
    """

    def __init__(self) -> None:
        self._groups: list[tuple[Sequence[int], list[Job[T]]]] = []

    def add(self, group: Filling[T], handles: list[Job[T]]) -> None:
        """Take those of one group more."""
        self._groups.append((group.numbers, handles))

    def in_order(self) -> list[Job[T]]:
        """All of them in the order of the calls; a single group has it already."""
        if len(self._groups) == 1:
            return self._groups[0][1]
        jobs: dict[int, Job[T]] = {}
        for numbers, handles in self._groups:
            jobs.update(zip(numbers, handles, strict=True))
        return [jobs[number] for number in range(len(jobs))]

    def __enter__(self) -> "Accepted[T]":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None and self._groups:
            count = sum(len(handles) for _, handles in self._groups)
            error.add_note(f"the first {count:,} calls were accepted")
