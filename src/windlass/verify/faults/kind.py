"""A kind of fault: its name, what it needs, and what it does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from windlass.verify.scene import Scene

Inject = Callable[[Scene], Awaitable[None]]
WhyNot = Callable[[Scene], str | None]


def always(_scene: Scene) -> str | None:
    """Nothing is missing."""
    return None


@dataclass(frozen=True)
class Kind:
    """A fault that can be injected again and again. `inject` returns when it is healed."""

    name: str
    family: str
    """workers, producers, network or store. Faults of workers and producers fall one at a time, those of
    network and store as well, so that two overlap at the most.
    """
    inject: Inject
    why_not: WhyNot = always
    """Why it cannot be injected here, in a few words; None if it can."""
    share: float = 1.0
    """How often it is chosen, beside the others."""
    usual: bool = True
    """Whether it is part of a run that did not ask for it by name."""
    alone: bool = False
    """Whether no other fault may be under way: the whole machine is touched."""
