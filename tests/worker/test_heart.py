"""One beat for all sessions, in time, never two at once, and whatever the store does."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from tests.worker.simulated import ManualPace, capture

from windlass.broker.memory import MemoryBroker
from windlass.clock import ManualClock
from windlass.config import Config
from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import Beat, Pulse, SessionInfo
from windlass.core.units import SECOND
from windlass.errors import StoreUnavailable
from windlass.worker.heart import Heart


class Member:
    """Somebody with a session, without a process."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.info = SessionInfo(host=session)
        self.opened = False
        self.stopped = False
        self.sent: list[float] = []
        self.cancelled: list[Any] = []
        self.versions: list[int] = []
        self.losses = 0

    def is_stopped(self) -> bool:
        return self.stopped

    def memory(self) -> int:
        return 4_096

    def heartbeat_answered(self, sent: float) -> None:
        self.opened = True
        self.sent.append(sent)

    def cancel(self, leases: Sequence[tuple[str, int]]) -> None:
        self.cancelled.append(leases)

    def settings(self, version: int) -> None:
        self.versions.append(version)

    def lost(self) -> None:
        self.losses += 1


class Wire:
    """The model, with a line to it that can be slow, or cut."""

    def __init__(self, clock: ManualClock) -> None:
        self.model = MemoryBroker(clock=clock)
        self.calls: list[Sequence[Beat]] = []
        self.cut = False
        self.slow: asyncio.Event | None = None
        self.under_way = 0
        self.most_under_way = 0

    async def beat(self, beats: Sequence[Beat]) -> Sequence[Pulse]:
        self.calls.append(beats)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.slow is not None:
                await self.slow.wait()
            if self.cut:
                raise StoreUnavailable("cut")
            return await self.model.beat(beats)
        finally:
            self.under_way -= 1


class Chest:
    """A heart and those it beats for."""

    def __init__(self, *sessions: str) -> None:
        self.pace = ManualPace()
        self.wire = Wire(self.pace.clock)
        self.members = [Member(session) for session in sessions]
        wire: Any = self.wire
        self.heart = Heart(wire, self.pace, Config(), lambda: self.members)

    async def __aenter__(self) -> Self:
        self.running = asyncio.create_task(self.heart.run())
        await self.pace.rest()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


def test_all_are_opened_at_once_and_beaten_together() -> None:
    async def main() -> None:
        async with Chest("a", "b") as chest:
            assert [[(beat.session, beat.open) for beat in call] for call in chest.wire.calls] == [
                [("a", SessionInfo(host="a")), ("b", SessionInfo(host="b"))]
            ]
            await chest.pace.advance(20)
            assert [[beat.open for beat in call] for call in chest.wire.calls[1:]] == [[None, None]] * 4
            assert chest.members[0].sent == [1_000.0, 1_005.0, 1_010.0, 1_015.0, 1_020.0]
            assert chest.wire.calls[1][0].memory == 4_096

    asyncio.run(main())


def test_a_new_session_is_opened_without_waiting() -> None:
    async def main() -> None:
        async with Chest("a") as chest:
            await chest.pace.advance(1)
            chest.members.append(Member("b"))
            chest.heart.wake()
            await chest.pace.rest()
            assert chest.members[1].sent == [1_001.0]

    asyncio.run(main())


def test_a_stopped_member_is_not_beaten() -> None:
    async def main() -> None:
        async with Chest("a", "b") as chest:
            chest.members[0].stopped = True
            await chest.pace.advance(5)
            assert [beat.session for beat in chest.wire.calls[-1]] == ["b"]
            chest.members[1].stopped = True
            calls = len(chest.wire.calls)
            await chest.pace.advance(5)
            assert len(chest.wire.calls) == calls, "nothing to say"
            chest.members[0].stopped = False
            await chest.pace.advance(5)
            assert [beat.session for beat in chest.wire.calls[-1]] == ["a"]

    asyncio.run(main())


def test_the_time_that_counts_is_when_the_beat_was_sent() -> None:
    async def main() -> None:
        async with Chest("a") as chest:
            chest.wire.slow = asyncio.Event()
            await chest.pace.advance(5 + 12)
            assert chest.members[0].sent == [1_000.0]
            chest.wire.slow.set()
            await chest.pace.rest()
            assert chest.members[0].sent[:2] == [1_000.0, 1_005.0]
            assert chest.wire.most_under_way == 1

    asyncio.run(main())


def test_beats_that_fail_are_sent_again_within_a_second() -> None:
    async def main() -> None:
        async with Chest("a") as chest:
            chest.wire.cut = True
            with capture() as lines:
                await chest.pace.advance(5 + 20)
                tries = len(chest.wire.calls)
                chest.wire.cut = False
                await chest.pace.advance(1.1)
            assert tries >= 20
            assert tries < 45
            assert chest.members[0].sent[1] > 1_025
            assert lines == [
                "WARNING the store does not answer the heartbeat: cut; trying until it does",
                "INFO the store answers the heartbeat again",
            ]

    asyncio.run(main())


def test_a_session_that_is_over_is_lost() -> None:
    async def main() -> None:
        async with Chest("a", "b") as chest:
            await chest.wire.model.end_session("a", Cause(CauseKind.LOST))
            await chest.pace.advance(5)
            assert [member.losses for member in chest.members] == [1, 0]
            assert len(chest.members[0].sent) == 1

    asyncio.run(main())


def test_an_opening_that_is_refused_is_lost() -> None:
    async def main() -> None:
        chest = Chest("a")
        await chest.wire.model.beat([Beat(session="a", open=SessionInfo())])
        await chest.wire.model.end_session("a", Cause(CauseKind.STOP))
        async with chest:
            assert (chest.members[0].opened, chest.members[0].losses) == (False, 1)

    asyncio.run(main())


def test_what_is_asked_has_been_answered_when_it_is_settled() -> None:
    async def main() -> None:
        async with Chest("a") as chest:
            await asyncio.wait_for(chest.heart.settled(), 1)
            chest.wire.slow = asyncio.Event()
            chest.heart.wake()
            await chest.pace.rest()
            waiting = asyncio.create_task(chest.heart.settled())
            await chest.pace.rest()
            assert not waiting.done()
            chest.wire.slow.set()
            await waiting
            assert chest.wire.under_way == 0

    asyncio.run(main())


def test_beats_keep_a_session_alive_that_others_sweep() -> None:
    async def main() -> None:
        async with Chest("a", "b") as chest:
            chest.members[1].stopped = True
            for _ in range(40):
                await chest.pace.advance(1)
                await chest.wire.model.sweep(limit=10)
            views = {view.id: view for view in await chest.wire.model.sessions()}
            assert views["a"].cause is None
            assert views["a"].silent_for <= 6 * SECOND
            assert views["b"].cause is not None

    asyncio.run(main())
