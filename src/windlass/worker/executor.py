"""The executor: from a lease to exactly one settlement, in named steps.

execute, in the worker:
    claim     take the ticket out of `unstarted`: from here on no other thread starts it or gives it back
    prepare   start what it runs in; only a task with `run="process"` needs this
    bring     read a payload that is in object storage; only with `values=` (`carrying.py`)
    refuse    reasons not to start: the worker stops, the job expired, the session may be lost
    start     mark the lease as started in the table, just before the task's first line
    perform   run the code (below)
    carry     put a large result into object storage; only with `values=`
    finish    hand the one settlement to the settler

perform, where the code runs (a job's own process does the same steps):
    read      payload to arguments
    call      the task's function, with the invoker's way of calling
    conclude  what was returned or raised becomes an outcome (`conclude.py`)

The dispatcher chooses where a task runs: `in_loop.py`, `in_thread.py` or `in_process.py`. The steps are one
coroutine for all three. A thread has no event loop and needs none: its calls never suspend.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from windlass.core.settlement import Settlement
from windlass.core.units import SECOND, Fence, JobId
from windlass.errors import InvalidPayload, UnreadablePayload
from windlass.pace import Pace
from windlass.worker.conclude import Concluder, expired, given_back, unreadable
from windlass.worker.local_leases import Ended, LocalLeases, Ticket
from windlass.worker.program import Program, Registered
from windlass.worker.run import Reporter, Run, running

Arguments: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


class TaskCaller(Protocol):
    """Calls a task's function."""

    def __call__(
        self,
        run: Run,
        function: Callable[..., Any],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        /,
    ) -> Awaitable[object]:
        """Call it; what is awaited gives the value that the task returns."""
        ...


class Invoker(Protocol):
    """Where tasks run."""

    @property
    def prepare(self) -> Callable[[Ticket], Awaitable[Settlement | None]] | None:
        """What has to be there before the run starts. A settlement: it cannot be had, and the job ends so.
        None: nothing has to be prepared.
        """
        ...

    @property
    def perform(self) -> Callable[[Run, Registered], Awaitable[Settlement]]:
        """Run the code; whatever it does, one settlement comes of it."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether the steps run in a thread without a loop: then they wait in that thread."""
        ...


class Carries(Protocol):
    """Reads payloads from object storage before a run, and puts results there after it."""

    async def bring(self, ticket: Ticket, *, blocking: bool) -> Settlement | None:
        """Read the payload. A settlement: it cannot be had, and the job ends so."""
        ...

    async def carry(self, ticket: Ticket, run: Run, settlement: Settlement, *, blocking: bool) -> Settlement:
        """Put what is large; the settlement with references."""
        ...


class Performer:
    """The steps of a run in the process where its code runs. With listeners around them: `observed.py`."""

    def __init__(self, conclude: Concluder) -> None:
        self._conclude = conclude

    async def perform(self, call: TaskCaller, run: Run, task: Registered) -> Settlement:
        """Read → call → conclude. Users' code may raise anything, also while arguments are read."""
        try:
            arguments = self.read(run, task)
            if isinstance(arguments, Settlement):
                return arguments
            args, kwargs = arguments
            value = await call(run, task.function, args, kwargs)
            return self._conclude.returned(run, task, value)
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is an outcome
            return self._conclude.raised(run, task, error)

    def read(self, run: Run, task: Registered) -> Arguments | Settlement:
        """Read the arguments. This comes after the start, since it may run users' code: what that code does
        is charged to the job.
        """
        try:
            return task.signature.decode(run.lease.payload)
        except (UnreadablePayload, InvalidPayload) as error:
            return unreadable(run.lease, task, error, patterns=run.program.config.private_patterns)


class Executor:
    """Takes tickets to their settlements. It keeps the runs of this moment and nothing of the past."""

    def __init__(
        self,
        local_leases: LocalLeases,
        reporter: Reporter,
        pace: Pace,
        *,
        ended: Callable[[Ended], None],
        is_lost: Callable[[], bool],
        program: Program,
        carrier: Carries | None = None,
    ) -> None:
        """`ended` takes each ticket with its settlement, on the thread where that happens. Without a
        `carrier` all values are in the store.
        """
        self._local_leases = local_leases
        self._table = local_leases.table
        self._reporter = reporter
        self._now = pace.now
        self._ended = ended
        self._is_lost = is_lost
        self._program = program
        self._carrier = carrier
        self.runs: dict[int, Run] = {}
        """The runs of this moment, by their rows in the table."""
        self.draining = False
        """The worker stops: what has not started does not start any more."""

    async def execute(self, ticket: Ticket, invoker: Invoker) -> None:
        """Take one ticket through all steps."""
        if not self._local_leases.claim_start(ticket):
            return  # given back, held or cancelled while it waited: that was its settlement
        run: Run | None = None
        settlement = None if invoker.prepare is None else await invoker.prepare(ticket)
        carrier = self._carrier
        if carrier is not None and settlement is None:
            settlement = await carrier.bring(ticket, blocking=invoker.blocking)
        settlement = settlement or self.refuse(ticket)
        if settlement is None:
            run = self.start(ticket)
            if run is None:  # the supervisor has released it: the store answers ALREADY, and the row is free
                settlement = given_back(ticket.lease)
            else:
                self.runs[ticket.slot] = run
                running.set(run)
                settlement = await invoker.perform(run, ticket.task)
                if carrier is not None:
                    settlement = await carrier.carry(ticket, run, settlement, blocking=invoker.blocking)
        self.finish(ticket, run, settlement)

    def refuse(self, ticket: Ticket) -> Settlement | None:
        """The settlement of a lease that this worker does not start; None: it starts."""
        lease = ticket.lease
        if self.draining:
            return given_back(lease)
        if lease.expires_in is not None and (self._now() - ticket.received) * SECOND > lease.expires_in:
            return expired(lease)
        return given_back(lease) if self._is_lost() else None

    def start(self, ticket: Ticket) -> Run | None:
        """Mark it as started. None: the supervisor has taken it back."""
        now, options, lease = self._now(), ticket.task.options, ticket.lease
        soft, hard = options.timeout, options.hard_timeout
        if not self._table.start(ticket.slot, 0.0 if hard is None else now + hard / SECOND):
            return None
        return Run(
            lease=lease,
            started=now,
            deadline=None if soft is None else now + soft / SECOND,
            reporter=self._reporter,
            is_lost=self._is_lost,
            program=self._program,
            memos=dict(lease.memos) if lease.memos else {},
        )

    def finish(self, ticket: Ticket, run: Run | None, settlement: Settlement) -> None:
        """The ticket has its settlement; `run` is None if it never started."""
        if run is not None:
            run.stop = None
            self.runs.pop(ticket.slot, None)
            if ticket.task.options.hard_timeout is not None:
                # Its outcome may have to wait for the store: no process is killed for that.
                self._table.set_deadline(ticket.slot, 0.0)
        self._ended(Ended(ticket, settlement, run))

    # --- from any thread ------------------------------------------------------------------------------------

    def cancel(self, job: JobId, fence: Fence) -> None:
        """Stop a run because somebody asked for it. Code in a thread cannot be stopped: it can only look."""
        for ticket in list(self._local_leases.unstarted):
            lease = ticket.lease
            if (lease.job, lease.fence) == (job, fence) and self._local_leases.claim_start(ticket):
                self._ended(Ended(ticket, given_back(lease), None))  # the store makes it `cancelled`
        for run in list(self.runs.values()):
            if (run.lease.job, run.lease.fence) == (job, fence) and not run.cancelled:
                run.cancelled = True
                run.halt()  # once, though each heartbeat says it again: the code may need time to clean up

    def release_all(self) -> None:
        """Stop what can be stopped; it does not count as an attempt."""
        for run in list(self.runs.values()):
            run.released = True
            run.halt()

    @property
    def stoppable(self) -> int:
        """How many runs there are that will end when they are told to."""
        return sum(run.stop is not None for run in list(self.runs.values()))
