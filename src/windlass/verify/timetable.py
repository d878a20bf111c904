"""The timetable: which fault when, from a seed. The same seed and kinds give the same table."""

import random
from collections.abc import Sequence

import msgspec

from windlass.verify.faults.kind import Kind

TRACKS = (("workers", "producers"), ("network", "store"))
"""Families that take turns: two faults under way at the same time are of different tracks."""


class Planned(msgspec.Struct, frozen=True):
    """A fault to come: seconds of rest before it, and its kind."""

    rest: float
    kind: str


def timetable(
    kinds: Sequence[Kind], families: Sequence[str], seed: int, *, count: int, rest: tuple[float, float]
) -> list[Planned]:
    """So many faults of some families: each kind once, in an order of the seed's, then by their shares."""
    draw = random.Random(f"{seed} {' '.join(families)}")  # noqa: S311 - to be repeated, not to be secret
    mine = [kind for kind in kinds if kind.family in families]
    if not mine:
        return []
    chosen = draw.sample(mine, len(mine))[:count]
    chosen += draw.choices(mine, [kind.share for kind in mine], k=count - len(chosen))
    return [Planned(round(draw.uniform(*rest), 2), kind.name) for kind in chosen]
