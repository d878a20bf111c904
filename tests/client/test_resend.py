"""A store that does not answer is asked again, with the same ids, and never beyond the resend window."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from windlass import Task, Windlass
from windlass.broker.contract import Broker
from windlass.broker.registry import open_broker
from windlass.client import connection, resend
from windlass.client.resend import Resend
from windlass.core.job import NewJob, Receipt, Refusal, Status
from windlass.errors import StoreUnavailable

ALWAYS = 1_000_000


class Away:
    """A broker that is away for some calls, after it has done what was asked: the answer is lost."""

    def __init__(self, inside: Broker, times: int, *, blocking: bool) -> None:
        self._inside = inside
        self._left = times
        self.asked: list[list[str]] = []
        self.blocking = inside.blocking if blocking else None
        if self.blocking is not None:
            self.blocking = type("Blocking", (), {"enqueue": self._enqueue_blocking})()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    async def enqueue(self, groups: Sequence[Sequence[NewJob]]) -> Any:
        answer = await self._inside.enqueue(groups)
        self._lose(groups)
        return answer

    def _enqueue_blocking(self, groups: Sequence[Sequence[NewJob]]) -> Any:
        assert self._inside.blocking is not None
        answer = self._inside.blocking.enqueue(groups)
        self._lose(groups)
        return answer

    def _lose(self, groups: Sequence[Sequence[NewJob]]) -> None:
        self.asked.append([job.id for group in groups for job in group])
        self._left -= 1
        if self._left >= 0:
            raise StoreUnavailable("no answer")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Away]]:
    def make(times: int, *, blocking: bool = True) -> list[Away]:
        opened: list[Away] = []

        async def opening(url: str, **more: Any) -> object:
            opened.append(Away(await open_broker(url, **more), times, blocking=blocking))
            return opened[0]

        monkeypatch.setattr(connection, "open_broker", opening)
        return opened

    return make


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "_FIRST_PAUSE", 0.001)


def send_of(app: Windlass) -> Task[[int], None, None]:
    @app.task
    def send(number: int) -> None: ...

    return send


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("blocking", [True, False])
def test_a_lost_answer_makes_no_second_job(
    app: Windlass, away: Callable[..., list[Away]], blocking: bool
) -> None:
    opened = away(3, blocking=blocking)
    job = send_of(app).enqueue(1)
    assert opened[0].asked == [[job.id]] * 4
    assert sum(row.count for row in app.connection.run(opened[0].counts()).rows) == 1


@pytest.mark.usefixtures("quickly")
def test_a_lost_answer_of_many_callers_makes_no_second_job(
    app: Windlass, away: Callable[..., list[Away]]
) -> None:
    opened, send = away(3), send_of(app)

    async def main() -> list[str]:
        return [job.id for job in await asyncio.gather(*(send.aenqueue(number) for number in range(5)))]

    ids = asyncio.run(main())
    assert opened[0].asked == [ids] * 4
    assert sum(row.count for row in app.connection.run(opened[0].counts()).rows) == 5


@pytest.mark.parametrize("way", ["blocking", "portal", "coalesced", "many"])
def test_the_error_is_raised_within_the_resend_window(
    new_app: Callable[..., Windlass], away: Callable[..., list[Away]], way: str
) -> None:
    app = new_app(resend_window="1s")
    opened, send = away(ALWAYS, blocking=way == "blocking"), send_of(app)
    app.connection.run(app.connection.broker())

    async def coalesced() -> None:
        answers = await asyncio.gather(
            *(send.aenqueue(number) for number in range(9)), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 9

    started = time.monotonic()
    if way == "coalesced":
        asyncio.run(coalesced())
    else:
        with pytest.raises(StoreUnavailable, match="no answer"):
            app.enqueue_many([send.call(1), send.call(2)]) if way == "many" else send.enqueue(1)
    # Tries begin in its first half; the other half is for a slow machine.
    assert time.monotonic() - started < 1
    assert len(opened[0].asked) > 1
    assert all(ids == opened[0].asked[0] for ids in opened[0].asked)


def test_tries_are_spread_over_half_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    trying = Resend(10)
    pauses: list[float] = []
    while (pause := trying.pause()) is not None:
        pauses.append(pause)
        now += pause + 0.01
    assert 5 < len(pauses) < 20
    assert now - 100 <= 5 + 0.01
    assert all(later < 2.5 * max(earlier, 0.4) for earlier, later in itertools.pairwise(pauses))
    assert not trying.is_over
    now = 105
    assert trying.is_over
    assert trying.left == 5


def test_a_try_that_hangs_is_not_awaited_beyond_the_window(
    new_app: Callable[..., Windlass], away: Callable[..., list[Away]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(resend_window="400ms")
    opened, send = away(1, blocking=False), send_of(app)
    app.connection.run(app.connection.broker())
    real = opened[0].enqueue
    calls = itertools.count()

    async def hangs(groups: Any) -> Any:
        if next(calls):
            await asyncio.Event().wait()
        return await real(groups)

    monkeypatch.setattr(opened[0], "enqueue", hangs)
    with pytest.raises(StoreUnavailable, match="no answer"):
        asyncio.run(asyncio.wait_for(send.aenqueue(1), 10))


def test_the_window_counts_from_the_first_try_however_long_that_took(
    new_app: Callable[..., Windlass], away: Callable[..., list[Away]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(resend_window="400ms")
    opened, send = away(ALWAYS), send_of(app)
    app.connection.run(app.connection.broker())
    lose = opened[0]._lose

    def late(groups: Any) -> None:
        threading.Event().wait(0.25)  # the store is slow: nothing else happens meanwhile
        lose(groups)

    monkeypatch.setattr(opened[0], "_lose", late)
    with pytest.raises(StoreUnavailable, match="no answer"):
        send.enqueue(1)
    assert len(opened[0].asked) == 1, "half of the window is over: a second try might come too late"


def test_one_forgotten_queue_is_noticed_among_groups_that_were_accepted(app: Windlass) -> None:
    app.queue("mail")
    send = send_of(app)
    kept, lost = send.call(1).job, send.using(queue="mail").call(2).job
    receipts = [
        [Receipt(Status.CREATED, kept.id)],
        [Receipt(Status.REFUSED, lost.id, refusal=Refusal.UNKNOWN_QUEUE)],
    ]
    app.connection._process.shared.told = 5
    assert app.connection._was_forgotten([[kept], [lost]], receipts)
    assert app.connection._process.shared.told == -1
    assert not app.connection._was_forgotten([[kept]], receipts[:1])
