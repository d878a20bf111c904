"""Concurrent callers share round trips and nothing else."""

import asyncio
import contextvars
import time
from collections.abc import Sequence

import pytest

from windlass import Windlass
from windlass.client.coalescer import BATCH_JOBS, Coalescer
from windlass.client.resend import Resend
from windlass.core.job import NewJob, Receipt, Status
from windlass.core.state import State
from windlass.errors import EnqueueRefused, StoreError, StoreUnavailable

WINDOW = 10.0


class Wire:
    """Notes what is sent, and answers that all of it was created; `fail` names ids whose call raises."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.fail: set[str] = set()
        self.error: BaseException = StoreError("no")
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(
        self, groups: Sequence[Sequence[NewJob]], resend: Resend | None = None
    ) -> Sequence[Sequence[Receipt]]:
        self.sent.append([job.id for group in groups for job in group])
        self.called.set()
        await self.gate.wait()
        if self.fail & set(self.sent[-1]):
            raise self.error
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
        coalescer = Coalescer(wire.send, WINDOW)
        first = asyncio.ensure_future(coalescer.enqueue([job("first")]))
        await wire.called.wait()
        rest = [asyncio.ensure_future(coalescer.enqueue([job(str(number))])) for number in range(50)]
        await asyncio.sleep(0)
        wire.gate.set()
        receipts = await asyncio.gather(first, *rest)
        assert wire.sent == [["first"], [str(number) for number in range(50)]]
        assert [receipt[0].job for receipt in receipts] == ["first", *(str(number) for number in range(50))]

    asyncio.run(main())


def test_keyed_jobs_travel_apart() -> None:
    async def main() -> None:
        wire = Wire()
        coalescer = Coalescer(wire.send, WINDOW)
        jobs = [job("a"), job("b", key="k"), job("c")]
        await asyncio.gather(*(coalescer.enqueue([one]) for one in jobs))
        assert sorted(wire.sent) == [["a", "c"], ["b"]]

    asyncio.run(main())


def test_a_batch_is_bounded() -> None:
    async def main() -> None:
        wire = Wire()
        coalescer = Coalescer(wire.send, WINDOW)
        groups = [[job(f"{group}/{number}") for number in range(400)] for group in range(5)]
        await asyncio.gather(*(coalescer.enqueue(group) for group in groups))
        assert [len(batch) for batch in wire.sent] == [800, 800, 400]
        assert max(map(len, wire.sent)) <= BATCH_JOBS

    asyncio.run(main())


def test_an_error_reaches_only_its_caller() -> None:
    async def main() -> None:
        wire = Wire()
        wire.fail = {"bad"}
        coalescer = Coalescer(wire.send, WINDOW)
        answers = await asyncio.gather(
            *(coalescer.enqueue([job(name)]) for name in ("a", "bad", "b")), return_exceptions=True
        )
        assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]

    asyncio.run(main())


def test_one_bad_group_of_many_is_found_by_halves() -> None:
    async def main() -> None:
        wire = Wire()
        wire.fail = {"500"}
        coalescer = Coalescer(wire.send, WINDOW)
        calls = [coalescer.enqueue([job(str(number))]) for number in range(1_000)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [place for place, answer in enumerate(answers) if isinstance(answer, StoreError)] == [500]
        assert len(wire.sent) < 25

    asyncio.run(main())


def test_a_store_that_is_away_is_not_asked_by_each_caller_anew() -> None:
    async def main() -> None:
        wire = Wire()
        wire.fail, wire.error = {"a", "b", "c"}, StoreUnavailable("away")
        coalescer = Coalescer(wire.send, WINDOW)
        answers = await asyncio.gather(
            *(coalescer.enqueue([job(name)]) for name in ("a", "b", "c")), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["away"] * 3
        assert len({id(answer) for answer in answers}) == 3
        assert wire.sent == [["a", "b", "c"]]

    asyncio.run(main())


def test_nothing_is_sent_by_halves_beyond_the_resend_window() -> None:
    async def main() -> None:
        wire = Wire()
        wire.fail = {"a"}
        coalescer = Coalescer(wire.send, 0.0)
        answers = await asyncio.gather(
            *(coalescer.enqueue([job(name)]) for name in ("a", "b")), return_exceptions=True
        )
        assert [str(answer) for answer in answers] == ["no", "no"]
        assert wire.sent == [["a", "b"]]

    asyncio.run(main())


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
def test_whatever_ends_the_sending_nobody_waits_for_ever(kind: type[BaseException]) -> None:
    async def main() -> None:
        wire = Wire()
        wire.gate.clear()
        wire.fail, wire.error = {"a"}, kind()
        coalescer = Coalescer(wire.send, WINDOW)
        sent = asyncio.ensure_future(coalescer.enqueue([job("a")]))
        await wire.called.wait()
        waiting = asyncio.ensure_future(coalescer.enqueue([job("b")]))
        await asyncio.sleep(0)
        sender = coalescer._plain._sender
        assert sender is not None
        wire.gate.set()
        for task in (sent, waiting):
            with pytest.raises(StoreUnavailable, match="interrupted before the store had answered"):
                await asyncio.wait_for(task, 10)
        await asyncio.wait([sender])
        assert isinstance(sender.exception() if not sender.cancelled() else kind(), kind)
        assert (await coalescer.enqueue([job("c")]))[0].job == "c"

    asyncio.run(main())


def test_a_wrong_answer_of_a_store_is_an_error_of_its_callers() -> None:
    async def nothing(_groups: object, _resend: object) -> Sequence[Sequence[Receipt]]:
        return []

    async def main() -> None:
        with pytest.raises(ValueError, match="zip"):
            await asyncio.wait_for(Coalescer(nothing, WINDOW).enqueue([job("a")]), 10)

    asyncio.run(main())


def test_callers_that_all_left_cost_no_round_trip() -> None:
    async def main() -> None:
        wire = Wire()
        coalescer = Coalescer(wire.send, WINDOW)
        tasks = [asyncio.ensure_future(coalescer.enqueue([job(name)])) for name in ("a", "b")]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await coalescer.enqueue([job("c")]))[0].job == "c"
        assert wire.sent == [["c"]]

    asyncio.run(main())


def test_the_sender_carries_nobody_s_context() -> None:
    trace = contextvars.ContextVar("trace", default="none")
    seen: list[str] = []

    async def send(groups: Sequence[Sequence[NewJob]], _resend: object) -> Sequence[Sequence[Receipt]]:
        seen.append(trace.get())
        return [[Receipt(Status.CREATED, job.id) for job in group] for group in groups]

    async def main() -> None:
        trace.set("the first caller's")
        await Coalescer(send, WINDOW).enqueue([job("a")])
        assert seen == ["none"]

    asyncio.run(main())


def test_a_hundred_thousand_may_wait() -> None:
    async def main() -> None:
        wire = Wire()
        wire.gate.clear()
        coalescer = Coalescer(wire.send, WINDOW)
        first = asyncio.ensure_future(coalescer.enqueue([job("first")]))
        await wire.called.wait()
        rest = [asyncio.ensure_future(coalescer.enqueue([job(str(number))])) for number in range(100_000)]
        await asyncio.sleep(0)
        started = time.process_time()
        batches = 0
        while coalescer._plain._next_batch():
            batches += 1
        assert (batches, len(coalescer._plain._waiting)) == (100, 0)
        assert time.process_time() - started < 5  # popping from the front of a list takes far longer
        for task in (first, *rest):
            task.cancel()
        await asyncio.gather(first, *rest, return_exceptions=True)

    asyncio.run(main())


def test_a_caller_that_leaves_harms_nobody() -> None:
    async def main() -> None:
        wire = Wire()
        wire.gate.clear()
        coalescer = Coalescer(wire.send, WINDOW)
        sent = asyncio.ensure_future(coalescer.enqueue([job("sent")]))
        await wire.called.wait()
        waiting, staying = (
            asyncio.ensure_future(coalescer.enqueue([job(name)])) for name in ("left", "stays")
        )
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
