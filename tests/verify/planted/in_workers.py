"""Planted bugs of workers, supervisors and clients."""

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import msgspec
from tests.verify.planted.bugs import bug, swapped

from windlass.client.connection import Connection
from windlass.core.job import Receipt, Status
from windlass.core.lease import Asker
from windlass.core.outcome import Cause, CauseKind, Outcome
from windlass.core.settlement import Settlement
from windlass.errors import StoreError, StoreUnavailable
from windlass.verify.simulator.recorded import Recorded
from windlass.verify.simulator.tables import MemoryTable
from windlass.worker import supervisor
from windlass.worker.endings import Verdict
from windlass.worker.exchange import Exchange
from windlass.worker.executor import Executor
from windlass.worker.fetcher import Fetcher
from windlass.worker.janitor import Janitor
from windlass.worker.local_leases import Ended
from windlass.worker.run import running

Planted = Generator[None]


@bug("a settlement whose reply was lost is not sent again", by=("leases_have_holders",), seed=3)
def forget_the_lost_settle() -> Planted:
    with swapped(Exchange, "settle_and_ask", None) as real:

        async def settle_and_ask(self: Any, batch: Any, ask: Any) -> Any:
            if not batch:
                return await real(self, batch, ask)
            items = [ended.settlement for ended in batch]
            try:
                settled = await self._broker.settle(items, ask)
            except StoreError:
                for ended in batch:
                    if ended.ticket is not None:
                        self._settler._hand.let_go(ended.ticket)
                self._settler._batch = []
                return None
            self._settler.answered(settled.answers)
            return settled.claimed

        Exchange.settle_and_ask = settle_and_ask
        yield


@bug("an ask whose reply was lost is sent with a new number", by=("leases_have_holders",), seed=5)
def number_a_repeated_ask_anew() -> Planted:
    lost: dict[Any, int] = {}

    def renumbered(ask: Any) -> Any:
        return msgspec.structs.replace(ask, seq=ask.seq + lost.get(ask.session, 0))

    with swapped(Recorded, "claim", None) as real_claim, swapped(Recorded, "settle", None) as real_settle:

        async def claim(self: Any, ask: Any) -> Any:
            try:
                return await real_claim(self, renumbered(ask))
            except StoreError:
                lost[ask.session] = lost.get(ask.session, 0) + 1
                raise

        async def settle(self: Any, items: Any, ask: Any = None) -> Any:
            try:
                return await real_settle(self, items, None if ask is None else renumbered(ask))
            except StoreError:
                if ask is not None:
                    lost[ask.session] = lost.get(ask.session, 0) + 1
                raise

        Recorded.claim, Recorded.settle = claim, settle
        yield


@bug("a worker that is told that its session is lost goes on with it", by=("leases_have_holders",), seed=1)
def ignore_being_lost() -> Planted:
    with swapped(Fetcher, "_received", None) as real:

        def received(self: Any, group: Any, ask: Any, claimed: Any) -> None:
            if claimed.session is not Asker.LOST:
                real(self, group, ask, claimed)

        Fetcher._received = received
        yield


@bug(
    "a worker without a sign of life from the store goes on starting jobs",
    by=("the_silent_start_nothing",),
    seed=35,
)
def start_without_a_heartbeat() -> Planted:
    with swapped(MemoryTable, "alive_until", lambda _table: 1e18):
        yield


@bug("a supervisor reports a crash as a stop", by=("attempts_add_up",), seed=1)
def report_a_crash_as_a_stop() -> Planted:
    def judge(_ward: Any, _code: int, *, out_of_memory: bool) -> Verdict:
        return Verdict(Cause(CauseKind.STOP, "it ended"))

    with swapped(supervisor, "judge", judge):
        yield


@bug("a supervisor names everything in the table as started", by=("attempts_add_up",), seed=60)
def call_everything_started() -> Planted:
    with swapped(supervisor, "judge", None) as real:

        def judge(ward: Any, code: int, *, out_of_memory: bool) -> Verdict:
            verdict = real(ward, code, out_of_memory=out_of_memory)
            waiting = frozenset((entry.job, entry.fence) for entry in ward.table.waiting())
            return Verdict(verdict.cause, verdict.started | waiting)

        supervisor.judge = judge
        yield


@bug("a supervisor does not tell the store that a child has died", by=("deaths_are_told",), seed=1)
def keep_a_death_to_oneself() -> Planted:
    async def end(*_args: Any) -> int:
        return 0

    with swapped(supervisor, "end", end):
        yield


@bug("janitors do not sweep", by=("leases_have_holders", "work_resumes_and_drains"), seed=5)
def never_sweep() -> Planted:
    async def run(_self: Any) -> None:
        await asyncio.Event().wait()

    with swapped(Janitor, "run", run):
        yield


@bug(
    "a job is settled as done before it runs",
    by=(
        "done_has_run",
        "live_runs_never_overlap",
    ),
    seed=1,
)
def settle_before_running() -> Planted:
    async def execute(self: Any, ticket: Any, _invoker: Any) -> None:
        if not self._hand.claim_start(ticket):
            return
        run = self.start(ticket)
        running.set(run)
        done = Settlement(job=run.lease.job, fence=run.lease.fence, outcome=Outcome.DONE, runtime=1)
        self.finish(ticket, run, done)
        args, kwargs = ticket.task.signature.decode(run.lease.payload)
        with contextlib.suppress(Exception):  # nobody hears of it any more: that is the bug
            await ticket.task.function(*args, **kwargs)

    with swapped(Executor, "execute", execute):
        yield


@bug("a stopping worker gives jobs back while their code still runs", by=("live_runs_never_overlap",), seed=4)
def release_before_the_code_has_stopped() -> Planted:
    with swapped(Fetcher, "_give_back", None) as real:

        def give_back(self: Any, now: float) -> None:
            real(self, now)
            if self._drain_until is not None:
                for slot, run in list(self._executor.runs.items()):
                    released = Settlement(job=run.lease.job, fence=run.lease.fence, outcome=Outcome.RELEASE)
                    self._settler.put(Ended(None, released, None))
                    del self._executor.runs[slot]

        Fetcher._give_back = give_back
        yield


@bug("a client that sends again draws new ids", by=("runs_were_enqueued",), seed=12)
def resend_under_new_ids() -> Planted:
    with swapped(Connection, "_sent", None) as real:

        async def sent(self: Any, groups: Any, resend: Any) -> Any:
            broker = await self.broker()
            try:
                return await broker.enqueue(groups)
            except StoreUnavailable:
                again = [
                    [msgspec.structs.replace(job, id=job.id[:-2] + "ff", after=()) for job in group]
                    for group in groups
                ]
                answers = await real(self, again, resend)
                return [
                    [Receipt(each.status, job.id) for job, each in zip(group, answer, strict=True)]
                    for group, answer in zip(groups, answers, strict=True)
                ]

        Connection._sent = sent
        yield


@bug("a client takes a lost reply for an acceptance", by=("accepted_is_kept",), seed=1)
def take_silence_for_yes() -> Planted:
    with swapped(Connection, "_sent", None) as real:

        async def sent(self: Any, groups: Any, resend: Any) -> Any:
            try:
                return await real(self, groups, resend)
            except StoreUnavailable:
                return [[Receipt(Status.CREATED, job.id) for job in group] for group in groups]

        Connection._sent = sent
        yield
