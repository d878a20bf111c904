"""Which jobs a producer makes: a seeded mixture of all kinds."""

import os
import random
from collections.abc import Callable
from typing import Any

from windlass import Call, chain, group
from windlass.verify import tasks
from windlass.verify.ground import FRONT, HTTP

Make = Callable[[random.Random], Call[Any]]


def _lane(draw: random.Random, lanes: int) -> str:
    """One tenant has most of the load."""
    return "large" if draw.random() < 0.6 else f"tenant-{draw.randrange(lanes)}"


KEYED: tuple[float, Make] = (
    4,
    lambda draw: tasks.plain.using(key=f"key-{draw.randrange(40)}").call(),
)
KINDS: tuple[tuple[float, Make], ...] = (
    (48, lambda _: tasks.plain.call()),
    (8, lambda draw: tasks.threaded.call(draw.uniform(0, 0.004))),
    (12, lambda draw: tasks.looped.call(draw.uniform(0, 0.01))),
    (7, lambda draw: tasks.laned.using(lane=_lane(draw, tasks.LANES)).call()),
    (2.5, lambda _: tasks.limited.call()),
    (1, lambda _: tasks.rated.call()),
    (1.5, lambda draw: tasks.in_row.using(lane=f"row-{draw.randrange(tasks.ROWS)}").call()),
    KEYED,
    (5, lambda draw: tasks.plain.using(delay=round(draw.uniform(0.1, 8), 3)).call()),
    (4, lambda draw: tasks.flaky.call(draw.randint(1, 2))),
    (1, lambda draw: tasks.apart.call(draw.uniform(0, 0.01))),
    (3, lambda draw: tasks.parent.call(draw.randint(1, 3))),
    (1, lambda draw: tasks.sleepy.call(round(draw.uniform(0.05, 1), 3))),
    (1, lambda draw: tasks.plain.using(priority=draw.choice((-10, 10))).call()),
    (0.15, lambda draw: tasks.long.call(draw.uniform(1, 5))),
    (0.2, lambda _: tasks.broken.call()),
    (0.1, lambda _: tasks.hopeless.call()),
    (0.01, lambda _: tasks.rude.call()),
    (0.01, lambda _: tasks.poison.call()),
)
FOREIGN: tuple[tuple[float, Make], ...] = (
    (2.5, lambda _: tasks.foreign.call(how="plain", number=0)),
    (0.6, lambda draw: tasks.foreign.call(how="flaky", number=draw.randint(1, 2))),
    (0.4, lambda draw: tasks.foreign.call(how="sleepy", number=round(draw.uniform(0.05, 1), 3))),
    (0.1, lambda draw: tasks.foreign.call(how="long", number=round(draw.uniform(1, 5), 3))),
    (0.05, lambda _: tasks.foreign.call(how="hopeless", number=0)),
)
"""For those who speak HTTP, where there are any."""
_ALL = tuple(kind for kind in KINDS if kind is not KEYED or FRONT not in os.environ) + (
    FOREIGN if HTTP in os.environ else ()
)
"""A front door does not say that a key was taken, so nobody could tell such a job from a lost one."""
_WEIGHTS = [weight for weight, _ in _ALL]
_MAKES = [make for _, make in _ALL]


FLOWS = 0.15
"""Of the batches: those that bring a flow."""
WIDEST = 5
_PARTS: tuple[Make, ...] = (
    lambda _: tasks.plain.call(),
    lambda draw: tasks.looped.call(draw.uniform(0, 0.01)),
    lambda draw: tasks.threaded.call(draw.uniform(0, 0.004)),
    lambda draw: tasks.flaky.call(draw.randint(1, 2)),
    lambda draw: tasks.plain.using(delay=round(draw.uniform(0.1, 2), 3)).call(),
)
"""Whatever is done in the end: what waits for a dead letter would wait for ever."""


def flow(draw: random.Random) -> list[Call[Any]]:
    """A chain with a group in it, whose join reads what the group returned; parents first."""
    middle = group(draw.choice(_PARTS)(draw) for _ in range(draw.randint(2, WIDEST)))
    shape = chain(draw.choice(_PARTS)(draw), middle, tasks.join.call(), tasks.join.call())
    return [Call(tasks.app.tasks[job.task], job) for job in shape.jobs()]


def calls(draw: random.Random, count: int) -> list[Call[Any]]:
    """So many calls; now and then the last waits for the first, or a flow comes with them."""
    made = [make(draw) for make in draw.choices(_MAKES, _WEIGHTS, k=count)]
    if count > 1 and draw.random() < 0.25:
        first = made[0].job
        # The parent of a keyed call may be another job's duplicate.
        if first.key is None:
            made[-1] = tasks.plain.using(after=first.id, on_failure="run").call()
    if draw.random() < FLOWS:
        made += flow(draw)
    return made
