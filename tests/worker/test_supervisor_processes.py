"""The supervisor over real processes: their ends are heard, and they end with it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass
from windlass.broker.sqlite import SqliteBroker
from windlass.config import Config
from windlass.conformance.harness import new_id
from windlass.core.job import NewJob
from windlass.core.lease import Ask
from windlass.core.outcome import CauseKind
from windlass.core.session import SessionState
from windlass.core.settings import Declaration, Kind, QueueSettings, Subject
from windlass.core.state import State
from windlass.core.units import MILLISECOND
from windlass.pace import MachinePace
from windlass.worker import supervisor as supervisor_module
from windlass.worker.children import ProcessSpawner
from windlass.worker.host import Machine
from windlass.worker.messages import Begin, Failed, Ready
from windlass.worker.options import Group
from windlass.worker.plan import Plan
from windlass.worker.pruning import Pruning
from windlass.worker.supervisor import Supervisor
from windlass.worker.table import Table

FAKE = str(Path(__file__).with_name("fake_child.py"))
GROUPS = (Group(slots=1, queues=("q",)),)
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def fake(what: str) -> ProcessSpawner:
    return ProcessSpawner((FAKE, what))


async def soon(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - other processes bring it about
            await asyncio.sleep(0.01)


# --- transport ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watch", ["descriptor", "thread"])
def test_the_end_of_a_process_is_heard_with_its_code(watch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if watch == "thread":
        monkeypatch.delattr(os, "pidfd_open", raising=False)

    async def main() -> None:
        crashed = await fake("segfault").spawn()
        assert await crashed.ended() == -signal.SIGSEGV
        assert await crashed.ended() == -signal.SIGSEGV, "again"
        assert await crashed.receive() is None
        killed = await fake("lives").spawn()
        killed.kill()
        assert await killed.ended() == -signal.SIGKILL
        killed.kill()
        killed.send(Begin(app="a:a", session="s", groups=GROUPS, table="t"))
        for child in (crashed, killed):
            child.close()

    asyncio.run(main())


def test_messages_go_both_ways(tmp_path: Path) -> None:
    async def main() -> None:
        table = Table.create(tmp_path / "table", 1)
        child = await fake("lives").spawn()
        child.send(Begin(app="a:a", session="s", groups=GROUPS, table=str(table.path)))
        assert await child.receive() == Ready()
        child.kill()
        assert await child.receive() is None
        await child.ended()
        child.close()

    asyncio.run(main())


def test_a_child_begins_with_interrupts_blocked_and_with_one_socket() -> None:
    async def main() -> None:
        first = await fake("lives").spawn()
        child = await fake("mask").spawn()
        told = await child.receive()
        assert isinstance(told, Failed)
        masked, *descriptors = told.why.split()
        assert masked == "blocked"
        assert descriptors.count("socket") == 1, told.why
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        for each in (first, child):
            each.kill()
            await each.ended()
            each.close()

    asyncio.run(main())


def test_children_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from windlass.worker.children import ProcessSpawner
from windlass.worker.messages import Begin
from windlass.worker.options import Group
from windlass.worker.table import Table
async def main():
    spawner, kept = ProcessSpawner((sys.argv[1], "lives")), []
    for number in range(3):
        table = Table.create(Path(sys.argv[2]) / str(number), 1)
        child = await spawner.spawn()
        kept.append(child)
        groups = (Group(slots=1, queues=("q",)),)
        child.send(Begin(app="a:a", session=str(number), groups=groups, table=str(table.path)))
        await child.receive()
        print(child.pid, "ready", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script, FAKE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    ready = {supervisor.stdout.readline().split()[0] for _ in range(3)}
    supervisor.kill()
    # The children have the pipe, too: it ends with the last of them.
    rest = supervisor.stdout.read()
    assert {line.split()[0] for line in rest.splitlines() if line.endswith("orphaned")} == ready
    supervisor.communicate()


# --- the supervisor -----------------------------------------------------------------------------------------


class Real:
    """A supervisor over real processes and a real file."""

    def __init__(self, folder: Path, broker: SqliteBroker, what: str, **plan: Any) -> None:
        self.folder = folder
        self.broker: Any = broker
        given: dict[str, Any] = {"processes": 1, "grace": 5.0, **plan}
        pace = MachinePace()
        self.supervisor = Supervisor(
            Plan(app="tasks:app", name="app", groups=GROUPS, **given),
            broker=self.broker,
            spawner=fake(what),
            pace=pace,
            host=Machine(),
            config=Config(beat=100 * MILLISECOND),
            pruning=Pruning(self.broker, Windlass("memory://"), pace),
            place=lambda session: folder / session,
        )

    @property
    def at_work(self) -> list[Any]:
        return [
            supervised
            for supervised in self.supervisor.all_supervised
            if supervised.going and supervised.table.started()
        ]


@asynccontextmanager
async def real(folder: Path, what: str = "lives", **plan: Any) -> AsyncIterator[Real]:
    broker = SqliteBroker(folder / "store.db")
    queue = Declaration(subject=Subject(Kind.QUEUE, "q"), body=QueueSettings(), app="app")
    await broker.declare([queue])
    tables = folder / "tables"
    tables.mkdir(exist_ok=True)
    try:
        yield Real(tables, broker, what, **plan)
    finally:
        await broker.close()


def test_a_killed_child_is_charged_at_once_and_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with real(tmp_path) as world:
            identity = new_id()
            await world.broker.enqueue([[NewJob(id=identity, task="t", queue="q", payload=b"{}")]])
            running = asyncio.create_task(world.supervisor.run())
            await soon(lambda: world.supervisor.all_supervised and world.supervisor.all_supervised[0].opened)
            first = world.supervisor.all_supervised[0]
            ask = Ask(session=first.session, seq=1, queues=("q",), slots=1, limit=1)
            (lease,) = (await world.broker.claim(ask)).leases
            await soon(lambda: world.at_work)
            first.table.clear(0)
            first.table.file(0, lease.job, lease.fence)
            first.table.start(0)
            os.kill(first.pid, signal.SIGKILL)
            await soon(lambda: world.at_work and world.at_work[0] is not first)
            views = {view.id: view for view in await world.broker.sessions()}
            assert views[first.session].cause.kind is CauseKind.CRASH
            assert views[first.session].cause.detail == "signal 9 (SIGKILL)"
            (detail,) = await world.broker.get([identity])
            assert (detail.state, detail.attempt) == (State.READY, 1)
            world.supervisor.stop()
            assert await running == 0
            views = {view.id: view for view in await world.broker.sessions()}
            assert {view.state for view in views.values()} == {SessionState.ENDED}
            assert list(world.folder.iterdir()) == []

    asyncio.run(main())


def test_a_child_that_closes_its_socket_and_lives_is_killed_and_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears no word any more, not even that it is to stop."""
    monkeypatch.setattr(supervisor_module, "SILENCE", 0.2)

    async def main() -> None:
        async with real(tmp_path, "mute") as world:
            running = asyncio.create_task(world.supervisor.run())
            await soon(lambda: world.at_work)
            first = world.at_work[0]
            await soon(lambda: first.died is not None)
            assert first.charged == 1
            await soon(lambda: world.at_work and world.at_work[0] is not first)
            views = {view.id: view for view in await world.broker.sessions()}
            assert views[first.session].cause.kind is CauseKind.CRASH
            assert "closed its socket" in views[first.session].cause.detail
            world.supervisor.stop()
            world.supervisor.stop()
            assert await running == 0

    asyncio.run(main())


def test_a_child_that_cannot_work_ends_the_worker(tmp_path: Path) -> None:
    async def main() -> None:
        async with real(tmp_path, "fails", processes=2) as world:
            async with asyncio.timeout(PATIENCE):
                assert await world.supervisor.run() == 1
            assert list(world.folder.iterdir()) == []

    asyncio.run(main())


def test_a_stopped_child_is_not_beaten_while_it_stands(tmp_path: Path) -> None:
    async def main() -> None:
        async with real(tmp_path, processes=2) as world:
            beat, beaten = world.broker.beat, [set[str]()]

            async def noted(beats: Any) -> Any:
                beaten.append({each.session for each in beats})
                return await beat(beats)

            world.broker.beat = noted
            running = asyncio.create_task(world.supervisor.run())
            await soon(lambda: len(world.at_work) == 2)
            stopped, other = world.at_work
            os.kill(stopped.pid, signal.SIGSTOP)
            await soon(lambda: beaten[-1] == {other.session})
            os.kill(stopped.pid, signal.SIGCONT)
            await soon(lambda: beaten[-1] == {stopped.session, other.session})
            world.supervisor.stop()
            assert await running == 0

    asyncio.run(main())
