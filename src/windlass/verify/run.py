"""A run, in named phases: warm up, hurt, heal, drain, read everything, check."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import msgspec

from windlass.errors import StoreError, WindlassError
from windlass.verify import history
from windlass.verify.faults.all import possible
from windlass.verify.faults.front import start_again as start_front
from windlass.verify.faults.kind import Kind
from windlass.verify.fleet import STYLES
from windlass.verify.progress import Progress
from windlass.verify.reader import unfinished
from windlass.verify.scene import Scene
from windlass.verify.stage import Stage
from windlass.verify.stores.own import Server
from windlass.verify.tasks import SCHEDULE
from windlass.verify.timetable import TRACKS, Planned, timetable
from windlass.verify.wanted import Wanted

LOOK = 0.5
"""Seconds between two looks at the store."""
WARM_UP = (3.0, 10.0)
RESTS = ((1.0, 5.0), (2.0, 8.0))
"""Seconds between two faults of each track: who comes back after the store was away needs a moment."""
RECOVERY, SOME = 30.0, 100
"""Seconds that a track waits at the most for so many jobs to be done after a fault."""
LONGER = 2.0
"""A run with a number of jobs may take so many times its minutes to produce them."""
STALLED = 60.0
"""Seconds without any change after which draining is given up."""
PRODUCERS_STOP = 80.0
"""Seconds that producers have to end: a call may be under way, and be sent again."""
FAULT_LASTS = 90.0
"""Seconds after which a fault that does not end is given up: the run is then not worth much, and says so."""


class Outline(msgspec.Struct, kw_only=True):
    """What a run can tell of itself; the checker tells the rest."""

    store: str = ""
    durability: str = ""
    seconds: float = 0.0
    injected: dict[str, int] = {}
    missed: dict[str, int] = {}
    skipped: dict[str, str] = {}
    accepted: int = 0
    drained: bool = False
    complete: bool = False
    """Whether every job was read in the end."""
    troubles: list[str] = []
    """What went wrong with the run itself."""


class Run:
    """One run on a stage that is set."""

    def __init__(self, wanted: Wanted, stage: Stage, scene: Scene, progress: Progress) -> None:
        self._wanted = wanted
        self._stage = stage
        self.scene = scene
        self._progress = progress
        self.interrupted = asyncio.Event()
        self._hurried = False
        self._producing = True
        self._changed_at = time.monotonic()
        self._states: dict[str, int] = {}
        self.outline = Outline(skipped={})
        self.sessions: list[str] = []
        self._not_seen: set[str] | None = None
        """Jobs that the front door accepted, and the store was not seen to have."""

    def interrupt(self) -> None:
        """Heal, and report what there is; said again, do not wait for the rest to be done."""
        self._hurried = self.interrupted.is_set()
        self.interrupted.set()

    async def run(self) -> Outline:
        """All phases."""
        outline, scene, begun = self.outline, self.scene, time.monotonic()
        broker = await scene.reader.broker()
        outline.store, outline.durability = broker.capabilities.store, broker.capabilities.durability
        kinds, outline.skipped = possible(scene, self._wanted.faults)
        keeping, looking = asyncio.create_task(self._keep()), asyncio.create_task(self._look())
        try:
            await self._warm_up()
            await self.hurt(kinds)
            await self._heal()
            outline.drained = await self._drain()
        finally:
            self._producing = scene.keeping = False
            for task in (keeping, looking):
                task.cancel()
            await asyncio.gather(keeping, looking, return_exceptions=True)
        idle = await asyncio.to_thread(scene.fleet.stop_all, 20)
        await self._read_everything(idle=idle)
        outline.accepted = scene.producers.accepted
        outline.injected, outline.missed = dict(scene.injected), dict(scene.missed)
        outline.seconds = round(time.monotonic() - begun, 1)
        return outline

    # --- phases ---------------------------------------------------------------------------------------------

    def phase(self, name: str) -> None:
        self.scene.journal.write(history.Phase(name=name))
        self._progress.phase(name)

    async def _warm_up(self) -> None:
        """Healthy, so that what a healthy run is like can be told."""
        self.phase("load")
        shortest, longest = WARM_UP
        until = time.monotonic() + 60
        while not self._states.get("done") and not self.interrupted.is_set():
            if time.monotonic() > until:
                break
            await asyncio.sleep(LOOK / 2)
        if not self._states.get("done"):
            words = [host.last_words() for host in self.scene.fleet.all]
            raise StoreError(f"no job was done within a minute; the workers said: {' / '.join(words)[:800]}")
        await self.pause(min(longest, max(shortest, self._wanted.seconds / 10)))

    async def hurt(self, kinds: Sequence[Kind]) -> None:
        """Both tracks of faults, until time is over and the jobs are produced."""
        self.phase("faults")
        over = asyncio.create_task(self._until_enough())
        tables = [
            timetable(kinds, families, self._wanted.seed, count=2_000, rest=rest)
            for families, rest in zip(TRACKS, RESTS, strict=True)
        ]
        by_name = {kind.name: kind for kind in kinds}
        tracks = [asyncio.create_task(self._track(table, by_name, over)) for table in tables if table]
        await over
        await asyncio.gather(*tracks)

    async def _until_enough(self) -> None:
        begun, wanted = time.monotonic(), self._wanted
        while not self.interrupted.is_set():
            length = time.monotonic() - begun
            accepted = self.scene.producers.accepted
            if length >= wanted.seconds and (wanted.jobs is None or accepted >= wanted.jobs):
                return
            if length >= wanted.seconds * LONGER:
                self.outline.troubles.append(
                    f"only {accepted:,} of {wanted.jobs:,} jobs were produced in time"
                )
                return
            await asyncio.sleep(LOOK)

    async def _track(
        self, table: Sequence[Planned], kinds: dict[str, Kind], over: "asyncio.Task[None]"
    ) -> None:
        done = 0
        for planned in table:
            await asyncio.wait({over}, timeout=planned.rest)
            await self._work_goes_on(done, over)
            if over.done():
                return
            kind = kinds[planned.kind]
            with self.trouble(kind.name):
                async with contextlib.AsyncExitStack() as stack:
                    if kind.alone or kind.family in TRACKS[0]:
                        await stack.enter_async_context(self.scene.others)
                    async with asyncio.timeout(FAULT_LASTS):
                        await kind.inject(self.scene)
            done = self._states.get("done", 0)

    async def _work_goes_on(self, done: int, over: "asyncio.Task[None]") -> None:
        """Wait until jobs were done since the fault before: who is down cannot be hurt."""
        until = time.monotonic() + RECOVERY
        while self._states.get("done", 0) < done + SOME and time.monotonic() < until:
            await asyncio.wait({over}, timeout=LOOK)
            if over.done():
                return

    async def _heal(self) -> None:
        """Nothing is injected from here on; the load ends."""
        scene = self.scene
        if scene.network is not None:
            await asyncio.to_thread(scene.network.clear)
        if scene.http is not None:
            await asyncio.to_thread(scene.http.network.clear)
        if isinstance(scene.own, Server) and (scene.own.process is None or not scene.own.process.is_running):
            with self.trouble("starting the store again"):
                await asyncio.to_thread(scene.own.start)
        if scene.front is not None:
            with self.trouble("starting the front door again"):
                await start_front(scene)
        scene.keeping = True
        self.phase("healed")
        await self.pause(2)  # new work beside the old: throughput is back
        self._producing = False
        await asyncio.to_thread(scene.producers.stop_all, PRODUCERS_STOP)
        with self.trouble("pausing the schedule"):
            await scene.reader.pause(SCHEDULE)

    async def _drain(self) -> bool:
        self._changed_at = time.monotonic()
        while time.monotonic() - self._changed_at < STALLED and not self._hurried:
            if self._states and not unfinished(self._states):
                counts = await self.scene.reader.counts()
                if counts is not None and not unfinished(counts) and await self._all_taken():
                    self.phase("drained")
                    return True
            await asyncio.sleep(LOOK / 2)
        why = "interrupted" if self._hurried else f"nothing changed for {STALLED:g} s"
        self.outline.troubles.append(f"not drained: {why}, {unfinished(self._states)} jobs unfinished")
        return False

    async def _all_taken(self) -> bool:
        """Whether nothing is left at the front door: the store knows every job that was accepted there."""
        if self.scene.front is None:
            return True
        if self._not_seen is None:
            self._not_seen = set(_accepted_ids(self._stage.history))
        before = len(self._not_seen)
        with contextlib.suppress(StoreError):
            async for final in self.scene.reader.finals(sorted(self._not_seen)):
                if final.state != "absent":
                    self._not_seen.discard(final.job)
        if len(self._not_seen) < before:
            self._changed_at = time.monotonic()
        return not self._not_seen

    async def _read_everything(self, *, idle: bool) -> None:
        """Every job that anybody asked for, and every other that the store has."""
        scene = self.scene
        self._progress.phase("reading")
        try:
            self.sessions = await scene.reader.sessions(alive=False)
            asked = set(_asked_ids(self._stage.history))
            ids = sorted(asked | set(await scene.reader.listed()))
            async for final in scene.reader.finals(ids):
                scene.journal.note(final)
            alive = await scene.reader.sessions(alive=True)
        except StoreError as error:
            self.outline.troubles.append(f"the final reads failed: {error}")
            return
        finally:
            scene.journal.flush()
        scene.journal.write(history.Finished(jobs=len(ids), sessions=tuple(alive), idle=idle))
        self.outline.complete = True

    # --- beside them ----------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Start again what has ended, as a service manager does."""
        scene = self.scene
        while True:
            if scene.keeping:
                scene.fleet.keep(scene.fleet.places)
                if self._producing:
                    scene.producers.keep(STYLES)
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        """Write down how many jobs are where, and show it."""
        scene = self.scene
        while True:
            states = await scene.reader.counts()
            if states is not None:
                if states != self._states:
                    self._changed_at = time.monotonic()
                self._states = states
                scene.journal.write(history.Counts(states=states))
            self._progress.look(states, scene.producers.accepted, scene.news)
            scene.news.clear()
            await asyncio.sleep(LOOK)

    async def pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.interrupted.wait(), seconds)

    @contextlib.contextmanager
    def trouble(self, what: str) -> Generator[None]:
        """What goes wrong with a fault is said, and the run goes on."""
        try:
            yield
        except (WindlassError, OSError, TimeoutError) as error:
            self.outline.troubles.append(f"{what}: {type(error).__name__}: {error}")
        finally:
            self.scene.keeping = True


def _asked_ids(folder: Path) -> Iterator[str]:
    """All ids that producers have sent."""
    for event in _of_producers(folder):
        if isinstance(event, history.Enqueue):
            yield from (asked.job for asked in event.jobs)


def _accepted_ids(folder: Path) -> Iterator[str]:
    """All ids that were accepted from producers."""
    for event in _of_producers(folder):
        if isinstance(event, history.Enqueued):
            yield from (receipt.job for receipt in event.receipts)


def _of_producers(folder: Path) -> Iterator[object]:
    """What is in the histories of producers."""
    for path in folder.glob(f"producer-*{history.SUFFIX}"):
        with path.open("rb") as lines:
            for line in history.read_file(lines, path.name):
                yield line.event


async def perform(
    wanted: Wanted,
    stage: Stage,
    progress: Progress,
    make: Callable[[Wanted, Stage, Scene, Progress], Run] = Run,
) -> Outline:
    """Set the stage, run, clear it; the outline. `WindlassError`: it could not run."""
    sessions: list[str] = []
    loop = asyncio.get_running_loop()
    try:
        scene = await stage.set()
        run = make(wanted, stage, scene, progress)
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
                loop.add_signal_handler(number, run.interrupt)
        outline = await run.run()
        sessions = run.sessions
    finally:
        left = await asyncio.shield(stage.clear(sessions=sessions))
    if left is not None:
        outline.troubles.append(f"the scratch namespace could not be removed: {left}")
    return outline
