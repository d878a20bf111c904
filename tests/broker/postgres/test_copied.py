"""Large jobs sent as rows: kept as others are, whole or not at all, and nobody waits for who sends them."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Broker, Options
from windlass.broker.postgres import PostgresBroker, copying
from windlass.broker.postgres.blocking import BlockingProducer
from windlass.broker.postgres.install import quoted
from windlass.broker.postgres.url import Place
from windlass.clock import Clock, ManualClock
from windlass.conformance.harness import APP, Harness, new_id
from windlass.core.event import FROM_START
from windlass.core.job import JobView, NewJob, Receipt, Status
from windlass.core.settings import Change, Declaration, Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import HOUR, SECOND

__all__ = ["namespaces"]

_OWN = frozenset({"id", "accepted_at", "due_at", "expires_at"})
"""What two jobs never have in common."""
_MANY = 450
"""Jobs, so that there are three parts, the last of them short."""
_KINDS: dict[str, dict[str, Any]] = {
    "bare": {},
    "texts": {"task": "tâche ∞", "headers": {"a": "ü", "b": ""}, "tags": ("x", "ÿ"), "flow": "f" * 36},
    "numbers": {"priority": -100, "max_attempts": 2**31 - 1, "revision": 2**63 - 1},
    "once, of a priority": {"priority": 7, "max_attempts": 1},
    "later": {"delay": HOUR, "expires": 2 * HOUR, "priority": 7},
    "at a time": {"run_at": 4_102_444_800_000_000},
    "at a time that is over": {"run_at": 1, "expires": HOUR},
}


class _Copies:
    """Which calls went as rows, and what was said against them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = 0
        self.refused: list[str] = []
        self.before: Callable[[], None] = lambda: None
        """Called once a number is drawn, before a row is sent."""
        packed = copying.Rows.packed

        def noted(rows: copying.Rows, number: int, at: int) -> Any:
            self.before()
            self.sent += 1
            return packed(rows, number, at)

        monkeypatch.setattr(copying.Rows, "packed", noted)
        was_not = BlockingProducer._copy

        def copy(self_: BlockingProducer, *given: Any) -> Any:
            note = self_._ways.was_not_copied

            def refused(queue: str, error: BaseException) -> None:
                self.refused.append(str(getattr(error, "sqlstate", None)))
                note(queue, error)

            monkeypatch.setattr(self_._ways, "was_not_copied", refused)
            try:
                return was_not(self_, *given)
            finally:
                monkeypatch.setattr(self_._ways, "was_not_copied", note)

        monkeypatch.setattr(BlockingProducer, "_copy", copy)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> _Copies:
    return _Copies(monkeypatch)


async def _opened(
    namespaces: Namespaces, clock: Clock | None = None, **settings: Any
) -> tuple[PostgresBroker, BlockingProducer]:
    broker = await namespaces.open(clock, Options())
    return broker, await _begun(broker, **settings)


async def _begun(broker: Broker, **settings: Any) -> BlockingProducer:
    assert isinstance(broker, PostgresBroker)
    await _declare(broker, **settings)
    blocking = broker.blocking
    assert isinstance(blocking, BlockingProducer)
    # The first call opens the connection, the second prepares the statements.
    other = Declaration(subject=Subject(Kind.QUEUE, "other"), body=QueueSettings(), app=APP)
    await broker.declare([other])
    for _ in range(2):
        await asyncio.to_thread(blocking.enqueue, [[NewJob(id=new_id(), task="t", queue="other")]])
    return blocking


async def _declare(broker: PostgresBroker, **settings: Any) -> None:
    body = QueueSettings(**settings)
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=body, app=APP)
    (changed,) = await broker.declare([queue])
    assert changed.change in (Change.APPLIED, Change.UNCHANGED)


def _jobs(many: int = _MANY, **given: Any) -> list[NewJob]:
    """Large ones, whose payloads differ in length."""
    return [
        NewJob(**{"id": new_id(), "task": "t", "queue": "q", "payload": os.urandom(900 + number), **given})
        for number in range(many)
    ]


async def _enqueue(blocking: BlockingProducer, jobs: list[NewJob]) -> list[Receipt]:
    return list((await asyncio.to_thread(blocking.enqueue, [jobs]))[0])


async def _all_are(blocking: BlockingProducer, jobs: list[NewJob], status: Status) -> None:
    receipts = await _enqueue(blocking, jobs)
    assert [(receipt.status, receipt.job) for receipt in receipts] == [(status, job.id) for job in jobs]


def _view(view: JobView) -> dict[str, object]:
    return {field: getattr(view, field) for field in view.__struct_fields__ if field not in _OWN}


@pytest.mark.parametrize("kind", _KINDS)
def test_rows_are_kept_as_what_the_driver_sends(namespaces: Namespaces, copies: _Copies, kind: str) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        jobs = _jobs(**_KINDS[kind])
        other = NewJob(**{"id": new_id(), "task": "t", "queue": "q", **_KINDS[kind]})
        await _all_are(blocking, jobs, Status.CREATED)
        await broker.enqueue([[other]])
        assert copies.sent == 1
        assert copies.refused == []
        (by_driver,) = await broker.get([other.id])
        for kept, job in zip(await broker.get([job.id for job in jobs]), jobs, strict=True):
            assert _view(kept) == {**_view(by_driver), "payload": job.payload}
            assert kept.due_at - kept.accepted_at == (by_driver.due_at - by_driver.accepted_at) or job.run_at
            if job.expires is not None:
                assert kept.expires_at == kept.accepted_at + job.expires
        await broker.close()

    asyncio.run(test())


def test_payloads_of_one_length_and_of_none(namespaces: Namespaces, copies: _Copies) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        for payloads in ([b"x" * 1_000] * 64, [b"", *[b"y" * 2_000] * 63], [b"z" * 600_000] * 3):
            jobs = [NewJob(id=new_id(), task="t", queue="q", payload=payload) for payload in payloads]
            await _all_are(blocking, jobs, Status.CREATED)
            assert [kept.payload for kept in await broker.get([job.id for job in jobs])] == payloads
        assert copies.sent == 3
        await broker.close()

    asyncio.run(test())


def test_small_groups_and_small_jobs_go_as_before(namespaces: Namespaces, copies: _Copies) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        await _all_are(blocking, _jobs(2), Status.CREATED)
        await _all_are(blocking, _jobs(300, payload=b"x" * 200), Status.CREATED)
        assert copies.sent == 0
        await broker.close()

    asyncio.run(test())


def test_they_are_claimed_in_order_among_others_counted_and_told_of(
    namespaces: Namespaces, copies: _Copies
) -> None:
    async def test() -> None:
        store = await Harness.open(namespaces.open, Options())
        broker = store.broker
        blocking = await _begun(broker, emit="all")
        ones = [_jobs(1)[0] for _ in range(3)]
        groups = [_jobs(64) for _ in range(2)]
        await _enqueue(blocking, groups[0])
        await _enqueue(blocking, ones)
        await _enqueue(blocking, groups[1])
        assert copies.sent == 2
        order = [job.id for job in (*groups[0], *ones, *groups[1])]
        assert await store.count(State.READY) == len(order)
        told = await broker.events(FROM_START, 1_000, 0)
        assert [event.job for event in told.items if event.move == "enqueue"] == order
        worker = await store.worker()
        claimed = [lease.job for _ in range(7) for lease in (await worker.claim(slots=20)).leases]
        assert claimed == order
        await store.close()

    asyncio.run(test())


@pytest.mark.parametrize("where", [0, 200, _MANY - 1])
def test_an_id_that_is_there_is_told_and_the_others_are_kept(
    namespaces: Namespaces, copies: _Copies, where: int
) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        jobs = _jobs()
        await _enqueue(blocking, jobs[where : where + 1])
        receipts = await _enqueue(blocking, jobs)
        assert copies.refused == ["23505"]
        assert [receipt.status for receipt in receipts].count(Status.CREATED) == _MANY - 1
        assert receipts[where].status is Status.DUPLICATE
        # What concerns one call alone is not remembered.
        await _all_are(blocking, _jobs(), Status.CREATED)
        assert copies.sent == 2
        await broker.close()

    asyncio.run(test())


def test_an_id_of_the_past_is_told(namespaces: Namespaces, copies: _Copies) -> None:
    async def test() -> None:
        store = await Harness.open(namespaces.open, Options())
        broker = store.broker
        blocking = await _begun(broker, retention=HOUR)
        jobs = _jobs()
        await _enqueue(blocking, jobs[:1])
        worker = await store.worker()
        for lease in (await worker.claim(slots=1)).leases:
            await store.done(lease)
        receipts = await _enqueue(blocking, jobs)
        assert copies.refused == ["WL004"]
        assert [receipt.status for receipt in receipts] == [
            Status.DUPLICATE,
            *[Status.CREATED] * (_MANY - 1),
        ]
        await store.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"lane_concurrency": 2}, None),
        ({"age_step": SECOND}, "WL005"),
        ({"sequence": True}, "WL001"),
        ({"concurrency": 3}, None),
        ({"bands": {7: 3, 0: 1}}, "WL005"),
    ],
    ids=str,
)
def test_settings_that_change_before_the_rows_are_there_hold_for_them(
    namespaces: Namespaces, copies: _Copies, settings: dict[str, Any], code: str | None
) -> None:
    """Places are told under the lock: what was learnt with the number may be over."""

    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        loop = asyncio.get_running_loop()
        copies.before = lambda: asyncio.run_coroutine_threadsafe(_declare(broker, **settings), loop).result()
        jobs = _jobs(64, priority=7)
        await _all_are(blocking, jobs, Status.CREATED)
        assert copies.refused == ([] if code is None else [code])
        assert len(await broker.get([job.id for job in jobs])) == len(jobs)
        await broker.close()  # which looks whether every job has its place

    asyncio.run(test())


def test_a_bound_of_the_namespace_holds_for_them(namespaces: Namespaces, copies: _Copies) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        loop = asyncio.get_running_loop()

        async def bound() -> None:
            options = Options(namespace=broker.namespace, max_size=100_000)
            await (await PostgresBroker.open(Place(namespaces.server.dsn), options=options)).close()

        copies.before = lambda: asyncio.run_coroutine_threadsafe(bound(), loop).result()
        receipts = await _enqueue(blocking, _jobs())
        assert copies.refused == ["WL001"]
        assert {receipt.status for receipt in receipts} == {Status.REFUSED}
        await broker.close()

    asyncio.run(test())


@pytest.mark.parametrize("slept", [SECOND, HOUR], ids=["for a moment", "for longer than a session lives"])
def test_a_sweep_between_number_and_rows_makes_them_begin_anew(
    namespaces: Namespaces, copies: _Copies, slept: int
) -> None:
    """No step is older than the last sweep."""

    async def test() -> None:
        clock = ManualClock()
        broker, blocking = await _opened(namespaces, clock)
        loop = asyncio.get_running_loop()

        def sweep() -> None:
            clock.advance(slept)
            asyncio.run_coroutine_threadsafe(broker.sweep(limit=100), loop).result()

        copies.before = sweep
        jobs = _jobs()
        await _all_are(blocking, jobs, Status.CREATED)
        assert copies.refused == ["WL004"]
        assert {kept.accepted_at for kept in await broker.get([job.id for job in jobs])} == {clock.now()}
        copies.before = lambda: None
        await _all_are(blocking, _jobs(), Status.CREATED)
        assert copies.sent == 2
        await broker.close()

    asyncio.run(test())


def test_rows_are_not_sent_while_the_clock_is_behind_the_last_sweep(
    namespaces: Namespaces, copies: _Copies
) -> None:
    async def test() -> None:
        clock = ManualClock()
        broker, blocking = await _opened(namespaces, clock)
        await broker.sweep(limit=100)
        clock.advance(-HOUR)
        for _ in range(2):  # the second time it is remembered
            jobs = _jobs()
            await _all_are(blocking, jobs, Status.CREATED)
            assert {kept.accepted_at for kept in await broker.get([job.id for job in jobs])} == {clock.now()}
        assert copies.sent == 0
        assert copies.refused == ["WL005"]
        await broker.close()

    asyncio.run(test())


# --- where it cannot be -------------------------------------------------------------------------------------


_FORBIDDEN = (
    "CREATE OR REPLACE FUNCTION {schema}.enqueue_copied(p_at bigint, p_n bigint, p_first uuid,"
    " p_sizes integer[], p_task text, p_queue text, p_priority smallint, p_due bigint, p_expires_at bigint,"
    " p_max_attempts integer) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$"
)


@pytest.mark.parametrize(
    ("change", "tried"),
    [
        ("DROP FUNCTION {schema}.enqueue_copied", 0),
        ("DROP FUNCTION {schema}.enqueue_number", 0),
        (_FORBIDDEN, 1),
    ],
    ids=["older functions", "none to draw", "forbidden"],
)
def test_where_rows_are_refused_arrays_are_sent(
    namespaces: Namespaces, copies: _Copies, change: str, tried: int
) -> None:
    """By a program that may not renew the functions, or a server that has rules of its own for rows."""

    async def test() -> None:
        place = Place(namespaces.server.dsn)
        broker = await PostgresBroker.open(place, options=Options(namespace="uncopied"))
        schema = quoted("uncopied")
        link = await asyncpg.connect(place.dsn)
        try:
            await link.execute(change.format(schema=schema))
            blocking = await _begun(broker)
            for _ in range(2):  # the second time it is remembered
                await _all_are(blocking, _jobs(), Status.CREATED)
            assert copies.sent == tried
            assert copies.refused == ["42501"] * tried
            await broker.close()
        finally:
            await link.execute(f"DROP SCHEMA {schema} CASCADE")
            await link.close()

    asyncio.run(test())
