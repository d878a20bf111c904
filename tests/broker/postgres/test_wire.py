"""One job by hand: it is kept as the driver would have sent it, and what the server says is understood."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.postgres.namespaces import Namespaces, namespaces

from windlass.broker.contract import Options
from windlass.broker.postgres import PostgresBroker, wire
from windlass.broker.postgres.blocking import BlockingProducer
from windlass.broker.postgres.driver import UNAVAILABLE, Refused, code_of
from windlass.broker.postgres.driving import driven
from windlass.conformance.harness import APP, new_id
from windlass.core.alike import Alike
from windlass.core.job import JobView, NewJob, Refusal, Status
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.errors import StoreError

__all__ = ["namespaces"]

_OWN = frozenset({"id", "accepted_at", "due_at", "expires_at"})
"""What two jobs never have in common."""
_KINDS: dict[str, dict[str, Any]] = {
    "bare": {},
    "payload": {"payload": bytes(range(256)) * 8},
    "large": {"payload": b"x" * 1_000_000},
    "texts": {"task": "tâche ∞", "headers": {"a": "ü", "b": ""}, "tags": ("x", "ÿ"), "flow": "f" * 36},
    "numbers": {"priority": -100, "max_attempts": 2**31 - 1, "revision": 2**63 - 1},
    "later": {"delay": 3_600_000_000, "expires": 7_200_000_000},
    "at a time": {"run_at": 4_102_444_800_000_000},
}


async def _opened(namespaces: Namespaces) -> tuple[PostgresBroker, BlockingProducer]:
    broker = await namespaces.open(None, Options())
    await broker.declare([Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app=APP)])
    blocking = broker.blocking
    assert isinstance(blocking, BlockingProducer)
    # The first call opens the connection, the second prepares the statement.
    for _ in range(2):
        await asyncio.to_thread(blocking.enqueue, [[NewJob(id=new_id(), task="t", queue="q")]])
    assert blocking._wire is not None
    return broker, blocking


def _view(view: JobView) -> dict[str, object]:
    return {field: getattr(view, field) for field in view.__struct_fields__ if field not in _OWN}


def test_what_is_sent_by_hand_is_kept_as_what_the_driver_sends(namespaces: Namespaces) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        for name, given in _KINDS.items():
            jobs = [NewJob(**{"id": new_id(), "task": "t", "queue": "q", **given}) for _ in "12"]
            receipts = await asyncio.to_thread(blocking.enqueue, [jobs[:1]])
            assert receipts[0][0].status is Status.CREATED, name
            await broker.enqueue([jobs[1:]])
            by_hand, by_driver = await broker.get([job.id for job in jobs])
            assert _view(by_hand) == _view(by_driver), name
            assert by_hand.payload == jobs[0].payload, name
            again = await asyncio.to_thread(blocking.enqueue, [jobs[:1]])
            assert again[0][0].status is Status.DUPLICATE, name
            group = [NewJob(**{"id": new_id(), "task": "t", "queue": "q", **given}) for _ in "123"]
            receipts = await asyncio.to_thread(blocking.enqueue, [group])
            assert [(receipt.status, receipt.job) for receipt in receipts[0]] == [
                (Status.CREATED, job.id) for job in group
            ], name
            for kept in await broker.get([job.id for job in group]):
                assert _view(kept) == _view(by_driver), name
            again = await asyncio.to_thread(blocking.enqueue, [group])
            assert {receipt.status for receipt in again[0]} == {Status.DUPLICATE}, name
            columns = _columns(NewJob(**{"id": "", "task": "t", "queue": "q", **given}), 3)
            receipts = await asyncio.to_thread(blocking.enqueue, [columns])
            assert [receipt.job for receipt in receipts[0]] == columns.ids, name
            for kept, payload in zip(await broker.get(columns.ids), columns.payloads, strict=True):
                assert _view(kept) == {**_view(by_driver), "payload": payload}, name
            again = await asyncio.to_thread(blocking.enqueue, [columns])
            assert {receipt.status for receipt in again[0]} == {Status.DUPLICATE}, name
        await broker.close()

    asyncio.run(test())


def _columns(pattern: NewJob, count: int) -> Alike:
    """Jobs by columns, whose payloads differ in their length."""

    def make(job: str, payload: bytes) -> NewJob:
        return replace(pattern, id=job, payload=payload)

    payloads = [pattern.payload + b"y" * number for number in range(count)]
    return Alike(pattern, [new_id() for _ in range(count)], payloads, make)


def test_columns_are_sent_as_they_are(namespaces: Namespaces) -> None:
    """No job is made of them, what the caller has to do is done before the answer, and all of them count."""

    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        done: list[str] = []

        def make(job: str, payload: bytes) -> NewJob:
            raise AssertionError((job, payload))

        for count in (2, 1_000):
            pattern = NewJob(id="", task="t", queue="q")
            ids, payloads = [new_id() for _ in range(count)], [b"%04d" % number for number in range(count)]
            jobs = Alike(pattern, ids, payloads, make, lambda: done.append("meanwhile"))
            ((*receipts,),) = await asyncio.to_thread(blocking.enqueue, [jobs])
            assert [(receipt.status, receipt.job) for receipt in receipts] == [
                (Status.CREATED, job) for job in ids
            ]
            assert [kept.payload for kept in await broker.get(ids[-2:])] == payloads[-2:]
        assert done == ["meanwhile"] * 2
        large = _columns(NewJob(id="", task="t", queue="q", payload=b"x" * 5_000_000), 2)
        assert {one.refusal for one in (await asyncio.to_thread(blocking.enqueue, [large]))[0]} == {
            Refusal.GROUP_TOO_LARGE
        }
        await broker.close()

    asyncio.run(test())


def test_what_is_refused_is_said_and_the_wire_goes_on(namespaces: Namespaces) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        used = blocking._wire
        for wrong in ({"priority": 2**15}, {"task": "\ud800"}, {"task": "a\0b"}):
            job = NewJob(**{"id": new_id(), "task": "t", "queue": "q", **wrong})
            with pytest.raises((Refused, OSError, StoreError)):
                await asyncio.to_thread(blocking.enqueue, [[job]])
        unknown = NewJob(id=new_id(), task="t", queue="nowhere")
        assert (await asyncio.to_thread(blocking.enqueue, [[unknown]]))[0][0].status is Status.REFUSED
        good = NewJob(id=new_id(), task="t", queue="q")
        assert (await asyncio.to_thread(blocking.enqueue, [[good]]))[0][0].status is Status.CREATED
        assert blocking._wire is used
        await broker.close()

    asyncio.run(test())


def test_a_statement_that_the_server_forgot_is_prepared_anew(namespaces: Namespaces) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        used, loop = blocking._wire, blocking._loop
        assert used is not None
        assert loop is not None
        for made in used._prepared.values():
            forget = used.connection.execute(f"DEALLOCATE {made.get_name()}")
            await asyncio.to_thread(driven, loop, forget)
        jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(3)]
        for job in jobs:
            await asyncio.to_thread(blocking.enqueue, [[job]])
        assert len(await broker.get([job.id for job in jobs])) == len(jobs)
        assert blocking._wire not in (None, used)
        await broker.close()

    asyncio.run(test())


def test_where_somebody_has_to_be_between_the_driver_sends(
    namespaces: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)

        async def nothing(*_given: object) -> None:
            """As with TLS."""

        monkeypatch.setattr("windlass.broker.postgres.blocking.wire_of", nothing)
        blocking._wire = None
        for many in (1, 3):
            jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(many)]
            receipts = await asyncio.to_thread(blocking.enqueue, [jobs])
            assert [receipt.job for receipt in receipts[0]] == [job.id for job in jobs]
            assert len(await broker.get([job.id for job in jobs])) == many
        assert blocking._wire is None
        await broker.close()

    asyncio.run(test())


def test_a_call_that_is_interrupted_can_be_made_again_on_another_connection(namespaces: Namespaces) -> None:
    async def test() -> None:
        broker, blocking = await _opened(namespaces)
        used = blocking._wire
        assert used is not None

        def interrupt(_patience: int) -> bool:
            raise KeyboardInterrupt

        used._poll = interrupt
        jobs = [NewJob(id=new_id(), task="t", queue="q") for _ in range(2)]

        def call() -> None:
            with pytest.raises(KeyboardInterrupt):
                blocking.enqueue([jobs[:1]])

        await asyncio.to_thread(call)
        assert used.connection.is_closed()
        receipts = [(await asyncio.to_thread(blocking.enqueue, [[job]]))[0][0] for job in jobs * 2]
        # Whether the first call was kept is not known; that it was kept once is.
        assert receipts[0].status in (Status.CREATED, Status.DUPLICATE)
        assert [receipt.status for receipt in receipts[1:]] == [Status.CREATED, *[Status.DUPLICATE] * 2]
        assert blocking._wire not in (None, used)
        await broker.close()

    asyncio.run(test())


# --- what is said, byte by byte -----------------------------------------------------------------------------


def _said(kind: bytes, *fields: bytes) -> bytes:
    body = b"".join(field + b"\0" for field in (*fields, b""))
    return kind + (len(body) + 4).to_bytes(4) + body


_REFUSED = _said(b"E", b"SERROR", b"VERROR", b"CWL004", b"Mknown")
_FATAL = _said(b"E", b"SFATAL", b"VFATAL", b"C57P01", b"Mthe end")
_NOTICE = _said(b"N", b"SNOTICE", b"Mby the way")
_READY = b"Z\0\0\0\5I"


class _Ends:
    """A wire, and the server's end of it."""

    def __init__(self) -> None:
        self.server, self.client = socket.socketpair()
        self.aside: list[bytes] = []
        self.wire = wire.Wire(None, self.client.fileno(), {}, self.aside.append)

    def hears(self, *said: bytes) -> None:
        """Make a call that is answered so, each part when the one before it was read; then no more."""
        parts = iter(said)

        def poll(_patience: int) -> bool:
            part = next(parts, b"")
            if part:
                self.server.send(part)
            else:
                self.server.shutdown(socket.SHUT_WR)
            return True

        self.wire._poll = poll
        self.wire.send(b"call")
        self.wire.hear()


@pytest.fixture
def ends() -> Iterator[_Ends]:
    ends = _Ends()
    yield ends
    ends.server.close()
    ends.client.close()


def test_an_answer_may_come_in_any_parts_and_among_other_news(ends: _Ends) -> None:
    ends.hears(wire._CREATED)
    for place in range(1, len(wire._CREATED)):
        ends.hears(wire._CREATED[:place], wire._CREATED[place:])
    assert ends.aside == []
    ends.hears(_NOTICE + wire._CREATED)
    ends.hears(wire._CREATED[:5] + _NOTICE + wire._CREATED[5:])
    ends.hears(*[bytes([byte]) for byte in _NOTICE + wire._CREATED])
    assert ends.aside == [_NOTICE] * 3


@pytest.mark.parametrize("at", range(1, len(_REFUSED)))
def test_what_is_said_against_it_is_raised_once_the_server_is_ready(ends: _Ends, at: int) -> None:
    with pytest.raises(Refused, match="known") as refused:
        ends.hears(_REFUSED[:at], _REFUSED[at:], _READY)
    assert code_of(refused.value) == "WL004"
    ends.hears(wire._CREATED)


def test_a_server_that_ends_is_unavailable_with_its_last_word_or_without(ends: _Ends) -> None:
    with pytest.raises(UNAVAILABLE, match="the end"):
        ends.hears(_FATAL)


@pytest.mark.parametrize("said", [(), (wire._CREATED[:20],)])
def test_a_connection_that_is_lost_is_an_error_of_the_system(ends: _Ends, said: tuple[bytes, ...]) -> None:
    with pytest.raises(ConnectionError, match="closed"):
        ends.hears(*said)


@pytest.mark.parametrize(
    "said", [wire._CREATED[:-1] + b"T", wire._CREATED + b"2", b"X\0\0\0\4", wire._CREATED * 2]
)
def test_what_was_not_asked_for_is_the_end_of_the_connection(ends: _Ends, said: bytes) -> None:
    with pytest.raises(ConnectionError, match="not asked for"):
        ends.hears(said)


def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(ends: _Ends) -> None:
    ends.wire._poll = lambda _patience: False
    ends.wire.send(b"call")
    with pytest.raises(TimeoutError):
        ends.wire.hear()


def test_a_large_message_is_sent_in_parts(ends: _Ends) -> None:
    ends.client.setblocking(False)
    message = bytes(range(256)) * 8_192
    taken = bytearray()

    def take() -> None:
        while len(taken) < len(message):
            taken.extend(ends.server.recv(65_536))

    taker = threading.Thread(target=take)
    taker.start()
    ends.wire.send(message)
    taker.join()
    assert taken == message


@pytest.mark.parametrize("parts", [1, 3])
def test_a_message_behind_others_that_are_not_read_yet_waits_for_room(ends: _Ends, parts: int) -> None:
    ends.client.setblocking(False)
    before = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            before += ends.client.send(bytes(65_536))
    message = [bytes([part]) * 100_000 for part in range(1, parts + 1)]
    taken = bytearray()

    def take() -> None:
        while len(taken) < before + parts * 100_000:
            taken.extend(ends.server.recv(65_536))

    taker = threading.Timer(0.05, take)
    taker.start()
    ends.wire.send(*message)
    taker.join()
    assert taken[before:] == b"".join(message)
