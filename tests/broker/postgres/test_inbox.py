"""Calls in callers' own transactions see each other: ids and keys that wait to be taken in are known.

None of these tests reads or claims before it has to: that would take in what waits.
"""

from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.both import ASK, Both, Run, a_job, run
from tests.broker.postgres.namespaces import namespaces

from windlass.core.job import Edge, Mode, NewJob, Receipt, Status
from windlass.core.lease import Lease
from windlass.core.outcome import Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND

__all__ = ["namespaces", "run"]


def _created(job: NewJob) -> Receipt:
    return Receipt(Status.CREATED, job.id)


def _duplicate(job: NewJob, of: NewJob) -> Receipt:
    return Receipt(Status.DUPLICATE, job.id, of.id)


async def _states(both: Both, *jobs: NewJob) -> list[State | None]:
    return [detail and detail.state for detail in await both.broker.get([job.id for job in jobs])]


async def _claimed(both: Both) -> list[str]:
    return [lease.job for lease in (await both.broker.claim(ASK)).leases]


def _done(lease: Lease, *spawn: NewJob) -> Settlement:
    return Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1, spawn=spawn)


async def _complete(both: Both, lease: Lease, *spawn: NewJob) -> None:
    """End a lease in a transaction of its own, and leave it at that."""
    async with both.broker.transaction(30 * SECOND) as connection:
        assert (await both.broker.settle_on(connection, _done(lease, *spawn))).verdict is Verdict.APPLIED


@pytest.mark.parametrize("mode", [Mode.IGNORE, Mode.THROTTLE])
def test_a_key_is_met_in_one_transaction(run: Run, mode: Mode) -> None:
    async def test(both: Both) -> None:
        first, second = (a_job(key="k", mode=mode, window=HOUR) for _ in range(2))
        async with both.connection.transaction():
            assert await both.enqueue(first) == [_created(first)]
            assert await both.enqueue(second) == [_duplicate(second, first)]
            assert await both.enqueue(second) == [_duplicate(second, first)], "as before"
        assert await both.enqueue(second) == [_duplicate(second, first)], "after the commit, too"
        assert await _claimed(both) == [first.id]
        assert (await both.broker.enqueue([[second]]))[0] == (_duplicate(second, first),)

    run(test)


def test_a_key_is_met_in_one_group(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k"), a_job(key="k")
        assert await both.enqueue(first, second) == [_created(first), _duplicate(second, first)]
        assert await _claimed(both) == [first.id]

    run(test)


def test_a_key_is_met_before_it_is_taken_in(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second, third = (a_job(key="k") for _ in range(3))
        other_lane, other_task = a_job(key="k", lane="l"), a_job(key="k", task="u")
        await both.enqueue(first)
        assert await both.enqueue(second) == [_duplicate(second, first)]
        assert await both.enqueue(other_lane, other_task) == [_created(other_lane), _created(other_task)]
        assert (await both.broker.enqueue([[third]]))[0] == (_duplicate(third, first),)

    run(test)


def test_what_was_answered_stands_when_the_key_is_free_again(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k"), a_job(key="k")
        await both.broker.enqueue([[first]])
        async with both.connection.transaction():
            assert await both.enqueue(second) == [_duplicate(second, first)]
            (lease,) = (await both.broker.claim(ASK)).leases
            await both.broker.settle([_done(lease)])
        assert await _claimed(both) == []
        assert (await both.broker.enqueue([[second]]))[0] == (_duplicate(second, first),)

    run(test)


def test_a_replacing_call_says_what_it_replaces(run: Run) -> None:
    async def test(both: Both) -> None:
        first = a_job(key="k", payload=b"1")
        second, third = (a_job(key="k", mode=Mode.REPLACE, payload=payload) for payload in (b"2", b"3"))
        async with both.connection.transaction():
            await both.enqueue(first)
            assert await both.enqueue(second) == [Receipt(Status.REPLACED, second.id, first.id)]
        assert await both.enqueue(third) == [Receipt(Status.REPLACED, third.id, first.id)]
        assert await both.enqueue(second) == [Receipt(Status.REPLACED, second.id, first.id)]
        (lease,) = (await both.broker.claim(ASK)).leases
        assert (lease.job, lease.payload) == (first.id, b"3")

    run(test)


def test_a_replacing_call_follows_a_job_that_has_begun(run: Run) -> None:
    async def test(both: Both) -> None:
        first = a_job(key="k")
        second, third = (a_job(key="k", mode=Mode.REPLACE, payload=payload) for payload in (b"2", b"3"))
        await both.broker.enqueue([[first]])
        await _claimed(both)
        assert await both.enqueue(second) == [_created(second)]
        assert await both.enqueue(third) == [Receipt(Status.REPLACED, third.id, second.id)]
        assert await _states(both, first, second) == [State.RUNNING, State.BLOCKED]
        (detail,) = await both.broker.get([second.id])
        assert detail is not None
        assert detail.payload == b"3"

    run(test)


def test_what_was_to_be_replaced_may_begin_before_the_commit(run: Run) -> None:
    """Then the call becomes a job under its own id, and later calls know it."""

    async def test(both: Both) -> None:
        first, second, third = a_job(key="k"), a_job(key="k", mode=Mode.REPLACE), a_job(key="k")
        await both.broker.enqueue([[first]])
        async with both.connection.transaction():
            assert await both.enqueue(second) == [Receipt(Status.REPLACED, second.id, first.id)]
            (lease,) = (await both.broker.claim(ASK)).leases
            await both.broker.settle([_done(lease)])
        assert await both.enqueue(third) == [_duplicate(third, second)]
        assert await _claimed(both) == [second.id]

    run(test)


def test_a_savepoint_that_is_rolled_back_frees_its_key(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second, third = (a_job(key="k") for _ in range(3))
        async with both.connection.transaction():
            savepoint = both.connection.transaction()
            await savepoint.start()
            await both.enqueue(first)
            await savepoint.rollback()
            assert await both.enqueue(second) == [_created(second)]
            assert await both.enqueue(third) == [_duplicate(third, second)]
        assert await both.enqueue(first) == [_duplicate(first, second)]
        assert await _claimed(both) == [second.id]

    run(test)


def test_two_open_transactions_may_both_be_told_created(run: Run) -> None:
    """They cannot see each other. One job is made; the other id is known as its duplicate."""

    async def test(both: Both) -> None:
        first, second, shadow = (a_job(key="k") for _ in range(3))
        child = a_job(after=(Edge(shadow.id),))
        other: Any = await asyncpg.connect(both.dsn)
        try:
            async with both.connection.transaction(), other.transaction():
                assert (await both.broker.enqueue_on(other, [[first]]))[0] == (_created(first),)
                assert await both.enqueue(second) == [_created(second)]
                assert await both.enqueue(shadow) == [_duplicate(shadow, second)]
                assert await both.enqueue(child) == [_created(child)]
        finally:
            await other.close()
        assert await _states(both, first, child) == [State.READY, State.BLOCKED]
        for job in (second, shadow):
            assert (await both.broker.enqueue([[job]]))[0] == (_duplicate(job, first),)

    run(test)


@pytest.mark.parametrize("at_once", [True, False])
def test_an_edge_to_a_duplicate_leads_to_the_job_that_stands_for_it(run: Run, at_once: bool) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k"), a_job(key="k")
        child = a_job(after=(Edge(second.id),))
        await both.enqueue(first)
        if at_once:
            receipts = await both.enqueue(second, child)
        else:
            receipts = [*await both.enqueue(second), *await both.enqueue(child)]
        assert receipts == [_duplicate(second, first), _created(child)]
        assert await _states(both, first, child) == [State.READY, State.BLOCKED]
        (lease,) = (await both.broker.claim(ASK)).leases
        await both.broker.settle([_done(lease)])
        assert await _states(both, child) == [State.READY]

    run(test)


def test_a_resent_id_is_known_before_it_is_taken_in(run: Run) -> None:
    async def test(both: Both) -> None:
        job, keyed = a_job(), a_job(key="k")
        async with both.connection.transaction():
            assert await both.enqueue(job, keyed, job) == [
                _created(job),
                _created(keyed),
                _duplicate(job, job),
            ]
            assert await both.enqueue(keyed) == [_duplicate(keyed, keyed)]
        assert await both.enqueue(job) == [_duplicate(job, job)]
        assert (await both.broker.enqueue([[job]]))[0] == (_duplicate(job, job),)
        assert await _claimed(both) == [job.id, keyed.id]

    run(test)


def test_a_plain_call_knows_an_id_that_waits(run: Run) -> None:
    async def test(both: Both) -> None:
        job = a_job()
        await both.enqueue(job)
        assert (await both.broker.enqueue([[job]]))[0] == (_duplicate(job, job),)

    run(test)


def test_all_that_waits_is_known_however_much_it_is(run: Run) -> None:
    """A step takes in 1,000 jobs; what is behind them is known, too."""

    async def test(both: Both) -> None:
        last = a_job(key="k")
        child = a_job(after=(Edge(last.id),))
        second = a_job(key="k")
        await both.enqueue_alone(1_200, last)
        assert (await both.broker.enqueue([[child]]))[0] == (_created(child),)
        assert await _states(both, child, last) == [State.BLOCKED, State.READY]
        kept = a_job(key="l")
        await both.enqueue_alone(2_400, kept)
        assert (await both.broker.enqueue([[second]]))[0] == (_duplicate(second, last),)
        assert await _states(both, kept) == [State.READY]

    run(test)


def test_a_key_is_free_once_its_job_is_completed(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k"), a_job(key="k")
        await both.broker.enqueue([[first]])
        (lease,) = (await both.broker.claim(ASK)).leases
        await _complete(both, lease)
        assert await both.enqueue(second) == [_created(second)]
        assert await _claimed(both) == [second.id]

    run(test)


def test_the_window_of_a_completed_job_counts(run: Run) -> None:
    async def test(both: Both) -> None:
        first, second = a_job(key="k", window=HOUR), a_job(key="k")
        await both.broker.enqueue([[first]])
        (lease,) = (await both.broker.claim(ASK)).leases
        await _complete(both, lease)
        assert await both.enqueue(second) == [_duplicate(second, first)]

    run(test)


def test_a_follower_holds_the_key_once_its_job_is_completed(run: Run) -> None:
    async def test(both: Both) -> None:
        first, follower, second = a_job(key="k"), a_job(key="k", mode=Mode.REPLACE), a_job(key="k")
        await both.broker.enqueue([[first]])
        (lease,) = (await both.broker.claim(ASK)).leases
        await both.broker.enqueue([[follower]])
        await _complete(both, lease)
        assert await both.enqueue(second) == [_duplicate(second, follower)]

    run(test)


def test_a_child_of_a_completed_job_holds_its_key(run: Run) -> None:
    async def test(both: Both) -> None:
        first, child, second = a_job(), a_job(key="k"), a_job(key="k")
        behind = a_job(after=(Edge(child.id),))
        await both.broker.enqueue([[first]])
        (lease,) = (await both.broker.claim(ASK)).leases
        await _complete(both, lease, child)
        assert await both.enqueue(second) == [_duplicate(second, child)]
        assert await both.enqueue(behind) == [_created(behind)]
        assert await _states(both, first, child, behind) == [State.DONE, State.READY, State.BLOCKED]
        (detail,) = await both.broker.get([child.id])
        assert detail is not None
        assert detail.parent == first.id

    run(test)


def test_a_child_waits_for_what_was_enqueued_in_the_same_transaction(run: Run) -> None:
    async def test(both: Both) -> None:
        first, parent = a_job(), a_job()
        child = a_job(after=(Edge(parent.id),))
        await both.broker.enqueue([[first]])
        (lease,) = (await both.broker.claim(ASK)).leases
        async with both.broker.transaction(30 * SECOND) as connection:
            await both.broker.enqueue_on(connection, [[parent]])
            answer = await both.broker.settle_on(connection, _done(lease, child))
            assert answer.verdict is Verdict.APPLIED
        assert await _states(both, first, parent, child) == [State.DONE, State.READY, State.BLOCKED]

    run(test)
