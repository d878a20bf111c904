"""The program that a worker runs: an application, as far as a worker needs to know it."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from windlass.bridges.declared import Intake, Relay
from windlass.broker.contract import Broker
from windlass.config import Config
from windlass.core.forms import Forms
from windlass.core.job import NewJob
from windlass.core.retry import RetryPolicy
from windlass.core.signature import Signature
from windlass.core.units import JobId, Micros

if TYPE_CHECKING:
    from windlass.values.values import Values

T = TypeVar("T")
RunsIn = Literal["loop", "thread", "process", "inline"]


class TaskRules(Protocol):
    """What a task sets for all its jobs."""

    @property
    def queue(self) -> str: ...
    @property
    def retry(self) -> RetryPolicy: ...
    @property
    def timeout(self) -> Micros | None: ...
    @property
    def hard_timeout(self) -> Micros | None: ...
    @property
    def run(self) -> RunsIn | None: ...
    @property
    def revision(self) -> int: ...
    @property
    def external(self) -> bool: ...


class Registered(Protocol):
    """A task of the program."""

    @property
    def name(self) -> str: ...
    @property
    def signature(self) -> Signature: ...
    @property
    def options(self) -> TaskRules: ...
    @property
    def function(self) -> Callable[..., Any]: ...


class Program(Protocol):
    """An application."""

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def config(self) -> Config: ...
    @property
    def forms(self) -> Forms:
        """Its types that msgspec does not know."""
        ...

    @property
    def tasks(self) -> Mapping[str, Any]:
        """By name. Each is `Registered`, except those that live elsewhere (`options.external`), which have
        no function.
        """
        ...

    @property
    def runnable(self) -> Mapping[str, Registered]:
        """Those that its workers run, by name: not those that live elsewhere."""
        ...

    @property
    def surroundings(self) -> Any:
        """What it has around its tasks (`surroundings.py`)."""
        ...

    def outgoing(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Jobs that a run is about to send, as the hooks of its producers leave them."""
        ...

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it declares, the default one first."""
        ...

    @property
    def weights(self) -> Mapping[str, int]:
        """The same queues, in the same order, with their weights."""
        ...

    @property
    def intakes(self) -> Mapping[str, Intake]:
        """Where its jobs are taken from, by name."""
        ...

    @property
    def relays(self) -> Mapping[str, Relay]:
        """Where the ends of its jobs are told, by name."""
        ...

    @property
    def values(self) -> "Values | None":
        """Where its large payloads and results are kept; None: in the store."""
        ...

    @property
    def new_id(self) -> Callable[[], JobId]: ...

    async def broker(self) -> Broker:
        """A broker for the running loop, for what a job itself asks of the store."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run async code that asks the store, from a job's blocking code."""
        ...

    def signature_of(self, task: str) -> Signature | None:
        """The signature of a task that it has."""
        ...

    async def declare(self, broker: Broker) -> None:
        """Tell a broker of its queues, lanes and schedules."""
        ...


class Application(Program, Protocol):
    """An application with its parts in all its namespaces."""

    @property
    def namespaces(self) -> "Mapping[str, Application]":
        """The application in each of its namespaces, its own first."""
        ...

    def place_of(self, queue: str) -> "Application":
        """The application in the namespace of a queue."""
        ...

    def within(self, namespace: str) -> "Application":
        """The application in one of its namespaces. `InvalidOption`: it has no queue there."""
        ...
