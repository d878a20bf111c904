"""Asks: sessions, and replies that get lost on their way."""

import msgspec
import pytest

from windlass.conformance.harness import Harness, Worker, ids, same
from windlass.core.bounds import ASK_QUEUES
from windlass.core.lease import Ask, Asker
from windlass.core.outcome import CauseKind, Outcome, Verdict
from windlass.core.settlement import Settlement
from windlass.core.state import State
from windlass.core.units import SECOND
from windlass.errors import ContractError

# who asks


async def test_claim_from_unknown_session_is_lost(store: Harness) -> None:
    """And does not open it."""
    job = await store.add()
    stranger = Worker(store, "session-unknown")
    claimed = await stranger.claim()
    assert (claimed.session, claimed.leases) == (Asker.LOST, ())
    assert not (await stranger.beat()).alive
    assert list(await store.broker.sessions()) == []
    waiting = await store.get(job)
    assert (waiting.state, waiting.attempt, waiting.fence) == (State.READY, 0, 0)


async def test_claim_from_unknown_session_is_lost__so_is_an_ended_one(store: Harness) -> None:
    for kind in (CauseKind.STOP, CauseKind.CRASH, CauseKind.LOST):
        worker = await store.worker()
        job = await store.add()
        ask = worker.ask()
        assert ids((await store.broker.claim(ask)).leases) == [job]
        await worker.end(kind)
        for late in (ask, worker.ask()):
            claimed = await store.broker.claim(late)
            assert (claimed.session, claimed.leases) == (Asker.LOST, ())
        await store.done(await (await store.worker()).one())


# the same ask again


async def test_repeated_ask_returns_the_same_leases(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(4)
    ask = worker.ask(slots=2)
    first = await store.broker.claim(ask)
    assert ids(first.leases) == jobs[:2]
    for pause in (0, SECOND, 60 * SECOND):
        store.advance(pause)
        again = await store.broker.claim(ask)
        assert again.session is Asker.ALIVE
        assert [same(lease) for lease in again.leases] == [same(lease) for lease in first.leases]
    assert await store.states(jobs) == [State.RUNNING] * 2 + [State.READY] * 2
    assert [(await store.get(job)).attempt for job in jobs] == [1, 1, 0, 0]


async def test_repeated_ask_returns_the_same_leases__also_none(store: Harness) -> None:
    """A reply with nothing is a reply: what came later is for the next ask."""
    worker = await store.worker()
    ask = worker.ask()
    assert (await store.broker.claim(ask)).leases == ()
    job = await store.add()
    assert (await store.broker.claim(ask)).leases == ()
    assert (await worker.one()).job == job


async def test_repeated_ask_returns_the_same_leases__of_its_own_session(store: Harness) -> None:
    """Each session counts for itself."""
    one, other = await store.worker(), await store.worker()
    jobs = await store.add_many(2)
    asks = [one.ask(slots=1), other.ask(slots=1)]
    assert [ask.seq for ask in asks] == [1, 1]
    for _ in range(2):
        assert [ids((await store.broker.claim(ask)).leases) for ask in asks] == [[job] for job in jobs]


async def test_repeated_ask_returns_the_same_leases__not_those_before(store: Harness) -> None:
    """Of that reply, not all that the session holds."""
    worker = await store.worker()
    await store.add_many(2)
    await worker.one()
    ask = worker.ask(slots=1)
    last = await store.broker.claim(ask)
    assert ids((await store.broker.claim(ask)).leases) == ids(last.leases)


async def test_repeated_ask_omits_what_ended(store: Harness) -> None:
    """Also what somebody else runs by now, under a fence of its own."""
    worker, other = await store.worker(), await store.worker()
    await store.add_many(4)
    ask = worker.ask(slots=4)
    finished, released, retried, kept = (await store.broker.claim(ask)).leases
    await store.done(finished)
    await store.release(released)
    await store.retry(retried)
    assert [same(lease) for lease in (await store.broker.claim(ask)).leases] == [same(kept)]
    assert ids(await other.take(2)) == [released.job, retried.job]
    assert [same(lease) for lease in (await store.broker.claim(ask)).leases] == [same(kept)]
    await store.done(kept)
    assert (await store.broker.claim(ask)).leases == ()


async def test_higher_seq_hands_out_new_jobs(store: Harness) -> None:
    """What was confirmed stays leased."""
    worker = await store.worker()
    jobs = await store.add_many(3)
    first = await worker.one()
    second = await worker.one()
    third = await worker.one()
    assert ids([first, second, third]) == jobs
    assert await store.states(jobs) == [State.RUNNING] * 3
    for lease in (first, second, third):
        assert (await store.done(lease)).verdict is Verdict.APPLIED


async def test_higher_seq_hands_out_new_jobs__an_ask_for_nothing_counts(store: Harness) -> None:
    """It goes with settlements that leave no room, so that a store which forgets them is found out."""
    worker = await store.worker()
    jobs = await store.add_many(2)
    lease = await worker.one()
    nothing = msgspec.structs.replace(worker.ask(slots=0), queues=(), limit=0)
    done = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1)
    for verdict in (Verdict.APPLIED, Verdict.ALREADY):
        settled = await store.broker.settle([done], nothing)
        assert settled.answers[0].verdict is verdict
        assert settled.claimed is not None
        assert (settled.claimed.session, settled.claimed.leases) == (Asker.ALIVE, ())
    assert (await store.broker.claim(nothing)).leases == ()
    assert (await worker.one()).job == jobs[1]


@pytest.mark.parametrize("beyond", [1, 7])
async def test_skipped_seq_is_lost(store: Harness, beyond: int) -> None:
    """The store knows less than the asker: it fell back, and may have leases that nobody holds."""
    worker = await store.worker()
    jobs = await store.add_many(3)
    kept = await worker.one()
    worker.seq += beyond
    ask = worker.ask(slots=2)
    for _ in range(2):
        claimed = await store.broker.claim(ask)
        assert (claimed.session, claimed.leases) == (Asker.LOST, ())
    settled = await store.broker.settle([], ask)
    assert settled.claimed is not None
    assert settled.claimed.session is Asker.LOST
    assert await store.states(jobs) == [State.RUNNING, State.READY, State.READY]
    assert (await store.done(kept)).verdict is Verdict.APPLIED


async def test_skipped_seq_is_lost__of_a_session_that_never_asked(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    worker.seq += 1
    claimed = await store.broker.claim(worker.ask(slots=1))
    assert (claimed.session, claimed.leases) == (Asker.LOST, ())
    worker.seq = 0
    assert await worker.one()


async def test_lower_seq_is_outdated(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(3)
    old = worker.ask(slots=0)
    await store.broker.claim(old)
    new = worker.ask(slots=1)
    assert ids((await store.broker.claim(new)).leases) == [jobs[0]]
    claimed = await store.broker.claim(old)
    assert (claimed.session, claimed.leases) == (Asker.OUTDATED, ())
    assert await store.states(jobs) == [State.RUNNING, State.READY, State.READY]
    assert ids((await store.broker.claim(new)).leases) == [jobs[0]]


async def test_lower_seq_is_outdated__even_of_an_answered_ask(store: Harness) -> None:
    worker = await store.worker()
    jobs = await store.add_many(2)
    ask = worker.ask(slots=1)
    await store.broker.claim(ask)
    await worker.one()
    claimed = await store.broker.claim(ask)
    assert (claimed.session, claimed.leases) == (Asker.OUTDATED, ())
    assert await store.states(jobs) == [State.RUNNING] * 2


# asks without a meaning


def _meaningless(ask: Ask) -> list[Ask]:
    return [
        msgspec.structs.replace(ask, session=None),
        msgspec.structs.replace(ask, seq=None),
        msgspec.structs.replace(ask, session=None, seq=None),
        msgspec.structs.replace(ask, visibility=SECOND),
        msgspec.structs.replace(ask, session=None, seq=None, visibility=0),
        msgspec.structs.replace(ask, queues=("q",) * (ASK_QUEUES + 1)),
        msgspec.structs.replace(ask, seq=0),
        msgspec.structs.replace(ask, slots=-1),
        msgspec.structs.replace(ask, slots=2, limit=1),
        msgspec.structs.replace(ask, limit=1_001),
        msgspec.structs.replace(ask, draw=-1),
        msgspec.structs.replace(ask, draw=2**32),
    ]


async def test_ask_without_meaning_is_an_error(store: Harness) -> None:
    worker = await store.worker()
    job = await store.add()
    ask = worker.ask()
    for wrong in _meaningless(ask):
        with pytest.raises(ContractError):
            await store.broker.claim(wrong)
    waiting = await store.get(job)
    assert (waiting.state, waiting.attempt, waiting.fence) == (State.READY, 0, 0)
    assert ids((await store.broker.claim(ask)).leases) == [job]


async def test_ask_without_meaning_is_an_error__before_anything_is_settled(store: Harness) -> None:
    worker = await store.worker()
    await store.add()
    lease = await worker.one()
    settlement = Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, runtime=1_000)
    for wrong in _meaningless(worker.ask()):
        with pytest.raises(ContractError):
            await store.broker.settle([settlement], wrong)
    assert await store.state(lease.job) is State.RUNNING
    assert (await store.done(lease)).verdict is Verdict.APPLIED
