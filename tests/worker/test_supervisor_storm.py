"""Whatever happens in whatever order: the supervisor ends up with its children at work and nothing left."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worker.simulated import FakeChild, World, add

from windlass.core.outcome import Cause, CauseKind
from windlass.core.session import SessionState
from windlass.errors import StoreUnavailable
from windlass.worker.messages import Drain, Failed, Lost, Suspects, Tally

EVENTS = (
    "crash",
    "oom",
    "exit",
    "clean",
    "stop",
    "continue",
    "lost",
    "says lost",
    "suspects",
    "tally",
    "overrun",
    "work",
    "disobey",
    "store away",
    "store back",
    "bad deploy",
    "good deploy",
    "restart",
)


class Storm:
    """Does to a supervisor what an event says, to the child that a number chooses."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.away = False
        self.crashed: set[str] = set()
        self._seq: dict[str, int] = {}
        for verb in ("beat", "end_session", "sweep", "settle", "sessions"):
            setattr(world.broker, verb, self._unreliable(getattr(world.broker, verb)))

    def _unreliable(self, verb: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.away:
                raise StoreUnavailable("away")
            return await verb(*args, **kwargs)

        return call

    async def happen(self, event: str, number: int) -> None:
        alive = self.world.spawner.alive
        child = alive[number % len(alive)] if alive else None
        if child is not None:
            await self._happen_to(child, event)
        if event in ("store away", "store back"):
            self.away = event == "store away"
        elif event == "bad deploy":
            self.world.spawner.obedient = False
            self.world.spawner.on_spawn = lambda born: (born.say(Failed("nonsense")), born.die(3))
        elif event == "good deploy":
            self.world.spawner.obedient, self.world.spawner.on_spawn = True, lambda _: None
        elif event == "restart":
            self.world.supervisor.restart()

    async def _happen_to(self, child: FakeChild, event: str) -> None:  # noqa: C901 - a table of events
        match event:
            case "crash" | "oom":
                self.world.host.ooms += event == "oom"
                self.crashed.add(child.session)
                child.die(-signal.SIGKILL)
            case "exit":
                self.crashed.add(child.session)
                child.die(7)
            case "clean":
                child.end_cleanly()
            case "stop":
                self.world.host.stopped.add(child.pid)
            case "continue":
                self.world.host.stopped.clear()
            case "lost" if not self.away:
                await self.world.broker.end_session(child.session, _lost())
            case "says lost":
                child.say(Lost())
            case "suspects":
                child.say(Suspects(1))
            case "tally":
                child.say(Tally(jobs=1_000))
            case "overrun":
                child.table.file(0, "01900000-0000-7000-8000-000000000000", 1)
                child.table.start(0, deadline=self.world.pace.now() + 1)
            case "work" if not self.away:
                await add(self.world)
                seq = self._seq[child.session] = self._seq.get(child.session, 0) + 1
                await self.world.claim(child, 1, seq=seq)
            case "disobey":
                child.obedient = False
            case _:
                pass

    async def heal(self) -> None:
        """Let everything be well again, and time pass."""
        self.away = False
        self.world.host.stopped.clear()
        await self.happen("good deploy", 0)
        for child in self.world.spawner.alive:
            if child.begin.alone:
                child.end_cleanly()
        await self.world.pace.advance(120)


def _lost() -> Any:
    return Cause(CauseKind.LOST, "by the storm")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.sampled_from(EVENTS), st.integers(0, 5), st.sampled_from((0.0, 0.3, 1.0, 6.0, 40.0))),
        max_size=25,
    )
)
def test_after_any_storm_all_is_well(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int, float]]
) -> None:
    asyncio.run(weather(tmp_path_factory.mktemp("storm"), events))


async def weather(folder: Path, events: list[tuple[str, int, float]]) -> None:
    world = World(folder, processes=2, max_jobs=500)
    storm = Storm(world)
    try:
        await world.begin()
        for event, number, pause in events:
            await storm.happen(event, number)
            await world.pace.advance(pause)
            alone = [child for child in world.spawner.alive if child.begin.alone]
            assert len(alone) <= 1
        await storm.heal()
        await check_at_work(world)
        await check_ends(world, storm)
        world.supervisor.stop()
        await world.pace.advance(60)
        assert await world.code() == 0
        assert world.tables == set()
        assert {view.state for view in await world.broker.sessions()} <= {SessionState.ENDED}
    finally:
        await world.end()


async def check_at_work(world: World) -> None:
    """Two children claim, each under a session that is alive; nobody else is left, and no table of theirs."""
    assert not world.ended
    at_work = [child for child in world.spawner.alive if not child.heard_of(Drain)]
    assert len(at_work) == 2
    assert world.spawner.alive == at_work
    assert world.tables == {child.session for child in at_work}
    alive = [view.id for view in await world.broker.sessions() if view.state is SessionState.ALIVE]
    assert sorted(alive) == sorted(child.session for child in at_work)


async def check_ends(world: World, storm: Storm) -> None:
    """A death that somebody saw is a crash or, if the store gave the session up before, lost."""
    causes = {view.id: view.cause for view in await world.broker.sessions()}
    for session in storm.crashed & causes.keys():
        assert causes[session].kind in (CauseKind.CRASH, CauseKind.LOST)
