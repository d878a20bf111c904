"""What a worker is started with."""

import os
from collections.abc import Mapping, Sequence

import msgspec

from windlass.core.names import RESERVED, check_queue
from windlass.core.option import shown, whole
from windlass.core.order import MAX_WEIGHT
from windlass.core.units import Micros
from windlass.errors import InvalidOption
from windlass.observe.listener import TOKEN_VARIABLE, address_of
from windlass.worker.health import health_address

MOST_PROCESSES = 256
MOST_SLOTS = 1_000


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a process, and the queues that they serve."""

    slots: int
    queues: tuple[str, ...]
    weights: tuple[int, ...] = ()
    """One for each queue; empty: the queues are emptied in their order."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes, and what each of them serves."""

    processes: int = 2
    concurrency: int = 16
    """Jobs that one process runs at once."""
    queues: tuple[str, ...] = ()
    """`name` or `name=weight`; empty: all queues that the app declares, by the weights it gives them."""
    groups: tuple[str, ...] = ()
    """`slots:queue,queue`: slots that serve these queues alone, instead of `concurrency` and `queues`."""
    grace: Micros | None = None
    """What running jobs are given to end when the worker stops; None: the app's setting."""
    max_jobs: int | None = None
    """A process is replaced after this many jobs."""
    max_memory: int | None = None
    """A process is replaced when it holds more MiB."""
    intakes: bool = True
    """Whether it runs the intakes of the app, too."""
    reload: bool = False
    metrics: str | None = None
    """`HOST:PORT` at which Prometheus reads metrics; None: none are kept."""
    health: str | None = None
    """`PORT` or `HOST:PORT` at which probes ask; None: nowhere."""
    exit_if_store_is_down: bool = False
    """Do not wait for a store that does not answer at the start."""


def check_options(options: WorkerOptions) -> WorkerOptions:
    """Refuse options that have no meaning."""
    whole(options.processes, name="processes", least=1, most=MOST_PROCESSES)
    whole(options.concurrency, name="concurrency", least=1, most=MOST_SLOTS)
    if options.max_jobs is not None:
        whole(options.max_jobs, name="max_jobs", least=1, most=2**31)
    if options.max_memory is not None:
        whole(options.max_memory, name="max_memory", least=1, most=2**31)
    if options.metrics is not None:
        address_of(options.metrics, token=os.environ.get(TOKEN_VARIABLE))
    if options.health is not None:
        health_address(options.health)
    if options.groups and options.queues:
        raise InvalidOption("give either queues or groups: a group names its own queues")
    return options


def groups_of(options: WorkerOptions, declared: Mapping[str, int]) -> tuple[Group, ...]:
    """The groups of each process. `declared` are the queues of the app with their weights, for those who name
    none.

    Windlass's own queues have a slot more: a message about a backlog does not wait for its end.
    """
    check_options(options)
    if options.groups:
        return tuple(_group(text) for text in options.groups)
    if options.queues:
        queues, weights = _shares(options.queues)
    else:
        queues, weights = tuple(declared), tuple(declared.values())
    if not queues:
        raise InvalidOption("the app declares no queue to work on; name some: queues=...")
    all_queues = Group(slots=options.concurrency, queues=queues, weights=weights)
    own = tuple(queue for queue in queues if queue.startswith(RESERVED))
    return (all_queues, Group(slots=1, queues=own)) if own else (all_queues,)


def _group(text: str) -> Group:
    slots, colon, queues = text.partition(":")
    if not colon or not slots.isascii() or not slots.isdigit():
        raise InvalidOption(f'a group is "slots:queue,queue", such as "7:high,default", not {shown(text)}')
    names, weights = _shares(queues.split(","))
    return Group(
        slots=whole(int(slots), name="slots of a group", least=1, most=MOST_SLOTS),
        queues=names,
        weights=weights,
    )


def _shares(given: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names and weights. If one queue has a weight, all are weighted; a queue without one weighs 1."""
    shares = [text.strip().partition("=") for text in given]
    names = tuple(check_queue(name.strip()) for name, _, _ in shares)
    if len(set(names)) != len(names):
        raise InvalidOption(f"a queue is named twice: {', '.join(names)}")
    if not any(equals for _, equals, _ in shares):
        return names, ()
    return names, tuple(_weight(name, weight) if equals else 1 for name, equals, weight in shares)


def _weight(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise InvalidOption(f'queue "{name}": a weight is a whole number, as in {name}=5, not {shown(text)}')
    return whole(int(text), name=f'the weight of queue "{name}"', least=1, most=MAX_WEIGHT)
