"""The jobs of the demo: how many of each kind, and what to look for."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from windlass import Call
from windlass.core.state import State
from windlass.demo import tasks
from windlass.demo.look import Look

LARGE, SMALL = "acme", "corner-shop"
"""The two tenants."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one task."""

    name: str
    count: int
    about: str


MAILS = {LARGE: 240, SMALL: 10}
KINDS = (
    Kind(name="instant", count=200, about="done before you can blink"),
    Kind(name="mail", count=sum(MAILS.values()), about="of two tenants, one much larger than the other"),
    Kind(name="slow", count=16, about="a second each"),
    Kind(name="delayed", count=20, about=f"due {tasks.DELAY} s after they were enqueued"),
    Kind(name="flaky", count=30, about="fail at first, and are tried again"),
    Kind(name="broken", count=5, about="fail three times: dead letters, kept for you to look at"),
    Kind(name="hopeless", count=3, about="say that trying again is no use"),
    Kind(name="urgent", count=10, about="enqueued last, with priority"),
    Kind(name="blocking", count=1, about=f"blocks its loop for {tasks.BLOCKED} s, and keeps its job"),
    Kind(name="killer", count=1, about="kills its worker once (SIGKILL), then behaves"),
    Kind(name="poison", count=1, about="kills its worker each time it runs"),
)
JOBS = sum(kind.count for kind in KINDS)
FIRST = sum(kind.count for kind in KINDS if kind.name not in ("delayed", "blocking", "killer", "poison"))
"""Those that wait when the workers start."""


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that are enqueued when the time has come for them."""

    about: str
    calls: Callable[[], Iterator[Call[Any]]]
    is_due: Callable[[Look], bool]
    pause: float = 0.0
    """Seconds between that moment and the act."""


def _many() -> Iterator[Call[Any]]:
    counts = {kind.name: kind.count for kind in KINDS}
    yield from (tasks.instant.call(number) for number in range(counts["instant"]))
    for tenant, count in MAILS.items():
        yield from (tasks.mail.using(lane=tenant).call() for _ in range(count))
    yield from (tasks.slow.call() for _ in range(counts["slow"]))
    for task in (tasks.flaky, tasks.broken, tasks.hopeless):
        yield from (task.call() for _ in range(counts[task.name]))
    yield from (tasks.urgent.using(priority=10).call() for _ in range(counts["urgent"]))


def _delayed() -> Iterator[Call[Any]]:
    count = next(kind.count for kind in KINDS if kind.name == "delayed")
    yield from (tasks.delayed.using(delay=tasks.DELAY, priority=5).call() for _ in range(count))


def _blocking() -> Iterator[Call[Any]]:
    yield tasks.blocking.call()


def _deadly() -> Iterator[Call[Any]]:
    yield tasks.killer.call()
    yield tasks.poison.using(delay=1.5).call()


def _is_under_way(look: Look) -> bool:
    return look.finished > 0


def _is_quiet(look: Look) -> bool:
    """All that is to be seen before is over."""
    return all(look.is_over(name) for name in ("instant", "mail", "slow", "delayed", "flaky", "urgent"))


def _is_blocked(look: Look) -> bool:
    """A worker is in the middle of it."""
    return look.count("blocking", State.RUNNING) > 0 or look.is_over("blocking")


OPENING = Act(about="", calls=_many, is_due=lambda _: True)
LATER = (
    Act(about=f"enqueued: 20 jobs, due in {tasks.DELAY} s", calls=_delayed, is_due=_is_under_way),
    Act(about="enqueued: a job that blocks its worker's loop", calls=_blocking, is_due=_is_quiet),
    # By then the blocked worker has stopped asking for jobs: it is another that is killed.
    Act(about="enqueued: two jobs that kill their worker", calls=_deadly, is_due=_is_blocked, pause=0.8),
)
