"""A reference says nothing of where an object is: one that was forged leads to no object of another job."""

import asyncio

import msgspec
import pytest
from tests.values.seen import is_held, seen, unknown

from windlass import Windlass
from windlass.core.codec import VERSION, Call, encode, is_reference, open_payload, reference_to
from windlass.core.lease import Ask
from windlass.core.outcome import Outcome
from windlass.core.settlement import Settlement
from windlass.errors import UnreadablePayload, ValueMissing

SECRET = encode(Call(VERSION, (), {"text": "the salary list" * 10_000}))


@pytest.fixture
def app(values_url: str) -> Windlass:
    app = Windlass("memory://", values=values_url)

    @app.task
    def read(text: str) -> str:
        return text

    return app


def test_a_forged_payload_reads_no_object_of_another_job(app: Windlass) -> None:
    async def main() -> None:
        theirs = msgspec.structs.replace(app.tasks[_name(app)].call("").job, payload=SECRET)
        await app.connection.send([[theirs]])
        mine = msgspec.structs.replace(app.tasks[_name(app)].call("").job, payload=reference_to(SECRET))
        await app.connection.send([[mine]])
        assert app.values is not None
        with pytest.raises(ValueMissing):
            await app.values.payload(mine.id, mine.payload)
        async with app.worker():
            assert await app.job(theirs.id).aresult(20) == "the salary list" * 10_000
            held = await seen(app, mine.id, is_held)
            assert held.held is not None
            assert "salary" not in held.held.reason
        await app.aclose()

    asyncio.run(main())


def test_a_forged_result_reads_no_object_of_another_job(app: Windlass) -> None:
    async def main() -> None:
        theirs = app.tasks[_name(app)].call("the salary list" * 10_000)
        mine = app.tasks[_name(app)].call("mine")
        async with app.worker():
            first = (await app.asend((theirs,)))[0]
            assert await first.aresult(20)
        broker = await app.broker()
        kept = (await broker.get([first.id]))[0]
        assert kept is not None
        assert kept.result is not None
        await app.asend((mine,))
        (lease,) = (await broker.claim(Ask(queues=("default",), slots=1, limit=1, visibility=10**8))).leases
        await broker.settle(
            [Settlement(job=lease.job, fence=lease.fence, outcome=Outcome.DONE, result=kept.result)]
        )
        with pytest.raises(ValueMissing):
            await app.job(mine.job.id).aresult(20)
        await app.aclose()

    asyncio.run(main())


def test_an_object_that_was_replaced_is_refused(app: Windlass, values_url: str) -> None:
    async def main() -> None:
        job = app.tasks[_name(app)].call("x" * 100_000).job
        assert app.values is not None
        ((sent,),) = await app.values.sent([[job]], unknown)
        await app.values.remove_payload(job.id)
        await app.values.bucket.put(f"p/windlass/{job.id}", SECRET, blocking=False)
        with pytest.raises(UnreadablePayload, match="is not what was put there"):
            await app.values.payload(job.id, sent.payload)
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    "given",
    [
        '{"v":2,"size":5,"sha256":"0"}',
        {"v": 2, "size": 5, "sha256": "0"},
        'x","v":2,"size":5',
    ],
)
def test_what_a_user_gives_never_looks_like_a_reference(app: Windlass, given: object) -> None:
    payload = app.external("elsewhere").call(given).payload
    assert not is_reference(payload)
    assert open_payload(payload)
    result = app.tasks[_name(app)].signature.untyped("result").encode_result(given)
    assert result is not None
    assert not is_reference(result)


@pytest.mark.parametrize(
    "document", [b'{"v":2,"size":', b'{"v":2,"size":"x"}', b'{"v":2,"size":1,"sha256":"","where":"p/a"}']
)
def test_a_reference_that_is_none_is_unreadable(app: Windlass, document: bytes) -> None:
    async def main() -> None:
        assert app.values is not None
        with pytest.raises(UnreadablePayload):
            await app.values.payload(app.new_id(), document)

    asyncio.run(main())


def _name(app: Windlass) -> str:
    return next(iter(app.tasks))
