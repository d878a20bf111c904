"""Concurrent callers share round trips and nothing else."""

import asyncio
from collections.abc import Sequence

import pytest

from windlass import Windlass
from windlass.client.coalescer import BATCH_JOBS, Coalescer
from windlass.core.job import NewJob, Receipt, Status
from windlass.core.state import State
from windlass.errors import EnqueueRefused, StoreError


class Wire:
    """Notes what is sent, and answers that all of it was created; `fail` names ids whose call raises."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.fail: set[str] = set()
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, groups: Sequence[Sequence[NewJob]]) -> Sequence[Sequence[Receipt]]:
        self.sent.append([job.id for group in groups for job in group])
        self.called.set()
        await self.gate.wait()
        if self.fail & set(self.sent[-1]):
            raise StoreError("no")
        return [[Receipt(Status.CREATED, job.id) for job in group] for group in groups]


def job(name: str, **more: str) -> NewJob:
    return NewJob(id=name, task="t", **more)  # pyright: ignore[reportArgumentType]


def test_one_refused_call_harms_nobody(app: Windlass) -> None:
    @app.task
    def send(number: int) -> None: ...

    async def main() -> None:
        senders = [send.using(queue="nowhere") if number == 77 else send for number in range(256)]
        calls = (sender.aenqueue(number) for number, sender in enumerate(senders))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = [answer for answer in answers if isinstance(answer, BaseException)]
        assert [type(answer) for answer in failed] == [EnqueueRefused]
        assert isinstance(answers[77], EnqueueRefused)
        assert await answers[78].astate() is State.READY  # pyright: ignore[reportAttributeAccessIssue]

    asyncio.run(main())


def test_callers_gather_while_a_call_is_under_way() -> None:
    async def main() -> None:
        wire = Wire()
        wire.gate.clear()
        coalescer = Coalescer(wire.send)
        first = asyncio.create_task(coalescer.enqueue([job("first")]))
        await wire.called.wait()
        rest = [asyncio.create_task(coalescer.enqueue([job(str(number))])) for number in range(50)]
        await asyncio.sleep(0)
        wire.gate.set()
        receipts = await asyncio.gather(first, *rest)
        assert wire.sent == [["first"], [str(number) for number in range(50)]]
        assert [receipt[0].job for receipt in receipts] == ["first", *(str(number) for number in range(50))]

    asyncio.run(main())


def test_keyed_jobs_travel_apart() -> None:
    async def main() -> None:
        wire = Wire()
        coalescer = Coalescer(wire.send)
        jobs = [job("a"), job("b", key="k"), job("c")]
        await asyncio.gather(*(coalescer.enqueue([one]) for one in jobs))
        assert sorted(wire.sent) == [["a", "c"], ["b"]]

    asyncio.run(main())


def test_a_batch_is_bounded() -> None:
    async def main() -> None:
        wire = Wire()
        coalescer = Coalescer(wire.send)
        groups = [[job(f"{group}/{number}") for number in range(400)] for group in range(5)]
        await asyncio.gather(*(coalescer.enqueue(group) for group in groups))
        assert [len(batch) for batch in wire.sent] == [800, 800, 400]
        assert max(map(len, wire.sent)) <= BATCH_JOBS

    asyncio.run(main())


def test_an_error_reaches_only_its_caller() -> None:
    async def main() -> None:
        wire = Wire()
        wire.fail = {"bad"}
        coalescer = Coalescer(wire.send)
        answers = await asyncio.gather(
            *(coalescer.enqueue([job(name)]) for name in ("a", "bad", "b")), return_exceptions=True
        )
        assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]

    asyncio.run(main())


def test_a_caller_that_leaves_harms_nobody() -> None:
    async def main() -> None:
        wire = Wire()
        wire.gate.clear()
        coalescer = Coalescer(wire.send)
        sent = asyncio.create_task(coalescer.enqueue([job("sent")]))
        await wire.called.wait()
        waiting, staying = (asyncio.create_task(coalescer.enqueue([job(name)])) for name in ("left", "stays"))
        await asyncio.sleep(0)
        sent.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        wire.gate.set()
        assert (await staying)[0].job == "stays"
        assert wire.sent == [["sent"], ["stays"]]
        with pytest.raises(asyncio.CancelledError):
            await sent

    asyncio.run(main())
