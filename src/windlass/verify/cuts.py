"""Power cuts, one after the other: jobs are accepted, the power goes, what was accepted is there.

A mode of its own (`--power-cuts 50`). Each round runs for a short and random time, so that the cut falls
anywhere; the store goes on with what the cut before it has left.
"""

import asyncio
import time
from collections.abc import Sequence

from windlass.errors import InvalidOption
from windlass.verify import disk
from windlass.verify.faults.kind import Kind
from windlass.verify.faults.store import power_cut
from windlass.verify.progress import Progress
from windlass.verify.run import Run
from windlass.verify.scene import Scene
from windlass.verify.stage import Stage
from windlass.verify.wanted import Wanted

ROUND = (1.0, 3.0)
"""Seconds of work between two cuts."""


class CutRun(Run):
    """A run whose only fault is the loss of power."""

    def __init__(self, wanted: Wanted, stage: Stage, scene: Scene, progress: Progress, cuts: int) -> None:
        super().__init__(wanted, stage, scene, progress)
        self._cuts = cuts

    async def hurt(self, kinds: Sequence[Kind]) -> None:  # noqa: ARG002 - it knows one
        """So many cuts, each after some work that was acknowledged."""
        self.phase("faults")
        for _ in range(self._cuts):
            if self.interrupted.is_set():
                return
            before = self.scene.producers.accepted
            until = time.monotonic() + 60
            while self.scene.producers.accepted == before and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            await self.pause(self.scene.draw.uniform(*ROUND))
            with self.trouble("power cut"):
                await power_cut(self.scene)


def check_possible(wanted: Wanted) -> None:
    """Refuse, with the reason, where there can be no power cut."""
    if wanted.own is None:
        raise InvalidOption(
            "--power-cuts needs a store of the run's own: add --own sqlite, redis or postgres"
        )
    if (why := disk.why_not()) is not None:
        raise InvalidOption(f"--power-cuts {why}")
