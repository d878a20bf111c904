"""One run of the simulator: a store, machines, producers, an operator, and what befalls them."""

import asyncio
import io
import random
from pathlib import Path
from typing import cast

import msgspec

from windlass.broker.contract import Broker
from windlass.broker.memory import MemoryBroker
from windlass.client.connection import Connection
from windlass.core.codec import open_result
from windlass.core.job import JobDetail, NewJob
from windlass.core.limits import Rate
from windlass.core.operate import Target
from windlass.core.query import JobQuery
from windlass.core.schedule import Every
from windlass.core.settings import Declaration, Kind, LaneSettings, QueueSettings, Subject
from windlass.core.specification import Specification, Template, encode_specification
from windlass.core.state import UNFINISHED, State
from windlass.core.timetable import NewSchedule
from windlass.core.units import SECOND
from windlass.errors import StoreError, WindlassError
from windlass.verify import history
from windlass.verify.history import Journal
from windlass.verify.simulator.loop import EPOCH, HERE, START, SimLoop, SimPace, SimProcess, StoreClock, begin
from windlass.verify.simulator.machine import Machine
from windlass.verify.simulator.nemesis import Nemesis
from windlass.verify.simulator.plan import FAULTS, LOAD, QUEUES, Operation, Send, Timetable
from windlass.verify.simulator.program import NAME, Act, make_app, payload
from windlass.verify.simulator.recorded import Recorded
from windlass.verify.simulator.seeded import job_id
from windlass.verify.simulator.wire import Network, Wire

TTL = 5.0
BEAT = 1.0
DRAIN = 90.0
"""Seconds after healing in which everything must have ended."""
STOP = 20.0
"""Seconds that workers get to stop."""

LANES = (("fair", "heavy", 4), ("fair", "light", 1), ("even", "a", 1), ("even", "b", 1))
"""Queue, lane, weight."""


class World:
    """Everything of one run."""

    def __init__(self, plan: Timetable, loop: SimLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.chance = random.Random(f"world-{plan.seed}")  # noqa: S311
        self.pace = SimPace(self.chance.random)
        self.app = make_app(
            session_ttl=TTL, beat=BEAT, sweep=plan.sweep, poll_floor=1.0, resend_window=4.0, grace=1.0
        )
        self.app.broker = self._broker_of_a_job
        options = self.app.config.broker_options()
        self.store = MemoryBroker(clock=StoreClock(loop), options=options)
        self.folder = Path("simulated")
        self.files: dict[str, io.BytesIO] = {}
        self.processes: list[SimProcess] = []
        self.ran: dict[str, int] = {}
        self.over = False
        self.harness = self._journal("harness", "harness")
        self.network = Network(loop, self.chance, self.store, self.harness)
        self.machines = [
            Machine(self, f"m{n + 1}", processes=plan.processes, slots=plan.slots, queues=QUEUES)
            for n in range(plan.machines)
        ]
        self.nemesis = Nemesis(self)

    # --- what machines need ---------------------------------------------------------------------------------

    def process(self, name: str, role: history.Role) -> SimProcess:
        """A new process, with a history of its own."""
        process = SimProcess(name)
        process.journal = self._journal(name, role)
        process.ran = self.ran
        self.processes.append(process)
        return process

    def connect(self, process: SimProcess) -> Broker:
        """The store, over the wire, recorded."""
        assert process.journal is not None
        wire = cast("Broker", Wire(self.network, process))
        return cast("Broker", Recorded(wire, process.journal))

    async def _broker_of_a_job(self) -> Broker:
        """The store as the code of a job asks it: over the wire of the process that it runs in."""
        process = HERE.get()
        assert process is not None
        return self.connect(process)

    def draw(self, low: float, high: float) -> float:
        """A number between two."""
        return self.chance.uniform(low, high)

    def new_id(self) -> str:
        """An id for a job."""
        return job_id(self.chance)

    def _journal(self, name: str, role: history.Role) -> Journal:
        file = self.files[name] = io.BytesIO()

        def append(lines: bytes) -> None:
            if not self.over:
                file.write(lines)

        return Journal(append, role=role, name=name, clock=self._micros)

    def _micros(self) -> int:
        return round(self.loop.now * SECOND)

    # --- the run --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From the first call to the last read."""
        self._declare()
        for machine in self.machines:
            machine.start()
        producers = [self._produce(number) for number in range(2)]
        self._operate()
        self.harness.write(history.Phase(name="faults" if self.plan.faults else "load"))
        self.nemesis.begin()
        await asyncio.sleep(max(LOAD, FAULTS) + 1.5)
        self.nemesis.heal()
        self.harness.write(history.Phase(name="healed"))
        await asyncio.wait(producers)
        await self._drained()
        # What is left after so long is for the checker to complain of.
        self.harness.write(history.Phase(name="runaway" if self.network.exhausted else "drained"))
        await self._stop()
        self._read()
        self.over = self.network.over = True

    async def _drained(self) -> None:
        """Wait until nothing is left that time and workers could end."""
        end = self.loop.now + DRAIN
        while self.loop.now < end and not self.network.exhausted:
            await asyncio.sleep(0.5)
            if not any(self._is_open(job) for job in self._jobs()):
                return

    def _is_open(self, job: JobDetail) -> bool:
        if job.state is State.BLOCKED:
            return False
        return job.state in UNFINISHED

    async def _stop(self) -> None:
        waiting = [machine for machine in self.machines if machine.process and not machine.process.dead]
        gone = asyncio.Event()
        left = len(waiting)

        def exited() -> None:
            nonlocal left
            left -= 1
            if not left:
                gone.set()

        for machine in waiting:
            machine.exited = exited
            machine.stop()
        if waiting:
            try:
                async with asyncio.timeout(STOP):
                    await gone.wait()
            except TimeoutError:
                self.harness.write(history.Phase(name="not stopped"))

    # --- declarations ---------------------------------------------------------------------------------------

    def _declare(self) -> None:
        rate = Rate(5, SECOND, 2)
        bodies: dict[str, QueueSettings] = {
            "plain": QueueSettings(),
            "narrow": QueueSettings(concurrency=2, lane_concurrency=1),
            "fair": QueueSettings(concurrency=1),
            "even": QueueSettings(concurrency=1),
            "rated": QueueSettings(rate=rate),
            "brief": QueueSettings(retention=0, result_ttl=0),
        }
        papers = [
            Declaration(subject=Subject(Kind.QUEUE, name), body=body, app=NAME)
            for name, body in bodies.items()
        ]
        papers += [
            Declaration(subject=Subject(Kind.LANE, "fair", lane), body=LaneSettings(weight=weight), app=NAME)
            for lane, weight in (("heavy", 4), ("light", 1))
        ]
        self.network.execute("declare", (papers,), {})
        write = self.harness.write
        write(history.Limits(queue="narrow", concurrency=2, lane_concurrency=1))
        write(history.Limits(queue="fair", concurrency=1))
        write(history.Limits(queue="even", concurrency=1))
        for queue, lane, weight in LANES:
            write(history.Limits(queue=queue, lane=lane, weight=weight))
        write(history.Limits(queue="rated", rate=5.0, burst=2))
        if self.plan.schedule:
            call = Template(task="work", queue="plain", payload=payload(Act()), max_attempts=5)
            rule = Every(2 * SECOND)
            end = EPOCH + round((START + FAULTS) * SECOND)
            spec = Specification(rule=rule, call=call, catch_up="one", end=end)
            first = rule.next_tick(EPOCH + round(self.loop.now * SECOND))
            new = NewSchedule(name="tick", spec=encode_specification(spec), next_at=first, app=NAME)
            self.network.execute("declare_schedule", (new,), {})
            write(history.Rule(schedule="tick", every=2 * SECOND, catch_up="one"))

    # --- producers and operators ----------------------------------------------------------------------------

    def _produce(self, number: int) -> "asyncio.Task[None]":
        process = self.process(f"producer-{number + 1}", "producer")
        wire = cast("Broker", Wire(self.network, process))
        connection = _Connection(self.app.config, self.app._declared, None, broker=wire)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        sends = [send for send in self.plan.sends if send.producer == number]
        return begin(process, lambda: _send_all(self.loop, process, connection, sends))

    def _operate(self) -> None:
        process = self.process("operator", "operator")
        begin(process, lambda: _operate_all(self.loop, self.connect(process), self.plan.operations))

    # --- the end --------------------------------------------------------------------------------------------

    def _jobs(self) -> list[JobDetail]:
        """Every job that the store has; read without a step, which would be one of the run."""
        page = self.network.execute("list", (JobQuery(),), {"limit": 1_000})
        found = self.network.execute("get", ([view.id for view in page.jobs],), {})
        return [job for job in found if job is not None]

    def _read(self) -> None:
        """Write down what everything came to."""
        for schedule in self.network.execute("schedules", (), {}).schedules:
            for fire in schedule.fires:
                self.harness.write(
                    history.Fired(schedule=schedule.name, tick=fire.tick, jobs=tuple(fire.jobs))
                )
        jobs = {job.id: job for job in self._jobs()}
        sent = {job.id for send in self.plan.sends for job in send.jobs}
        for job_id_ in sorted(sent - jobs.keys()):
            found = self.network.execute("get", ([job_id_],), {})[0]
            if found is not None:
                jobs[job_id_] = found
            else:
                self.harness.note(history.Final(job=job_id_, state="absent"))
        for job in sorted(jobs.values(), key=lambda job: job.id):
            self.harness.note(final_of(job))
        alive = tuple(
            view.id for view in self.network.execute("sessions", (), {}) if view.state.value == "alive"
        )
        self.harness.write(history.Finished(jobs=len(jobs), sessions=alive))


class _Connection(Connection):
    """A client's connection that opens nothing: the wire is there."""

    async def broker(self) -> Broker:
        """The wire."""
        assert self._given is not None
        return self._given


async def _send_all(loop: SimLoop, process: SimProcess, connection: Connection, sends: list[Send]) -> None:
    """The calls of a producer, each at its time; those that take long are under way together."""
    calls: list[asyncio.Task[None]] = []
    for send in sends:
        await asyncio.sleep(max(0.0, START + send.at - loop.now))
        calls.append(asyncio.create_task(_send(process, connection, send.jobs)))
    if calls:
        await asyncio.wait(calls)


async def _send(process: SimProcess, connection: Connection, jobs: list[NewJob]) -> None:
    journal = process.journal
    assert journal is not None
    call = journal.call()
    journal.write(history.Enqueue(call=call, jobs=tuple(asked(job) for job in jobs)))
    try:
        receipts = await connection.aenqueue(jobs)
    except StoreError as error:
        journal.write(history.Info(call=call, why=type(error).__name__))
        return
    answers = tuple(history.Receipt(each.job, each.status.value, each.of) for each in receipts)
    journal.write(history.Enqueued(call=call, receipts=answers))


def asked(job: NewJob) -> history.Asked:
    """What a history says of a job that is handed in."""
    return history.Asked(
        job=job.id,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        key=job.key,
        mode=job.mode.value,
        delay=job.delay,
        expires=job.expires,
        max_attempts=job.max_attempts,
        after=tuple(edge.parent for edge in job.after),
    )


async def _operate_all(loop: SimLoop, broker: Broker, operations: list[Operation]) -> None:
    for operation in operations:
        await asyncio.sleep(max(0.0, START + operation.at - loop.now))
        while True:
            try:
                match operation.verb:
                    case "cancel":
                        await broker.cancel([Target(operation.job)])
                    case "replay":
                        await broker.replay([Target(operation.job)])
                    case "pause":
                        await broker.pause(operation.queue)
                    case _:
                        await broker.resume(operation.queue)
            except WindlassError:
                if operation.verb != "resume":
                    break
                await asyncio.sleep(0.5)  # a queue that stayed paused would never drain
            else:
                break


def final_of(job: JobDetail) -> history.Final:
    """What a history says of a job at the end."""
    result = None if job.result is None else msgspec.json.decode(open_result(job.result).r, type=int)
    return history.Final(
        job=job.id,
        state=job.state.value,
        reason=None if job.reason is None else job.reason.value,
        task=job.task,
        queue=job.queue,
        lane=job.lane,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        fence=job.fence,
        crashes=job.crashes,
        replays=job.replays,
        session=job.session,
        parent=job.parent,
        result=result,
        pruned=job.pruned,
        deliveries=tuple(
            history.Delivery(
                fence=each.fence,
                attempt=each.attempt,
                outcome=each.outcome.value,
                settled=each.settled,
                session=each.session,
                cause=None if each.cause is None else each.cause.kind.value,
                ran=each.runtime is not None,
                claimed_at=each.claimed_at,
                ended_at=each.ended_at,
            )
            for each in job.deliveries
        ),
    )
