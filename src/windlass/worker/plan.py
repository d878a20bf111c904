"""What a supervisor is to keep running: the options of a worker, read together with its program."""

import os
from collections.abc import Collection

import msgspec

from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.session import SessionInfo
from windlass.core.units import SECOND, Micros
from windlass.version import __version__
from windlass.worker.host import Host, Machine, process_name
from windlass.worker.options import Group, WorkerOptions, groups_of
from windlass.worker.program import Program


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a supervisor is to keep running."""

    app: str
    """`module:name`, for the children."""
    name: str
    """The name of the app, as operators see it in lists of sessions."""
    version: str = ""
    groups: tuple[Group, ...]
    processes: int
    grace: float
    """Seconds."""
    max_jobs: int | None = None
    max_memory: int | None = None
    """Bytes."""
    supervisor: str = ""
    """The name of its process, see `host.process_name`."""
    measures: bool = False
    """Whether metrics are read."""
    intakes: bool = True
    """Whether it runs the intakes of the app."""

    @property
    def queues(self) -> tuple[str, ...]:
        """Of all groups, each once."""
        return tuple(dict.fromkeys(queue for group in self.groups for queue in group.queues))

    def alone(self) -> tuple[Group, ...]:
        """The groups of a child that runs suspects."""
        return (Group(slots=1, queues=self.queues),)

    def session(self, groups: tuple[Group, ...], host: Host, pid: int, *, ttl: Micros) -> SessionInfo:
        """Who a child of this plan is."""
        return SessionInfo(
            host=host.name,
            boot=host.boot,
            pid_namespace=host.pid_namespace,
            pid=pid,
            process_started=host.process_started(pid) or 0,
            supervisor=self.supervisor,
            app=self.name,
            version=self.version,
            queues=tuple(dict.fromkeys(queue for group in groups for queue in group.queues)),
            slots=sum(group.slots for group in groups),
            ttl=ttl,
        )


def plan_of(app_name: str, program: Program, options: WorkerOptions) -> Plan:
    """What the options amount to; `InvalidOption` names what has no meaning."""
    grace = program.config.grace if options.grace is None else options.grace
    return Plan(
        app=app_name,
        name=program.name,
        version=__version__,
        groups=groups_of(options, program.weights),
        processes=options.processes,
        grace=grace / SECOND,
        max_jobs=options.max_jobs,
        max_memory=None if options.max_memory is None else options.max_memory << 20,
        supervisor=process_name(Machine(), os.getpid()),
        measures=options.metrics is not None,
        intakes=options.intakes,
    )


def described(plan: Plan, broker: Broker, config: Config, intakes: Collection[str] = ()) -> str:
    """What a worker does, for its log."""
    processes = "1 process" if plan.processes == 1 else f"{plan.processes} processes"
    groups = " + ".join(
        f"{group.slots} {'slot' if group.slots == 1 else 'slots'} on queues {', '.join(group.queues)}"
        for group in plan.groups
    )
    ttl = config.session_ttl / SECOND
    reads = f", intakes {', '.join(intakes)}" if intakes else ""
    return f"{processes} x {groups}{reads} ({broker.capabilities.store}, session ttl {ttl:g} s)"
