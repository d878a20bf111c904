"""Jobs of one call stand as one run, which several may change at once: none is lost or counted twice."""

import asyncio
import random

import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.postgres import PostgresBroker
from windlass.conformance.harness import new_id
from windlass.core.job import Edge, NewJob
from windlass.core.lease import Ask, Lease
from windlass.core.outcome import Cause, CauseKind, Outcome, Verdict
from windlass.core.session import Beat, Note, SessionInfo
from windlass.core.settings import QueueSettings
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND

__all__ = ["namespaces"]


@pytest.mark.parametrize("seed", range(4))
def test_a_run_whose_jobs_end_in_different_ways_at_once(namespaces: Namespaces, seed: int) -> None:
    """Deadline leases, as workers over HTTP have them: any server settles each by a call of its own."""
    draw = random.Random(seed)

    async def end(broker: PostgresBroker, leases: list[Lease]) -> None:
        for lease in leases:
            outcome = draw.choice([Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.RELEASE])
            if draw.random() < 0.2:
                await broker.annotate([Note(job=lease.job, fence=lease.fence, extend=60 * SECOND)])
            word = Settlement(job=lease.job, fence=lease.fence, outcome=outcome, runtime=1)
            (answer,) = (await broker.settle([word])).answers
            assert answer.verdict is Verdict.APPLIED

    async def story() -> None:
        # Closing the namespace checks that every unfinished job is in one place, and every run is its jobs.
        async with namespaces.several(4, q=QueueSettings()) as fleet, asyncio.timeout(60):
            jobs = [NewJob(id=new_id(), task="t", queue="q", max_attempts=100) for _ in range(60)]
            await fleet[0].enqueue([jobs])
            left = len(jobs)
            while left:
                ask = Ask(queues=("q",), slots=100, limit=100, visibility=60 * SECOND)
                leases = list((await fleet[0].claim(ask)).leases)
                draw.shuffle(leases)
                await asyncio.gather(
                    *(end(broker, leases[place :: len(fleet)]) for place, broker in enumerate(fleet))
                )
                counts = {row.state: row.count for row in (await fleet[0].counts()).rows}
                assert State.RUNNING not in counts
                left = counts.get(State.READY, 0)
            assert {row.state for row in (await fleet[0].counts()).rows} == {State.DONE}

    asyncio.run(story())


@pytest.mark.parametrize("what", ["retried", "session ended", "asked again"])
def test_a_finished_job_of_a_run_that_comes_back_from_the_past_is_not_leased(
    namespaces: Namespaces, what: str
) -> None:
    """A child that comes later refers to it, while others of its run are still running."""

    async def story() -> None:
        async with namespaces.several(1, q=QueueSettings()) as (broker,):
            jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(4)]
            await broker.enqueue([jobs])
            await broker.beat([Beat(session="s", open=SessionInfo(queues=("q",)))])
            ask = Ask(queues=("q",), slots=4, limit=4, session="s", seq=1)
            first, second, third, last = (await broker.claim(ask)).leases
            done = [
                Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE)
                for lease in (first, second)
            ]
            await broker.settle(done)
            await broker.enqueue([[NewJob(id=new_id(), task="t", queue="q", after=(Edge(first.job),))]])
            running = State.RUNNING
            if what == "retried":
                await broker.settle([Settlement(job=third.job, fence=third.fence, outcome=Outcome.RETRY)])
            elif what == "session ended":
                await broker.end_session("s", Cause(CauseKind.STOP))
                running = State.READY
            else:
                again = (await broker.claim(ask)).leases
                assert [lease.job for lease in again] == [third.job, last.job]
            states = [
                detail.state for detail in await broker.get([first.job, second.job, last.job]) if detail
            ]
            assert states == [State.DONE, State.DONE, running]

    asyncio.run(story())
